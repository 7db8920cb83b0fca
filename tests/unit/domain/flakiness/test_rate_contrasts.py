"""Two rates against each other, the tables of configurations, grades, and seeds that run again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

from gonogo.flakiness import repeated
from gonogo.flakiness.grades import Sharpness, Stability, grade, hollow, sharpness, stability
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, fisher, greater, odds, rate
from gonogo.flakiness.repeated import _of_these, clustered, tail_of
from gonogo.flakiness.samples import ISOLATED, Sample, contexts, devices, significant
from gonogo.flakiness.special import beta_quantile, student_tail
from gonogo.flakiness.tails import tail


@pytest.mark.parametrize(
    ("one", "other"),
    [((3, 10), (1, 12)), ((0, 5), (0, 500)), ((400, 1000), (420, 1000)), ((0, 3), (40, 40))],
)
def test_the_posterior_of_a_higher_rate_is_the_integral_of_two_beta_densities(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    (a, b), (c, d) = ((f + 0.5, n - f + 0.5) for f, n in (one, other))
    # over the quantiles of the first, which has a density without bounds near 0
    places = (np.arange(20_000) + 0.5) / 20_000
    expected = float(stats.beta.cdf(stats.beta.ppf(places, a, b), c, d).mean())
    assert greater(rate(*one), rate(*other)) == pytest.approx(expected, abs=2e-4)


def test_the_rate_of_a_long_history_is_known_to_its_last_run() -> None:
    """Between the usual places of the integral there is nothing of such a posterior."""
    one, other = rate(500_000_000, 10**9), rate(500_020_000, 10**9)
    z = 20_000 / math.sqrt(2 * 10**9 / 4)
    assert greater(one, other) == pytest.approx(stats.norm.sf(z), rel=1e-3)
    assert greater(other, one) == pytest.approx(stats.norm.cdf(z), rel=1e-3)


@pytest.mark.parametrize(
    ("one", "other"), [((3, 10), (1, 12)), ((0, 40), (9, 30)), ((5, 5), (0, 0))]
)
def test_odds_are_the_quotient_of_two_evidences(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    def evidence(failures: int, runs: int) -> float:
        return float(betaln(failures + 0.5, runs - failures + 0.5) - betaln(0.5, 0.5))

    both = (one[0] + other[0], one[1] + other[1])
    expected = math.exp(evidence(*one) + evidence(*other) - evidence(*both))
    assert odds(rate(*one), rate(*other)) == pytest.approx(expected)


def test_odds_beyond_a_double_are_finite() -> None:
    assert odds(rate(0, 10**6), rate(10**6, 10**6)) == math.exp(700.0)


def test_tables_that_are_nearly_as_likely_are_no_ties() -> None:
    assert fisher(2, 4, 2, 4) == pytest.approx(1.0)
    # 1 of 10,000 against 0 of 10,001: the other single table is likelier by a ten-thousandth
    assert fisher(1, 10_000, 0, 10_001) == pytest.approx(10_000 / 20_001)
    assert fisher(0, 0, 1, 3) == fisher(1, 3, 0, 0) == 1.0
    assert fisher(0, 1, 3, 3) == pytest.approx(0.25)


def test_quantiles_at_the_ends_are_the_ends() -> None:
    assert (beta_quantile(0.0, 2, 3), beta_quantile(1.0, 2, 3)) == (0.0, 1.0)
    assert beta_quantile(1e-30, 0.5, 9.0) == pytest.approx(
        stats.beta.ppf(1e-30, 0.5, 9.0), rel=1e-9
    )


@pytest.mark.parametrize("t", [0.4999, 0.5, -0.5, 0.5001])
def test_student_s_two_sides_meet(t: float) -> None:
    assert student_tail(t, 7.0) == pytest.approx(2 * stats.t.sf(abs(t), 7.0), rel=1e-12)


def run(
    name: str,
    *,
    failed: bool = False,
    context: str = "suite",
    position: int = 0,
    host: str = "h",
    seed: int | None = None,
) -> Sample:
    outcome = Outcome.failed if failed else Outcome.passed
    return Sample(seed, 0, name, "b", context, host, position, None, outcome)


def test_a_row_has_its_pass_rate_with_both_bounds_and_its_host_runs() -> None:
    runs = [run("a", failed=number < 2, host=f"{number % 3}") for number in range(8)]
    (row,) = devices(runs)
    assert (row.runs, row.passed, row.failed, row.host_runs, row.repeated) == (8, 6, 2, 3, 0)
    assert (row.p, row.higher) == (None, None)
    assert row.pass_rate == 0.75
    assert (row.pass_low, row.pass_high) == pytest.approx(
        tuple(stats.beta.ppf(np.array([0.025, 0.975]), 6.5, 2.5))
    )


def test_rows_are_compared_with_the_isolated_one_or_with_all_others() -> None:
    isolated = [run("a", context=ISOLATED) for _ in range(9)]
    behind = [run("a", context=ISOLATED, position=1, failed=True) for _ in range(3)]
    suite = [run("a", context="suite", failed=number < 4) for number in range(9)]
    first, second, third = contexts([*suite, *behind, *isolated])
    assert [first.name, second.name, third.name] == [ISOLATED, f"{ISOLATED}, not first", "suite"]
    assert first.p is None
    assert second.p == pytest.approx(fisher(3, 3, 0, 9))
    assert third.p == pytest.approx(fisher(4, 9, 0, 9))
    assert third.higher == pytest.approx(greater(rate(4, 9), rate(0, 9)))
    second, third = contexts([*suite, *behind])
    assert second.p == third.p == pytest.approx(fisher(3, 3, 4, 9))


def test_two_rows_are_one_comparison_and_three_are_three() -> None:
    rows = devices([*(run("a") for _ in range(9)), *(run("b", failed=True) for _ in range(9))])
    p = rows[0].p
    assert p is not None
    assert significant(rows, replace(POLICY, significance=p)) == rows
    assert significant(rows, replace(POLICY, significance=0.999 * p)) == ()
    three = tuple(replace(row, p=p) for row in (*rows, rows[0]))
    assert significant(three, replace(POLICY, significance=3.001 * p)) == three
    assert significant(three, replace(POLICY, significance=2.999 * p)) == ()
    with_first = (replace(rows[0], p=None), *three[:2])
    assert len(significant(with_first, replace(POLICY, significance=2.001 * p))) == 2
    assert significant(with_first, replace(POLICY, significance=1.999 * p)) == ()


def exponential(count: int, scale: float) -> list[float]:
    return [scale * -math.log1p(-(place + 0.5) / count) for place in range(count)]


def test_the_worst_seeds_have_tails_and_the_rest_counts_as_the_mildest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeated, "MAX_SEEDS", 2)
    scales = {1: 0.05, 2: 0.21, 3: 0.2, 4: 0.1}
    runs: dict[object, list[float]] = {
        seed: exponential(40, scale) for seed, scale in scales.items()
    }
    worst, second = tail(runs[2], unit="runs"), tail(runs[3], unit="runs")
    assert not worst.at_most
    assert not second.at_most
    these = _of_these({**runs, 5: runs[1][:19]}, POLICY, 0.95)
    assert these is not None
    assert worst.predicted is not None
    assert second.predicted is not None
    assert these.predicted == pytest.approx((worst.predicted + 3 * second.predicted) / 4)
    assert worst.upper is not None
    assert second.upper is not None
    assert these.upper == pytest.approx((worst.upper + 3 * second.upper) / 4)
    assert (these.seeds, these.distinct, these.left_out, these.at_most) == (160, 4, 0, False)
    assert these.thresholds == worst.thresholds
    assert these.largest == max(runs[2])
    assert these.observed.failures == 0
    assert these.words.startswith("of these 4 seeds themselves ")
    assert "at most" not in these.words


def test_seeds_that_stay_far_off_are_bounded_by_their_runs() -> None:
    runs: dict[object, list[float]] = {
        seed: [0.1 + 0.001 * seed + 1e-9 * place for place in range(30)] for seed in (1, 2)
    }
    these = _of_these(runs, POLICY, 0.95)
    assert these is not None
    assert (these.predicted, these.at_most) == (1 / 600, True)
    assert these.thresholds == tail(runs[2], unit="runs").thresholds
    assert _of_these({1: [0.1] * 19}, POLICY, 0.95) is None
    assert _of_these({1: [0.1] * 20}, POLICY, 0.95) is not None
    reds = _of_these({1: [1.0] * 20 + [1.5, math.inf]}, POLICY, 0.95)
    assert reds is not None
    assert (reds.observed.failures, reds.largest) == (2, 1.5)


def test_groups_of_equal_numbers_are_alike_and_one_other_number_is_enough_to_ask() -> None:
    assert clustered([[0.1, 0.1], [0.2, 0.2]])
    assert clustered([[0.1, 0.1], [0.1]])
    assert clustered([[math.inf, math.inf], [0.1]])
    assert not clustered([[0.1, 0.3], [0.2, 0.2]])


def test_too_few_seeds_are_told_with_how_often_they_ran() -> None:
    assert tail_of([], left=3).words == "not enough seeds: 0 of 20"
    two = tail_of([(1, 0.1), (2, 0.5)], left=3)
    assert two.repeated == 3
    assert two.words.startswith("2 distinct seeds are too few")
    assert tail_of([(1, 0.1), (2, 0.5)]).words == "not enough seeds: 2 of 20"


def test_a_grade_has_edges() -> None:
    enough = POLICY.least_seeds
    assert stability(rate(0, enough), None)[0] is Stability.robust
    assert stability(rate(0, enough - 1), None)[0] is Stability.unknown
    assert stability(rate(4, 4), None)[0] is Stability.broken
    assert stability(rate(3, 3), None)[0] is Stability.unknown
    assert stability(rate(1, 2), None)[0] is Stability.flaky
    near = tail(exponential(200, 0.18))
    assert near.predicted is not None
    for factor, expected in ((1.0, Stability.robust), (0.999, Stability.marginal)):
        policy = replace(POLICY, latent_target=factor * near.predicted)
        assert stability(rate(0, 200), near, policy)[0] is expected
    bounded = replace(near, at_most=True)
    assert stability(rate(0, 200), bounded)[0] is Stability.robust


def test_few_distinct_seeds_are_unknown_however_often_they_ran() -> None:
    few = tail_of([(seed, 0.1 + 0.1 * seed) for _ in range(30) for seed in range(3)])
    assert stability(rate(0, 90), few)[1].startswith("not enough seeds: 3 of 20; 3 distinct seeds")
    assert stability(rate(0, 2), few)[1].startswith("not enough seeds: 2 of 20")
    twice = replace(few, repeated=1)
    assert stability(rate(0, 90), twice)[1].startswith("not enough seeds: 3 of 20")
    once = replace(few, repeated=0)
    assert stability(rate(0, 90), once)[0] is Stability.robust
    nothing = replace(few, seeds=0)
    assert stability(rate(0, 90), nothing)[0] is Stability.robust


def test_mutants_that_pass_are_named_the_worst_first() -> None:
    kind, words = sharpness({"b": rate(2, 4), "a": rate(2, 4), "c": rate(4, 4), "d": rate(0, 9)})
    assert kind is Sharpness.blunt
    assert words.startswith("3 of 4 mutants pass: c 4 of 4")
    assert words.index("a 2 of 4") < words.index("b 2 of 4")
    assert "more" not in words
    assert sharpness({"a": rate(0, 4), "b": rate(0, 9)})[1] == (
        "all 2 mutants fail on every seed (4 or more of each)"
    )
    five = {f"m{number}": rate(1, 1) for number in range(5)}
    assert "more" not in sharpness(five)[1]


def test_a_test_is_hollow_by_one_unexplained_green_seed() -> None:
    green = hollow(["pass", "suspect", "pass_by_tolerance", "fail"])
    assert (green.failures, green.runs) == (1, 3)
    assert grade(rate(0, 3), green=green).hollow
    assert "hollow: 1 of 3" in grade(rate(0, 3), green=green).words
    right = grade(rate(0, 3), green=hollow(["pass"]))
    assert not right.hollow
    assert "hollow" not in right.words
    assert not grade(rate(0, 3)).hollow
