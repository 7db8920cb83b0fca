"""Devices' activity by minute and hour: stored seeds, busy time, canaries, telemetry.

Pages read these sums instead of attempts and results. They are written at the end of the
transaction that they count, because other transactions of the device wait until its commit. Minutes
serve the current rates, hours serve the pages. Both are by the service's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from gonogo_service.devices.model import DevicePeriodRow, DeviceRow
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.states import AttemptState, CanaryOutcome

MINUTE, HOUR = 60, 3600
SIZES = (MINUTE, HOUR)
RETENTION = {MINUTE: timedelta(hours=3), HOUR: timedelta(days=400)}
METRICS = ("temperature_c", "clock_mhz", "power_w")
"""The telemetry that is summed."""
MAX_TELEMETRY_AGE = timedelta(days=1)
"""Telemetry with an older time, or one in the future, counts as current."""
_COUNTS = ("seeds", "busy_us", "attempts", *(outcome.value for outcome in CanaryOutcome))


@dataclass(frozen=True)
class SeedRate:
    """The number of seeds stored within the last `window_s` seconds."""

    seeds: int
    window_s: float

    @property
    def per_s(self) -> float:
        """Seeds per second."""
        return self.seeds / self.window_s


@dataclass(frozen=True)
class Load:
    """The share of the last hour and of the last day that a device was busy, 0 to 1."""

    hour: float
    day: float


@dataclass(frozen=True)
class Work:
    """A device's stored seeds, busy time and ended attempts in some hours."""

    seeds: int = 0
    busy_s: float = 0.0
    attempts: int = 0


@dataclass(frozen=True)
class Hour:
    """A device's activity in the hour from `start`.

    `telemetry` is {metric: (minimum, mean, maximum)}.
    """

    start: datetime
    seeds: int
    busy_s: float
    attempts: int
    canaries: Mapping[str, int]
    telemetry: Mapping[str, tuple[float, float, float]]


def record_seeds(session: Session, device: str | None, seeds: int, *, now: datetime) -> None:
    """Count stored seeds of a device."""
    if device and seeds:
        _increase(session, device, {(size, _start(now, size)): {"seeds": seeds} for size in SIZES})


def record_attempt(session: Session, attempt: AttemptRow, *, now: datetime) -> None:
    """Count an ended attempt and its busy time, from its start to its last sign of life."""
    began, ended = (
        attempt.started_at,
        attempt.heard_at if attempt.state == AttemptState.lost else attempt.finished_at,
    )
    if attempt.device and began and ended:
        # A canary's report locks the device before its hour. Lock in the same order here, because
        # the caller may go on to the device's telemetry.
        session.execute(
            select(DeviceRow.id).where(DeviceRow.identity == attempt.device).with_for_update()
        )
        parts: dict[tuple[int, datetime], dict[str, int]] = {
            (size, _start(ended, size)): {"attempts": 1} for size in SIZES
        }
        for size in SIZES:
            at = _start(max(began, now - RETENTION[size]), size)
            while at < ended:
                busy = min(ended, at + timedelta(seconds=size)) - max(began, at)
                parts.setdefault((size, at), {})["busy_us"] = busy // timedelta(microseconds=1)
                at += timedelta(seconds=size)
        _increase(session, attempt.device, parts)


def record_canary(session: Session, device: str, outcome: CanaryOutcome, *, now: datetime) -> None:
    """Count a canary of a device by its outcome."""
    _increase(session, device, {(HOUR, _start(now, HOUR)): {outcome.value: 1}})


def record_telemetry(
    session: Session, device: str, telemetry: Mapping[str, Any], *, now: datetime
) -> None:
    """Add temperature, clock and power to the sums of their hour ("at", seconds since the epoch).

    The caller has locked the device.
    """
    values = {
        name: float(value)
        for name in METRICS
        if isinstance(value := telemetry.get(name), int | float)
    }
    if not values:
        return
    start = _start(_measured_at(telemetry, now), HOUR)
    _increase(session, device, {(HOUR, start): {}})
    row = (
        DevicePeriodRow.device == device,
        DevicePeriodRow.size_s == HOUR,
        DevicePeriodRow.start == start,
    )
    sums: dict[str, list[float]] = dict(
        session.execute(select(DevicePeriodRow.telemetry).where(*row)).scalar_one()
    )
    for name, value in values.items():
        count, minimum, total, maximum = sums.get(name, (0, value, 0.0, value))
        sums[name] = [count + 1, min(minimum, value), total + value, max(maximum, value)]
    session.execute(
        update(DevicePeriodRow)
        .where(*row)
        .values(telemetry=sums)
        .execution_options(synchronize_session=False)
    )


@dataclass(frozen=True)
class Pulse:
    """The current rate of stored seeds over all devices, and each device's load.

    The rates are "now" (the last minute or two), "hour" and "day". Devices without work in the last
    day are not in `loads`.
    """

    rates: Mapping[str, SeedRate]
    loads: Mapping[str, Load]

    def load(self, device: str) -> Load:
        """Return the load of a device, "host/name"."""
        return self.loads.get(device, Load(0.0, 0.0))


def pulse(session: Session, *, now: datetime) -> Pulse:
    """Return the current rates and loads; running attempts count up to now."""
    running = select(AttemptRow.device, AttemptRow.started_at).where(
        AttemptRow.state == AttemptState.running
    )
    busy_since = [(device, began) for device, began in session.execute(running) if device and began]
    rates: dict[str, SeedRate] = {}
    shares: dict[str, dict[str, float]] = {}
    for name, (size, before) in {
        "now": (MINUTE, 1),
        "hour": (MINUTE, 59),
        "day": (HOUR, 23),
    }.items():
        since = _start(now, size) - timedelta(seconds=before * size)
        window_s = (now - since).total_seconds()
        query = select(
            DevicePeriodRow.device,
            func.sum(DevicePeriodRow.seeds),
            func.sum(DevicePeriodRow.busy_us),
        )
        rows = session.execute(
            query.where(*_from(size, since)).group_by(DevicePeriodRow.device)
        ).all()
        rates[name] = SeedRate(sum(int(seeds) for _, seeds, _ in rows), window_s)
        busy = {device: int(busy_us) / 1e6 for device, _, busy_us in rows}
        for device, began in busy_since:
            busy[device] = busy.get(device, 0.0) + max(
                0.0, (now - max(began, since)).total_seconds()
            )
        for device, seconds in busy.items():
            shares.setdefault(device, {})[name] = min(1.0, seconds / window_s)
    return Pulse(
        rates,
        {
            device: Load(share.get("hour", 0.0), share.get("day", 0.0))
            for device, share in shares.items()
        },
    )


def hours(session: Session, device: str, *, since: datetime) -> list[Hour]:
    """Return a device's hours in order; those without activity are left out."""
    names = (
        "start",
        "seeds",
        "busy_us",
        "attempts",
        *(outcome.value for outcome in CanaryOutcome),
        "telemetry",
    )
    query = select(*(getattr(DevicePeriodRow, name) for name in names))
    query = query.where(
        DevicePeriodRow.device == device, *_from(HOUR, _start(since, HOUR))
    ).order_by(DevicePeriodRow.start)
    return [
        Hour(
            start,
            seeds,
            busy_us / 1e6,
            attempts,
            dict(zip(CanaryOutcome, canaries, strict=True)),
            {
                name: (minimum, total / count, maximum)
                for name, (count, minimum, total, maximum) in telemetry.items()
            },
        )
        for start, seeds, busy_us, attempts, *canaries, telemetry in session.execute(query)
    ]


def work(session: Session, *, since: datetime) -> dict[str, Work]:
    """Return what each device did since an hour; those that did nothing are left out."""
    table = DevicePeriodRow
    sums = func.sum(table.seeds), func.sum(table.busy_us), func.sum(table.attempts)
    query = select(table.device, *sums).where(*_from(HOUR, _start(since, HOUR)))
    return {
        device: Work(int(seeds), float(busy_us) / 1e6, int(attempts))
        for device, seeds, busy_us, attempts in session.execute(query.group_by(table.device))
    }


def forget(session: Session, *, now: datetime) -> None:
    """Delete minutes and hours that no page reads any more."""
    for size, retention in RETENTION.items():
        session.execute(
            delete(DevicePeriodRow).where(
                DevicePeriodRow.size_s == size, DevicePeriodRow.start < now - retention
            )
        )


def _from(size: int, since: datetime) -> tuple[Any, Any]:
    return DevicePeriodRow.size_s == size, DevicePeriodRow.start >= since


def _start(moment: datetime, size: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // size * size, UTC)


def _measured_at(telemetry: Mapping[str, Any], now: datetime) -> datetime:
    at = telemetry.get("at")
    if (
        not isinstance(at, int | float)
        or not now.timestamp() - MAX_TELEMETRY_AGE.total_seconds() < at <= now.timestamp()
    ):
        return now
    return datetime.fromtimestamp(at, UTC)


def _increase(
    session: Session, device: str, parts: Mapping[tuple[int, datetime], Mapping[str, int]]
) -> None:
    """Add to the sums of periods, in their order, so that two writers never deadlock."""
    rows = [
        {
            "device": device,
            "size_s": size,
            "start": start,
            **{name: parts[size, start].get(name, 0) for name in _COUNTS},
            "telemetry": {},
        }
        for size, start in sorted(parts)
    ]
    dialect.increase(session, DevicePeriodRow, rows, _COUNTS)
