"""The resources that a worker lends its attempts on one device, and its current work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor
from gonogo_workers.devices.telemetry import Telemetry
from gonogo_workers.executors.pool import HostPool
from gonogo_workers.executors.threads import Threads
from gonogo_workers.server.sender import Sender


@dataclass
class Vitals:
    """The worker's current work.

    Written by the attempt's thread, read by the heartbeat: single attributes, so no lock is needed.
    """

    attempt: str | None = None
    seed: int | None = None
    stage: str = "idle"

    def begin(self, attempt: str) -> None:
        """Record that an attempt begins."""
        self.seed, self.attempt = None, attempt

    def end(self) -> None:
        """Record that the attempt has ended."""
        self.attempt, self.seed, self.stage = None, None, "idle"


@dataclass(frozen=True)
class DeviceContext:
    """The resources that a worker lends its attempts on one device."""

    worker: str
    executor: str
    device: Device
    lock_folder: Path
    pool: HostPool
    threads: Threads
    """They judge."""
    drawing: Threads
    """They make inputs, which must not wait behind judgements: the device would be idle."""
    sender: Sender
    vitals: Vitals
    monitor: DeviceHealthMonitor
    telemetry: Telemetry
    chunk_deadline_s: float
    tt_triage: str | None
