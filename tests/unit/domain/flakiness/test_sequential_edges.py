"""Sequential seeds at their edges: ties with a bound, the last seed, saved time, exact plans."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome
from gonogo.flakiness.sequential import (
    Progress,
    Stopping,
    bounds,
    decide,
    more_for_suspects,
    plan,
    steps,
)

TIED = replace(POLICY, false_flaky=0.0099, false_stable=0.01)
"""Two failures reach the upper bound exactly: log 100."""
TENTHS = replace(POLICY, false_flaky=0.01, false_stable=0.99 * 1.1**-10)
"""Ten passes reach the lower bound exactly."""


def test_evidence_that_ties_with_a_bound_has_reached_it() -> None:
    assert 2 * steps(TIED)[1] == pytest.approx(bounds(TIED)[1], rel=1e-15)
    assert decide(2, 2, 100, TIED).state is Stopping.flaky
    assert 10 * steps(TENTHS)[0] == pytest.approx(bounds(TENTHS)[0], rel=1e-15)
    assert decide(0, 10, 100, TENTHS).state is Stopping.stable
    assert decide(0, 9, 100, TENTHS).state is Stopping.more
    assert [decide(0, seeds, 100, TENTHS).needed for seeds in (0, 4, 9, 10)] == [10, 6, 1, 0]


def test_a_plan_ends_where_the_decision_does() -> None:
    always, never = plan(1.0, TIED), plan(0.0, TENTHS)
    assert (always.mean_seeds, always.flaky, always.undecided) == (2.0, 1.0, 0.0)
    assert (never.mean_seeds, never.flaky, never.undecided) == (10.0, 0.0, 0.0)
    cut = plan(0.0, TENTHS, most=4)
    assert (cut.mean_seeds, cut.flaky, cut.undecided) == (4.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        plan(1.1)


def test_a_plan_of_three_seeds_is_the_sum_over_their_outcomes() -> None:
    rate = 0.3
    short = plan(rate, TIED, most=3)
    assert decide(2, 3, 9, TIED).state is Stopping.more  # two of three are not yet flaky
    assert short.flaky == pytest.approx(rate**2)
    assert short.undecided == pytest.approx(1 - rate**2)
    assert short.mean_seeds == pytest.approx(1 + 1 + (1 - rate**2))


def test_seeds_that_are_needed_are_at_most_those_that_are_left() -> None:
    assert decide(0, 0, 3).needed == 3
    assert decide(0, 2, 5, silent=1).needed == 2
    assert decide(0, 0, 1).needed == 1
    last = decide(0, 2, 4, silent=2)
    assert (last.state, last.needed) == (Stopping.undecided, 0)
    assert decide(0, 2, 4, silent=1).state is Stopping.more


def test_the_time_that_is_saved_is_that_of_seeds_that_did_not_run() -> None:
    times = [100.0, 300.0, None, math.inf, -1.0]

    def saved(silent: int = 0, ran: int = 0) -> float | None:
        return decide(2, 2, 10, durations_ms=times, silent=silent, ran=ran).saved_ms

    assert saved() == 1600.0
    assert saved(silent=3) == 1000.0
    assert saved(ran=6) == 800.0
    assert saved(ran=99) == 0.0
    assert decide(2, 2, 10).saved_ms is None
    assert decide(1, 2, 10, durations_ms=[5.0]).saved_ms is None  # it goes on
    assert decide(2, 2, 10, durations_ms=[0.0]).saved_ms == 0.0
    assert "device time saved" not in decide(2, 2, 10, durations_ms=[0.0]).words
    assert decide(2, 2, 10, durations_ms=[250.0]).words.endswith("; 2 s of device time saved")


def test_impossible_counts_are_refused_at_their_edges() -> None:
    assert decide(0, 0, 1).state is Stopping.more
    for failures, seeds, most, unexplained, silent in (
        (1, 0, 1, 0, 0),
        (0, 0, 0, 0, 0),
        (-1, 0, 1, 0, 0),
        (0, 0, 1, -1, 0),
        (0, 0, 1, 0, -1),
    ):
        with pytest.raises(ValueError, match="impossible counts"):
            decide(failures, seeds, most, unexplained=unexplained, silent=silent)


def test_seeds_are_read_up_to_the_deciding_one() -> None:
    reds = [(Outcome.failed, False)] * 5
    read, decision = Progress().read(reds, 100)
    assert (read.seen, read.counted, read.failures, decision.state) == (2, 2, 2, Stopping.flaky)
    silent = [(Outcome.infrastructure, False), (Outcome.passed, True), (Outcome.passed, False)]
    read, decision = Progress().read(silent, 100)
    assert (read.seen, read.counted, read.failures, read.unexplained) == (2, 1, 0, 1)
    assert decision.state is Stopping.wrong
    read, decision = Progress().read(silent, 100, to_the_end=True)
    assert (read.seen, decision.state) == (3, Stopping.more)
    assert Progress.parse({**asdict(read), "else": 1}) == read
    assert read.decide(100, ran=50, mean_ms=3.0, to_the_end=True).saved_ms is None
    silent_too = Progress(seen=5, counted=3)
    assert [silent_too.decide(most).state for most in (6, 5)] == [Stopping.more, Stopping.undecided]
    assert Progress(seen=5, counted=3, failures=3).decide(9, ran=7, mean_ms=3.0).saved_ms == 6.0


def test_suspects_add_seeds_until_the_last_round() -> None:
    added = [more_for_suspects(1, rounds) for rounds in (0, 1, 2)]
    assert added == [POLICY.suspect_seeds, POLICY.suspect_seeds, 0]
    assert more_for_suspects(0, 0) == 0
