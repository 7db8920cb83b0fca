"""The budget of the forward kernel.

It is the plain formula, element by element. Some rows can't tell right from wrong. Right kernels
stay within the budget.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from gonogo.judging import expected
from gonogo.judging.judging import judge
from gonogo.kernels.layernorm import reference
from gonogo.kernels.layernorm.arithmetic import forward
from gonogo.kernels.layernorm.arithmetic.moments import lanes, moments
from gonogo.kernels.layernorm.arithmetic.terms import forward_terms, reciprocal_error
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation
from numeric_cases import REGIMES, Case, spec
from right_arithmetics import RIGHT, by_budget, explanation
from right_tests import applies, cases

UNIFORM = {
    **REGIMES["uniform"],
    "gamma": {"regime": "uniform", "low": 0.5, "high": 1.5},
    "beta": {"regime": "uniform", "low": -0.1, "high": 0.1},
}
STRIDE = 13
"""It shares no factor with the numbers of shapes, regimes and formats, so all of them come up."""


def power(value: float) -> float:
    """Return 2^floor(log2 |value|), and 0 at 0."""
    return math.ldexp(1.0, math.frexp(value)[1] - 1) if value else 0.0


def h(value: float) -> float:
    """Return half an ulp of bf16 at a value."""
    return 2.0**-8 * power(value)


def average(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def written_bounds(case: Case, i: int) -> tuple[float, float, list[float], bool]:
    """Return (Bm, Br, B_y, informative) of row i, by the plain formulas.

    They hold for bf16 inputs and buffers, HiFi4 and an fp32 Dst; running sums add 2^-24.
    """
    x = case.given["x"][i].tolist()
    n, epsilon, dn = len(x), case.test.epsilon, reciprocal_error(len(x))
    running = 2 * -(-n // 32) * 2.0**-24
    mu = average(x)
    centered = [v - mu for v in x]
    variance = average([c * c for c in centered])
    r = 1 / math.sqrt(variance + epsilon)

    t = math.fsum(h(math.fsum(x[c::32])) for c in range(32)) / n
    bm = (
        dn * abs(mu)
        + t * (1 + dn)
        + 2.0**-12 * (abs(mu) + t)
        + running * average([abs(v) for v in x])
    )
    bm += h(abs(mu) + bm)
    align = [2.0**-11 * power(max(abs(v), abs(mu))) for v in x]
    tv = math.fsum(h(math.fsum(c * c for c in centered[lane::32])) for lane in range(32)) / n
    dv = dn * variance + tv + bm**2 * (1 + dn) + (2.0**-12 + running) * variance
    dv += average([a * a for a in align]) + abs(float(round_to(epsilon, "bf16", "zero")) - epsilon)
    informative = dv < variance + epsilon
    low, high = (
        1 / math.sqrt(variance + epsilon + sign * dv) if informative else r for sign in (1, -1)
    )
    br = max(high - r, r - low)
    br += h(r + br)
    bounds = []
    for v, c, a, g, b in zip(
        x, centered, align, case.given["gamma"].tolist(), case.given["beta"].tolist(), strict=True
    ):
        d = (bm + a) * (r + br) + abs(c) * br
        d1 = d + h(abs(c * r) + d)
        product = abs(g * c * r)
        before = (
            abs(g) * d1
            + h(product + abs(g) * d1)
            + 2.0**-11 * power(max(product, abs(b)))
            + 2.0**-22 * (product + abs(b))
        )
        bounds.append(before + h(abs(g * c * r + b) + before))
        assert v == c + mu or math.isclose(v, c + mu)
    return bm, br, bounds, informative


@pytest.mark.parametrize("regime", ["uniform", "normal", "offset", "hot tile"])
@pytest.mark.parametrize("n", [3, 33, 130, 512])
def test_the_bounds_are_the_written_ones(n: int, regime: str) -> None:
    case = Case.of(spec("layernorm_fw", (4, n), regime=regime), seed=n)
    expectations = expected.expectations(case.test, case.given, "tt-train")
    informative_rows = expectations["y"].informative
    assert informative_rows is not None
    for i in range(4):
        bm, br, bounds, informative = written_bounds(case, i)
        assert bool(informative_rows[i]) is informative
        assert expectations["mean"].bound[0, i] == pytest.approx(bm, rel=1e-9)
        if informative:
            assert expectations["rstd"].bound[0, i] == pytest.approx(br, rel=1e-9)
            np.testing.assert_allclose(expectations["y"].bound[i], bounds, rtol=1e-9)


def test_the_references_are_those_of_what_the_device_was_given() -> None:
    case = Case.of(spec("layernorm_fw", (40, 50)))
    references = reference.reference(case.test, case.given)
    for name, expectation in expected.expectations(case.test, case.given, "tt-train").items():
        np.testing.assert_allclose(
            expectation.reference,
            references[name].reshape(expectation.reference.shape),
            rtol=1e-12,
            atol=1e-14,
        )


def test_rstd_is_bounded_by_the_interval_and_not_by_its_slope() -> None:
    """Where Dv is nearly v + eps, rstd may be many times too large, and r^3 Dv / 2 misses that."""
    case = Case.of(
        spec("layernorm_fw", (400, 33), inputs={"regime": "offset", "offset": 4, "std": 0.03})
    )
    test = case.test
    m = moments(case.given["x"].astype(np.float64), test.epsilon, forward_terms(test, "tt-train"))
    informative_rows = m.informative
    assert informative_rows.any()
    assert not informative_rows.all()
    wide = m.before_rstd[informative_rows] / m.rstd[informative_rows]
    assert wide.max() > 1.5  # larger than any linear bound could be: Dv < v + eps gives at most 1/2
    outside = forward.expectations(case.given, test.epsilon, forward_terms(test, "tt-train"))[
        "rstd"
    ]
    assert np.isinf(outside.bound[0, ~informative_rows]).all()
    assert np.isfinite(outside.bound[0, informative_rows]).all()


def test_a_row_says_nothing_where_the_bound_of_the_variance_reaches_it() -> None:
    def informative(**fields: Any) -> np.ndarray[Any, Any]:
        case = Case.of(spec("layernorm_fw", (8, 128), **fields))
        informative_rows = expected.expectations(case.test, case.given, "tt-train")["y"].informative
        assert informative_rows is not None
        return informative_rows

    assert informative(regime="uniform").all()
    assert not informative(regime="constant").any()
    assert not informative(inputs={"regime": "offset", "offset": 1000, "std": 0.01}).any()
    # A constant row is informative where epsilon exceeds the variance from the mean's rounding.
    assert informative(regime="constant", epsilon=1.0).all()


def test_lanes_are_sums_over_tiles() -> None:
    values = np.random.default_rng(0).normal(0, 1, (3, 70))
    lane_sums = lanes(values)
    assert lane_sums.shape == (3, 32)
    for i in range(3):
        for c in range(32):
            assert lane_sums[i, c] == pytest.approx(math.fsum(values[i, c::32]))
    np.testing.assert_array_equal(lanes(values[:, :5])[:, 5:], 0)


def test_every_term_makes_the_bounds_larger() -> None:
    def mean_bounds(**numerics: str) -> dict[str, float]:
        case = Case.of(spec("layernorm_fw", (5, 100), numerics=numerics))
        return {
            name: float(expectation.bound.mean())
            for name, expectation in expected.expectations(
                case.test, case.given, "tt-train"
            ).items()
        }

    base = mean_bounds()
    for numerics in ({"fidelity": "lofi"}, {"accumulate": "bf16"}, {"input": "fp32"}):
        wider = mean_bounds(**numerics)
        assert all(wider[name] > base[name] for name in base), numerics
    assert mean_bounds(buffers="fp32")["rstd"] < base["rstd"]


@pytest.mark.parametrize("name", ["emulated Wormhole", "perfectly rounded"])
@pytest.mark.parametrize(
    "shape", [(1, 7), (3, 20), (33, 50), (64, 96), (40, 257), (16, 1024), (2, 8462)]
)
def test_the_bound_dominates_every_error_of_its_dataflow(name: str, shape: tuple[int, int]) -> None:
    for seed, inputs in enumerate(
        (UNIFORM, REGIMES["normal"], REGIMES["offset"], REGIMES["hot tile"])
    ):
        case = Case.of(spec("layernorm_fw", shape, inputs=inputs), seed)
        outputs = case.matrices(RIGHT[name][0](case.test, case.given))
        for output, expectation in expected.expectations(case.test, case.given, "tt-train").items():
            informative_mask = np.ones(expectation.reference.shape, bool)
            if expectation.informative is not None:
                informative_mask &= expectation.informative[:, None]
            assert (np.abs(outputs[output] - expectation.reference) <= expectation.bound)[
                informative_mask
            ].all(), (
                inputs,
                output,
            )


@cache
def subset() -> list[tuple[int, TestSpec]]:
    """Return a few cases of the false-alarm benchmark, spread over numerics, regimes and shapes."""
    return [(seed, test) for seed, test in cases(550, "layernorm_fw") if seed % STRIDE == 0]


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_of_any_arithmetic_shape_and_regime_are_explained(name: str) -> None:
    kernel, arithmetics = RIGHT[name]
    judged = 0
    for seed, test in subset():
        if name == "fp32, Welford" and test.features > 1000:
            continue
        case = Case.of(test, seed)
        outputs = kernel(test, case.given)
        for arithmetic in arithmetics:
            if applies(name, arithmetic, test):
                judged += 1
                judged_by = by_budget(test, case.raw, case.given, outputs, arithmetic)
                assert explanation(judged_by) in (
                    Explanation.explained,
                    Explanation.inconclusive,
                ), (
                    arithmetic,
                    seed,
                    test.canonical(),
                )
    assert judged > 20 * len(arithmetics)


IN_EVERY_FORMAT = [
    {},
    {"output": "fp32"},
    {"output": "fp16"},
    {"output": "bfp8_b"},
    {"input": "fp32"},
    {"input": "bfp8_b"},
    {"input": {"x": "fp32", "gamma": "bf16"}},
    {"fidelity": "lofi"},
    {"fidelity": "hifi2"},
    {"fidelity": "hifi3"},
    {"accumulate": "bf16"},
    {"buffers": "fp32"},
]


@pytest.mark.parametrize("numerics", IN_EVERY_FORMAT, ids=str)
def test_the_emulated_right_kernel_is_explained_in_every_format(numerics: dict[str, str]) -> None:
    explanations = set()
    for shape in ((64, 96), (64, 1024)):
        for regime in ("uniform", "normal", "offset"):
            case = Case.of(spec("layernorm_fw", shape, regime=regime, numerics=numerics))
            judged = judge(case.test, case.raw, case.given, case.emulated(), arithmetic="tt-train")
            explanations.add(judged.explanation)
    assert explanations - {Explanation.inconclusive} == {Explanation.explained}


def test_the_budget_is_of_the_size_of_the_errors() -> None:
    """The published largest e/B of the right kernel is 0.85 to 0.87 for y (819x8462).

    A budget several times as wide would hide a defect.
    """
    case = Case.of(spec("layernorm_fw", (200, 1000), inputs=UNIFORM))
    expectation = expected.expectations(case.test, case.given, "tt-train")["y"]
    ratio = np.abs(case.matrices(case.emulated())["y"] - expectation.reference) / expectation.bound
    assert 0.6 < ratio.max() <= 1


def test_the_fp32_bound_of_rstd_dominates_where_epsilon_is_larger_than_the_variance() -> None:
    case = Case.of(
        spec("layernorm_fw", (819, 2), regime="small", numerics={"input": "fp32", "output": "fp32"})
    )
    expectation = expected.expectations(case.test, case.given, "fp32")["rstd"]
    rstd = case.matrices(RIGHT["fp32, pairwise sums"][0](case.test, case.given))["rstd"]
    assert (np.abs(rstd - expectation.reference) <= 3 * expectation.bound).all()
