"""Noisy bisection: its belief, where runs go, when it stops, and several changes."""

from __future__ import annotations

import math
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.flakiness.bisecting import Expect, Stage
from gonogo.flakiness.bisection import SearchState, Tally, _model, search_state, search_states
from gonogo.flakiness.policy import POLICY
from property_examples import examples


def search(
    bad: list[float], *, sharp: bool, expect: Expect = Expect.either, seed: int = 1
) -> tuple[SearchState, int]:
    """Search builds with these rates of bad runs; return the last state and the number of runs."""
    rng = random.Random(seed)
    tallies: list[Tally] = [(0, 0)] * len(bad)
    for runs in range(2000):
        state = search_state(tallies, expect=expect, sharp=sharp)
        if state.stage.final:
            return state, runs
        (place,) = state.next_builds
        red, number = tallies[place]
        tallies[place] = (red + (rng.random() < bad[place]), number + 1)
    raise AssertionError("no end")


@pytest.mark.parametrize("expect", list(Expect))
@pytest.mark.parametrize("sharp", [False, True])
def test_the_belief_is_the_sum_over_all_places_and_pairs_of_rates(
    expect: Expect, sharp: bool
) -> None:
    tallies: list[Tally] = [(1, 6), (0, 3), (0, 0), (4, 5), (2, 3)]
    model = _model(expect, sharp)

    def likelihood(rate: float, part: list[Tally]) -> float:
        return math.prod(float(rate**bad * (1 - rate) ** (runs - bad)) for bad, runs in part)

    whole = [
        sum(
            model.pairs[i, j] * likelihood(b, tallies[:place]) * likelihood(a, tallies[place:])
            for i, b in enumerate(model.rates)
            for j, a in enumerate(model.rates)
        )
        for place in range(1, 5)
    ]
    rates = zip(model.same, model.rates, strict=True)
    none = sum(weight * likelihood(rate, tallies) for weight, rate in rates)
    state = search_state(tallies, expect=expect, sharp=sharp)
    assert state.posterior == pytest.approx([weight / sum(whole) for weight in whole])
    assert state.evidence == pytest.approx(math.log(sum(whole) / 4 / none))
    assert (model.pairs.sum(), model.same.sum()) == pytest.approx((1, 1))


@pytest.mark.parametrize("count", [2, 3, 8, 33, 128])
@pytest.mark.parametrize("expect", [Expect.regression, Expect.either])
def test_a_logic_bug_takes_log_n_runs_and_two_at_every_place(count: int, expect: Expect) -> None:
    for place in {1, count // 2, count // 3 or 1, count - 1}:
        bad = [float(build >= place) for build in range(count)]
        state, runs = search(bad, sharp=True, expect=expect)
        assert (state.stage, state.culprit) == (Stage.located, place)
        assert runs <= math.ceil(math.log2(count)) + 2


@pytest.mark.parametrize(
    ("before", "after", "most"), [(0.02, 0.9, 60), (0.9, 0.02, 60), (0.2, 0.8, 200)]
)
def test_noisy_series_end_at_the_place(before: float, after: float, most: int) -> None:
    right = 0
    for seed in range(6):
        state, runs = search([before] * 21 + [after] * 11, sharp=False, seed=seed)
        right += state.culprit == 21
        assert state.located
        assert state.probability >= POLICY.bisect_stop
        assert runs <= most
        assert (state.before, state.after) == pytest.approx((before, after), abs=0.3)
    assert right >= 5


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_nothing_changed(rate: float) -> None:
    assert search([rate] * 16, sharp=False, seed=3)[0].stage is Stage.no_change
    assert search([float(rate > 0.5)] * 16, sharp=True)[1] == 2


@pytest.mark.parametrize("expect", [Expect.regression, Expect.fix])
def test_runs_against_the_expected_order_say_no_change_however_many_they_are(
    expect: Expect,
) -> None:
    tallies: list[Tally] = [(20000, 20000)] * 2 + [(0, 20000)] * 2
    if expect is Expect.fix:
        tallies.reverse()
    state = search_state(tallies, expect=expect)
    assert state.stage is Stage.no_change
    assert math.isfinite(state.evidence)
    assert sum(state.posterior) == pytest.approx(1)
    assert search_state(tallies).culprit == 2


def test_the_ends_run_first_and_both_neighbors_before_it_is_believed() -> None:
    tallies: list[Tally] = [(0, 0)] * 9
    assert search_state(tallies, want=3).next_builds == (0, 8, 0)
    assert search_state(tallies, pending=[0]).next_builds == (8,)
    tallies[0], tallies[4], tallies[6], tallies[8] = (3, 30), (3, 30), (24, 30), (24, 30)
    state = search_state(tallies)
    assert (state.stage, state.next_builds) == (Stage.search, (5,))
    tallies[5] = (1, 1)
    state = search_state(tallies)
    assert state.culprit == 5
    assert not state.stage.final  # one run of a build isn't enough
    tallies[5] = (10, 12)
    assert search_state(tallies).stage is Stage.located


def test_probes_side_by_side_split_the_series_between_them() -> None:
    tallies: list[Tally] = [(0, 1)] + [(0, 0)] * 62 + [(1, 1)]
    places = search_state(tallies, sharp=True, want=3).next_builds
    assert len(set(places)) == 3
    assert sorted(places) == pytest.approx([16, 32, 48], abs=2)
    assert search_state(tallies, sharp=True, pending=places[:1]).next_builds[0] != places[0]


def test_each_side_of_a_change_is_searched_up_to_it() -> None:
    bad = [1] * 5 + [0] * 6 + [1] * 9 + [0] * 4
    parts = search_states([(6 * red, 6) for red in bad], sharp=True)
    spans = [(part.low, part.high) for part in parts]
    assert spans == [(0, 23), (0, 19), (20, 23), (0, 10), (11, 19), (0, 4), (5, 10)]
    assert [part.culprit for part in parts if part.located] == [20, 11, 5]
    assert all(part.stage.final for part in parts)
    assert search_states([(6 * red, 6) for red in bad], sharp=True, several=False) == parts[:1]
    # a single build beside a change has nothing to search
    edge: list[Tally] = [(0, 9), *[(9, 9)] * 6]
    assert [(part.low, part.high) for part in search_states(edge, sharp=True)] == [(0, 6), (1, 6)]


def test_a_single_build_says_nothing() -> None:
    state = search_state([(1, 2)])
    assert state == SearchState(Stage.untestable, 0, 0, (), 0.0, None, 0.0, 0.5, 0.5, ())


PAIRS = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: (min(pair), max(pair)))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(PAIRS, min_size=2, max_size=12), st.booleans())
def test_any_counts_give_an_answer(tallies: list[Tally], sharp: bool) -> None:
    state = search_state(tallies, sharp=sharp, want=2)
    assert sum(state.posterior) == pytest.approx(1)
    assert math.isfinite(state.evidence)
    assert bool(state.next_builds) is not state.stage.final


def test_impossible_counts_are_refused() -> None:
    for tallies, high in (([(2, 1), (0, 0)], 1), ([(0, 0)], 1), ([], 0)):
        with pytest.raises(ValueError, match="no search between"):
            search_state(tallies, high=high)


@pytest.mark.parametrize(("builds", "flying", "most_s"), [(128, 0, 0.05), (2000, 3, 1.0)])
def test_a_step_is_short(builds: int, flying: int, most_s: float) -> None:
    tallies: list[Tally] = [(0, 5), *[(0, 0)] * (builds - 2), (4, 5)]
    search_state(tallies)
    durations_s = []
    for _ in range(3):
        started_at = time.process_time()
        search_state(tallies, pending=[builds // 2] * flying, want=1 + flying)
        durations_s.append(time.process_time() - started_at)
    assert min(durations_s) < most_s
