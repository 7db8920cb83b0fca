"""Devices, their health and periods, golden digests and workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict
from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gonogo.devices.golden import Golden
from gonogo.devices.suspicion import Suspicion
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType, JsonType, Stored, TextType, WordOf
from gonogo_service.kit.database.states import CanaryOutcome, DeviceHealth, DeviceState

What = Literal["health", "state", "drain", "firmware"]


class Heard:
    """A sender of heartbeats; after a while without one it is offline."""

    attempt: Mapped[str | None] = mapped_column(IdType)
    first_heard_at: Mapped[datetime]
    heard_at: Mapped[datetime]

    def state_at(self, limit: datetime) -> DeviceState:
        """Return the state if a heartbeat before `limit` is too old."""
        if self.heard_at < limit:
            return DeviceState.offline
        return DeviceState.busy if self.attempt else DeviceState.idle


class WorkerRow(Heard, Base):
    """A worker with its state and its attempt."""

    __tablename__ = "workers"
    __allow_unmapped__ = True
    name: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str | None]
    device: Mapped[str | None]
    queues: Mapped[list[str]] = mapped_column(JsonType)
    seed: Mapped[int | None] = mapped_column(BigInteger)
    stage: Mapped[str | None]
    version: Mapped[str | None] = mapped_column(info=INTERNAL)  # of GoNoGo
    state: DeviceState = DeviceState.idle
    """`workers.list_` sets it."""
    __table_args__ = (Index("ix_workers_heard_at", "heard_at"),)


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


@dataclass
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
    golden: CanaryOutcome | None = None
    """`first`: no second device of the host has confirmed these bits"""


class DeviceRow(Heard, Base):
    """A device: a chip of a host, or a virtual one. `device` is its name among all hosts."""

    __tablename__ = "devices"
    __allow_unmapped__ = True
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    device: Mapped[str] = mapped_column(unique=True)
    host: Mapped[str] = mapped_column(index=True)
    name: Mapped[str]
    arch: Mapped[str]
    board: Mapped[str]
    serial: Mapped[str | None]
    pci: Mapped[str | None]
    firmware: Mapped[dict[str, str | float | None]] = mapped_column(
        JsonType, doc="By the name of its part"
    )
    driver: Mapped[str | None]
    source: Mapped[str]
    queues: Mapped[list[str]] = mapped_column(JsonType)
    worker: Mapped[str | None]
    online: Mapped[bool] = mapped_column(info=INTERNAL)
    health: Mapped[DeviceHealth] = mapped_column(WordOf(DeviceHealth))
    reason: Mapped[str | None]
    drained: Mapped[bool]
    test_requests: Mapped[int] = mapped_column(info=INTERNAL)  # how often a canary was requested
    version: Mapped[int]
    telemetry: Mapped[Telemetry | None] = mapped_column(
        Stored(Telemetry, lenient=True), doc="The last readings"
    )
    canary: Mapped[PassedCanary | None] = mapped_column(Stored(PassedCanary, lenient=True))
    changed_at: Mapped[datetime]
    health_at: Mapped[datetime]  # when its health changed
    state: DeviceState = DeviceState.idle
    job: str | None = None
    """`store` sets these two, and the `golden` of its canary."""


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

    @property
    def known(self) -> Golden:
        """Return the digest and the devices that gave it."""
        return Golden(self.digest, self.first_device, self.second_device)


class CanaryRow(Base):
    """A device's latest explained canary of a build."""

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
    """An entry of a device's history: of its health, its state, a drain, or its firmware."""

    __tablename__ = "device_health"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    device_id: Mapped[str] = mapped_column(IdType, ForeignKey("devices.id"))
    at: Mapped[datetime]
    what: Mapped[What] = mapped_column(TextType)
    before: Mapped[str | None]
    after: Mapped[str]
    actor: Mapped[str]
    reason: Mapped[str | None]
    evidence: Mapped[dict[str, Any] | None]
    __table_args__ = (Index("ix_device_health_device", "device_id", "id"),)


class DevicePeriodRow(Base):
    """A device's activity in one minute or one hour of UTC: sums, to which each writer adds."""

    __tablename__ = "device_periods"
    device: Mapped[str] = mapped_column(primary_key=True)  # host/name, as results name it
    size_s: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # 60 or 3600
    start: Mapped[datetime] = mapped_column(primary_key=True)
    seeds: Mapped[int] = mapped_column(BigInteger)  # (seed, repeat) of jobs that were stored
    busy_us: Mapped[int] = mapped_column(BigInteger)  # of attempts that ended
    attempts: Mapped[int] = mapped_column(BigInteger)  # that ended
    # canaries by their CanaryOutcome
    golden: Mapped[int] = mapped_column(BigInteger)
    first: Mapped[int] = mapped_column(BigInteger)
    differs: Mapped[int] = mapped_column(BigInteger)
    failed: Mapped[int] = mapped_column(BigInteger)
    # of hours: metric -> [count, minimum, sum, maximum]
    telemetry: Mapped[dict[str, Any]] = mapped_column(default=dict)
    __table_args__ = (Index("ix_device_periods_start", "size_s", "start"),)

    @property
    def busy_s(self) -> float:
        """Return the busy time of attempts that ended, in seconds."""
        return self.busy_us / 1e6

    def reading(self, metric: str) -> tuple[float, float, float] | None:
        """Return the minimum, the mean and the maximum of a metric; None without readings."""
        if metric not in self.telemetry:
            return None
        count, minimum, total, maximum = self.telemetry[metric]
        return minimum, total / count, maximum


@dataclass(frozen=True)
class RecoveryStep:
    """A step to recover a device (a rung), its outcome, and the end of its output."""

    rung: str
    outcome: str
    output: str


@dataclass(frozen=True)
class ReportedHealth:
    """A host's report on its device, and what else it says."""

    __pydantic_config__ = ConfigDict(extra="allow")

    steps: list[RecoveryStep] | None = None
    executor: str | None = None
    canary: str | None = None
    """The canary's build"""
    digests: dict[str, str] | None = None
    """The canary's outputs"""
    reported: str | None = None
    """The health that the host reported, where the service has another opinion"""


@dataclass(frozen=True)
class CanaryDifference:
    """A canary whose outputs are not the golden ones, though rounding explains them."""

    canary: str
    """The canary's build"""
    arch: str
    digests: dict[str, str]
    golden: str
    """The digest of the golden outputs"""


@dataclass(frozen=True)
class CanaryAccusation:
    """A canary that differs on one device only; the witness is a device that agrees with others."""

    canary: str
    arch: str
    digest: str | None
    golden: str
    witness: str | None


DeviceEvidence = CanaryDifference | CanaryAccusation | Suspicion | ReportedHealth
"""The evidence of a change of a device's health, by who found it."""
