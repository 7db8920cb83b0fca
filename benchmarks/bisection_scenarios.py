"""Scenarios of noisy bisection: three on which constants were chosen, and ten others.

A part of `python -m benchmarks.bisection`. The constants `bisect_*` of the policy that say
"calibrated" were chosen on `CHOSEN_ON`, three pairs of rates with 128 builds. `OTHERS` were written
afterwards, and no constant was changed for them. They differ in the rates, in the number of builds,
and some in what the method takes for granted: runs are independent, with one rate on each side.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Run = Callable[[int], bool]
"""Whether a run of the build at that place is bad."""


@dataclass(frozen=True)
class Scenario:
    """A kind of series: its rates, its length, and how its runs come about."""

    name: str
    builds: int
    before: float
    after: float
    """The mean rates of bad runs on both sides of the change."""
    start: Callable[[Scenario, random.Random, int], Run]
    """From the place of the change to the runs of one series."""
    is_model: bool = True
    """Whether runs are independent, with one rate on each side, as the method takes for granted."""
    right: Callable[[int, int], bool] = field(default=lambda answer, place: answer == place)
    """Whether an answer is right."""

    def rate(self, build: int, place: int) -> float:
        """Return the mean rate of a build's bad runs."""
        return self.after if build >= place else self.before


def independent(scenario: Scenario, rng: random.Random, place: int) -> Run:
    """Start a series of independent runs."""
    return lambda build: rng.random() < scenario.rate(build, place)


def _ramp(scenario: Scenario, rng: random.Random, place: int) -> Run:
    """Start a series whose rate grows over the three builds after the change."""

    def run(build: int) -> bool:
        share = min(1.0, max(0.0, (build - place + 1) / RAMP))
        return rng.random() < scenario.before + share * (scenario.after - scenario.before)

    return run


def _bursts(scenario: Scenario, rng: random.Random, place: int) -> Run:
    """Start a series in which a run repeats the build's last outcome in one case of five."""
    last: dict[int, bool] = {}

    def run(build: int) -> bool:
        if build not in last or rng.random() >= STICKY:
            last[build] = rng.random() < scenario.rate(build, place)
        return last[build]

    return run


def _device(scenario: Scenario, rng: random.Random, place: int) -> Run:
    """Start a series whose fault shows on one device of four, which take turns by chance."""
    on_it = scenario.before + DEVICES * (scenario.after - scenario.before)

    def run(build: int) -> bool:
        faulty = build >= place and rng.randrange(DEVICES) == 0
        return rng.random() < (on_it if faulty else scenario.before)

    return run


def _drift(scenario: Scenario, rng: random.Random, place: int) -> Run:
    """Start a series whose rates swing with the device's temperature, by half, every 40 runs."""
    phase = rng.random()
    runs = 0

    def run(build: int) -> bool:
        nonlocal runs
        runs += 1
        swing = 1.0 + SWING * math.sin(2.0 * math.pi * (phase + runs / PERIOD))
        return rng.random() < scenario.rate(build, place) * swing

    return run


def _same_seeds(scenario: Scenario, rng: random.Random, place: int) -> Run:
    """Start a series in which the n-th run of each build has the same seed, and bad seeds stay bad.

    This is what the service does.
    """
    drawn: list[float] = []
    runs: dict[int, int] = {}

    def run(build: int) -> bool:
        number = runs[build] = runs.get(build, -1) + 1
        while len(drawn) <= number:
            drawn.append(rng.random())
        return drawn[number] < scenario.rate(build, place)

    return run


def _builds_differ(scenario: Scenario, rng: random.Random, place: int) -> Run:
    """Start a series in which each build has a rate of its own, around its side's."""
    rates: dict[int, float] = {}

    def run(build: int) -> bool:
        if build not in rates:
            mean = scenario.rate(build, place)
            rates[build] = rng.betavariate(LIKENESS * mean, LIKENESS * (1.0 - mean))
        return rng.random() < rates[build]

    return run


def _warm_up(scenario: Scenario, rng: random.Random, place: int) -> Run:
    """Start a series in which a build's first run compiles, and fails as often as a bad one."""
    ran: set[int] = set()

    def run(build: int) -> bool:
        rate = scenario.rate(build, place) if build in ran else scenario.after
        ran.add(build)
        return rng.random() < rate

    return run


RAMP, STICKY, DEVICES, SWING, PERIOD, LIKENESS = 3, 0.2, 4, 0.5, 40, 20.0

CHOSEN_ON: Sequence[Scenario] = (
    Scenario("mostly red, 128 builds", 128, 0.02, 0.9, independent),
    Scenario("noisy both, 128 builds", 128, 0.2, 0.8, independent),
    Scenario("a new flake, 128 builds", 128, 0.02, 0.3, independent),
)
OTHERS: Sequence[Scenario] = (
    Scenario("a rare flake", 48, 0.0, 0.08, independent),
    Scenario("flaky, then nearly broken", 200, 0.5, 0.97, independent),
    Scenario("a flake gets worse", 24, 0.1, 0.35, independent),
    Scenario("one device of four", 64, 0.01, 0.25, _device),
    Scenario("the same seeds on each build", 100, 0.05, 0.4, _same_seeds, is_model=False),
    Scenario("bursts", 64, 0.05, 0.7, _bursts, is_model=False),
    Scenario("temperature drifts", 80, 0.1, 0.6, _drift, is_model=False),
    Scenario("builds differ by themselves", 40, 0.1, 0.7, _builds_differ, is_model=False),
    Scenario("the first run warms up", 64, 0.02, 0.6, _warm_up, is_model=False),
    Scenario(
        "grows over three builds",
        64,
        0.02,
        0.8,
        _ramp,
        is_model=False,
        right=lambda answer, place: place <= answer < place + RAMP,
    ),
)
