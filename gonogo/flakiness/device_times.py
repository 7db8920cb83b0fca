"""The seconds a seed of a kernel on its devices: of a build, and of two builds against each other.

They are compared on a log scale, where a kernel that takes twice as long is as far away at any
speed. This module loads no numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.special import student_quantile

_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
LEVEL = 1 - POLICY.significance
"""The level of all intervals."""


@dataclass(frozen=True)
class Times:
    """The seeds of a job on one device: their number, and sums of log(seconds) and its square."""

    device: str
    seeds: int
    log_sum: float
    square_sum: float

    @property
    def mean(self) -> float:
        """Return the mean of log(seconds)."""
        return self.log_sum / self.seeds


@dataclass(frozen=True)
class DeviceTime:
    """The seconds a seed of a build: the geometric mean, and its interval."""

    seeds: int
    seconds: float
    low: float
    high: float

    @property
    def words(self) -> str:
        """The time in one phrase: "1.23 ms (1.21 ms to 1.25 ms)"."""
        return f"{spelled(self.seconds)} ({spelled(self.low)} to {spelled(self.high)})"


@dataclass(frozen=True)
class TimeChange:
    """The seconds a seed of a build over those of an earlier one, with the interval of the ratio.

    Both times are those on the devices that ran both builds.
    """

    before: DeviceTime
    after: DeviceTime
    ratio: float
    low: float
    high: float

    @property
    def slower(self) -> bool:
        """Whether the whole interval lies above the policy's limit."""
        return self.low > POLICY.slower_ratio

    @property
    def faster(self) -> bool:
        """Whether the whole interval lies below one over the policy's limit."""
        return self.high < 1 / POLICY.slower_ratio

    @property
    def ratio_words(self) -> str:
        """The ratio in one phrase: "1.3 times (99.9%: 1.2 to 1.4)"."""
        return f"{self.ratio:.3g} times ({100 * LEVEL:g}%: {self.low:.3g} to {self.high:.3g})"

    @property
    def words(self) -> str:
        """The change in one phrase: "2.6 ms a seed, before 2 ms: 1.3 times (...)"."""
        before, after = spelled(self.before.seconds), spelled(self.after.seconds)
        return f"{after} a seed, before {before}: {self.ratio_words}"


class _Mean(NamedTuple):
    """A mean of log(seconds), its squared standard error, and the freedom of that."""

    seeds: int
    value: float
    squared_error: float
    freedom: float

    @property
    def interval(self) -> tuple[float, float, float]:
        """Return the seconds, and the ends of their interval."""
        # whole, so that few quantiles are computed; the interval only becomes wider
        quantile = student_quantile(POLICY.significance, int(self.freedom))
        reach = quantile * math.sqrt(self.squared_error)
        return math.exp(self.value), math.exp(self.value - reach), math.exp(self.value + reach)


def time_of(times: Sequence[Times]) -> DeviceTime | None:
    """Return the seconds a seed of a build; None: it has too few seeds."""
    devices = _by_device(times)
    mean = _mean(devices, {device: _seeds(of_device) for device, of_device in devices.items()})
    return None if mean is None else DeviceTime(mean.seeds, *mean.interval)


def compare(before: Sequence[Times], after: Sequence[Times]) -> TimeChange | None:
    """Return how many times longer a seed takes after than before, on the devices of both.

    None: a side has too few seeds there. Devices weigh by their seeds on the side that has fewer.
    The interval of the difference of the means is Welch's (see gonogo.flakiness.contrasts).
    """
    sides = _by_device(before), _by_device(after)
    common = sorted(sides[0].keys() & sides[1].keys())
    shares = {device: min(_seeds(side[device]) for side in sides) for device in common}
    one, two = (_mean(side, shares) for side in sides)
    if one is None or two is None:
        return None
    error = one.squared_error + two.squared_error
    parts = one.squared_error**2 / one.freedom + two.squared_error**2 / two.freedom
    ratio = _Mean(one.seeds + two.seeds, two.value - one.value, error, error**2 / parts)
    first, second = (DeviceTime(side.seeds, *side.interval) for side in (one, two))
    return TimeChange(first, second, *ratio.interval)


def compare_with_earlier(
    builds: Mapping[str, Sequence[Times]], build: str, base: str | None
) -> tuple[str, TimeChange] | None:
    """Return (the name of an earlier build, the change from it to `build`).

    It is `base` if that is before `build`, else the nearest one that ran on its devices. builds: in
    order. None: there is no such build.
    """
    names = list(builds)
    earlier = names[: names.index(build)][::-1] if build in builds else []
    earlier = [base] if base in earlier else earlier
    changes = ((name, compare(builds[name], builds[build])) for name in earlier)
    return next(((name, change) for name, change in changes if change is not None), None)


def spelled(seconds: float) -> str:
    """Return seconds with three digits and a unit, such as "12.4 ms"."""
    scale, unit = unit_of(seconds)
    return f"{seconds / scale:.3g} {unit}"


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the largest unit that is no longer, in seconds, and its name."""
    return next((pair for pair in _SCALES if seconds >= pair[0]), _SCALES[-1])


def _by_device(times: Sequence[Times]) -> dict[str, list[Times]]:
    devices: dict[str, list[Times]] = {}
    for one in times:
        devices.setdefault(one.device, []).append(one)
    return devices


def _seeds(times: Sequence[Times]) -> int:
    return sum(one.seeds for one in times)


def _mean(devices: Mapping[str, Sequence[Times]], shares: Mapping[str, int]) -> _Mean | None:
    """Return the mean of a build over devices by their shares; None: its seeds are too few.

    Seeds of one process are alike, so jobs differ by more than their seeds show: by what the policy
    says, which counts as much as the difference of so many jobs.
    """
    chosen = {device: devices[device] for device in shares}
    jobs = [one for times in chosen.values() for one in times]
    seeds = _seeds(jobs)
    if seeds < POLICY.slower_seeds:
        return None
    means = {name: math.fsum(t.log_sum for t in of) / _seeds(of) for name, of in chosen.items()}
    squares = math.fsum(one.square_sum - one.log_sum * one.mean for one in jobs)
    of_seed = max(squares, 0.0) / max(1, seeds - len(jobs))
    freedom = POLICY.process_jobs + len(jobs) - len(chosen)
    between = math.fsum((one.mean - means[one.device]) ** 2 for one in jobs)
    of_job = (POLICY.process_jobs * POLICY.process_spread**2 + between) / freedom
    weights = {name: share / sum(shares.values()) for name, share in shares.items()}
    value = math.fsum(weights[name] * mean for name, mean in means.items())
    error = math.fsum(
        weights[name] ** 2 * (of_seed / _seeds(of) + of_job / len(of))
        for name, of in chosen.items()
    )
    return _Mean(seeds, value, error, freedom)
