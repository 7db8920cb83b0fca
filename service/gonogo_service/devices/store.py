"""Devices with their state, health and history, as the API and the pages show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from gonogo_service.devices.device_evidence import DeviceEvidence
from gonogo_service.devices.model import CanaryRow, DeviceHealthRow, DeviceRow, GoldenRow
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import Documented, from_object, if_readable
from gonogo_service.kit.database.states import DeviceHealth, DeviceState, JobKind

TIMEOUT_S = 30.0
HISTORY = 200
"""Maximum number of changes that `look` returns."""


@dataclass(frozen=True)
class Telemetry:
    """The readings of a device at one time; null where its driver has none."""

    temperature_c: float | None = None
    clock_mhz: float | None = None
    power_w: float | None = None
    voltage_v: float | None = None
    current_a: float | None = None
    firmware: str | None = None
    at: float | None = None
    """Seconds since 1970, by the clock of its host"""


Standing = Literal["golden", "first", "differs"]


@dataclass(frozen=True)
class PassedCanary:
    """A device's last canary that passed, and whether its bits are those of other devices."""

    build: str
    arch: str
    outputs: dict[str, str]
    """The digest of each output"""
    executor: str = ""
    replay: str = ""
    """How its program replays its numbers, in a phrase"""
    at: datetime | None = None
    golden: Standing | None = None
    """`first`: no second device of the host has confirmed these bits"""


@dataclass(frozen=True)
class Device:
    """A device; `device` is its name among all hosts, as results store it."""

    id: str
    device: str
    host: str
    name: str
    arch: str
    board: str
    serial: str | None
    pci: str | None
    firmware: dict[str, str | float | None]
    """By the name of its part"""
    driver: str | None
    source: str
    queues: list[str]
    worker: str | None
    attempt: str | None
    job: str | None
    state: DeviceState
    health: DeviceHealth
    reason: str | None
    drained: bool
    version: int
    telemetry: Telemetry | None
    """The last readings"""
    canary: PassedCanary | None
    first_heard_at: datetime
    heard_at: datetime
    changed_at: datetime
    health_at: datetime


@dataclass(frozen=True)
class DeviceChange:
    """An entry of a device's history: of its health, its state, a drain, or its firmware."""

    at: datetime
    what: Literal["health", "state", "drain", "firmware"]
    before: str | None
    after: str
    actor: str
    reason: str | None
    evidence: Annotated[dict[str, Any], Documented(DeviceEvidence)] | None


@dataclass(frozen=True)
class DeviceWithHistory(Device):
    """A device with its history, newest first."""

    history: list[DeviceChange]


AnyDevice = TypeVar("AnyDevice", bound=Device)


def list_(
    session: Session, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> Page[Device]:
    """Return all devices, ordered by host and name."""
    limit = (now or utcnow()) - timedelta(seconds=timeout_s)
    rows = list(session.scalars(select(DeviceRow).order_by(DeviceRow.host, DeviceRow.name)))
    jobs, standing = _jobs(session, rows), _standing(session)
    return Page(tuple(_device(Device, row, limit, jobs, standing) for row in rows), None)


def look(
    session: Session, device_id: str, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> DeviceWithHistory | None:
    """Return a device with its history, newest first; None if it doesn't exist."""
    row = session.get(DeviceRow, device_id) if is_id(device_id) else None
    if row is None:
        return None
    query = (
        select(DeviceHealthRow)
        .where(DeviceHealthRow.device_id == device_id)
        .order_by(DeviceHealthRow.id.desc())
        .limit(HISTORY)
    )
    return _device(
        DeviceWithHistory,
        row,
        (now or utcnow()) - timedelta(seconds=timeout_s),
        _jobs(session, [row]),
        _standing(session, device_id),
        history=[from_object(DeviceChange, entry) for entry in session.scalars(query)],
    )


def _jobs(session: Session, rows: Sequence[DeviceRow]) -> dict[str, str]:
    """Return {attempt: job} of the attempts that run on these devices, without gauges."""
    attempt_ids = [row.attempt_id for row in rows if row.attempt_id]
    query = select(AttemptRow.id, AttemptRow.job_id).join(JobRow, JobRow.id == AttemptRow.job_id)
    if not attempt_ids:
        return {}
    query = query.where(AttemptRow.id.in_(attempt_ids), JobRow.kind == JobKind.seeds)
    return {row.id: row.job_id for row in session.execute(query)}


def _standing(session: Session, device_id: str | None = None) -> dict[tuple[str, ...], Standing]:
    """Return the status of each device's latest canary by (device id, executor, build, arch).

    It is "golden", "first" (not confirmed yet) or "differs".
    """
    key_columns = ("executor", "build", "arch")
    same_key = and_(
        GoldenRow.host == DeviceRow.host,
        *(getattr(GoldenRow, name) == getattr(CanaryRow, name) for name in key_columns),
    )
    query = (
        select(CanaryRow, GoldenRow)
        .join(DeviceRow, DeviceRow.id == CanaryRow.device_id)
        .join(GoldenRow, same_key)
    )
    if device_id is not None:
        query = query.where(CanaryRow.device_id == device_id)
    return {
        (canary.device_id, canary.executor, canary.build, canary.arch): (
            "differs"
            if canary.digest != golden.digest
            else "golden"
            if golden.second_device is not None
            else "first"
        )
        for canary, golden in session.execute(query)
    }


def _device(
    shape: type[AnyDevice],
    row: DeviceRow,
    limit: datetime,
    jobs: Mapping[str, str],
    standing: Mapping[tuple[str, ...], Standing],
    **others: Any,
) -> AnyDevice:
    """Return a device; one that was not heard since `limit` is offline."""
    canary = if_readable(PassedCanary, row.digests)
    if canary is not None:
        key = (row.id, canary.executor, canary.build, canary.arch)
        canary = replace(canary, golden=standing.get(key))
    state = DeviceState.busy if row.attempt_id else DeviceState.idle
    return from_object(
        shape,
        row,
        device=row.identity,
        attempt=row.attempt_id,
        job=jobs.get(row.attempt_id or ""),
        state=DeviceState.offline if row.heard_at < limit else state,
        health=DeviceHealth(row.health),
        canary=canary,
        telemetry=if_readable(Telemetry, row.telemetry),
        health_at=row.health_at or row.changed_at,
        **others,
    )
