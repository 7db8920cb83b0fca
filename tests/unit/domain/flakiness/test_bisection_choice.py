"""The choice of the next build to run: its information, the branches of outcomes, the stages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.flakiness import bisection
from gonogo.flakiness.bisecting import Expect, Stage
from gonogo.flakiness.bisection import (
    Tally,
    _believed,
    _gain,
    _model,
    _stage,
    _Tree,
    search_state,
    search_states,
)
from gonogo.flakiness.policy import POLICY

MODEL = _model(Expect.either, False, POLICY)
SEARCHED: list[Tally] = [(0, 9), (0, 0), (1, 2), (0, 0), (0, 0), (8, 9)]


def weights(tree: _Tree) -> list[float]:
    return [float(branch.bad(MODEL)[0].sum()) for branch in tree.branches]


def test_the_better_side_has_a_beta_prior_and_the_worse_one_a_uniform_one() -> None:
    a, b = POLICY.bisect_bad, POLICY.bisect_good
    mean = a / (a + b)
    square = mean * (a + 1) / (a + b + 1)
    rates = MODEL.rates
    assert 2 * MODEL.same @ rates == pytest.approx(mean + 1 / 2, abs=5e-3)
    assert 2 * MODEL.same @ rates**2 == pytest.approx(square + 1 / 3, abs=5e-3)


def test_a_run_tells_as_much_as_the_place_and_its_outcome_share() -> None:
    """The mutual information of the place and of a run's outcome, by plain sums."""
    rng = np.random.default_rng(2)
    places = rng.random(4)
    rates = rng.random((2, 4))  # of bad runs before and after the change, at each place
    gain = _gain(places, rates * places)
    whole = places.sum()
    for build in range(5):
        information = 0.0
        bad = [rates[int(place < build), place] for place in range(4)]  # the run is after it
        for outcome in (bad, [1 - rate for rate in bad]):
            mean = sum(p * q for p, q in zip(places, outcome, strict=True)) / whole
            information += sum(
                p * q * math.log(q / mean) for p, q in zip(places, outcome, strict=True)
            )
        assert gain[build] == pytest.approx(information)


def test_the_branches_of_a_run_have_its_outcomes_probabilities() -> None:
    belief, _ = _believed(MODEL, np.array(SEARCHED, dtype=np.float64))
    tree = _Tree(MODEL, belief, [2])
    bad, good = weights(tree)
    assert bad + good == pytest.approx(1.0)
    after = [np.array(SEARCHED, dtype=np.float64) for _ in range(2)]
    after[0][2] += (1, 1)
    after[1][2] += (0, 1)
    for branch, counts in zip(tree.branches, after, strict=True):
        expected, _ = _believed(MODEL, counts)
        places = branch.bad(MODEL)[0]
        assert places / places.sum() == pytest.approx(expected.bad(MODEL)[0])


@pytest.mark.parametrize(("cells", "branches"), [(6, [2, 4, 6, 6]), (0, [2, 4, 4, 4])])
def test_the_likeliest_branches_are_followed_within_the_memory(
    cells: int, branches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    belief, _ = _believed(MODEL, np.array(SEARCHED, dtype=np.float64))
    monkeypatch.setattr(bisection, "_MAX_CELLS", cells * 2 * belief.before.size)
    tree, every = _Tree(MODEL, belief, []), _Tree(MODEL, belief, [])
    for place, count in zip((2, 3, 1, 4), branches, strict=True):
        tree.follow(place)
        assert len(tree.branches) == count
    monkeypatch.undo()
    for place in (2, 3, 1):
        every.follow(place)
    assert len(every.branches) == 8
    monkeypatch.setattr(bisection, "_MAX_CELLS", cells * 2 * belief.before.size)
    tree_within = _Tree(MODEL, belief, [2, 3, 1])
    assert weights(tree_within) == pytest.approx(
        sorted(weights(every), reverse=True)[: len(weights(tree_within))]
    )


def test_the_ends_run_in_turn_the_one_with_fewer_runs_first() -> None:
    def next_of(tallies: list[Tally], pending: tuple[int, ...] = ()) -> tuple[int, ...]:
        state = search_state(tallies, pending=pending, want=3)
        assert state.stage is Stage.gate
        return state.next_builds

    nothing: list[Tally] = [(0, 0)] * 4
    assert next_of(nothing) == (0, 3, 0)
    assert next_of(nothing, (0,)) == (3, 0, 3)
    assert next_of([(0, 1), (0, 0), (0, 0), (0, 0)]) == (3, 0, 3)
    assert next_of(nothing, (0, 0, 0)) == (3, 3, 3)


def test_runs_in_flight_outside_of_a_part_do_not_count_in_it() -> None:
    tallies: list[Tally] = [(0, 0)] * 6
    inside = search_state(tallies, low=1, high=4, pending=(0, 5), want=1)
    assert (inside.low, inside.high, inside.next_builds) == (1, 4, (1,))
    assert search_state(tallies, low=1, high=4, pending=(1,), want=1).next_builds == (4,)
    assert search_state(tallies, low=1, high=4, pending=(4,), want=1).next_builds == (1,)
    with pytest.raises(ValueError, match="no search between"):
        search_state(tallies, low=1, high=6)
    assert search_state(tallies, low=5, high=5).stage is Stage.untestable


def test_a_build_that_is_named_is_not_named_again_at_once() -> None:
    """The second run is chosen as if the first one's outcome were open."""
    both = search_state(SEARCHED, want=2)
    assert both.stage is Stage.search
    first, second = both.next_builds
    assert (first,) == search_state(SEARCHED, want=1).next_builds
    assert search_state(SEARCHED, want=1, pending=(first,)).next_builds == (second,)


def stage(places: list[float], evidence: float, runs: list[int]) -> tuple[Stage, list[int]]:
    counts = np.array([(0, count) for count in runs], dtype=np.float64)
    weights: NDArray[np.float64] = np.array(places)
    return _stage(weights, int(weights.argmax()), (0.1, 0.9), counts, evidence, POLICY)


def test_a_stage_begins_at_its_odds() -> None:
    bound = math.log(POLICY.bisect_stop / (1 - POLICY.bisect_stop))
    gate = math.log(POLICY.bisect_gate)
    sure = [0.0, 1.0, 0.0]
    assert stage(sure, bound, [1, 0, 1, 0]) == (Stage.gate, [])  # an end has not run
    assert stage(sure, bound, [0, 1, 1, 1]) == (Stage.gate, [])
    assert stage(sure, gate - 1e-6, [1, 1, 1, 1]) == (Stage.gate, [])
    assert stage(sure, gate, [1, 1, 1, 1]) == (Stage.search, [])
    assert stage(sure, -bound, [1, 1, 1, 1]) == (Stage.no_change, [])
    assert stage(sure, -0.999 * bound, [1, 1, 1, 1]) == (Stage.gate, [])
    assert stage(sure, bound, [1, 1, 1, 1]) == (Stage.located, [])
    assert stage(sure, 0.999 * bound, [1, 1, 1, 1]) == (Stage.search, [])
    stop = POLICY.bisect_stop
    assert stage([0.0, stop, 1 - stop], bound, [1, 1, 1, 1])[0] is Stage.verify
    assert stage([0.0, 0.999 * stop, 1 - 0.999 * stop], bound, [1, 1, 1, 1])[0] is Stage.search


def test_both_builds_beside_the_place_run_before_it_is_believed() -> None:
    bound = math.log(POLICY.bisect_stop / (1 - POLICY.bisect_stop))
    assert stage([0.0, 1.0, 0.0], bound, [1, 0, 1, 1]) == (Stage.verify, [1])
    assert stage([0.0, 1.0, 0.0], bound, [1, 1, 0, 1]) == (Stage.verify, [2])
    assert stage([0.01, 0.97, 0.02], bound, [1, 0, 0, 1]) == (Stage.verify, [2, 1])
    assert stage([0.02, 0.97, 0.01], bound, [1, 0, 0, 1]) == (Stage.verify, [1, 2])
    # one that has run waits for one that has not, whatever it would save
    assert stage([0.04, 0.96, 0.0], bound, [1, 9, 0, 1]) == (Stage.verify, [2, 1])


def test_parts_beside_a_located_change_are_searched_unless_one_change_is() -> None:
    tallies: list[Tally] = [(0, 30), (0, 30), (30, 30), (30, 30)]
    states = search_states(tallies)
    assert [(state.low, state.high) for state in states] == [(0, 3), (0, 1), (2, 3)]
    assert states[0].culprit == 2
    assert len(search_states(tallies, several=False)) == 1
    assert bisection.testable(5, {1, 3}) == (0, 2, 4)
