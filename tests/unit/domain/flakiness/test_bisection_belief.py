"""Bisection's belief against plain sums, the price of a run, bold choices, unexpected counts, and
the time of a step."""

from __future__ import annotations

import math
import time

import pytest

from gonogo.flakiness.bisecting import Expect, Stage
from gonogo.flakiness.bisection import Tally, _model, search_state


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
