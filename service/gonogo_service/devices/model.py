"""Devices, their health and periods, golden digests and workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType


class WorkerRow(Base):
    """A device worker, as its last heartbeat described it."""

    __tablename__ = "workers"
    name: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str | None]
    device: Mapped[str | None]
    queues: Mapped[list[Any]]
    attempt_id: Mapped[str | None] = mapped_column(IdType)
    seed: Mapped[int | None] = mapped_column(BigInteger)
    stage: Mapped[str | None]
    version: Mapped[str | None]  # of GoNoGo
    first_heard_at: Mapped[datetime]
    heard_at: Mapped[datetime] = mapped_column(index=True)


class DeviceRow(Base):
    """A chip of a host, or a virtual device: its facts, its health, and the orders for it."""

    __tablename__ = "devices"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    identity: Mapped[str] = mapped_column(unique=True)  # host/name, as results name it
    host: Mapped[str] = mapped_column(index=True)
    name: Mapped[str]
    arch: Mapped[str]
    board: Mapped[str]
    serial: Mapped[str | None]
    pci: Mapped[str | None]
    firmware: Mapped[dict[str, Any]]
    driver: Mapped[str | None]
    source: Mapped[str]
    queues: Mapped[list[Any]]
    worker: Mapped[str | None]
    attempt_id: Mapped[str | None] = mapped_column(IdType)
    online: Mapped[bool]
    health: Mapped[str]
    reason: Mapped[str | None]
    drained: Mapped[bool]
    test_requests: Mapped[int] = mapped_column("asked")  # how often a canary was requested
    version: Mapped[int]
    telemetry: Mapped[dict[str, Any] | None]
    # Of its last canary: {"build", "arch", "outputs": {output: digest}, "replay": phrase}.
    digests: Mapped[dict[str, Any] | None]
    first_heard_at: Mapped[datetime]
    heard_at: Mapped[datetime]
    changed_at: Mapped[datetime]
    health_at: Mapped[datetime | None]  # when its health changed; null: see `changed_at`
    # the health that the audit log and webhooks told last; null where it is `health`
    announced_health: Mapped[str | None]


class GoldenRow(Base):
    """The digest that a build's canary must give on all devices of a host with an architecture.

    `second_device` is null until a second device confirms it.
    """

    __tablename__ = "goldens"
    host: Mapped[str] = mapped_column(primary_key=True)
    executor: Mapped[str] = mapped_column(primary_key=True)
    build: Mapped[str] = mapped_column(primary_key=True)
    arch: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    first_device: Mapped[str]
    second_device: Mapped[str | None]
    confirmed_at: Mapped[datetime | None]


class CanaryRow(Base):
    """A device's latest explained canary of a build. Times are by its host's clock."""

    __tablename__ = "canaries"
    device_id: Mapped[str] = mapped_column(IdType, ForeignKey("devices.id"), primary_key=True)
    executor: Mapped[str] = mapped_column(primary_key=True)
    build: Mapped[str] = mapped_column(primary_key=True)
    arch: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]  # of all outputs: "dbeta=... dgamma=... dx=..."
    since: Mapped[datetime]  # the first of the unbroken series with this digest
    at: Mapped[datetime]
    # Whether the device became suspect because of this digest. It happens once per digest: a
    # person's later decision stands.
    accused: Mapped[bool]
    __table_args__ = (Index("ix_canaries_build", "executor", "build", "arch"),)


class DeviceHealthRow(Base):
    """One change of a device's health, state or drain. Rows are only ever added."""

    __tablename__ = "device_health"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    device_id: Mapped[str] = mapped_column(IdType, ForeignKey("devices.id"))
    at: Mapped[datetime]
    what: Mapped[str]  # "health", "state", "drain" or "firmware"
    before: Mapped[str | None]
    after: Mapped[str]
    actor: Mapped[str]
    reason: Mapped[str | None]
    evidence: Mapped[dict[str, Any] | None]
    __table_args__ = (Index("ix_device_health_device", "device_id", "id"),)


class DevicePeriodRow(Base):
    """A device's activity in one minute or one hour of UTC.

    The columns are sums; each writer adds its part (service/gonogo_service/devices/periods.py).
    """

    __tablename__ = "device_periods"
    device: Mapped[str] = mapped_column(primary_key=True)  # host/name, as results name it
    size_s: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # 60 or 3600
    start: Mapped[datetime] = mapped_column(primary_key=True)
    seeds: Mapped[int] = mapped_column(
        BigInteger
    )  # number of (seed, repeat) of jobs that were stored
    busy_us: Mapped[int] = mapped_column(BigInteger)  # of attempts that ended
    attempts: Mapped[int] = mapped_column(BigInteger)  # that ended
    # Canaries by gonogo_service.kit.database.states.CanaryOutcome.
    golden: Mapped[int] = mapped_column(BigInteger)
    first: Mapped[int] = mapped_column(BigInteger)
    differs: Mapped[int] = mapped_column(BigInteger)
    failed: Mapped[int] = mapped_column(BigInteger)
    telemetry: Mapped[dict[str, Any]]  # of hours: metric -> [count, minimum, sum, maximum]
    __table_args__ = (Index("ix_device_periods_start", "size_s", "start"),)
