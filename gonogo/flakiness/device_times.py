"""The seconds a seed of a kernel on its devices: of a build, and of two builds against each other.

They are compared on a log scale, where a kernel that takes twice as long is as far away at any
speed. This module loads no numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.special import student_quantile

_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_WIDEST = 100.0
"""Half the width of an interval of logarithms: more than any times differ, and no overflow."""
_MOST = 1000.0
"""Degrees of freedom that are as good as any number."""
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


def time_of(times: Sequence[Times]) -> DeviceTime | None:
    """Return the seconds a seed of a build; None: it has too few seeds."""
    devices = _by_device(times)
    mean = _mean(devices, {device: _seeds(of_device) for device, of_device in devices.items()})
    return None if mean is None else _time(mean)


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
    reach, difference = _reach(error, error**2 / parts if parts else 1.0), two.value - one.value
    ratio, low, high = map(math.exp, (difference, difference - reach, difference + reach))
    return TimeChange(_time(one), _time(two), ratio, low, high)


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

    Seeds of one process are alike, so each job differs by more than its seeds show: by what the
    policy says, or by what the jobs show where they are many.
    """
    chosen = {device: devices[device] for device in shares}
    jobs = [one for times in chosen.values() for one in times]
    seeds = _seeds(jobs)
    if seeds < POLICY.slower_seeds:
        return None
    means = {name: math.fsum(t.log_sum for t in of) / _seeds(of) for name, of in chosen.items()}
    within = math.fsum(one.square_sum - one.log_sum * one.mean for one in jobs)
    freedom = max(1, seeds - len(jobs))
    variance, of_job = max(within, 0.0) / freedom, POLICY.process_spread**2
    of_jobs = len(jobs) - len(chosen)
    if of_jobs + 1 >= POLICY.process_jobs:
        between = math.fsum(one.seeds * (one.mean - means[one.device]) ** 2 for one in jobs)
        variance, freedom = max((variance, freedom), (between / of_jobs, of_jobs))
        of_job = 0.0
    weights = {device: share / sum(shares.values()) for device, share in shares.items()}

    def error(of_device: Callable[[Sequence[Times]], float]) -> float:
        return math.fsum(weights[name] ** 2 * of_device(of) for name, of in chosen.items())

    of_seeds = error(lambda of: variance / _seeds(of))
    whole = of_seeds + error(lambda of: of_job / len(of))
    value = math.fsum(weights[name] * mean for name, mean in means.items())
    # the policy's part is known, and has no freedom to count
    return _Mean(seeds, value, whole, freedom * (whole / of_seeds) ** 2 if of_seeds else _MOST)


def _time(mean: _Mean) -> DeviceTime:
    reach = _reach(mean.squared_error, mean.freedom)
    return DeviceTime(mean.seeds, *(math.exp(mean.value + by) for by in (0.0, -reach, reach)))


def _reach(squared_error: float, freedom: float) -> float:
    """Return half the width of the interval of a mean."""
    # whole, so that few quantiles are computed; the interval only becomes wider
    quantile = student_quantile(POLICY.significance, int(min(freedom, _MOST)))
    return min(_WIDEST, quantile * math.sqrt(squared_error))
