"""Bisection's belief against plain sums, the price of a run, bold choices, unexpected counts, and
the time of a step."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from gonogo.errors import FieldError
from gonogo.flakiness.bisecting import Expect, Stage
from gonogo.flakiness.bisection import Tally, _divergence, _model, _over, search_state
from gonogo.flakiness.policy import POLICY, FlakinessPolicy

NEAR = [(0, 20), (1, 20), (17, 20), (20, 20)]
"""Builds around a change at place 2, run often."""


@pytest.mark.parametrize("expect", list(Expect))
@pytest.mark.parametrize("sharp", [False, True])
def test_the_belief_is_the_sum_over_all_places_and_pairs_of_rates(
    expect: Expect, sharp: bool
) -> None:
    tallies: list[Tally] = [(1, 6), (0, 3), (0, 0), (4, 5), (2, 3)]
    model = _model(expect, sharp, POLICY)

    def likelihood(rate: float, part: list[Tally]) -> float:
        return math.prod(float(rate**bad * (1 - rate) ** (runs - bad)) for bad, runs in part)

    whole = [
        sum(
            model.pairs[i, j]
            * likelihood(before, tallies[:place])
            * likelihood(after, tallies[place:])
            for i, before in enumerate(model.rates)
            for j, after in enumerate(model.rates)
        )
        for place in range(1, 5)
    ]
    none = sum(
        weight * likelihood(rate, tallies)
        for weight, rate in zip(model.same, model.rates, strict=True)
    )
    state = search_state(tallies, expect=expect, sharp=sharp)
    assert state.posterior == pytest.approx([place_weight / sum(whole) for place_weight in whole])
    assert state.evidence == pytest.approx(math.log(sum(whole) / 4 / none))
    assert model.pairs.sum() == pytest.approx(1)
    assert model.same.sum() == pytest.approx(1)


def test_a_neighbour_runs_while_one_more_run_saves_more_than_it_costs() -> None:
    """An expensive run ends the search sooner; the more informative neighbor runs first."""
    assert search_state(NEAR).stage is Stage.located
    expensive, cheap = replace(POLICY, bisect_cost=0.5), replace(POLICY, bisect_cost=1e-9)
    few: list[Tally] = [(0, 20), (0, 6), (3, 4), (20, 20)]
    assert search_state(few, policy=expensive).stage is Stage.located
    state = search_state(few, policy=cheap, want=2)
    assert state.stage is Stage.verify
    assert state.probability >= POLICY.bisect_stop
    later, earlier = (
        sum(state.posterior[state.culprit or 0 :]),
        sum(state.posterior[: (state.culprit or 0) - 1]),
    )
    assert later > earlier
    # the first changed build can rule out later places; its predecessor, earlier ones
    assert state.next_builds == (2, 1)
    assert search_state(few, policy=cheap, pending=[2], want=2).next_builds == (1,)
    assert search_state(few, policy=cheap, pending=[2, 1]).next_builds == ()


def test_what_the_runs_of_a_search_say_is_counted_once_however_boldly_it_chooses() -> None:
    tallies: list[Tally] = [(0, 3), *[(0, 0)] * 14, (2, 3), *[(0, 0)] * 15, (3, 4)]
    bold, calm = (
        search_state(tallies),
        search_state(tallies, policy=replace(POLICY, bisect_boldness=1.0)),
    )
    assert bold.stage is Stage.search
    assert (bold.posterior, bold.evidence) == (calm.posterior, calm.evidence)
    boldest = search_state(tallies, policy=replace(POLICY, bisect_boldness=20.0))
    assert boldest.next_builds != calm.next_builds
    # the tenth run is chosen calmly
    calm_tenth = replace(POLICY, bisect_boldness=20.0, bisect_calm=10)
    assert search_state(tallies, policy=calm_tenth).next_builds == calm.next_builds


@pytest.mark.parametrize("expect", [Expect.regression, Expect.fix])
def test_runs_against_the_expected_order_say_no_change_however_many_they_are(
    expect: Expect,
) -> None:
    bad, good = ((20000, 20000), (0, 20000))
    tallies: list[Tally] = (
        [bad, bad, good, good] if expect is Expect.regression else [good, good, bad, bad]
    )
    state = search_state(tallies, expect=expect)
    assert state.stage is Stage.no_change
    assert math.isfinite(state.evidence)
    assert sum(state.posterior) == pytest.approx(1)
    assert search_state(tallies).culprit == 2


def test_a_policy_that_cannot_be_is_refused() -> None:
    for name, value in (
        ("bisect_cost", 0.0),
        ("bisect_cost", 1.0),
        ("bisect_good", 0.0),
        ("bisect_boldness", -1.0),
        ("bisect_calm", 0),
    ):
        with pytest.raises(FieldError):
            FlakinessPolicy(**{name: value})


@pytest.mark.parametrize(("builds", "flying", "most_s"), [(128, 0, 0.05), (2000, 3, 1.0)])
def test_a_step_is_short(builds: int, flying: int, most_s: float) -> None:
    tallies: list[Tally] = [(0, 5), *[(0, 0)] * (builds - 2), (4, 5)]
    search_state(tallies)
    durations_s = []
    for _ in range(3):
        started_at = time.process_time()
        assert (
            len(search_state(tallies, pending=[builds // 2] * flying, want=1 + flying).next_builds)
            == 1 + flying
        )
        durations_s.append(time.process_time() - started_at)
    assert min(durations_s) < most_s


def test_the_sums_of_each_place_and_the_nats_of_each_run() -> None:
    assert _over(np.array([1.0, 2.0]), np.array([3.0, 4.0])).tolist() == [3.0, 5.0, 7.0]
    assert _divergence(0.5, 0.25) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert _divergence(0.25, 0.5) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert _divergence(0.3, 0.3) == 0.0
