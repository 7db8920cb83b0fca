"""The devices that a worker serves: queues, monitors, and what heartbeats say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.settings.release import release
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor, Order
from gonogo_workers.tasks import Runner


@dataclass(frozen=True)
class ServedDevices:
    """The devices of a worker by executor, and their monitors by device.

    Executors on the same chip share its monitor.
    """

    worker: str
    claimed: Mapping[str, Device]
    monitors: Mapping[str, DeviceHealthMonitor]

    def wanted_queues(self) -> dict[str, bool]:
        """Return every queue, and whether its device takes work now."""
        return {
            place.queue: self.monitors[place.name].takes_work for place in self.claimed.values()
        }

    def identity(self) -> dict[str, Any]:
        """Return what a heartbeat says of the worker and its devices."""
        first = next(iter(self.claimed.values()))
        return {
            "worker": self.worker,
            "version": release(),
            "queues": [name for name, served in self.wanted_queues().items() if served],
            "device": first.identity,
            "host": first.host,
            "executors": list(self.claimed),
            "devices": [
                {**self.monitors[place.name].facts, "queue": place.queue}
                for place in self.claimed.values()
            ],
        }

    def hand_back(self, runner: Runner) -> None:
        """Hand back the work of devices that take none."""
        for monitor in self.monitors.values():
            if not monitor.takes_work:
                runner.hand_back(monitor.device, monitor.order is not Order.work)


def one_executor_each(claimed: Mapping[str, Device]) -> dict[str, Device]:
    """Return the first executor of each device: its canary tells the device's health."""
    first: dict[str, str] = {}
    for name, place in claimed.items():
        first.setdefault(place.name, name)
    return {name: claimed[name] for name in first.values()}
