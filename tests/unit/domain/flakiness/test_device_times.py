"""Device time: stable kernels look no slower, slow ones do, and only equal devices are compared."""

from __future__ import annotations

import math
import random

import pytest

from gonogo.flakiness.device_times import Times, compare, time_of


def job(seconds: float = 1e-3, device: str = "a", seeds: int = 16, noise: float = 0.01) -> Times:
    logs = [math.log(seconds) + noise * (1 if seed % 2 else -1) for seed in range(seeds)]
    return Times(device, seeds, math.fsum(logs), math.fsum(log * log for log in logs))


@pytest.mark.parametrize("spread", [0.02, 0.03, 0.04, 0.05])
@pytest.mark.parametrize("jobs", [1, 2, 8])
def test_of_a_thousand_stable_kernels_at_most_ten_look_slower(jobs: int, spread: float) -> None:
    """Processes differ by a few percent; a kernel half as fast again is seen from two jobs on."""
    noise = random.Random(jobs)

    def build(ratio: float = 1.0) -> list[Times]:
        means = (ratio * math.exp(noise.gauss(0, spread)) for _ in range(jobs))
        return [job(1e-3 * mean) for mean in means]

    stable = [compare(build(), build()) for _ in range(1000)]
    assert sum(change is not None and change.slower for change in stable) <= 10
    slow = [compare(build(), build(1.5)) for _ in range(100)]
    assert sum(change is not None and change.slower for change in slow) >= (90 if jobs > 1 else 80)


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        ([job(2e-3), job(3e-3, "b")], [job(3e-3, "b")], 1.0),
        ([job(2e-3), job(3e-3, "b")], [job(2e-3, seeds=48), job(3e-3, "b")], 1.0),
        ([job(2e-3), job(3e-3, "b")], [job(4e-3, seeds=48), job(6e-3, "b")], 2.0),
        ([job(2e-3)], [job(3e-3, "b")], None),
        ([job()], [job(seeds=4), job(device="b", seeds=12)], None),
        ([job(), job(device="b", seeds=12)], [job(), job(device="b", seeds=1)], 1.0),
        ([job(1e-9, noise=0)] * 8, [job(1e9, noise=0)] * 8, 1e18),
    ],
)
def test_builds_are_compared_on_the_devices_of_both(
    before: list[Times], after: list[Times], ratio: float | None
) -> None:
    change = compare(before, after)
    assert (change and change.ratio) == (ratio and pytest.approx(ratio, rel=0.01))
    assert change is None or change.slower == (change.ratio > 1.5)


def test_the_widest_times_have_an_interval() -> None:
    wild = [job(1e-9, seeds=1), job(1e9, seeds=1)] * 8
    time, change = time_of(wild), compare(wild, wild[:8])
    assert time is not None
    assert change is not None
    assert 0 < time.low < time.high < math.inf
    assert not change.slower
