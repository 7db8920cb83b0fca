"""Sequential seeds: the published run lengths, the error rates, and the message of a stop."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.flakiness.rates import Outcome
from gonogo.flakiness.sequential import (
    Decision,
    Progress,
    Stopping,
    bounds,
    more_for_suspects,
    plan,
)


def decide(
    failures: int,
    seeds: int,
    most: int,
    *,
    unexplained: int = 0,
    silent: int = 0,
    **options: Any,
) -> Decision:
    return Progress(seeds + silent, seeds, failures, unexplained).decide(most, **options)


def test_run_lengths_are_those_of_the_figures() -> None:
    stable, flaky = plan(0.01), plan(0.1)
    assert (stable.mean_seeds, flaky.mean_seeds) == pytest.approx((64.7, 37.7), abs=0.1)
    assert stable.flaky <= 0.01
    assert flaky.flaky >= 0.99
    assert (plan(0.0).mean_seeds, plan(1.0).mean_seeds) == (49, 2)
    assert plan(0.01, most=5).undecided > 0.9
    assert bounds()[0] < 0 < bounds()[1]


@pytest.mark.parametrize(
    ("failures", "seeds", "most", "options", "state"),
    [
        (0, 48, 500, {}, "more"),
        (0, 49, 500, {}, "stable"),
        (1, 1, 500, {}, "more"),
        (2, 2, 500, {}, "flaky"),
        (0, 1, 500, {"unexplained": 1}, "wrong"),  # a logic bug stops at once
        (0, 1, 500, {"unexplained": 1, "to_the_end": True}, "more"),
        (1, 50, 50, {}, "undecided"),
        (0, 48, 60, {"silent": 12}, "undecided"),  # silent seeds use up the limit
        (0, 0, 3, {"silent": 3}, "undecided"),
    ],
)
def test_a_test_stops_as_soon_as_it_is_decided(
    failures: int, seeds: int, most: int, options: dict[str, Any], state: str
) -> None:
    decision = decide(failures, seeds, most, **options)
    assert decision.state.value == state
    assert (decision.needed > 0) is (state == "more")


def test_a_stop_says_what_it_saved_and_which_seeds_said_nothing() -> None:
    decision = decide(0, 49, 500, mean_ms=100.0)
    assert decision.saved_ms == pytest.approx(45_100)
    assert decision.words == (
        "stopped after 49 of at most 500 seeds, 0 failed: the failure rate is 0.01 rather than 0.1"
        "; 45.1 s of device time saved"
    )
    assert decide(0, 49, 500, mean_ms=10.0, ran=60).saved_ms == 4400
    assert decide(0, 48, 60, silent=12).words == (
        "stopped after 48 of at most 60 seeds (12 more say nothing of the kernel), 0 failed: all "
        "60 seeds ran without a decision"
    )
    assert decide(0, 40, 60, silent=12).needed == 8


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_any_counts_are_decided_and_needed_seeds_decide(
    failures: int, passes: int, most: int
) -> None:
    seeds = failures + passes
    decision = decide(failures, seeds, most)
    if decision.state is Stopping.more:
        assert 1 <= decision.needed <= most - seeds
        assert decide(failures, seeds + decision.needed, most).stopped
        assert not decide(failures, seeds + decision.needed - 1, most).stopped
    else:
        assert decision.needed == 0


@given(
    st.lists(st.tuples(st.sampled_from(Outcome), st.booleans()), max_size=80),
    st.lists(st.integers(0, 80), max_size=6),
    st.booleans(),
)
def test_the_decision_does_not_depend_on_how_seeds_came_together(
    seeds: list[tuple[Outcome, bool]], cuts: list[int], to_the_end: bool
) -> None:
    whole, decision = Progress().read(seeds, 60, to_the_end=to_the_end)
    part = Progress()
    for low, high in pairwise([0, *sorted(cuts), len(seeds)]):
        if part.seen >= low:
            part, _ = part.read(seeds[low:high], 60, to_the_end=to_the_end)
    assert part == whole
    assert part.decide(60, to_the_end=to_the_end).state is decision.state
    assert whole.seen <= 60


def test_suspects_add_eight_seeds_at_most_twice() -> None:
    assert [more_for_suspects(1, rounds) for rounds in range(4)] == [8, 8, 0, 0]
    assert more_for_suspects(0, 0) == 0


def test_impossible_counts_and_rates_are_refused() -> None:
    for failures, seeds, most in ((2, 1, 10), (-1, 1, 10), (0, 1, 0)):
        with pytest.raises(ValueError, match="impossible counts"):
            decide(failures, seeds, most)
    with pytest.raises(ValueError, match="a rate is between"):
        plan(1.5)
