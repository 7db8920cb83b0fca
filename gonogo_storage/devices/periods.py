"""What devices did by minute and by hour: seeds stored, time at work, canaries, telemetry. Pages
read these sums, not attempts and rows.

Written in the transaction of what they count, as the last thing of it: others of the same device
wait from here to the commit. Minutes are kept for the rates of now, hours for the pages; both go by
the clock of the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from gonogo_storage.db import dialect
from gonogo_storage.db.states import AttemptState, CanaryOutcome
from gonogo_storage.tables import AttemptRow, DevicePeriodRow, DeviceRow

MINUTE, HOUR = 60, 3600
SIZES = (MINUTE, HOUR)
KEPT = {MINUTE: timedelta(hours=3), HOUR: timedelta(days=400)}
METRICS = ("temperature_c", "clock_mhz", "power_w")
"""What is kept of the telemetry."""
LATE = timedelta(days=1)
"""Telemetry that says it is older than this, or from the future, is taken as of now."""
_COUNTS = ("seeds", "busy_us", "attempts", *(outcome.value for outcome in CanaryOutcome))


@dataclass(frozen=True)
class Rate:
    """Seeds stored within the last `window_s` seconds, of which the last minute or hour is not
    over.
    """

    seeds: int
    window_s: float

    @property
    def per_s(self) -> float:
        """Seeds a second."""
        return self.seeds / self.window_s


@dataclass(frozen=True)
class Load:
    """Which share of the last hour and of the last day a device was at work, 0 to 1."""

    hour: float
    day: float


@dataclass(frozen=True)
class Hour:
    """What a device did in an hour that began at `start`; telemetry by metric: (least, mean,
    largest).
    """

    start: datetime
    seeds: int
    busy_s: float
    attempts: int
    canaries: Mapping[str, int]
    telemetry: Mapping[str, tuple[float, float, float]]


def stored(session: Session, device: str | None, seeds: int, *, now: datetime) -> None:
    """Seeds of a device were stored."""
    if device and seeds:
        _increase(session, device, {(size, _start(now, size)): {"seeds": seeds} for size in SIZES})


def ran(session: Session, attempt: AttemptRow, *, now: datetime) -> None:
    """An attempt is over: the time from its start to its last sign of life was its device's
    work.
    """
    began, ended = (
        attempt.started_at,
        attempt.heard_at if attempt.state == AttemptState.lost else attempt.finished_at,
    )
    if attempt.device and began and ended:
        # a canary's report locks the device before its hour, so whoever goes on to the device (its
        # telemetry) must do the same
        session.execute(
            select(DeviceRow.id).where(DeviceRow.identity == attempt.device).with_for_update()
        )
        parts: dict[tuple[int, datetime], dict[str, int]] = {
            (size, _start(ended, size)): {"attempts": 1} for size in SIZES
        }
        for size in SIZES:
            at = _start(max(began, now - KEPT[size]), size)
            while at < ended:
                busy = min(ended, at + timedelta(seconds=size)) - max(began, at)
                parts.setdefault((size, at), {})["busy_us"] = busy // timedelta(microseconds=1)
                at += timedelta(seconds=size)
        _increase(session, attempt.device, parts)


def sang(session: Session, device: str, outcome: CanaryOutcome, *, now: datetime) -> None:
    """A canary of a device ended."""
    _increase(session, device, {(HOUR, _start(now, HOUR)): {outcome.value: 1}})


def measured(session: Session, device: str, telemetry: Mapping[str, Any], *, now: datetime) -> None:
    """Temperature, clock and power, of the moment that they name ("at", seconds since the epoch).
    The caller has locked the device.
    """
    told = {
        name: float(value)
        for name in METRICS
        if isinstance(value := telemetry.get(name), int | float)
    }
    if not told:
        return
    start = _start(_told_at(telemetry, now), HOUR)
    _increase(session, device, {(HOUR, start): {}})
    row = (
        DevicePeriodRow.device == device,
        DevicePeriodRow.size_s == HOUR,
        DevicePeriodRow.start == start,
    )
    kept: dict[str, list[float]] = dict(
        session.execute(select(DevicePeriodRow.telemetry).where(*row)).scalar_one()
    )
    for name, value in told.items():
        number, least, total, most = kept.get(name, (0, value, 0.0, value))
        kept[name] = [number + 1, min(least, value), total + value, max(most, value)]
    session.execute(
        update(DevicePeriodRow)
        .where(*row)
        .values(telemetry=kept)
        .execution_options(synchronize_session=False)
    )


@dataclass(frozen=True)
class Pulse:
    """How fast all devices together store seeds ("now": the last minute or two, "hour", "day"), and
    how busy each one is.

    Devices that did nothing in the last day are not in `loads`.
    """

    rates: Mapping[str, Rate]
    loads: Mapping[str, Load]

    def load(self, device: str) -> Load:
        """Of one device, "host/name"."""
        return self.loads.get(device, Load(0.0, 0.0))


def pulse(session: Session, *, now: datetime) -> Pulse:
    """Of this moment; attempts that still run count up to now."""
    running = select(AttemptRow.device, AttemptRow.started_at).where(
        AttemptRow.state == AttemptState.running
    )
    at_work = [(device, began) for device, began in session.execute(running) if device and began]
    rates: dict[str, Rate] = {}
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
        found = session.execute(
            query.where(*_from(size, since)).group_by(DevicePeriodRow.device)
        ).all()
        rates[name] = Rate(sum(int(seeds) for _, seeds, _ in found), window_s)
        busy = {device: int(busy_us) / 1e6 for device, _, busy_us in found}
        for device, began in at_work:
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
    """The hours of a device in order; those in which nothing happened are left out."""
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
            dict(zip(CanaryOutcome, sung, strict=True)),
            {
                name: (least, total / number, most)
                for name, (number, least, total, most) in telemetry.items()
            },
        )
        for start, seeds, busy_us, attempts, *sung, telemetry in session.execute(query)
    ]


def forget(session: Session, *, now: datetime) -> None:
    """Drop minutes and hours that no page reads any more."""
    for size, kept in KEPT.items():
        session.execute(
            delete(DevicePeriodRow).where(
                DevicePeriodRow.size_s == size, DevicePeriodRow.start < now - kept
            )
        )


def _from(size: int, since: datetime) -> tuple[Any, Any]:
    return DevicePeriodRow.size_s == size, DevicePeriodRow.start >= since


def _start(moment: datetime, size: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // size * size, UTC)


def _told_at(telemetry: Mapping[str, Any], now: datetime) -> datetime:
    at = telemetry.get("at")
    if (
        not isinstance(at, int | float)
        or not now.timestamp() - LATE.total_seconds() < at <= now.timestamp()
    ):
        return now
    return datetime.fromtimestamp(at, UTC)


def _increase(
    session: Session, device: str, parts: Mapping[tuple[int, datetime], Mapping[str, int]]
) -> None:
    """Add to the sums of some periods, in their order, so that two who add never wait for each
    other in a circle.
    """
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
