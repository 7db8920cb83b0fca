"""Seeds that run again: equal numbers are no new samples, other numbers are.

The tests cover tails, rates, and the tables of contexts and devices.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from gonogo.flakiness.attribution import Cause, attribute
from gonogo.flakiness.grades import Stability, stability
from gonogo.flakiness.rates import Outcome, rate
from gonogo.flakiness.samples import Sample, devices, distinct_places
from gonogo.flakiness.tails import clustered, tail, tail_of

NIGHTS = 30
FAR, NEAR = (0.1, 0.15, 0.2, 0.27), (0.5, 0.6, 0.7, 0.86)


def sample(
    seed: int,
    *,
    digest: str | None = "",
    failed: bool = False,
    device: str = "a",
    build: str = "b",
    night: int = 0,
) -> Sample:
    """Return a run, first in its process; by default its digest depends on its seed alone."""
    bits = f"{seed}" if digest == "" else digest
    return Sample(
        seed,
        0,
        device,
        build,
        "isolated",
        f"{night}",
        0,
        bits,
        Outcome.failed if failed else Outcome.passed,
    )


def noisy(values: tuple[float, ...], spread: float) -> list[tuple[int | None, float | None]]:
    """Return (seed, ratio) of thirty nights, whose numbers differ from night to night."""
    noise = np.random.default_rng(1).normal(1, spread, size=(NIGHTS, len(values)))
    return [(seed, values[seed] * float(row[seed])) for row in noise for seed in range(len(values))]


def exponential(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return quantiles of the exponential distribution: a sample without sampling noise."""
    return -np.log1p(-(np.arange(count) + 0.5) / count)


@pytest.mark.parametrize("values", [FAR, NEAR])
@pytest.mark.parametrize("spread", [0.0, 1e-6, 0.01])
def test_four_seeds_of_thirty_nights_are_four(values: tuple[float, ...], spread: float) -> None:
    seed_ratios = noisy(values, spread)
    prediction = tail_of(seed_ratios)
    assert (prediction.seeds, prediction.distinct, prediction.repeated, prediction.predicted) == (
        4,
        4,
        116,
        None,
    )
    assert prediction.words.startswith(
        "4 distinct seeds are too few to predict how often others fail (20 are needed)"
    )
    kind, words = stability(rate(0, len(seed_ratios)), prediction)
    assert kind is Stability.unknown
    assert words.startswith("not enough seeds: 4 of 20; 4 distinct seeds are too few")
    json.dumps(asdict(prediction), allow_nan=False)


def test_a_tail_of_repeated_numbers_would_have_been_nonsense() -> None:
    """Four seeds counted as forty predict failures of a kernel that is far within its tolerance."""
    prediction = tail([value for value in FAR for _ in range(10)])
    assert prediction.predicted is not None
    assert prediction.predicted > 0.01
    assert (
        tail_of([(seed, value) for _ in range(10) for seed, value in enumerate(FAR)]).predicted
        is None
    )


def test_numbers_that_differ_as_much_within_a_seed_as_between_seeds_are_new_samples() -> None:
    values = np.random.default_rng(3).permutation(
        0.42 + 0.1 * exponential(NIGHTS * 4)
    )  # .003 of them are above 1
    again = tail_of([(place % 4, float(value)) for place, value in enumerate(values)])
    fresh = tail_of([(place, float(value)) for place, value in enumerate(values)])
    assert (again.seeds, again.distinct, again.per) == (120, 4, "runs")
    assert (fresh.seeds, fresh.distinct, fresh.per) == (120, 120, "seeds")
    assert again.predicted == fresh.predicted
    assert again.predicted is not None
    assert again.predicted > 1e-3
    assert (
        stability(rate(0, 120), again)[0] is stability(rate(0, 120), fresh)[0] is Stability.marginal
    )
    assert again.words.endswith("(120 runs), of 4 seeds")


def test_enough_seeds_are_one_sample_each_however_often_they_run() -> None:
    values = np.random.default_rng(2).random(50) * 0.1
    prediction = tail_of(
        [
            (seed, float(value) * (1 + 1e-4 * night))
            for night in range(5)
            for seed, value in enumerate(values)
        ]
    )
    assert (prediction.seeds, prediction.distinct, prediction.repeated) == (50, 50, 200)
    assert prediction.predicted == pytest.approx(1 / 500)


def test_runs_without_a_controlled_seed_are_each_their_own() -> None:
    values = [0.1 + 0.001 * (place % 4) for place in range(40)]
    prediction = tail_of([(None, value) for value in values])
    assert (asdict(prediction), prediction.seeds) == (asdict(tail(values)), 40)
    assert tail_of([]).words == "not enough seeds: 0 of 20"
    assert tail_of([(1, None), (1, float("nan"))]).left_out == 2
    assert clustered([[1.0, 1.1]])
    assert not clustered([[1.0], [2.0]])


def test_bits_that_repeat_count_once_but_not_of_a_kernel_that_is_known_to_be_nondeterministic() -> (
    None
):
    nights = [
        sample(seed, night=night, build=f"b{night}") for night in range(NIGHTS) for seed in range(4)
    ]
    assert distinct_places(nights) == [0, 1, 2, 3]
    assert distinct_places([replace(run, digest=None) for run in nights]) == list(range(120))
    assert distinct_places([replace(run, seed=None) for run in nights]) == list(range(120))
    other = [replace(run, digest=f"{run.digest} {run.build}") for run in nights]
    assert len(distinct_places(other)) == 120
    assert distinct_places(other, [0.5] * 120) == [
        0,
        1,
        2,
        3,
    ]  # the bits differ by build, the figures don't
    same = [replace(run, build="b") for run in nights]
    same[50] = replace(same[50], digest="another")
    assert distinct_places(same, [0.5] * 120) == list(range(120))


def test_one_bad_seed_run_every_night_is_no_difference_of_devices() -> None:
    runs = [
        sample(seed, device="a" if seed < 2 else "b", failed=seed == 3, night=night)
        for night in range(NIGHTS)
        for seed in range(4)
    ]
    first, second = devices(runs)
    assert (first.runs, second.runs, second.failed, second.repeated, second.host_runs) == (
        2,
        2,
        1,
        58,
        NIGHTS,
    )
    attribution = attribute(runs)
    assert attribution.cause is Cause.seed_sensitive
    assert (attribution.failures.failures, attribution.failures.runs, attribution.repeated) == (
        1,
        4,
        116,
    )
    assert "(116 more repeat one of these bit for bit)" in attribution.words
    mixed = [
        replace(run, digest=f"{night}") for night, run in enumerate(runs)
    ]  # it never repeats itself: each run is a trial
    assert attribute(mixed).failures.runs == 120
    assert devices(mixed)[1].runs == 60


def test_one_bad_seed_run_again_on_every_other_device_is_no_difference_of_devices() -> None:
    well = [sample(seed, device="a") for seed in range(30)]
    bad = [sample(99, failed=True, device=f"d{number}") for number in range(8)]
    attribution = attribute([*well, *bad])
    assert Cause.device_dependent not in attribution.causes
    assert next(row.p for row in attribution.devices if row.name == "a") == pytest.approx(
        1 / 31
    )  # 0 of 30 against 1 of 1
    other = [
        replace(run, digest=run.device) for run in bad
    ]  # each device has bits of its own: eight failures
    assert Cause.device_dependent in attribute([*well, *other]).causes


def test_one_red_seed_run_again_is_not_a_broken_test() -> None:
    assert (
        attribute([sample(0, failed=True, night=night) for night in range(9)]).cause
        is Cause.unknown
    )
    assert attribute([sample(seed, failed=True) for seed in range(4)]).cause is Cause.broken


def test_numbers_that_are_missing_are_left_out_and_counted() -> None:
    once = tail_of([(0, 0.1), (1, None), (2, float("nan")), (None, 0.2)])
    assert (once.seeds, once.left_out, once.repeated) == (2, 2, 0)
    assert once.words == "not enough seeds: 2 of 20"
    again = tail_of([*noisy(FAR, 0.0), (9, None), (None, float("nan"))])
    assert (again.seeds, again.left_out, again.repeated) == (4, 2, 116)
    (only,) = {tail_of([(7, 0.1)] * 5).words}
    assert only.startswith("1 distinct seed is too few to predict how often others fail")
    assert only.endswith("(4 runs did)")


def test_two_groups_are_clustered_by_their_numbers_and_one_by_itself() -> None:
    low, high = [0.10, 0.11, 0.12, 0.13], [0.50, 0.51, 0.52, 0.53]
    assert clustered([low, high])
    assert not clustered([low[:2] + high[:2], low[2:] + high[2:]])
    assert clustered([low])
    assert not clustered([[0.1], [0.2], [0.3]])
