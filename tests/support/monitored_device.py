"""A device that can be taken away, its monitor, and a clock whose waits end at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gonogo.settings import Settings
from gonogo_workers.devices import health_monitor, locks
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health import DeviceSick
from gonogo_workers.devices.health_monitor import Canary, DeviceHealthMonitor
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.registry import ExecutorSpec
from patience import WAIT_S

PLUGINS = Path(__file__).parents[1] / "plugins"
SPEC = ExecutorSpec("troublesome", "troublesome", "Troublesome", paths=(str(PLUGINS),))
DEVICE = Device("troublesome", 0, "wormhole", "n150", "lab-1")
NEVER = threading.Event()
HOUR_S = 3600.0


class Clock(threading.Condition):
    """A clock, and waits that end at once with the clock at the end of their time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.free = threading.Event()
        """Waits end while it is set."""
        self.free.set()

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        if not self.free.is_set():
            return super().wait(60)
        assert timeout is not None
        self.now += timeout
        return False


class Lab:
    """A device that can be taken away, with the monitor of its health."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        self.gone, self.locks = folder / "gone", folder / "locks"
        self.reports: list[Mapping[str, Any]] = []
        self.tested_at: list[float] = []
        self.changes = 0
        self.stages: list[str] = []
        self.monitors: list[DeviceHealthMonitor] = []

    def _report(self, report: Mapping[str, Any]) -> None:
        self.tested_at.append(self.clock.now - 1000)
        self.reports.append(report)

    def _changed(self) -> None:
        self.changes += 1

    def canary(self, build: str = "right") -> Canary:
        return Canary(ResolvedBuild(SPEC, {"TROUBLE_GONE": str(self.gone)}), build)

    def monitor(
        self, build: str | None = "right", *, waits: bool = False, **settings: Any
    ) -> DeviceHealthMonitor:
        """Return a monitor; waits: its waits for the next test take made-up time."""
        canary = None if build is None else self.canary(build)
        monitor = DeviceHealthMonitor(
            DEVICE,
            self.locks,
            canary,
            Settings(**settings),
            report=self._report,
            changed=self._changed,
        )
        if waits:
            monitor._wake = self.clock
        self.monitors.append(monitor)
        return monitor

    def check(self, monitor: DeviceHealthMonitor, why: str = "of a test") -> None:
        """Run the canary as a chunk does, with the device's lock."""
        locked = locks.acquire(self.locks, DEVICE.name, lambda: False, NEVER)
        try:
            monitor.check(locked, why, tell=self.stages.append)
        finally:
            locked.close()

    def sick(self, *, waits: bool = False, **settings: Any) -> DeviceHealthMonitor:
        """Return the monitor of a device that has failed its canary."""
        monitor = self.monitor(waits=waits, **settings)
        self.gone.touch()
        with pytest.raises(DeviceSick, match=r"is bad: re-open: the canary .*no such"):
            self.check(monitor)
        return monitor

    @property
    def remembered(self) -> Path:
        """The file that outlives the worker."""
        return self.locks / "troublesome-0.health"


def retester() -> threading.Thread | None:
    """The thread that tests the device again."""
    name = f"retest-{DEVICE.name}"
    return next((thread for thread in threading.enumerate() if thread.name == name), None)


@contextmanager
def monitored_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Yield a device whose monitors have a clock of their own; afterwards no re-test may run."""
    clock = Clock()
    monkeypatch.setattr(health_monitor, "time", clock)
    lab = Lab(folder, clock)
    yield lab
    for monitor in lab.monitors:
        monitor.stop()
    if (thread := retester()) is not None:
        thread.join(WAIT_S)
        assert not thread.is_alive()
