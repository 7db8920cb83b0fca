"""Defects that can show: the judgment finds each of them, and doesn't blame the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.plain_reach import can_show
from gonogo.judging import expected
from gonogo.judging.judging import judge
from gonogo.judging.reach import DIRECTION, shows
from gonogo.kernels.layernorm import emulation, reference
from gonogo.numerics import compare, directions
from gonogo.spec.verdicts import Explanation
from numeric_cases import Case, spec

ARITHMETIC = "tt-train"
SEEDS = 4
Outcomes = list[tuple[bool, Explanation]]


def seed_outcomes(
    kernel: str, build: str, shape: tuple[int, int], arithmetic: str = ARITHMETIC, **fields: Any
) -> Outcomes:
    """Return (can show, explanation) for each of the first seeds."""
    outcomes = []
    for seed in range(SEEDS):
        case = Case.of(spec(kernel, shape, **fields), seed)
        able = can_show(
            case.test, case.given, emulation.ideal(case.test, case.given, build), arithmetic
        )
        judged = judge(case.test, case.raw, case.given, case.emulated(build), arithmetic=arithmetic)
        outcomes.append((able, judged.explanation))
    return outcomes


BACKWARD = (
    "last-two-tiles",
    "double-subtract",
    "last-block-only",
    "tt-train-2025",
    "drop-s1",
    "gamma-shifted-tile",
    "mask-missing",
    "mean-not-subtracted",
    "dgamma-last-row-tile-missing",
    "tile-missing",
    "power-of-two-outliers",
)
FORWARD = (
    "gamma-shifted-tile",
    "mask-missing",
    "mean-not-subtracted",
    "mean-last-tile-missing",
    "tile-missing",
    "power-of-two-outliers",
)
WRONG_TERMS = [
    *(("layernorm_bw", build) for build in BACKWARD),
    *(("layernorm_fw", build) for build in FORWARD),
]


@pytest.mark.parametrize(("kernel", "build"), WRONG_TERMS)
def test_a_wrong_term_that_can_show_is_unexplained_on_every_seed(kernel: str, build: str) -> None:
    shown = 0
    for shape in ((40, 130), (96, 200)):
        for able, explanation in seed_outcomes(kernel, build, shape):
            assert able, shape
            assert explanation is Explanation.unexplained, shape
            shown += 1
    assert shown == 2 * SEEDS


SMALL_WRONGS: list[tuple[str, str, tuple[int, int], dict[str, Any]]] = [
    # These errors are as small as a rounding. A direction shows them where the data leave room, and
    # no element does.
    ("layernorm_bw", "rstd-off-1e-3", (16, 8192), {}),
    ("layernorm_bw", "rstd-off-1e-3", (64, 512), {"numerics": {"output": "fp32"}}),
    (
        "layernorm_bw",
        "wrong-epsilon",
        (32, 64),
        {"regime": "small", "numerics": {"statistics": "own"}},
    ),
    ("layernorm_fw", "wrong-epsilon", (32, 64), {"regime": "small"}),
    ("layernorm_bw", "unbiased-variance", (64, 20), {"numerics": {"statistics": "own"}}),
    ("layernorm_fw", "unbiased-variance", (64, 20), {}),
]


@pytest.mark.parametrize(
    ("kernel", "build", "shape", "fields"), SMALL_WRONGS, ids=lambda value: str(value)
)
def test_a_slightly_wrong_factor_is_unexplained_within_four_seeds(
    kernel: str, build: str, shape: tuple[int, int], fields: dict[str, Any]
) -> None:
    outcomes = seed_outcomes(kernel, build, shape, **fields)
    assert any(able for able, _ in outcomes)
    assert Explanation.unexplained in {explanation for _, explanation in outcomes}
    for seed in range(SEEDS):  # on the same seeds, the right kernel is explained
        case = Case.of(spec(kernel, shape, **fields), seed)
        judged = judge(case.test, case.raw, case.given, case.emulated(), arithmetic=ARITHMETIC)
        assert judged.explanation is Explanation.explained


@pytest.mark.parametrize("arithmetic", ["tt-train", "generic"])
@pytest.mark.parametrize("build", ["last-two-tiles", "last-block-only"])
@pytest.mark.parametrize("features", [20, 33])
def test_in_two_tiles_the_last_two_are_all_of_them(
    features: int, build: str, arithmetic: str
) -> None:
    assert (
        seed_outcomes("layernorm_bw", build, (64, features), arithmetic)
        == [(False, Explanation.explained)] * SEEDS
    )


@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw"])
@pytest.mark.parametrize("build", ["correct", "bf16-accumulate"])
def test_without_a_fault_of_logic_there_is_no_effect(kernel: str, build: str) -> None:
    assert not any(able for able, _ in seed_outcomes(kernel, build, (40, 130)))


def test_a_defect_of_statistics_that_are_given_cannot_show() -> None:
    for build in ("wrong-epsilon", "unbiased-variance"):
        assert (
            seed_outcomes("layernorm_bw", build, (64, 20))
            == [(False, Explanation.explained)] * SEEDS
        )


def ideal_with(case: Case, effect: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    outputs = reference.reference(case.test, case.given)
    return {**outputs, "dx": outputs["dx"] + effect}


@pytest.fixture(scope="module")
def case() -> Case:
    return Case.of(spec(shape=(40, 100)))


def test_an_effect_shows_on_an_element_beyond_its_bound(case: Case) -> None:
    expectation = expected.expectations(case.test, case.given, ARITHMETIC)["dx"]
    effect = np.zeros_like(expectation.reference)
    effect[7, 5] = 1.01 * expectation.bound[7, 5]
    assert can_show(case.test, case.given, ideal_with(case, effect), ARITHMETIC)
    effect[7, 5] = 0.9 * expectation.bound[7, 5]
    assert not can_show(case.test, case.given, ideal_with(case, effect), ARITHMETIC)


def test_an_effect_shows_on_a_direction_beyond_four_deviations(case: Case) -> None:
    expectation = expected.expectations(case.test, case.given, ARITHMETIC)["dx"]
    row = next(direction for direction in expectation.directions if direction.name == "row")
    effect = np.zeros_like(expectation.reference)
    effect[3] = expectation.bound[3]
    effect_z = directions.scores(expectation, row, effect, compare.golden_of(expectation)).largest
    assert effect_z is not None
    for z, able in ((0.9 * DIRECTION, False), (1.1 * DIRECTION, True)):
        scaled = effect * z / effect_z
        assert (np.abs(scaled) < expectation.bound).all()
        assert can_show(case.test, case.given, ideal_with(case, scaled), ARITHMETIC) is able


def test_a_non_finite_effect_shows_and_an_absent_output_does_not_count(case: Case) -> None:
    nan = np.zeros((40, 100))
    nan[0, 0] = np.nan
    assert can_show(case.test, case.given, ideal_with(case, nan), ARITHMETIC)
    assert not can_show(case.test, case.given, {}, ARITHMETIC)


def test_an_effect_on_rows_that_say_nothing_cannot_show() -> None:
    constant = Case.of(spec("layernorm_fw", (8, 128), regime="constant"))
    outputs = reference.reference(constant.test, constant.given)
    assert not can_show(constant.test, constant.given, {"y": outputs["y"] + 5}, ARITHMETIC)
    assert can_show(
        constant.test, constant.given, {"mean": outputs["mean"] + 5}, ARITHMETIC
    )  # the mean of such rows is still known


@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"regime": "constant"}, {"regime": "small"}, {"numerics": {"statistics": "own"}}],
    ids=str,
)
def test_the_fused_answer_is_that_of_the_definition(kernel: str, fields: dict[str, Any]) -> None:
    for seed, shape in enumerate([(16, 64), (40, 130)]):
        case = Case.of(spec(kernel, shape, **fields), seed)
        for build, defect in emulation.DEFECTS.items():
            if defect.logic.fate is None:
                ideal = emulation.ideal(case.test, case.given, build)
                assert shows(case.test, case.given, ideal, ARITHMETIC) is can_show(
                    case.test, case.given, ideal, ARITHMETIC
                ), build


def test_a_right_kernel_s_own_rounding_shows_nothing_and_a_wrong_one_s_output_shows() -> None:
    for kernel in ("layernorm_bw", "layernorm_fw"):
        case = Case.of(spec(kernel, (40, 130)))
        assert not shows(case.test, case.given, case.emulated(), ARITHMETIC)
        assert shows(case.test, case.given, case.emulated("gamma-shifted-tile"), ARITHMETIC)
