"""The compiled path against the NumPy definition.

Both give the same statistics, over shapes, formats, regimes and defects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gonogo.judging import expected
from gonogo.kernels import registry
from gonogo.numerics import jit
from gonogo.numerics.compiled import loops
from gonogo.numerics.expectation import binade, round_away, truncate
from gonogo.numerics.jit import HAVE_NUMBA
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import explain, within
from numeric_cases import KERNELS, REGIMES, Case, spec
from property_examples import examples
from right_arithmetics import perfect

needs_numba = pytest.mark.skipif(not HAVE_NUMBA, reason="numba: not installed")

EXACT = (
    *(
        "count",
        "digest",
        "nonfinite",
        "nonfinite_kinds",
        "nonfinite_statistics",
        "rows_left_out",
        "outliers",
        "mismatch_fraction",
    ),
    *("ulp_p99", "over_budget_fraction"),
)
"""Counts, and statistics that follow from counts alone."""

RTOL = 1e-9
FLOAT64 = 2.0**-44
"""Room for the rounding of float64.

The two paths sum the references in different orders. So an error e = out - ref differs by the
rounding of its operands.
"""

PREDICTED = 0.05
"""Room for ties.

The last bit of float64 decides ties of predicted roundings and groups of equal references. They
move s, seldom and by little.
"""

TURNS_ON_TIES = {"mean": ("scale",), "rstd": ("scale",), "dgamma": ("scale", "tile")}
FEW_COLUMNS = {"y": ("gamma", "beta")}
"""In rows of few columns, many elements of a column differ only in that last bit."""


def both(
    case: Case, outputs: Mapping[str, NDArray[Any]], arithmetic: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the statistics of the fused path and of the definition."""
    matrices = case.matrices(outputs)
    arguments = case.test, case.raw, case.given, matrices, arithmetic
    return expected.statistics(*arguments), registry.numerics(case.test).definition(*arguments)


def assert_same(
    case: Case,
    fused: Mapping[str, Any],
    definition: Mapping[str, Any],
    *,
    predicted: float = PREDICTED,
) -> None:
    assert list(fused) == list(definition)
    for output, numbers in definition.items():
        fused_numbers = fused[output]
        assert set(fused_numbers) == set(numbers), output
        turning = TURNS_ON_TIES if case.test.features > 8 else TURNS_ON_TIES | FEW_COLUMNS
        loose = {f"{name}{end}" for name in turning.get(output, ()) for end in ("_z", "_z_max")}
        size = magnitude(case, output)
        for name, value in numbers.items():
            fused_value = fused_numbers[name]
            what = f"{output}.{name}: {fused_value} by the fused path, {value} by the definition"
            if name in EXACT or name.endswith("_count") or value is None or fused_value is None:
                assert fused_value == value, what
            elif name == "worst_index":
                continue  # see the test of exact arithmetic: equal ratios may be in several places
            elif name == "needed_atol" or name in ("max_abs", "mean_abs", "rms"):
                assert fused_value == pytest.approx(value, rel=RTOL, abs=FLOAT64 * size), what
            elif name == "pcc_deficit":
                assert fused_value == pytest.approx(value, rel=1e-4, abs=1e-12), what
            elif name in loose:
                assert fused_value == pytest.approx(value, rel=predicted, abs=1e-6), what
            else:
                assert fused_value == pytest.approx(value, rel=1e-7, abs=1e-7), what
        assert explain(fused_numbers) == explain(numbers), output
        assert within(case.test.tolerance_for(output), fused_numbers) == within(
            case.test.tolerance_for(output), numbers
        ), output


def magnitude(case: Case, output: str) -> float:
    """Return the size of the numbers that an output's reference adds and subtracts."""
    x = float(np.abs(case.raw["x"]).max())
    r = float(1 / np.sqrt(case.test.epsilon))
    if output in ("y", "mean", "rstd"):
        return (1 + x) * r
    dy = float(np.abs(case.raw["dy"]).max())
    return (1 + dy) * (1 + x) * r * r * case.test.rows


FORMATS = st.fixed_dictionaries(
    {},
    optional={
        "input": st.sampled_from(["bf16", "fp32", "fp16"]),
        "output": st.sampled_from(["bf16", "fp32", "fp16"]),
        "accumulate": st.sampled_from(["fp32", "bf16"]),
        "fidelity": st.sampled_from(["lofi", "hifi2", "hifi3", "hifi4"]),
        "buffers": st.sampled_from(["bf16", "fp32"]),
        "statistics": st.sampled_from(["given", "own"]),
    },
)
BUILDS = (
    "correct",
    "double-subtract",
    "tile-missing",
    "power-of-two-outliers",
    "rstd-off-1e-3",
    "gamma-shifted-tile",
    "bf16-accumulate",
)


@needs_numba
@settings(max_examples=examples(150))
@given(
    kernel=st.sampled_from(KERNELS),
    shape=st.tuples(st.integers(1, 70), st.integers(3, 130)),
    numerics=FORMATS,
    regime=st.sampled_from(sorted(REGIMES)),
    arithmetic=st.sampled_from([None, "generic", "tt-train", "fp32"]),
    build=st.sampled_from(BUILDS),
    tolerance=st.sampled_from(
        [
            {},
            {"rtol": 1e-3, "atol": 0.5},
            {"rtol": 0, "atol": 0},
            {"dx": {"rtol": 0.01}, "dgamma": {"atol": 0.1}},
        ]
    ),
    seed=st.integers(0, 1000),
)
@example(
    kernel="layernorm_bw",
    shape=(70, 130),
    numerics={},
    regime="uniform",
    arithmetic="tt-train",
    build="correct",
    tolerance={},
    seed=0,
)
@example(
    kernel="layernorm_fw",
    shape=(70, 130),
    numerics={},
    regime="uniform",
    arithmetic="tt-train",
    build="correct",
    tolerance={},
    seed=0,
)
def test_the_fused_path_is_the_definition(
    kernel: str,
    shape: tuple[int, int],
    numerics: dict[str, str],
    regime: str,
    arithmetic: str | None,
    build: str,
    tolerance: dict[str, Any],
    seed: int,
) -> None:
    if "dx" in tolerance and kernel == "layernorm_fw":
        tolerance = {"y": {"rtol": 0.01}}
    case = Case.of(spec(kernel, shape, numerics=numerics, regime=regime, tolerance=tolerance), seed)
    fused, definition = both(case, case.emulated(build), arithmetic)
    assert_same(case, fused, definition)


@needs_numba
@pytest.mark.parametrize("arithmetic", ["generic", "tt-train", "fp32"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_perfectly_rounded_outputs_agree_too(kernel: str, arithmetic: str) -> None:
    for regime in REGIMES:
        case = Case.of(spec(kernel, (33, 70), regime=regime))
        fused, definition = both(case, perfect(case.test, case.given), arithmetic)
        assert_same(case, fused, definition)


@needs_numba
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_fused_correlation_keeps_its_digits(kernel: str) -> None:
    """Outputs right to fp32 have a deficit far below the resolution of 1 - rho in float64."""
    case = Case.of(spec(kernel, (64, 100), numerics={"input": "fp32", "output": "fp32"}))
    fused, definition = both(case, perfect(case.test, case.given), "fp32")
    name = case.test.outputs[0]
    assert 0 < definition[name]["pcc_deficit"] < 1e-14
    assert fused[name]["pcc_deficit"] == pytest.approx(
        definition[name]["pcc_deficit"], rel=1e-6, abs=0
    )


def whole_numbers(rows: int, n: int, seed: int) -> Case:
    """Return a backward case in which float64 rounds nowhere.

    Its values have few bits; n, the means and the rstds are powers of two.
    """
    random = np.random.default_rng(seed)
    test = TestSpec.parse(
        {"kernel": "layernorm_bw", "shape": [rows, n], "tolerance": {"rtol": 0.25, "atol": 0.125}}
    )
    arrays: dict[str, NDArray[Any]] = {
        "x": random.integers(-8, 9, (rows, n)).astype(np.float32),
        "gamma": random.choice([0.5, 1.0, 2.0], n).astype(np.float32),
        "mean": random.choice([-0.25, 0.5, 1.0], rows),
        "rstd": random.choice([0.5, 0.25], rows),
        "dy": random.integers(-4, 5, (rows, n)).astype(np.float32),
    }
    return Case(test, seed, arrays, {name: a.astype(np.float32) for name, a in arrays.items()})


@needs_numba
@pytest.mark.parametrize(("rows", "n"), [(1, 1), (3, 4), (33, 64), (70, 128)])
def test_counts_maxima_and_places_are_bit_for_bit_the_same_where_the_references_are(
    rows: int, n: int
) -> None:
    case = whole_numbers(rows, n, seed=rows)
    for build in ("correct", "double-subtract", "power-of-two-outliers"):
        fused, definition = both(case, case.emulated(build), "tt-train")
        for output, numbers in definition.items():
            for name in (
                *EXACT,
                "max_abs",
                "needed_atol",
                "ulp_max",
                "tolerance_ratio",
                "tolerance_ratio_quantised",
            ):
                assert fused[output][name] == numbers[name], (build, output, name)
        assert_same(case, fused, definition, predicted=1e-9)  # no tie turns on a last bit here
        dx, plain = fused["dx"], definition["dx"]
        assert dx["worst_index"] == plain["worst_index"] or dx["budget_ratio"] == pytest.approx(
            plain["budget_ratio"], rel=1e-14
        )


@needs_numba
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_worst_element_is_the_same(kernel: str) -> None:
    for seed in range(5):
        case = Case.of(spec(kernel, (70, 90)), seed)
        fused, definition = both(case, case.emulated("tile-missing"), "tt-train")
        for output in definition:
            assert fused[output]["worst_index"] == definition[output]["worst_index"], output


@needs_numba
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_with_nan_or_inf_are_left_out_alike(kernel: str, value: float) -> None:
    case = Case.of(spec(kernel, (70, 50), tolerance={"rtol": 1e-3, "atol": 0.5}))
    for name, output in case.emulated().items():
        spoiled = output.copy().reshape(-1)
        spoiled[[3, spoiled.size // 2, spoiled.size - 1]] = value
        outputs = {**case.emulated(), name: spoiled.reshape(output.shape)}
        fused, definition = both(case, outputs, "tt-train")
        assert_same(case, fused, definition)
        assert fused[name]["nonfinite"] == 3
        assert fused[name]["worst_index"] == definition[name]["worst_index"] == [0, 3]


@needs_numba
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("count", [1, 40])
def test_nan_in_an_output_of_one_row_is_found_alike(kernel: str, count: int) -> None:
    case = Case.of(spec(kernel, (1, 40)))
    name = case.test.outputs[0]
    output = case.emulated()[name].copy()
    output[0, :count] = np.nan
    fused, definition = both(case, {**case.emulated(), name: output}, "tt-train")
    assert_same(case, fused, definition)
    assert fused[name]["nonfinite"] == count


@needs_numba
@pytest.mark.parametrize("kernel", KERNELS)
def test_identical_rows_agree(kernel: str) -> None:
    """Equal rows err together down a column, and the fused path must notice them."""
    case = Case.of(spec(kernel, (64, 40)))
    for arrays in (case.raw, case.given):
        for name in ("x", "dy", "mean", "rstd"):
            if name in arrays:
                arrays[name][5::3] = arrays[name][5]
    fused, definition = both(case, case.emulated("rstd-off-1e-3"), "tt-train")
    assert_same(case, fused, definition)
    assert definition[case.test.outputs[0]]["max_abs"] > 0


@needs_numba
@pytest.mark.parametrize(("rows", "build"), [(45, "tile-missing"), (17, "power-of-two-outliers")])
def test_rows_of_equal_references_agree(rows: int, build: str) -> None:
    case = Case.of(
        spec(shape=(rows, 1), regime="normal", numerics={"input": "fp32", "fidelity": "hifi2"}),
        seed=3165,
    )
    fused, definition = both(case, case.emulated(build), None)
    assert fused["dx"]["col_z"] == pytest.approx(definition["dx"]["col_z"], rel=PREDICTED)


@needs_numba
@pytest.mark.parametrize("kernel", KERNELS)
def test_any_subset_of_the_outputs_has_the_same_statistics(kernel: str) -> None:
    case = Case.of(spec(kernel, (40, 50)))
    whole = case.matrices(case.emulated())
    all_statistics = expected.statistics(case.test, case.raw, case.given, whole, None)
    for names in (case.test.outputs[:1], case.test.outputs[1:], case.test.outputs[2:], ()):
        subset_statistics = expected.statistics(
            case.test, case.raw, case.given, {name: whole[name] for name in names}, None
        )
        assert subset_statistics == {name: all_statistics[name] for name in names}


def test_without_numba_the_definition_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.of(spec(shape=(5, 40)))
    matrices = case.matrices(case.emulated())
    monkeypatch.setattr(jit, "HAVE_NUMBA", False)
    answer = expected.statistics(case.test, case.raw, case.given, matrices, "tt-train")
    assert answer == registry.numerics(case.test).definition(
        case.test, case.raw, case.given, matrices, "tt-train"
    )


def test_block_formats_have_the_statistics_of_the_definition() -> None:
    case = Case.of(spec(shape=(40, 50), numerics={"output": "bfp8_b"}))
    compared, definition = both(case, case.emulated(), "tt-train")
    for name, numbers in definition.items():
        assert compared[name].keys() == numbers.keys()
        for key, value in numbers.items():
            room = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
            assert compared[name][key] == room, (name, key)


# The loops themselves.

VALUES = st.floats(-1e30, 1e30, allow_nan=False, allow_subnormal=False).filter(
    lambda v: v == 0 or abs(v) > 1e-30
)


@needs_numba
@given(st.lists(VALUES, min_size=1, max_size=40), st.sampled_from([2.0**-8, 2.0**-11, 2.0**-24]))
def test_the_compiled_roundings_are_those_of_numpy_bit_for_bit(
    values: list[float], unit: float
) -> None:
    array = np.array(values)
    for value, numpy_value in zip(values, binade(array), strict=True):
        assert loops.binade(value) == numpy_value
    for value, numpy_value in zip(values, round_away(array, unit), strict=True):
        assert loops.rounded_away(value, unit) == numpy_value
    for value, numpy_value in zip(values, truncate(array, 2 * unit), strict=True):
        assert loops.truncated(value, 2 * unit) == numpy_value


@needs_numba
@given(st.lists(st.integers(-1000, 1000), max_size=70))
def test_sums_maxima_and_lanes_take_every_element_once(numbers: list[int]) -> None:
    n = len(numbers)
    padded = np.array([*numbers, 10**6], np.float64)  # one beyond n, which must not be touched
    assert loops.total(padded, n) == sum(numbers)
    assert loops.dot(padded, padded, n) == sum(v * v for v in numbers)
    assert loops.dot3(padded, padded, padded, n) == sum(v**3 for v in numbers)
    assert loops.largest(padded, n) == max([0, *numbers])
    lane = np.empty(32)
    loops.lane_sums(padded, n, lane)
    assert lane.tolist() == [sum(numbers[c::32]) for c in range(32)]
