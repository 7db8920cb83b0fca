"""A device's work, canaries and telemetry: numbers of its charts, and sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

from gonogo_dashboards.kit import words
from gonogo_service.devices.model import DevicePeriodRow
from gonogo_service.devices.periods import METRICS
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import CanaryOutcome

HOUR_S = 3600.0


@dataclass(frozen=True)
class WorkDay:
    """One UTC day and its busy fraction, 0 to 1.

    `busy` counts today only up to now; it is None before the device's first heartbeat.
    """

    day: str
    busy: float | None
    busy_s: float
    seeds: int
    attempts: int
    canaries: Mapping[str, int]


@dataclass(frozen=True)
class Reading:
    """An hour's telemetry: minimum, mean, maximum."""

    start: str
    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class Series:
    """One metric over the hours with readings, in order.

    Hours without are left out, so a chart shows them as a gap.
    """

    metric: str
    name: str
    unit: str
    readings: tuple[Reading, ...]
    words: str


@dataclass(frozen=True)
class DeviceDays:
    """Days, canaries and telemetry; `since` and `until` are the ends of the charts."""

    since: str
    until: str
    days: tuple[WorkDay, ...]
    work: str
    canary_count: int
    canaries: str
    series: tuple[Series, ...]


def days(
    hours: Sequence[DevicePeriodRow], since: datetime, now: datetime, *, began: datetime
) -> DeviceDays:
    """Return the days of a device from its hours since a moment.

    `began` is its first heartbeat, or `since` where that is later.
    """
    first, today = since.astimezone(UTC).date(), now.astimezone(UTC).date()
    of_day: dict[date, list[DevicePeriodRow]] = {}
    for hour in hours:
        of_day.setdefault(hour.start.date(), []).append(hour)
    whole = [first + timedelta(days=place) for place in range((today - first).days + 1)]
    work_days = tuple(_day(day, of_day.get(day, []), began, now) for day in whole)
    outcomes = {name: sum(day.canaries[name] for day in work_days) for name in CanaryOutcome}
    # rounded to the hour, so that charts aren't redrawn every few seconds
    until = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    series = (_series(metric, hours) for metric in METRICS)
    return DeviceDays(
        since=timestamp(since),
        until=timestamp(until),
        days=work_days,
        work=_work(work_days),
        canary_count=sum(outcomes.values()),
        canaries=_canaries(outcomes),
        series=tuple(one_series for one_series in series if one_series.readings),
    )


def _day(day: date, hours: Sequence[DevicePeriodRow], began: datetime, now: datetime) -> WorkDay:
    start = datetime.combine(day, time(), UTC)
    there_s = (min(start + timedelta(days=1), now) - max(start, began)).total_seconds()
    busy_s = sum(hour.busy_s for hour in hours)
    return WorkDay(
        day=day.isoformat(),
        busy=min(1.0, busy_s / there_s) if there_s > 0 else None,
        busy_s=busy_s,
        seeds=sum(hour.seeds for hour in hours),
        attempts=sum(hour.attempts for hour in hours),
        canaries={name.value: sum(getattr(hour, name) for hour in hours) for name in CanaryOutcome},
    )


def _work(days: Sequence[WorkDay]) -> str:
    known = [day for day in days if day.busy is not None]
    if not any(day.busy_s for day in known):
        return "No attempt ended on it in this time."
    most = max(known, key=lambda day: day.busy or 0.0)
    seeds, attempts = sum(day.seeds for day in known), sum(day.attempts for day in known)
    total = words.duration(sum(day.busy_s for day in known))
    return (
        f"Busy for {total} of {words.count(len(known), 'day')}: {words.count(seeds, 'seed')}"
        f" in {words.count(attempts, 'attempt')}. "
        f"Busiest on {most.day}, {100 * (most.busy or 0.0):.3g}% of the day."
    )


def _canaries(outcomes: Mapping[CanaryOutcome, int]) -> str:
    total = sum(outcomes.values())
    if not total:
        return "No canary ran in this time."
    parts = [f"{number:,} {outcome.label}" for outcome, number in outcomes.items() if number]
    return f"{words.count(total, 'canary', 'canaries')}: {', '.join(parts)}."


def _series(metric: str, hours: Sequence[DevicePeriodRow]) -> Series:
    name, unit = words.quantity(metric)
    measured = [(hour.start, reading) for hour in hours if (reading := hour.reading(metric))]
    readings = tuple(Reading(timestamp(start), *reading) for start, reading in measured)
    if not readings:
        return Series(metric, name, unit, (), "")
    low, high = min(reading.low for reading in readings), max(reading.high for reading in readings)
    lies = words.number(low) if low == high else f"{words.number(low)} to {words.number(high)}"
    text = f"{lies} {unit} in {words.count(len(readings), 'hour')} with work"
    starts = pairwise(start for start, _ in measured)
    gap = max(((after - before).total_seconds() - HOUR_S for before, after in starts), default=0.0)
    text += f"; the longest gap is {words.duration(gap)}." if gap > 0 else "."
    return Series(metric, name, unit, readings, text)
