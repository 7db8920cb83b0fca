"""Change points over builds of several seeds: alarms on stable series, and short series' changes.

A part of `python -m benchmarks.flakiness`. Numbers are exponentials: a build has a level, and its
seeds vary around it. "Spread" is the standard deviation of the logarithm. The policy's constants
were chosen on `CHOSEN_ON`; `OTHERS` are kernels of another nature, and of other lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.intervals import clopper_pearson
from gonogo.flakiness.changes import number_changes

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]

LENGTHS = (6, 8, 10, 12, 15, 16, 18, 20, 30, 60)
OTHER_LENGTHS = (7, 9, 11, 13, 14, 17, 22, 26, 40, 90)
ALARMS_PER_THOUSAND = 10
"""4-flakiness: a thousand stable series give at most ten alarms."""
FIVE_FOLD = 0.99
"""The share of five-fold drops after 14 builds that 4 builds behind them must show."""


def normal(rng: np.random.Generator, count: int) -> Array:
    """Draw standard normal numbers."""
    return rng.normal(size=count)


def heavy(rng: np.random.Generator, count: int) -> Array:
    """Draw from Student's t with 3 degrees of freedom."""
    return rng.standard_t(3, size=count)


def skewed(rng: np.random.Generator, count: int) -> Array:
    """Draw exponential numbers."""
    return rng.exponential(size=count)


def outliers(rng: np.random.Generator, count: int) -> Array:
    """Draw numbers of which 1 in 20 is 50 times as large as the others."""
    return np.where(rng.random(count) < 0.05, math.log(50.0), 0.0) + 0.02 * rng.normal(size=count)


def two_values(rng: np.random.Generator, count: int) -> Array:
    """Draw one of two numbers."""
    return rng.choice(np.array([0.0, math.log(2.0)]), size=count)


def constant(rng: np.random.Generator, count: int) -> Array:
    """Return equal numbers."""
    return np.zeros(count)


def equal_counts(seeds: int) -> Callable[[np.random.Generator, int], NDArray[np.int64]]:
    """Return a draw of numbers of seeds: the same for all builds."""
    return lambda rng, builds: np.full(builds, seeds)


def random_counts(rng: np.random.Generator, builds: int) -> NDArray[np.int64]:
    """Draw 1 to 64 seeds for a build."""
    return rng.integers(1, 65, size=builds)


def few_at_last(rng: np.random.Generator, builds: int) -> NDArray[np.int64]:
    """Return 64 seeds for a build, and 2 for the last four."""
    return np.where(np.arange(builds) < builds - 4, 64, 2)


class StableSeries(NamedTuple):
    """A kind of series without a change."""

    name: str
    counts: Callable[[np.random.Generator, int], NDArray[np.int64]]
    seeds: Draw
    builds: Draw
    limit: str = ""
    """The reason why it raises more alarms than allowed: the docs name it, and nothing is met."""

    def draw(self, rng: np.random.Generator, length: int) -> list[Array]:
        """Return the numbers of the seeds of each build."""
        levels = self.builds(rng, length)
        counts = self.counts(rng, length)
        return [
            np.exp(level + self.seeds(rng, int(count)))
            for level, count in zip(levels, counts, strict=True)
        ]


CHOSEN_ON = (
    StableSeries("1 seed, normal", equal_counts(1), normal, constant),
    StableSeries("1 seed, t(3)", equal_counts(1), heavy, constant),
    StableSeries("1 seed, exponential", equal_counts(1), skewed, constant),
    StableSeries("1 seed, outliers", equal_counts(1), outliers, constant),
    StableSeries("1 seed, two values", equal_counts(1), two_values, constant),
    StableSeries("20 seeds, equal builds", equal_counts(20), normal, constant),
    StableSeries("20 seeds, equal bits", equal_counts(20), constant, constant),
    StableSeries("20 seeds, builds normal", equal_counts(20), normal, normal),
    StableSeries("8 seeds t(3), builds t(3)", equal_counts(8), heavy, heavy),
    StableSeries("8 seeds, outlier builds", equal_counts(8), normal, outliers),
    StableSeries("1 to 64 seeds, equal builds", random_counts, normal, constant),
    StableSeries("1 to 64 seeds, builds normal", random_counts, normal, normal),
    StableSeries("64 seeds, last 4 builds 2", few_at_last, normal, constant),
)


def small(rng: np.random.Generator, count: int) -> Array:
    """Draw normal numbers that vary by 10%."""
    return 0.1 * rng.normal(size=count)


def squares(rng: np.random.Generator, count: int) -> Array:
    """Draw the log of a squared error of one element."""
    return np.log(np.square(rng.normal(size=count)) + 1e-12)


def drifting(rng: np.random.Generator, count: int) -> Array:
    """Draw numbers of which each is a little like the one before: temperature."""
    numbers = rng.normal(size=count)
    for place in range(1, count):
        numbers[place] = 0.2 * numbers[place - 1] + math.sqrt(0.96) * numbers[place]
    return numbers


def steps(rng: np.random.Generator, count: int) -> Array:
    """Draw the log of a largest error, which is a whole number of units in the last place."""
    return np.log(np.maximum(1.0, np.round(8.0 * np.exp(0.2 * rng.normal(size=count)))))


def maxima(rng: np.random.Generator, count: int) -> Array:
    """Draw the log of the largest of 256 normal errors."""
    return np.asarray(np.log(np.abs(rng.normal(size=(count, 256))).max(axis=1)), dtype=np.float64)


def two_orders(rng: np.random.Generator, count: int) -> Array:
    """Draw one of two levels, and noise: the bits of a sum in one of two orders."""
    return np.where(rng.random(count) < 0.35, math.log(2.0), 0.0) + 0.02 * rng.normal(size=count)


def warm_up(rng: np.random.Generator, count: int) -> Array:
    """Draw seeds of which the first of a build has twice the error."""
    return np.where(np.arange(count) == 0, math.log(2.0), 0.0) + 0.1 * rng.normal(size=count)


def two_spreads(rng: np.random.Generator, count: int) -> Array:
    """Draw numbers of builds on two devices, one of which varies five times as much."""
    spreads = rng.choice(np.array([0.2, 1.0]), size=count)
    return np.asarray(rng.normal(size=count) * spreads, dtype=np.float64)


def bursts(rng: np.random.Generator, count: int) -> Array:
    """Draw numbers of which 1 in 40, and with luck the next one, is ten times as large."""
    starts = rng.random(count) < 0.025
    follows = np.concatenate([[False], starts[:-1]]) & (rng.random(count) < 0.5)
    return np.where(starts | follows, math.log(10.0), 0.0) + 0.2 * rng.normal(size=count)


def rare_flake(rng: np.random.Generator, count: int) -> Array:
    """Draw seeds of which 1 in 200 is a hundred times as large."""
    return np.where(rng.random(count) < 0.005, math.log(100.0), 0.0) + 0.1 * rng.normal(size=count)


OTHERS = (
    StableSeries("squared error, 1 seed", equal_counts(1), squares, constant),
    StableSeries("largest error in ulp, 1 seed", equal_counts(1), steps, constant),
    StableSeries("largest of 256, 32 seeds", equal_counts(32), maxima, small),
    StableSeries(
        "two orders of a sum, 1 seed", equal_counts(1), two_orders, constant, "two levels"
    ),
    StableSeries("two orders by build, 5 seeds", equal_counts(5), small, two_orders, "two levels"),
    StableSeries("warm-up seed of 4", equal_counts(4), warm_up, small),
    StableSeries("two devices' spreads, 12 seeds", equal_counts(12), small, two_spreads),
    StableSeries(
        "temperature drifts, 1 seed", equal_counts(1), constant, drifting, "builds are alike"
    ),
    StableSeries("bursts, 3 seeds", equal_counts(3), small, bursts, "builds are alike"),
    StableSeries("a rare flake, 16 seeds", equal_counts(16), rare_flake, constant),
)


class Drop(NamedTuple):
    """A series with a change, and the share of such series in which it must be found."""

    lengths: tuple[int, ...]
    """The builds of each level; every other level is the lower one."""
    factor: float
    seeds: int
    seed_spread: float
    build_spread: float
    target: float | None


DROPS = tuple(
    Drop(
        lengths,
        factor,
        seeds,
        seed_spread,
        build_spread,
        FIVE_FOLD if lengths == (14, 4) and factor == 5 else None,
    )
    for lengths in ((14, 4), (13, 3), (7, 4, 7), (3, 3), (3, 3, 3))
    for seeds, seed_spread, build_spread in (
        (1, 0.1, 0.0),
        (8, 0.3, 0.0),
        (8, 0.3, 0.1),
        (20, 1.0, 0.0),
    )
    for factor in (5.0, 2.0, 1.3)
    if lengths == (14, 4) or seeds == 8
)


def build_alarms(
    rng: np.random.Generator,
    count: int,
    console: Console,
    sample: str = "in-sample",
    kinds: Sequence[StableSeries] = CHOSEN_ON,
    lengths: Sequence[int] = LENGTHS,
) -> bool:
    """Count changes reported in series without one, by length.

    In-sample, no length may have more than the allowed ones; out-of-sample, all lengths together
    may not, by their 95% interval. Kinds with a known limit only show how many there are.
    """
    allowed = count * ALARMS_PER_THOUSAND // 1000
    table = Table(
        title=(
            f"{sample}: change points over builds: alarms on {count} stable series"
            f" (allowed: {allowed})"
        ),
        title_justify="left",
    )
    table.add_column("series")
    for length in lengths:
        table.add_column(str(length), justify="right")
    table.add_column("per thousand", justify="right")
    table.add_column("known limit")
    good = True
    for series in kinds:
        alarms = [
            sum(bool(number_changes(series.draw(rng, length)).changes) for _ in range(count))
            for length in lengths
        ]
        low, high = clopper_pearson(sum(alarms), count * len(lengths))
        is_met = (
            max(alarms) <= allowed if sample == "in-sample" else 1000 * low <= ALARMS_PER_THOUSAND
        )
        good &= is_met or bool(series.limit)
        share = 1000 * sum(alarms) / (count * len(lengths))
        interval = f"{share:.1f} [{1000 * low:.1f}, {1000 * high:.1f}]"
        table.add_row(series.name, *map(str, alarms), interval, series.limit)
    console.print(table)
    return good


def build_drops(rng: np.random.Generator, count: int, console: Console) -> bool:
    """Count the drops that are detected after few builds, and the places inside their interval."""
    table = Table(
        title=f"in-sample: change points over builds: drops detected in {count} series",
        title_justify="left",
    )
    for column in (
        "builds",
        "drop",
        "seeds",
        "spread of seeds",
        "of builds",
        "target",
        "measured",
        "place in interval",
    ):
        table.add_column(column, justify="left" if column == "builds" else "right")
    good = True
    for drop in DROPS:
        detected = inside = 0
        lowered = np.repeat(np.arange(len(drop.lengths)) % 2, drop.lengths)
        for _ in range(count):
            levels = drop.build_spread * rng.normal(size=len(lowered))
            levels -= math.log(drop.factor) * lowered
            noise = drop.seed_spread * rng.normal(size=(len(lowered), drop.seeds))
            changes = number_changes(list(np.exp(levels[:, None] + noise))).changes
            detected += bool(changes)
            inside += any(change.low <= drop.lengths[0] <= change.high for change in changes)
        share = detected / count
        good &= drop.target is None or share >= drop.target
        table.add_row(
            " + ".join(map(str, drop.lengths)),
            f"{drop.factor:g} times",
            str(drop.seeds),
            f"{drop.seed_spread:g}",
            f"{drop.build_spread:g}",
            "" if drop.target is None else f"{drop.target:g}",
            f"{share:.3f}",
            f"{inside / detected:.3f}" if detected else "",
        )
    console.print(table)
    return good
