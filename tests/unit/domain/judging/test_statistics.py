"""The statistics of an output: each by hand, each comparator at its limit, and the same numbers
from the judge and from a comparison of two arrays."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from gonogo import closeness
from gonogo.arithmetic.formats import FORMATS, round_to, step
from gonogo.closeness import NEEDED_RTOLS, Gate, missed, numbers, roundings
from gonogo.judgment.statistics import Statistics, statistics_of
from gonogo.judgment.tolerance import Tolerance

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("actual", "expected", "gate", "form", "statistics"),
    [
        (
            [1.0, 2.5, -4.0],
            [1.0, 2.0, -4.0],
            Gate(rtol=0.125, atol=0.25),
            "bf16",
            {
                "count": 3,
                "nonfinite": 0,
                "max_abs": 0.5,
                "mean_abs": 0.5 / 3,
                "rms": 0.5 / math.sqrt(3),
                "rel_frobenius": 0.5 / math.sqrt(21),
                "tolerance_ratio": 1.0,
                "outside": 0,
                "worst_index": [1],
                "ulp_max": 32.0,  # a step of bf16 at 2 is 2^-6
                "ulp_p99": 32.0,
                "needed_atol": {
                    "0.0": 0.5,
                    "1e-05": 0.49998,
                    "0.001": 0.498,
                    "0.01": 0.48,
                    "0.016": 0.468,
                    "0.1": 0.3,
                },
            },
        ),
        ([[1.0, 3.0], [NAN, INF]], [[1.5, 2.0], [NAN, INF]],
         Gate(rtol=0.0, atol=0.25, equal_nan=True), "fp64",
         {"nonfinite": 0, "max_abs": 1.0, "tolerance_ratio": 4.0, "outside": 2,
         "worst_index": [0, 1], "ulp_max": 2.0**51}),
        ([NAN, 9.0, -INF, 5.0, INF], [NAN, 9.0, -INF, 4.0, 1.0], Gate(atol=0.5), "fp32",
         {"count": 5, "nonfinite": 2, "nonfinite_kinds": {"nan": 1, "+inf": 1}, "max_abs": 1.0,
         "outside": 3, "worst_index": [0]}),
        ([9.0, 1.0], [9.0, -INF], Gate(), None,
         {"nonfinite": 1, "nonfinite_kinds": {"expected": 1}, "worst_index": [1], "ulp_max": None}),
        ([NAN, -INF], [1.0, 1.0], Gate(), None,
         {"nonfinite_kinds": {"nan": 1, "-inf": 1}, "max_abs": None}),
        ([0.0, 3.0], [0.0, 0.0], Gate(atol=0.0), None,
         {"rel_frobenius": None, "tolerance_ratio": None,
         "nonfinite_statistics": {"rel_frobenius": "inf", "tolerance_ratio": "inf"},
         "needed_atol": dict.fromkeys(map(repr, NEEDED_RTOLS), 3.0)}),
        ([0.0], [0.0], Gate(), None, {"rel_frobenius": 0.0, "max_abs": 0.0}),
        (5.0, 4.0, Gate(atol=0.5), None, {"worst_index": [], "tolerance_ratio": 2.0}),
        ([40.0, 1.5], [41.0, 1.0], Gate(), None, {"worst_index": [0], "tolerance_ratio": None}),
        ([2.0**-130], [0.0], Gate(), "fp32", {"ulp_max": 2.0**-130 / (2.0**-23 * 2.0**-126)}),
    ],
)  # fmt: skip
def test_each_number_is_that_of_its_definition(
    actual: Any, expected: Any, gate: Gate, form: str | None, statistics: dict[str, Any]
) -> None:
    result = numbers(np.array(actual), np.array(expected), gate, form)
    assert {name: result.get(name) for name in statistics} == {
        name: pytest.approx(value) if isinstance(value, float | dict) else value
        for name, value in statistics.items()
    }


FINE: dict[str, Any] = {
    "count": 4,
    "nonfinite": 0,
    "max_abs": 1.0,
    "tolerance_ratio": 1.0,
    "outside": 2,
    "pcc_deficit": 0.25,
    "rel_frobenius": 0.5,
    "ulp_max": 8.0,
}
ALL = Gate(rtol=1.0, atol=1.0, pcc=0.75, frobenius=0.5, ulp=8)


@pytest.mark.parametrize(
    ("gate", "statistics", "words"),
    [
        (ALL, {}, []),
        (ALL, {"tolerance_ratio": 1.5},
         ["2 of 4 values outside rtol 1, atol 1 (tolerance ratio 1.5)"]),
        (ALL, {"tolerance_ratio": None},
         ["2 of 4 values outside rtol 1, atol 1 (tolerance ratio infinite)"]),
        (ALL, {"pcc_deficit": 0.5}, ["PCC 0.5 below 0.75"]),
        (ALL, {"pcc_deficit": None}, ["PCC is undefined: one of the two is constant"]),
        (ALL, {"rel_frobenius": 0.75}, ["relative Frobenius 0.75 above 0.5"]),
        (ALL, {"rel_frobenius": None}, ["relative Frobenius infinite above 0.5"]),
        (ALL, {"ulp_max": 9.0}, ["9 ULP above 8"]),
        (ALL, {"ulp_max": NAN}, ["nan ULP above 8"]),
        (Gate(), {"ulp_max": 9.0, "rel_frobenius": 9.0, "pcc_deficit": 1.0}, []),
        (ALL, {"max_abs": 0, "pcc_deficit": None, "rel_frobenius": None}, []),
        (Gate(), {"nonfinite": 2, "nonfinite_kinds": {"nan": 1, "+inf": 1}},
         ["2 of 4 values are not finite on one side only (1 nan, 1 +inf)"]),
    ],
)  # fmt: skip
def test_a_comparator_is_missed_beyond_its_limit_only(
    gate: Gate, statistics: dict[str, Any], words: list[str]
) -> None:
    assert missed(gate, FINE | statistics) == words


def test_arrays_without_a_finite_value_miss_nothing_more() -> None:
    assert missed(ALL, {"count": 1, "nonfinite": 0}) == []


H = 2.0**-8  # half a step of bf16 at 1
VALUES = [1.0, -1.0, 0.0, 4.0, INF]


@pytest.mark.parametrize(
    ("gate", "form", "by", "least"),
    [
        (Gate(atol=H), "bf16", {"allclose": 1.0}, 0.25),
        (Gate(rtol=2 * H), "bf16", {"allclose": 2.0}, 2.0),
        (Gate(ulp=3), "bf16", {"ulp": 6.0}, None),
        (
            Gate(frobenius=0.5),
            "bf16",
            # zeros round, too: by half the smallest step
            {"frobenius": 0.5 / math.sqrt((18 * H**2 / 4 / 3) / (18 / 4))},
            None,
        ),
        (Gate(pcc=0.5), "bf16", {"pcc": math.sqrt(0.5 / ((18 * H**2 / 4 / 3) / (2 * 3.5)))}, None),
        (Gate(pcc=1.0), "bf16", {"pcc": 0.0}, None),
        (Gate(atol=2.0**-53), "fp64", {"allclose": 1.0}, 0.25),
    ],
)
def test_a_tolerance_is_told_in_half_steps_of_the_format(
    gate: Gate, form: str, by: dict[str, float], least: float | None
) -> None:
    result = roundings(np.array(VALUES), gate, form)
    assert result == {
        "format": form,
        "times": pytest.approx(min(by.values()), abs=1e-9),
        "least": least,
        "by": pytest.approx(by, rel=1e-6, abs=1e-9),
    }


@pytest.mark.parametrize(
    ("values", "gate", "form"),
    [
        (VALUES, Gate(ulp=1), None),
        (VALUES, Gate(), "bf16"),
        ([0.0, NAN], Gate(ulp=1), "bf16"),
        ([1.0, 1.0], Gate(pcc=0.9), "bf16"),  # a constant has no correlation
    ],
)
def test_some_tolerances_are_no_multiple_of_a_rounding(
    values: list[float], gate: Gate, form: str | None
) -> None:
    assert roundings(np.array(values), gate, form) is None


@pytest.mark.parametrize(
    "wrong",
    [{"rtol": -0.1}, {"atol": INF}, {"ulp": NAN}, {"pcc": 1.1}, {"pcc": -1.1}, {"frobenius": -1}],
)
def test_an_impossible_comparator_is_refused(wrong: dict[str, float]) -> None:
    allowed = "between -1 and 1" if "pcc" in wrong else "a number from 0"
    with pytest.raises(ValueError, match=f"must be {allowed}; got"):
        Gate(**wrong)


def test_a_gate_names_what_is_declared() -> None:
    declared = {"rtol": 0.0, "atol": 0.5, "pcc": -1.0, "ulp": 0.0}
    assert Gate(atol=0.5, pcc=-1, ulp=0).to_json() == declared
    assert Gate(pcc=1.0).allclose is None
    assert not Gate(equal_nan=True).declared


def judged(
    values: Any, raw: Any, exact: Any = None, form: str = "fp32", gate: Tolerance | None = None
) -> Statistics:
    """Return the judge's statistics; all elements are outside of what rounding explains."""
    output, raw, exact = (
        np.asarray(a, np.float64) for a in (values, raw, raw if exact is None else exact)
    )
    return statistics_of(output, raw, exact, form, np.ones(output.shape, bool), gate)


def test_the_judge_has_two_references_the_drawn_data_s_and_the_given_data_s() -> None:
    raw, given = [1.0, -1.0, 4.0, 0.0], [1.0, -1.5, 4.5, 0.0]
    result = judged([2.0, -1.0, 4.5, 0.0], raw, given, gate=Tolerance(0.1, 0.1))
    shown = ("max_abs", "tolerance_ratio", "tolerance_ratio_quantized", "mismatch_fraction")
    assert [asdict(result)[name] for name in shown] == pytest.approx([1.0, 5.0, 5.0, 0.5])
    assert result.outliers == 1, "twice the reference"
    assert result.needed_atol == pytest.approx({rtol: 1 - rtol for rtol in NEEDED_RTOLS})
    closer = judged([2.0], [2.0], [1.0], gate=Tolerance(0.0, 0.5))
    assert (closer.tolerance_ratio, closer.tolerance_ratio_quantized) == (0.0, 2.0)
    assert (closer.ulp_max, closer.mismatch_fraction, closer.outliers) == (0.0, 1.0, 1)


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16"])
def test_the_judge_s_numbers_are_those_of_a_comparison(form: str) -> None:
    random = np.random.default_rng(0)
    expected = random.normal(size=(16, 64))
    output = round_to(expected * (1 + 0.01 * random.normal(size=(16, 64))), form)
    output[3, 5], output[4, 6], expected[4, 6] = np.nan, np.inf, np.inf
    defined = asdict(judged(output, expected, form=form, gate=Tolerance(1e-3, 0.05)))
    result = numbers(output, expected, Gate(1e-3, 0.05), form)
    needed = {float(rtol): atol for rtol, atol in result.pop("needed_atol").items()}
    assert needed == pytest.approx(defined.pop("needed_atol"), rel=1e-12)
    same = defined.keys() & result.keys()
    assert {"max_abs", "rms", "pcc_deficit", "ulp_max", "ulp_p99", "tolerance_ratio"} < same
    assert {name: result[name] for name in same} == pytest.approx(
        {name: defined[name] for name in same}, rel=1e-12
    )


def test_what_is_undefined_says_so() -> None:
    constant = judged([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    assert (constant.pcc_deficit, constant.tolerance_ratio) == (None, None)
    assert constant.tolerance_ratio_quantized is None
    assert judged([1.0, 0.0], [0.0, 0.0]).rel_frobenius == np.inf
    assert judged([0.0, 0.0], [0.0, 0.0]).rel_frobenius == 0.0
    nothing = judged([np.nan, np.inf], [1.0, 2.0])
    assert (nothing.count, nothing.nonfinite, nothing.max_abs) == (2, 2, None)
    assert nothing.needed_atol == {}
    assert judged(np.zeros((0, 3)), np.zeros((0, 3))) == Statistics(0, 0)


def test_a_correlation_keeps_its_digits() -> None:
    random = np.random.default_rng(0)
    right = 1000 + random.normal(size=4000)
    noise = 1e-7 * random.normal(size=4000)
    expected = np.square(noise).mean() / np.square(right - right.mean()).mean() / 2
    assert judged(right + noise, right).pcc_deficit == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16", "bfp8_b"])
def test_the_steps_of_a_format_are_those_of_the_judge(form: str) -> None:
    chance = np.random.default_rng(0)
    values = chance.normal(size=(20, 40)) * 2.0 ** chance.integers(-30, 18, (20, 40))
    values[0, :3] = 0.0, 2.0**-140, FORMATS["fp16"].largest * 2
    assert np.array_equal(closeness.step(values, form), step(values, form))
    assert np.array_equal(closeness.rounded(values, form), round_to(values, form))
