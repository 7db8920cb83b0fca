"""The numerics of RMSNorm and group norm.

Their references agree with cases by hand. They explain right kernels, see and name wrong ones, and
give the same in blocks of rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.plain_reach import can_show
from gonogo.judging import edges, paired
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.kernels import blockwise, kind, registry
from gonogo.numerics import compare
from gonogo.numerics.expectation import Expectation
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict
from right_arithmetics import RIGHT
from right_tests import applies, cases

KINDS = ("rmsnorm_fw", "groupnorm_fw", "rmsnorm_bw")
FIRST = {"rmsnorm_fw": "y", "groupnorm_fw": "y", "rmsnorm_bw": "dx"}
AFFINE = {"gamma": {"regime": "uniform", "low": 0.5, "high": 1.5}}
BOTH = {**AFFINE, "beta": {"regime": "uniform", "low": -1, "high": 1}}


def spec(kernel: str, **changes: Any) -> TestSpec:
    shapes: dict[str, dict[str, Any]] = {
        "rmsnorm_fw": {"shape": [1, 1, 128, 500], "inputs": AFFINE},
        "rmsnorm_bw": {"shape": [1, 1, 128, 500], "inputs": AFFINE},
        "groupnorm_fw": {
            "shape": [4, 64, 10, 10],
            "parameters": {"num_groups": 16},
            "inputs": BOTH,
        },
    }
    return TestSpec.parse({"kernel": kernel, **shapes[kernel], **changes})


class Seed:
    """A seed's arrays, which judge a build's outputs."""

    def __init__(self, test: TestSpec, seed: int = 0) -> None:
        self.test, self.numerics = test, registry.numerics(test)
        self.raw = generate(test, seed)
        self.given = quantise(test, self.raw)

    def run(self, build: str) -> dict[str, NDArray[np.float32]]:
        return self.numerics.run(self.test, self.given, build, position=1)

    def judged(
        self, outputs: Mapping[str, NDArray[Any]], arithmetic: str | None = "tt-train"
    ) -> SeedJudgement:
        return judge(self.test, self.raw, self.given, outputs, arithmetic=arithmetic)


def test_rmsnorm_by_hand() -> None:
    test = TestSpec.parse({"kernel": "rmsnorm_fw", "shape": [1, 4], "epsilon": 3.0})
    outputs = registry.numerics(test).reference(
        test, {"x": np.array([[1.0, -1, 3, 5]]), "gamma": np.array([1.0, 2, 0, -1])}
    )
    root = np.sqrt((1 + 1 + 9 + 25) / 4 + 3)
    assert np.allclose(outputs["y"], np.array([[1, -2, 0, -5]]) / root, rtol=1e-15)
    assert np.allclose(outputs["rstd"], [1 / root], rtol=1e-15)


def test_the_gradients_of_rmsnorm_are_the_slopes_of_its_forward_pass() -> None:
    backward, forward = (
        TestSpec.parse({"kernel": kernel, "shape": [3, 5], "epsilon": 0.25})
        for kernel in ("rmsnorm_bw", "rmsnorm_fw")
    )
    draw = np.random.default_rng(0).standard_normal
    x, dy, gamma = draw((3, 5)), draw((3, 5)), draw(5)
    gradients = registry.numerics(backward).reference(backward, {"x": x, "dy": dy, "gamma": gamma})

    def loss(x: NDArray[Any], gamma: NDArray[Any]) -> float:
        y = registry.numerics(forward).reference(forward, {"x": x, "gamma": gamma})["y"]
        return float((y * dy).sum())

    step = 1e-5
    for place in np.ndindex(3, 5):
        move = np.zeros((3, 5))
        move[place] = step
        slope = (loss(x + move, gamma) - loss(x - move, gamma)) / (2 * step)
        assert np.isclose(gradients["dx"][place], slope, rtol=1e-7, atol=1e-9)
    for column in range(5):
        shift = np.zeros(5)
        shift[column] = step
        slope = (loss(x, gamma + shift) - loss(x, gamma - shift)) / (2 * step)
        assert np.isclose(gradients["dgamma"][column], slope, rtol=1e-7, atol=1e-9)
    rstd = 1 / np.sqrt((x**2).mean(axis=1) + 0.25)
    given = {"x": x, "dy": dy, "gamma": gamma, "rstd": rstd}
    again = registry.numerics(backward).reference(backward, given)
    assert all(np.allclose(again[name], gradients[name], rtol=1e-14) for name in gradients)


def test_group_norm_by_hand() -> None:
    """Two samples have four channels in two groups, with two elements per channel.

    [N, C, L] is [[a a b b c c d d], ...], and the groups are (a b) and (c d).
    """
    test = TestSpec.parse(
        {
            "kernel": "groupnorm_fw",
            "shape": [2, 4, 2],
            "parameters": {"num_groups": 2},
            "epsilon": 1e-12,
        }
    )
    x = np.array(
        [[1.0, 3, 1, 3], [0, 0, 4, 4], [2, 2, 2, 6], [1, -1, 1, -1]]
    )  # the rows are groups
    gamma, beta = np.array([1.0, 2, 3, 4]), np.array([0.0, 0, 10, 20])
    outputs = registry.numerics(test).reference(test, {"x": x, "gamma": gamma, "beta": beta})
    assert np.allclose(outputs["mean"], [2, 2, 3, 0])
    assert np.allclose(outputs["rstd"], [1, 0.5, 1 / np.sqrt(3), 1])
    assert np.allclose(outputs["y"][:2], [[-1, 1, -2, 2], [10 - 3, 10 - 3, 20 + 4, 20 + 4]])
    assert np.allclose(outputs["y"][3], [10 + 3, 10 - 3, 20 + 4, 20 - 4])


def test_group_norm_with_one_group_of_one_sample_row_is_layernorm() -> None:
    group, layer = (
        TestSpec.parse({"kernel": name, "shape": [5, 33]})
        for name in ("groupnorm_fw", "layernorm_fw")
    )
    given = quantise(layer, generate(layer, 0))
    group_reference, layer_reference = (
        registry.numerics(test).reference(test, given) for test in (group, layer)
    )
    assert all(
        np.array_equal(group_reference[name], layer_reference[name]) for name in layer_reference
    )
    group_outputs, layer_outputs = (
        registry.numerics(test).run(test, given, "correct") for test in (group, layer)
    )
    assert all(np.array_equal(group_outputs[name], layer_outputs[name]) for name in layer_outputs)


STRIDE = 293


@pytest.mark.parametrize("kernel", KINDS)
def test_right_kernels_of_many_arithmetics_are_explained(kernel: str) -> None:
    """Run a few of a thousand cases for each right kernel and arithmetic model.

    The benchmark runs all of them.
    """
    seen, every_case = 0, list(cases(1100, kernel))
    for name, (run, arithmetics) in RIGHT.items():
        for arithmetic in arithmetics:
            for seed, test in every_case[hash_of(name, arithmetic) % STRIDE :: STRIDE]:
                if not applies(name, arithmetic, test) or (
                    (kernel == "groupnorm_fw" and test.features > 1000)
                    or (kernel != "groupnorm_fw" and name == "fp32, Welford")
                ):
                    continue
                case = Seed(test, seed)
                judged = case.judged(run(test, case.given), arithmetic)
                assert judged.explanation in (Explanation.explained, Explanation.inconclusive), (
                    name,
                    arithmetic,
                    seed,
                    test.canonical(),
                )
                seen += 1
    assert seen > 25


def hash_of(*words: str) -> int:
    return sum(map(ord, "".join(words)))


INPUTS: Mapping[str, dict[str, Any]] = {
    "plain": {},
    "small": {"x": {"regime": "normal", "mean": 0, "std": 1e-3}},
    "offset": {"x": {"regime": "offset", "offset": 1.0, "std": 1.0}},
}


SMALLER: Mapping[str, dict[str, Any]] = {
    "rmsnorm_fw": {"shape": [32, 200], "inputs": AFFINE},
    "rmsnorm_bw": {"shape": [48, 200], "inputs": AFFINE, "numerics": {"statistics": "own"}},
    "groupnorm_fw": {"shape": [4, 32, 6, 6], "parameters": {"num_groups": 8}, "inputs": BOTH},
}


@pytest.mark.parametrize("kernel", KINDS)
def test_wrong_kernels_that_can_show_are_seen_and_the_others_are_not_blamed(kernel: str) -> None:
    """Where a fault's float64 effect alone is unexplained, its kernel is not explained either."""
    shown: set[str] = set()
    faults = [
        fault
        for fault in registry.numerics(spec(kernel)).faults.values()
        if fault.gauge and not fault.unsure
    ]
    for inputs in INPUTS.values():
        small = SMALLER[kernel]
        case = Seed(spec(kernel, **{**small, "inputs": {**small["inputs"], **inputs}}))
        for fault in faults:
            ideal = case.numerics.ideal(case.test, case.given, fault.name)
            explanation = case.judged(case.run(fault.name)).explanation
            clear = (
                case.judged(
                    {name: round_to(array, "bf16") for name, array in ideal.items()}
                ).explanation
                is Explanation.unexplained
            )
            if clear:
                shown.add(fault.name)
                assert explanation is not Explanation.explained, (fault.name, inputs)
            elif fault.name not in PRECISION and not can_show(
                case.test, case.given, ideal, "tt-train"
            ):
                assert explanation is not Explanation.unexplained, (fault.name, inputs)
    assert shown >= {fault.name for fault in faults} - PRECISION - TOO_SMALL


PRECISION = {"bf16-accumulate"}
"""A loss of precision, which has no float64 effect."""
TOO_SMALL = {"rstd-off-1e-3", "unbiased-variance"}
"""bf16 resolves neither a thousandth of rstd nor 1/(2 * 144) of it."""


def test_a_stale_register_shows_when_something_ran_before() -> None:
    for kernel in KINDS:
        case = Seed(spec(kernel))
        first = case.numerics.run(case.test, case.given, "stale-register", position=0)
        right = case.run("correct")
        name = FIRST[kernel]
        assert np.array_equal(first[name], right[name])
        assert not np.array_equal(case.run("stale-register")[name], right[name])


WORDS = {
    ("rmsnorm_fw", "mean-subtracted"): "the mean is subtracted, which this kernel must not",
    (
        "rmsnorm_fw",
        "padded-count",
    ): "mean square divides by 512, the elements with their padding, instead of 500",
    ("rmsnorm_fw", "last-tile-only"): "mean square sums only the last tile (16th of 16)",
    ("rmsnorm_fw", "tile-missing"): "mean square misses the 9th tile of 16",
    (
        "rmsnorm_fw",
        "mask-missing",
    ): "mean square counts the padding of the last tile (12 columns of the 16th tile)",
    ("rmsnorm_fw", "gamma-shifted-tile"): "gamma is that of the tile before",
    ("rmsnorm_fw", "gamma-neighbour"): "gamma is that of the next column",
    ("rmsnorm_fw", "gamma-missing"): "gamma is missing (1 in its place)",
    ("rmsnorm_fw", "power-of-two-outliers"): "4 isolated values of y are off by a power of two",
    ("rmsnorm_bw", "drop-s2"): "s2 is missing in all 16 tiles",
    ("rmsnorm_bw", "s2-sign"): "s2 has the wrong sign in all 16 tiles",
    ("rmsnorm_bw", "mean-subtracted"): "the mean is subtracted from x, which this kernel must not",
    ("rmsnorm_bw", "last-tile-only"): "s2 sums only the last tile (16th of 16)",
    ("rmsnorm_bw", "tile-missing"): "s2 misses the 9th tile of 16",
    (
        "rmsnorm_bw",
        "mask-missing",
    ): "s2 counts the padding of the last tile (12 columns of the 16th tile)",
    (
        "rmsnorm_bw",
        "stale-partial",
    ): "s2 of the rows 8, 16, 24, ... (every 8th of 128) is that of the row before",
    ("rmsnorm_bw", "rstd-off-1e-3"): "dx is 1.001 times what it should be (rstd or gamma)",
    ("rmsnorm_bw", "gamma-shifted-tile"): "gamma is that of the tile before in all 16 tiles",
    ("rmsnorm_bw", "gamma-missing"): "gamma is missing (1 in its place) in all 16 tiles",
    (
        "rmsnorm_bw",
        "dgamma-last-row-tile-missing",
    ): "dgamma misses the last row tile (4th of 4)",
    ("rmsnorm_bw", "power-of-two-outliers"): "4 isolated values of dx are off by a power of two",
    ("groupnorm_fw", "mean-not-subtracted"): "mean is missing in all 13 tiles",
    (
        "groupnorm_fw",
        "last-tile-only",
    ): "mean sums only the last tile (13th of 13); variance sums only the last tile (13th of 13)",
    ("groupnorm_fw", "last-tile-missing"): "mean misses the last tile (13th of 13)",
    ("groupnorm_fw", "tile-missing"): "mean misses the 7th tile of 13",
    (
        "groupnorm_fw",
        "group-boundaries",
    ): "the statistics of a group are those of channels one further on",
    ("groupnorm_fw", "half-groups"): "there are twice as many groups, of half the channels",
    ("groupnorm_fw", "gamma-neighbour"): "gamma is that of the next channel",
    ("groupnorm_fw", "beta-neighbour"): "beta is that of the next channel",
    ("groupnorm_fw", "beta-missing"): "beta is missing (0 in its place)",
}


def test_the_forensics_name_the_term_and_its_tiles() -> None:
    seeds = {kernel: Seed(spec(kernel)) for kernel in KINDS}
    for (kernel, build), words in WORDS.items():
        case = seeds[kernel]
        assert case.numerics.diagnose(case.test, case.given, case.run(build)).words == words, build
    for kernel, inputs in itertools.product(KINDS, INPUTS):
        case = Seed(spec(kernel, inputs=INPUTS[inputs]))
        assert not any(
            term.wrong
            for term in case.numerics.diagnose(case.test, case.given, case.run("correct")).terms
        ), (kernel, inputs)


def test_the_forensics_name_an_s1_that_rmsnorm_must_not_subtract() -> None:
    case = Seed(spec("rmsnorm_bw"))
    dx = case.numerics.reference(case.test, case.given)["dx"]
    s1 = (case.given["dy"] * case.given["gamma"]).mean(axis=1, keepdims=True)
    wrong = round_to(dx - case.given["rstd"][:, None] * s1, "bf16")
    diagnosis = case.numerics.diagnose(case.test, case.given, {"dx": wrong})
    assert diagnosis.words == "s1 is subtracted, which this kernel must not"


def test_the_forensics_tell_a_wrong_epsilon_where_it_matters() -> None:
    for kernel in ("rmsnorm_fw", "groupnorm_fw"):  # dx doesn't tell it from another factor
        case = Seed(spec(kernel, inputs=INPUTS["small"]))
        diagnosis = case.numerics.diagnose(case.test, case.given, case.run("wrong-epsilon"))
        assert "epsilon is 0.001 instead of 1e-06" in diagnosis.words


def test_the_forensics_answer_whatever_they_are_given() -> None:
    for kernel in KINDS:
        for shape in ([1, 1], [2, 3], [64, 1]):
            case = Seed(
                TestSpec.parse(
                    {
                        "kernel": kernel,
                        "shape": shape,
                        "inputs": {"regime": "constant", "value": 0.5},
                    }
                )
            )
            outputs = case.run("correct")
            for bad_value in (np.nan, np.inf, 0.0, 1e30):
                broken = {name: np.full_like(array, bad_value) for name, array in outputs.items()}
                assert case.numerics.diagnose(case.test, case.given, broken).words
            assert (
                "its shape is"
                in case.numerics.diagnose(
                    case.test, case.given, {FIRST[kernel]: outputs[FIRST[kernel]][:, :0]}
                ).words
            )
    assert case.numerics.diagnose(case.test, {}, {}).words == "cannot tell: there is no x"


def close(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(close(left[name], right[name]) for name in left)
    if isinstance(left, float) and isinstance(right, float | int):
        return bool(np.isclose(left, right, rtol=1e-9, atol=1e-13))
    return bool(left == right)


@pytest.mark.parametrize("kernel", KINDS)
@pytest.mark.parametrize("situation", ["right", "wrong", "broken", "ramp"])
def test_blocks_of_rows_give_the_statistics_of_the_definition(
    kernel: str, situation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"regime": "ramp"} if situation == "ramp" else {}
    case = Seed(spec(kernel, inputs=inputs, tolerance={"rtol": 1e-2, "atol": 1e-2}))
    outputs = case.run("tile-missing" if situation == "wrong" else "correct")
    if situation == "broken":
        outputs[FIRST[kernel]][3, 5], outputs[FIRST[kernel]][40] = np.nan, np.inf
    matrices = {name: array if array.ndim == 2 else array[None] for name, array in outputs.items()}
    monkeypatch.setattr(kind, "ELEMENTS_PER_BLOCK", 1)  # blocks of 32 rows
    monkeypatch.setattr(kind, "ELEMENTS_IN_CACHE", 1)  # blocks of a row
    block_statistics = case.numerics.statistics(
        case.test, case.raw, case.given, matrices, "generic"
    )
    whole = case.numerics.expectations(case.test, case.given, "generic")
    references = case.numerics.reference(case.test, case.raw)
    for name, output in matrices.items():
        plain_statistics = compare.storable(
            case.numerics.compared(
                case.test, case.given, name, output, whole[name], references[name]
            )
        )
        assert block_statistics[name].keys() == plain_statistics.keys()
        assert [
            key
            for key in plain_statistics
            if not close(block_statistics[name][key], plain_statistics[key])
        ] == [], name


@pytest.mark.parametrize("kernel", KINDS)
def test_the_statistics_of_all_outputs_compute_each_block_s_expectations_once(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are most of the work and of the memory; mean and rstd must not ask for y's again."""
    case = Seed(spec(kernel))
    outputs = {
        name: array if array.ndim == 2 else array[None]
        for name, array in case.run("correct").items()
    }
    expecting, blocks = case.numerics.expecting, []

    def counted(
        test: TestSpec, given: kind.Arrays, arithmetic: str | None
    ) -> Callable[[slice], dict[str, Expectation]]:
        expect = expecting(test, given, arithmetic)

        def of_rows(rows: slice) -> dict[str, Expectation]:
            blocks.append((rows.start, rows.stop))
            return expect(rows)

        return of_rows

    monkeypatch.setattr(kind, "ELEMENTS_PER_BLOCK", 1)  # blocks of 32 rows
    monkeypatch.setattr(kind, "ELEMENTS_IN_CACHE", 32 * case.test.features)
    monkeypatch.setattr(case.numerics, "expecting", counted)
    case.numerics.statistics(case.test, case.raw, case.given, outputs, "generic")
    starts = range(0, case.test.rows, 32)
    assert sorted(blocks) == [(start, min(start + 32, case.test.rows)) for start in starts]


def test_blocks_of_columns_join_to_the_whole_dgamma(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Seed(spec("rmsnorm_bw", numerics={"statistics": "own"}))
    whole = case.numerics.expectations(case.test, case.given, "generic")["dgamma"]
    monkeypatch.setattr(kind, "ELEMENTS_IN_CACHE", 1)
    parts = case.numerics.parts(case.test, case.given, "generic")["dgamma"]
    assert len(parts) == 16
    joined = blockwise.joined(parts)
    assert joined.bias is not None
    assert whole.bias is not None
    assert np.array_equal(joined.bias, whole.bias)
    assert np.array_equal(joined.variance, whole.variance)
    for factor, expected in zip(joined.factors, whole.factors, strict=True):
        assert np.array_equal(factor, expected)


def test_equal_rows_that_round_alike_are_explained() -> None:
    """All rows have one x^ and one dy, so that dgamma's terms have one rounding error."""
    inputs = {"regime": "ramp", "low": 1.0, "high": 1.01}
    for shape in ([40, 257], [300, 32]):
        case = Seed(TestSpec.parse({"kernel": "rmsnorm_bw", "shape": shape, "inputs": inputs}))
        judged = case.judged(case.run("correct"))
        assert judged.explanation is Explanation.explained, shape


def test_equal_rows_share_the_rounding_of_the_rstd_that_a_backward_kernel_computes() -> None:
    """One stored rstd for all rows, 2.3 of its standard deviations off: no row averages it out."""
    ramp = {"regime": "ramp", "low": -1.0, "high": 1.0}
    inputs = {"kernel": "rmsnorm_bw", "inputs": ramp, "numerics": {"statistics": "own"}}
    case = Seed(TestSpec.parse({**inputs, "shape": [4, 4096]}), 503)
    assert case.judged(case.run("correct")).explanation is Explanation.explained


def test_what_follows_from_a_kind_s_expectations_covers_a_right_kernel() -> None:
    for kernel in KINDS:
        case = Seed(spec(kernel, tolerance={"rtol": 0, "atol": 1}))
        judged = case.judged(case.run("correct"))
        output_edges = edges.edges(case.test, case.raw, case.given, "tt-train", [0.0, 1e-2])
        bounds = paired.bounds(case.test, case.given, "tt-train")
        for name, output in judged.outputs.items():
            assert output.statistics["needed_atol"]["0"] <= output_edges[name].needed_atol[0.0]
            shape = case.test.flat_shape_of(name)
            assert bounds[name].bound.shape == (shape if len(shape) == 2 else (1, *shape))
        assert output_edges[FIRST[kernel]].alarm == 0.0


def test_a_nan_is_a_fail_and_one_row_is_judged() -> None:
    for kernel in KINDS:
        case = Seed(TestSpec.parse({"kernel": kernel, "shape": [1, 64]}))
        outputs = case.run("correct")
        assert case.judged(outputs).verdict is Verdict.pass_
        outputs[FIRST[kernel]][0, 3] = np.nan
        judged = case.judged(outputs)
        statistics = judged.outputs[FIRST[kernel]].statistics
        assert (judged.verdict, statistics["nonfinite"]) == (Verdict.fail, 1)
