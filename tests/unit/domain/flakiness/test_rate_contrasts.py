"""Two rates against each other, the tables of configurations, grades, and seeds that run again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln

from gonogo.flakiness.rates import Outcome, fisher, greater, odds, rate
from gonogo.flakiness.samples import ISOLATED, Sample, contexts, devices


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


def test_tables_that_are_nearly_as_likely_are_no_ties() -> None:
    assert fisher(2, 4, 2, 4) == pytest.approx(1.0)
    # 1 of 10,000 against 0 of 10,001: the other single table is likelier by a ten-thousandth
    assert fisher(1, 10_000, 0, 10_001) == pytest.approx(10_000 / 20_001)
    assert fisher(0, 0, 1, 3) == fisher(1, 3, 0, 0) == 1.0
    assert fisher(0, 1, 3, 3) == pytest.approx(0.25)


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
