"""Rates, contrasts of two rates, and the rows of devices and contexts that show them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import betaln

from gonogo.flakiness.contrasts import welch
from gonogo.flakiness.rates import Outcome, fisher, greater, odds, outcome_of, rate, rate_of
from gonogo.flakiness.samples import ISOLATED, Sample, contexts, devices
from gonogo.flakiness.special import beta_cdf, beta_quantile, student_quantile, student_tail
from gonogo.spec.verdicts import Verdict

SIZES = st.floats(0.1, 1e6)
COUNTS = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))
FEW = st.tuples(st.integers(0, 60), st.integers(0, 60))


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
    expected = 2 * stats.t.sf(abs(t), freedom)
    assert student_tail(t, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("freedom", [1, 2, 7, 100])
def test_student_s_quantile_is_scipy_s(freedom: float) -> None:
    for p in (0.9, 0.05, 1e-3):
        assert student_quantile(p, freedom) == pytest.approx(stats.t.isf(p / 2, freedom))


@pytest.mark.parametrize(("failures", "runs"), [(3, 20), (0, 20), (20, 20), (1000, 1_000_000)])
def test_a_rate_has_jeffreys_interval_with_open_ends(failures: int, runs: int) -> None:
    low, high = stats.beta.ppf([0.025, 0.975], failures + 0.5, runs - failures + 0.5)
    expected = (low if failures else 0, high if failures < runs else 1)
    failure_rate = rate(failures, runs)
    assert (failure_rate.low, failure_rate.high) == pytest.approx(expected, rel=1e-7)


def test_a_rate_in_words_and_none_without_runs() -> None:
    assert rate(3, 20).words == "3 of 20 (15%, 4.41% to 34.9%)"
    assert (rate(0, 0).words, rate(0, 0).known) == ("no run was judged", False)
    assert greater(rate(0, 0), rate(1, 2)) is None
    for failures, runs in ((3, 2), (-1, 2), (0, -1)):
        with pytest.raises(ValueError, match="impossible counts"):
            rate(failures, runs)


@given(COUNTS, COUNTS)
def test_any_counts_have_an_answer(one: tuple[int, int], two: tuple[int, int]) -> None:
    (a, b), (c, d) = one, two
    failure_rate = rate(a, a + b)
    if failure_rate.low is not None and failure_rate.high is not None:
        assert 0 <= failure_rate.low <= a / (a + b) <= failure_rate.high <= 1
    more = greater(failure_rate, rate(c, c + d))
    assert more is None or 0 <= more <= 1


def test_only_the_kernel_s_own_outcomes_are_rated() -> None:
    words = ("pass", "pass_by_tolerance", "suspect", "fail", "fail_by_tolerance", "hang", "skipped")
    failures, lost = rate_of(outcome_of(Verdict(word)) for word in words)
    assert (failures.failures, failures.runs) == (2, 5)
    assert (lost.failures, lost.runs) == (1, 6)
    assert outcome_of("not_judged", green=False) is Outcome.failed
    assert outcome_of("not_judged") is Outcome.silent


# two rates, two samples


@given(FEW, FEW)
def test_fisher_is_scipy_s(one: tuple[int, int], two: tuple[int, int]) -> None:
    (a, b), (c, d) = one, two
    expected = stats.fisher_exact([[a, b], [c, d]]).pvalue if a + b and c + d else 1.0
    assert fisher(a, a + b, c, c + d) == pytest.approx(expected, rel=1e-7)


def test_tables_that_are_nearly_as_likely_are_no_ties() -> None:
    # 1 of 10,000 against 0 of 10,001: the other single table is likelier by a ten-thousandth
    assert fisher(1, 10_000, 0, 10_001) == pytest.approx(10_000 / 20_001)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((3, 10), (1, 12)),
        ((0, 5), (0, 500)),
        ((400_000, 1_000_000), (401_000, 1_000_000)),
        ((7, 7), (7, 7)),
    ],
)
def test_the_probability_of_a_larger_rate_is_that_of_drawn_ones(
    one: tuple[int, int], two: tuple[int, int]
) -> None:
    rng = np.random.default_rng(0)
    drawn = [rng.beta(f + 0.5, n - f + 0.5, 200_000) for f, n in (one, two)]
    share = float((drawn[0] > drawn[1]).mean())
    assert greater(rate(*one), rate(*two)) == pytest.approx(share, abs=0.005)


def test_the_rate_of_a_long_history_is_known_to_its_last_run() -> None:
    """Between the usual places of the integral there is nothing of such a posterior."""
    one, other = rate(500_000_000, 10**9), rate(500_020_000, 10**9)
    z = 20_000 / math.sqrt(2 * 10**9 / 4)
    assert greater(one, other) == pytest.approx(stats.norm.sf(z), rel=1e-3)
    assert greater(other, one) == pytest.approx(stats.norm.cdf(z), rel=1e-3)


@pytest.mark.parametrize(("a", "b"), [((3, 10), (1, 12)), ((0, 40), (9, 30)), ((5, 5), (0, 0))])
def test_odds_are_the_quotient_of_two_evidences(a: tuple[int, int], b: tuple[int, int]) -> None:
    def evidence(failures: int, runs: int) -> float:
        return float(betaln(failures + 0.5, runs - failures + 0.5) - betaln(0.5, 0.5))

    both = evidence(a[0] + b[0], a[1] + b[1])
    expected = math.exp(evidence(*a) + evidence(*b) - both)
    assert odds(rate(*a), rate(*b)) == pytest.approx(expected)


def test_welch_is_scipy_s_and_sees_what_fisher_cannot() -> None:
    rng = np.random.default_rng(5)
    one, two = rng.normal(size=20), 2 + rng.normal(size=20)
    expected = stats.ttest_ind(two, one, equal_var=False)
    contrast = welch(one, two)
    assert (contrast.t, contrast.p) == pytest.approx((expected.statistic, expected.pvalue))
    pairs = [(rng.normal(size=20), 2 + rng.normal(size=20)) for _ in range(400)]
    assert sum(welch(*pair).p < 1e-4 for pair in pairs) >= 0.93 * 400  # the expected power is .96


def test_welch_has_an_answer_for_constants_and_for_too_little() -> None:
    assert welch([1.0], [2.0, 3.0]).p == welch([1.0, 1.0], [1.0, 1.0]).p == 1
    assert welch([0.0, 0.0], [0.0, 0.0]).p == 1
    assert welch([1.0, 1.0], [2.0, 2.0]).p == 0


@given(st.lists(st.floats(), max_size=30), st.lists(st.floats(), max_size=30))
def test_welch_never_crashes(one: list[float], two: list[float]) -> None:
    contrast = welch(one, two)
    assert 0 <= contrast.p <= 1
    assert not math.isnan(contrast.t)


# rows of devices and of contexts


def runs(
    count: int, failed: int = 0, context: str = "suite", position: int = 0, hosts: int = 1
) -> list[Sample]:
    """Return runs of which the first have failed, without seeds."""
    outcomes = [Outcome.failed] * failed + [Outcome.passed] * (count - failed)
    return [
        Sample(None, 0, "a", "b", context, f"{number % hosts}", position, None, outcome)
        for number, outcome in enumerate(outcomes)
    ]


def test_a_row_has_its_pass_rate_with_both_bounds_and_its_host_runs() -> None:
    (row,) = devices(runs(8, failed=2, hosts=3))
    assert (row.runs, row.passed, row.failed, row.host_runs, row.repeated) == (8, 6, 2, 3, 0)
    assert (row.p, row.higher, row.pass_rate) == (None, None, 0.75)
    expected = tuple(stats.beta.ppf(np.array([0.025, 0.975]), 6.5, 2.5))
    assert (row.pass_low, row.pass_high) == pytest.approx(expected)


def test_rows_are_compared_with_the_isolated_one_or_with_all_others() -> None:
    behind, suite = runs(3, failed=3, context=ISOLATED, position=1), runs(9, failed=4)
    first, second, third = contexts([*suite, *behind, *runs(9, context=ISOLATED)])
    assert [first.name, second.name, third.name] == [ISOLATED, f"{ISOLATED}, not first", "suite"]
    assert first.p is None
    assert second.p == pytest.approx(fisher(3, 3, 0, 9))
    assert third.p == pytest.approx(fisher(4, 9, 0, 9))
    assert third.higher == pytest.approx(greater(rate(4, 9), rate(0, 9)))
    second, third = contexts([*suite, *behind])
    assert second.p == third.p == pytest.approx(fisher(3, 3, 4, 9))
    rows = {row.name: row for row in contexts([*suite, *behind, *runs(5, context="group")])}
    assert rows["suite"].p == pytest.approx(fisher(4, 9, 3, 8))
