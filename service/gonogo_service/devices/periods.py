"""Devices' activity by minute and hour: stored seeds, busy time, canaries, telemetry.

Pages read these sums instead of attempts and results. They are written at the end of the
transaction that they count, because other transactions of the device wait until its commit. Minutes
serve the current rates, hours serve the pages. Both are by the service's clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import and_, case, delete, func, or_, select, update
from sqlalchemy.orm import Session

from gonogo_service.devices.model import DevicePeriodRow, DeviceRow
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.states import AttemptState, CanaryOutcome

MINUTE, HOUR = 60, 3600
RETENTION = {MINUTE: timedelta(hours=3), HOUR: timedelta(days=400)}
METRICS = ("temperature_c", "clock_mhz", "power_w")
"""The telemetry that is summed."""
MAX_READING = 1e9
"""A number beyond it is no reading, and a sum with it might not be finite."""
MAX_TELEMETRY_AGE = timedelta(days=1)
"""Telemetry with an older time, or one in the future, counts as current."""
_COUNTS = ("seeds", "busy_us", "attempts", *(outcome.value for outcome in CanaryOutcome))
_WINDOWS = {"now": (MINUTE, 1), "hour": (MINUTE, 59), "day": (HOUR, 23)}
"""The times of rates and loads: how many whole periods before the current one."""


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


class Work(NamedTuple):
    """A device's stored seeds and ended attempts in some hours, and the share that it was busy."""

    seeds: int = 0
    attempts: int = 0
    busy: float = 0.0


def record_seeds(session: Session, device: str | None, seeds: int, *, now: datetime) -> None:
    """Count stored seeds of a device."""
    if device and seeds:
        of_sizes = {(size, _start(now, size)): {"seeds": seeds} for size in RETENTION}
        _increase(session, device, of_sizes)


def record_attempt(session: Session, attempt: AttemptRow, *, now: datetime) -> None:
    """Count an ended attempt and its busy time, from its start to its last sign of life."""
    is_lost = attempt.state == AttemptState.lost
    began, ended = attempt.started_at, attempt.heard_at if is_lost else attempt.finished_at
    if not (attempt.device and began and ended):
        return
    # A canary's report locks the device before its hour. Lock in the same order here, because the
    # caller may go on to the device's telemetry.
    session.execute(
        select(DeviceRow.id).where(DeviceRow.device == attempt.device).with_for_update()
    )
    parts: dict[tuple[int, datetime], dict[str, int]] = {}
    for size, retention in RETENTION.items():
        parts[size, _start(ended, size)] = {"attempts": 1}
        at, step = _start(max(began, now - retention), size), timedelta(seconds=size)
        while at < ended:
            busy = min(ended, at + step) - max(began, at)
            parts.setdefault((size, at), {})["busy_us"] = busy // timedelta(microseconds=1)
            at += step
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
        if isinstance(value := telemetry.get(name), int | float) and abs(value) < MAX_READING
    }
    if not values:
        return
    at, oldest = telemetry.get("at"), (now - MAX_TELEMETRY_AGE).timestamp()
    is_known = isinstance(at, int | float) and oldest < at <= now.timestamp()
    start = _start(datetime.fromtimestamp(at, UTC) if is_known else now, HOUR)  # type: ignore[arg-type]
    _increase(session, device, {(HOUR, start): {}})
    table = DevicePeriodRow
    row = (table.device == device, table.size_s == HOUR, table.start == start)
    sums: dict[str, list[float]] = dict(
        session.execute(select(table.telemetry).where(*row)).scalar_one()
    )
    for name, value in values.items():
        count, minimum, total, maximum = sums.get(name, (0, value, 0.0, value))
        sums[name] = [count + 1, min(minimum, value), total + value, max(maximum, value)]
    changed = update(table).where(*row).values(telemetry=sums)
    session.execute(changed.execution_options(synchronize_session=False))


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
    """Return the current rates and loads."""
    running = _running(session)
    table, sums, windows = DevicePeriodRow, [], {}
    for name, (size, before) in _WINDOWS.items():
        since = _start(now, size) - timedelta(seconds=before * size)
        windows[name] = and_(table.size_s == size, table.start >= since), since
        sums += [
            func.sum(case((windows[name][0], column), else_=0))
            for column in (table.seeds, table.busy_us)
        ]
    of_windows = or_(*(condition for condition, _ in windows.values()))
    query = select(table.device, *sums).where(of_windows).group_by(table.device)
    seeds = dict.fromkeys(_WINDOWS, 0)
    busy_s: dict[str, defaultdict[str, float]] = {name: defaultdict(float) for name in _WINDOWS}
    for device, *numbers in session.execute(query):
        for place, name in enumerate(_WINDOWS):
            seeds[name] += int(numbers[2 * place])
            busy_s[name][device] += int(numbers[2 * place + 1]) / 1e6
    for name, (_, since) in windows.items():
        for device, began, heard in running:
            busy_s[name][device] += max(0.0, (heard - max(began, since)).total_seconds())
    lengths = {name: (now - since).total_seconds() for name, (_, since) in windows.items()}

    def share(name: str, device: str) -> float:
        return min(1.0, busy_s[name][device] / lengths[name])

    return Pulse(
        {name: SeedRate(seeds[name], length) for name, length in lengths.items()},
        {name: Load(share("hour", name), share("day", name)) for name in busy_s["day"]},
    )


def work(session: Session, *, since: datetime, now: datetime) -> dict[str, Work]:
    """Return what each device did in the hours that began since a moment.

    Of the last day that is what its load and the rates count. Those that did nothing are left out.
    """
    table, first = DevicePeriodRow, _start(since, HOUR) + timedelta(seconds=HOUR)
    busy_s: defaultdict[str, float] = defaultdict(float)
    for device, began, heard in _running(session):
        busy_s[device] += max(0.0, (heard - max(began, first)).total_seconds())
    sums = func.sum(table.seeds), func.sum(table.attempts), func.sum(table.busy_us)
    hours = table.size_s == HOUR, table.start >= first
    query = select(table.device, *sums).where(*hours).group_by(table.device)
    counts: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for device, seeds, attempts, busy_us in session.execute(query):
        counts[device] = int(seeds), int(attempts)
        busy_s[device] += int(busy_us) / 1e6
    length = (now - first).total_seconds()
    return {
        device: Work(*counts[device], min(1.0, busy / length)) for device, busy in busy_s.items()
    }


def hours(session: Session, device: str, *, since: datetime) -> Sequence[DevicePeriodRow]:
    """Return a device's hours in order; those without activity are left out."""
    table = DevicePeriodRow
    query = select(table).where(
        table.device == device, table.size_s == HOUR, table.start >= _start(since, HOUR)
    )
    return session.scalars(query.order_by(table.start)).all()


def forget(session: Session, *, now: datetime) -> None:
    """Delete minutes and hours that no page reads any more."""
    table = DevicePeriodRow
    for size, retention in RETENTION.items():
        old = delete(table).where(table.size_s == size, table.start < now - retention)
        session.execute(old)


def _running(session: Session) -> list[tuple[str, datetime, datetime]]:
    """Return the device, the start and the last sign of life of each running attempt."""
    columns = AttemptRow.device, AttemptRow.started_at, AttemptRow.heard_at
    query = select(*columns).where(AttemptRow.state == AttemptState.running)
    rows = session.execute(query)
    return [(device, began, heard) for device, began, heard in rows if device and began and heard]


def _start(moment: datetime, size: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // size * size, UTC)


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
    dialect.merge(session, DevicePeriodRow, rows, _counted)


def _counted(old: Any, new: Any) -> dict[str, Any]:
    return {name: old[name] + new[name] for name in _COUNTS}
