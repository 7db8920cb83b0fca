"""The seconds a seed of a kernel on its device: of a build, and of two builds against each other.

They are compared on a log scale, where a kernel that takes twice as long is as far away at any
speed. This module loads no numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.special import student_quantile

_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


class Times(NamedTuple):
    """The seeds of a job on one device: their number, and sums of log(seconds) and its square."""

    seeds: int
    logs: float
    squares: float

    @property
    def seconds(self) -> float:
        """Return the geometric mean."""
        return math.exp(self.logs / self.seeds)


@dataclass(frozen=True)
class DeviceTime:
    """The seconds a seed of a build: the geometric mean, and its interval at `level`."""

    seeds: int
    seconds: float
    low: float
    high: float
    level: float

    @property
    def words(self) -> str:
        """The time in one phrase: "1.23 ms (1.21 ms to 1.25 ms)"."""
        return f"{spelled(self.seconds)} ({spelled(self.low)} to {spelled(self.high)})"


@dataclass(frozen=True)
class TimeChange:
    """The seconds a seed of a build over those of an earlier one, with the interval of the ratio.

    It is slower, or faster, where the whole interval lies beyond the policy's limit.
    """

    before: DeviceTime
    after: DeviceTime
    ratio: float
    low: float
    high: float
    level: float
    slower: bool
    faster: bool
    words: str
    policy: str


class _Sample(NamedTuple):
    """The mean of log(seconds), its squared standard error, and the degrees of freedom."""

    seeds: int
    mean: float
    error: float
    freedom: float


def of_build(times: Sequence[Times]) -> DeviceTime | None:
    """Return the seconds a seed of a build; None: it has too few seeds."""
    sample = _sample(times)
    return None if sample is None else _time(sample)


def compare(before: Sequence[Times], after: Sequence[Times]) -> TimeChange | None:
    """Return how many times longer a seed takes after than before; None: a side has too few seeds.

    The interval of the difference of the means is Welch's (see gonogo.flakiness.contrasts).
    """
    one, two = _sample(before), _sample(after)
    if one is None or two is None:
        return None
    error = one.error + two.error
    parts = one.error**2 / one.freedom + two.error**2 / two.freedom
    reach = _reach(error, error**2 / parts if parts else 1.0)
    difference = two.mean - one.mean
    ratio, low, high = (
        math.exp(value) for value in (difference, difference - reach, difference + reach)
    )
    slower, faster = low > POLICY.slower_ratio, high < 1 / POLICY.slower_ratio
    first, second, level = _time(one), _time(two), POLICY.slower_level
    words = (
        f"{spelled(second.seconds)} a seed, before {spelled(first.seconds)}: {ratio:.3g} times"
        f" ({100 * level:g}%: {low:.3g} to {high:.3g})"
    )
    return TimeChange(first, second, ratio, low, high, level, slower, faster, words, POLICY.version)


def spelled(seconds: float) -> str:
    """Return seconds with three digits and a unit, such as "12.4 ms"."""
    scale, unit = unit_of(seconds)
    return f"{seconds / scale:.3g} {unit}"


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the largest unit that is no longer, in seconds, and its name."""
    return next((pair for pair in _SCALES if seconds >= pair[0]), _SCALES[-1])


def _sample(times: Sequence[Times]) -> _Sample | None:
    """Return what a build's seeds say of its mean; None: they are too few.

    The error is that of independent seeds. Where the means of three jobs or more differ by more
    than that, it is theirs: a process may be faster than another.
    """
    seeds = sum(one.seeds for one in times)
    if seeds < POLICY.slower_seeds:
        return None
    mean = math.fsum(one.logs for one in times) / seeds
    spread = math.fsum(one.squares for one in times) - seeds * mean**2
    sample = _Sample(seeds, mean, max(spread, 0.0) / (seeds - 1) / seeds, seeds - 1)
    groups = len(times)
    if groups < POLICY.change_least:
        return sample
    between = math.fsum(one.seeds * (one.logs / one.seeds - mean) ** 2 for one in times)
    error = between / (groups - 1) / seeds
    return sample if error <= sample.error else sample._replace(error=error, freedom=groups - 1)


def _time(sample: _Sample) -> DeviceTime:
    reach = _reach(sample.error, sample.freedom)
    middle, low, high = (math.exp(sample.mean + side) for side in (0.0, -reach, reach))
    return DeviceTime(sample.seeds, middle, low, high, POLICY.slower_level)


def _reach(error: float, freedom: float) -> float:
    """Return half the width of the interval of a mean with this squared standard error."""
    return student_quantile(1 - POLICY.slower_level, freedom) * math.sqrt(error)
