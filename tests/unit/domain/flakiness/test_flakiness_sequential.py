"""Sequential seeds: the published run lengths, the error rates, and the message of a stop."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome
from gonogo.flakiness.sequential import Progress, Stopping, bounds, decide, more_for_suspects, plan


def test_run_lengths_are_those_of_the_figures() -> None:
    stable, flaky = plan(0.01), plan(0.1)
    assert stable.mean_seeds == pytest.approx(64.7, abs=0.1)
    assert flaky.mean_seeds == pytest.approx(37.7, abs=0.1)
    assert stable.flaky <= 0.01
    assert flaky.flaky >= 0.99


def test_a_test_that_always_passes_stops_after_49_seeds_and_saves_the_rest() -> None:
    first = decide(0, 0, 500)
    assert (first.state, first.needed) == (Stopping.more, 49)
    assert decide(0, 48, 500).needed == 1
    decision = decide(0, 49, 500, mean_ms=100.0)
    assert decision.state is Stopping.stable
    assert decision.saved_ms == pytest.approx(45_100)
    stopped = (
        "stopped after 49 of at most 500 seeds, 0 failed: the failure rate is 0.01 rather than 0.1"
    )
    assert decision.words == f"{stopped}; 45.1 s of device time saved"


def test_two_failures_in_a_row_are_flaky() -> None:
    assert decide(1, 1, 500).state is Stopping.more
    assert decide(2, 2, 500).state is Stopping.flaky


def test_a_logic_bug_stops_at_once_unless_asked_for_more() -> None:
    assert decide(0, 1, 500, unexplained=1).state is Stopping.wrong
    assert decide(0, 1, 500, unexplained=1, to_the_end=True).state is Stopping.more


def test_the_largest_number_ends_it_undecided() -> None:
    assert decide(1, 50, 50).state is Stopping.undecided
    assert decide(0, 10, 10).needed == 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_any_counts_are_decided_and_needed_seeds_decide(
    failures: int, passes: int, most: int
) -> None:
    decision = decide(failures, failures + passes, most)
    if decision.state is Stopping.more:
        assert 1 <= decision.needed <= most - failures - passes
        later = decide(failures, failures + passes + decision.needed, most)
        assert later.stopped
        assert not decide(failures, failures + passes + decision.needed - 1, most).stopped
    else:
        assert decision.needed == 0


def test_what_cannot_be_is_refused() -> None:
    for failures, seeds, most in ((2, 1, 10), (-1, 1, 10), (0, 1, 0)):
        with pytest.raises(ValueError, match="impossible counts"):
            decide(failures, seeds, most)
    with pytest.raises(ValueError, match="a rate is between"):
        plan(1.5)
    assert bounds()[0] < 0 < bounds()[1]
    assert plan(0.0).mean_seeds == 49
    assert plan(1.0).mean_seeds == 2
    assert plan(0.01, most=5).undecided > 0.9


def test_suspects_add_eight_seeds_at_most_twice() -> None:
    assert [more_for_suspects(1, rounds) for rounds in range(4)] == [8, 8, 0, 0]
    assert more_for_suspects(0, 0) == 0
    assert POLICY.suspect_rounds == 2
    assert all(member.sentence for member in Stopping)


def test_seeds_that_say_nothing_use_up_the_limit_and_count_for_nothing() -> None:
    decision = decide(0, 48, 60, silent=12)
    assert (decision.state, decision.words) == (
        Stopping.undecided,
        (
            "stopped after 48 of at most 60 seeds (12 more say nothing of the kernel), 0 "
            "failed: all 60 seeds ran without a decision"
        ),
    )
    assert decide(0, 40, 60, silent=12).needed == 8
    assert decide(0, 0, 3, silent=3).state is Stopping.undecided
    assert decide(0, 49, 500, mean_ms=10.0, ran=60).saved_ms == 4400


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
