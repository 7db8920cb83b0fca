"""Noisy bisection: the posterior by hand, where runs go, when it stops, runs in flight, several
changes, and impossible counts."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.flakiness.bisecting import Expect, Stage
from gonogo.flakiness.bisection import SearchState, Tally, search_state, search_states
from gonogo.flakiness.policy import POLICY
from property_examples import examples


def search(
    tallies: list[Tally],
    bad: list[float],
    *,
    sharp: bool,
    expect: Expect = Expect.either,
    seed: int = 1,
) -> tuple[SearchState, int]:
    """Search builds with these rates of bad runs; return the last state and the number of runs."""
    rng = random.Random(seed)
    for runs in range(2000):
        state = search_state(tallies, expect=expect, sharp=sharp)
        if state.stage.final:
            return state, runs
        (place,) = state.next_builds
        red, number = tallies[place]
        tallies[place] = (red + (rng.random() < bad[place]), number + 1)
    raise AssertionError("no end")


@pytest.mark.parametrize("count", [2, 3, 8, 33, 128])
@pytest.mark.parametrize("expect", [Expect.regression, Expect.either])
def test_a_logic_bug_takes_log_n_runs_and_two_at_every_place(count: int, expect: Expect) -> None:
    for place in {1, count // 2, count // 3 or 1, count - 1}:
        state, runs = search(
            [(0, 0)] * count,
            [float(build >= place) for build in range(count)],
            sharp=True,
            expect=expect,
        )
        assert (state.stage, state.culprit) == (Stage.located, place)
        assert runs <= math.ceil(math.log2(count)) + 2


@pytest.mark.parametrize(
    ("before", "after", "most"), [(0.02, 0.9, 60), (0.9, 0.02, 60), (0.2, 0.8, 200)]
)
def test_noisy_series_end_at_the_place(before: float, after: float, most: int) -> None:
    right = 0
    for seed in range(6):
        state, runs = search([(0, 0)] * 32, [before] * 21 + [after] * 11, sharp=False, seed=seed)
        right += state.culprit == 21
        assert state.located
        assert state.probability >= POLICY.bisect_stop
        assert runs <= most
        assert abs(state.before - before) < 0.3
        assert abs(state.after - after) < 0.3
    assert right >= 5


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_nothing_changed(rate: float) -> None:
    state, _ = search([(0, 0)] * 16, [rate] * 16, sharp=False, seed=3)
    assert state.stage is Stage.no_change
    assert search([(0, 0)] * 16, [float(rate > 0.5)] * 16, sharp=True)[1] == 2


def test_the_ends_run_first_and_both_neighbours_before_it_is_believed() -> None:
    tallies: list[Tally] = [(0, 0)] * 9
    assert search_state(tallies, want=3).next_builds == (0, 8, 0)
    assert search_state(tallies, pending=[0]).next_builds == (8,)
    tallies[0], tallies[4], tallies[6], tallies[8] = (3, 30), (3, 30), (24, 30), (24, 30)
    state = search_state(tallies)
    assert (state.stage, state.next_builds) == (Stage.search, (5,))
    tallies[5] = (1, 1)
    state = search_state(tallies)
    assert state.culprit == 5
    assert state.stage in (Stage.verify, Stage.search)  # one run of a build isn't enough
    tallies[5] = (10, 12)
    assert search_state(tallies).stage is Stage.located


def test_probes_side_by_side_split_the_series_between_them() -> None:
    tallies: list[Tally] = [(0, 1)] + [(0, 0)] * 62 + [(1, 1)]
    places = search_state(tallies, sharp=True, want=3).next_builds
    assert len(set(places)) == 3
    assert sorted(places) == pytest.approx([16, 32, 48], abs=2)
    assert search_state(tallies, sharp=True, pending=places[:1]).next_builds[0] != places[0]


def test_several_changes_are_found_one_beside_the_other() -> None:
    bad = [1.0] * 5 + [0.0] * 6 + [1.0] * 9 + [0.0] * 4
    tallies: list[Tally] = [(0, 0)] * len(bad)
    for _ in range(60):
        parts = search_states(tallies, sharp=True)
        next_place = next((part.next_builds[0] for part in parts if part.next_builds), None)
        if next_place is None:
            break
        red, runs = tallies[next_place]
        tallies[next_place] = (red + int(bad[next_place]), runs + 1)
    culprits = {part.culprit for part in parts if part.located}
    assert culprits
    assert culprits <= {5, 11, 20}
    assert all(part.stage.final for part in parts)


def test_each_side_of_a_change_is_searched_up_to_it() -> None:
    bad = [1] * 5 + [0] * 6 + [1] * 9 + [0] * 4
    tallies: list[Tally] = [(6 * red, 6) for red in bad]
    parts = search_states(tallies, sharp=True)
    assert [(part.low, part.high) for part in parts] == [
        (0, 23),
        (0, 19),
        (20, 23),
        (0, 10),
        (11, 19),
        (0, 4),
        (5, 10),
    ]
    assert [part.culprit for part in parts if part.located] == [20, 11, 5]
    assert search_states(tallies, sharp=True, several=False) == parts[:1]
    # a single build beside a change has nothing to search
    edge: list[Tally] = [(0, 9), *[(9, 9)] * 6]
    assert [(part.low, part.high) for part in search_states(edge, sharp=True)] == [(0, 6), (1, 6)]


def test_a_single_build_says_nothing() -> None:
    state = search_state([(1, 2)])
    assert state == SearchState(Stage.untestable, 0, 0, (), 0.0, None, 0.0, 0.5, 0.5, ())


PAIRS = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: (min(pair), max(pair)))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(PAIRS, min_size=1, max_size=12), st.booleans())
def test_any_counts_give_an_answer(tallies: list[Tally], sharp: bool) -> None:
    state = search_state(tallies, sharp=sharp, want=2)
    if len(tallies) < 2:
        assert state.stage is Stage.untestable
        return
    assert sum(state.posterior) == pytest.approx(1)
    assert math.isfinite(state.evidence)
    assert bool(state.next_builds) is not state.stage.final
    assert search_state(tallies, sharp=sharp, want=2) == state


def test_what_cannot_be_is_refused() -> None:
    for tallies, high in (([(2, 1), (0, 0)], 1), ([(0, 0)], 1), ([], 0)):
        with pytest.raises(ValueError, match="no search between"):
            search_state(tallies, high=high)
