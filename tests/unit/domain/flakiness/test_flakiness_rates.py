"""Rates and contrasts: the distribution functions against scipy, known cases, and data that say
nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from gonogo.flakiness.contrasts import welch
from gonogo.flakiness.rates import Outcome, fisher, greater, outcome_of, rate, rate_of
from gonogo.flakiness.special import beta_cdf, beta_quantile, student_quantile, student_tail
from gonogo.spec.verdicts import Verdict

SIZES = st.floats(0.1, 1e6)


@given(st.floats(0, 1), SIZES, SIZES)
def test_the_beta_functions_are_scipy_s(x: float, a: float, b: float) -> None:
    # a density in the millions makes the last digit of x count
    slack = 1e-10 + 1e-14 * math.sqrt(a + b) * max(a, b)
    assert beta_cdf(x, a, b) == pytest.approx(stats.beta.cdf(x, a, b), abs=slack)


@given(st.floats(0.001, 0.999), st.floats(0.3, 1e5), st.floats(0.3, 1e5))
def test_the_beta_quantile_inverts_the_cdf(q: float, a: float, b: float) -> None:
    assert beta_quantile(q, a, b) == pytest.approx(stats.beta.ppf(q, a, b), rel=1e-6, abs=1e-12)


@given(st.floats(-50, 50), st.floats(1, 1e4))
@example(5.9e-8, 1e4)
def test_student_s_tail_is_scipy_s(t: float, freedom: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(
        2 * stats.t.sf(abs(t), freedom), rel=1e-8, abs=1e-300
    )


@pytest.mark.parametrize("freedom", [1, 2, 7, 100])
def test_student_s_quantile_is_scipy_s(freedom: float) -> None:
    for p in (0.9, 0.05, 1e-3):
        assert student_quantile(p, freedom) == pytest.approx(stats.t.isf(p / 2, freedom))


def test_edges_of_the_distributions_are_defined() -> None:
    assert beta_cdf(-1, 2, 3) == 0
    assert beta_cdf(2, 2, 3) == 1
    assert beta_quantile(0, 2, 3) == 0
    assert student_tail(math.inf, 3) == 0
    assert student_tail(math.nan, 3) == 1
    with pytest.raises(ValueError, match="positive parameters"):
        beta_cdf(0.5, 0, 1)
    with pytest.raises(ValueError, match="a probability is between"):
        beta_quantile(1.5, 1, 1)


def test_a_rate_has_jeffreys_interval_with_open_ends() -> None:
    failure_rate = rate(3, 20)
    assert (failure_rate.low, failure_rate.high) == pytest.approx(
        stats.beta.ppf([0.025, 0.975], 3.5, 17.5), rel=1e-9
    )
    assert failure_rate.words == "3 of 20 (15%, 4.41% to 34.9%)"
    none_failed, all_failed = rate(0, 20), rate(20, 20)
    assert none_failed.low == 0
    assert none_failed.high == pytest.approx(0.1166, abs=1e-4)
    assert all_failed.high == 1
    assert all_failed.low == pytest.approx(1 - 0.1166, abs=1e-4)


def test_no_run_is_unknown_and_impossible_counts_are_refused() -> None:
    assert rate(0, 0).words == "no run was judged"
    assert not rate(0, 0).known
    assert greater(rate(0, 0), rate(1, 2)) is None
    for failures, runs in ((3, 2), (-1, 2), (0, -1)):
        with pytest.raises(ValueError, match="impossible counts"):
            rate(failures, runs)


def test_a_million_seeds_have_a_rate() -> None:
    failure_rate = rate(1000, 1_000_000)
    assert (failure_rate.low, failure_rate.high) == pytest.approx(
        stats.beta.ppf([0.025, 0.975], 1000.5, 999000.5), rel=1e-7
    )


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_fisher_is_scipy_s(a: int, b: int, c: int, d: int) -> None:
    if a + b == 0 or c + d == 0:
        assert fisher(a, a + b, c, c + d) == 1
    else:
        assert fisher(a, a + b, c, c + d) == pytest.approx(
            stats.fisher_exact([[a, b], [c, d]]).pvalue, rel=1e-7
        )


def test_the_posterior_of_a_higher_rate_agrees_with_drawn_rates() -> None:
    rng = np.random.default_rng(0)
    for one, two in (
        ((3, 10), (1, 12)),
        ((0, 5), (0, 500)),
        ((400_000, 1_000_000), (401_000, 1_000_000)),
        ((7, 7), (7, 7)),
    ):
        drawn = [rng.beta(f + 0.5, n - f + 0.5, 200_000) for f, n in (one, two)]
        assert greater(rate(*one), rate(*two)) == pytest.approx(
            float((drawn[0] > drawn[1]).mean()), abs=0.005
        )


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_intervals_hold_their_share_and_nothing_crashes(a: int, b: int, c: int, d: int) -> None:
    one, two = rate(a, a + b), rate(c, c + d)
    if one.known and one.low is not None and one.high is not None:
        assert 0 <= one.low <= a / (a + b) <= one.high <= 1
    more = greater(one, two)
    assert more is None or 0 <= more <= 1
    if a + b + c + d < 2000:
        assert 0 <= fisher(a, a + b, c, c + d) <= 1


def test_only_the_kernel_s_own_outcomes_are_rated() -> None:
    words = ("pass", "pass_by_tolerance", "suspect", "fail", "fail_by_tolerance", "hang", "skipped")
    failures, lost = rate_of(outcome_of(Verdict(word)) for word in words)
    assert (failures.failures, failures.runs) == (2, 5)
    assert (lost.failures, lost.runs) == (1, 6)
    assert outcome_of("not_judged", green=False) is Outcome.failed
    assert outcome_of("not_judged") is Outcome.silent
    assert all(member.sentence for member in Outcome)


def test_welch_is_scipy_s_and_sees_what_fisher_cannot() -> None:
    rng = np.random.default_rng(5)
    one, two = rng.normal(size=20), 2 + rng.normal(size=20)
    expected = stats.ttest_ind(two, one, equal_var=False)
    contrast = welch(one, two)
    assert (contrast.t, contrast.p) == pytest.approx((expected.statistic, expected.pvalue))
    detections = sum(
        welch(rng.normal(size=20), 2 + rng.normal(size=20)).p < 1e-4 for _ in range(400)
    )
    assert detections >= 0.93 * 400  # the expected power is .96
    assert fisher(0, 20, 0, 20) == 1


def test_welch_has_an_answer_for_constants_and_for_too_little() -> None:
    assert welch([1.0], [2.0, 3.0]).p == 1
    assert welch([1.0, 1.0], [1.0, 1.0]).p == 1
    assert welch([1.0, 1.0], [2.0, 2.0]).p == 0
    assert welch([0.0, 0.0], [0.0, 0.0]).p == 1


@given(st.lists(st.floats(), max_size=30), st.lists(st.floats(), max_size=30))
def test_welch_never_crashes(one: list[float], two: list[float]) -> None:
    contrast = welch(one, two)
    assert 0 <= contrast.p <= 1
    assert not math.isnan(contrast.t)
