"""The devices that a worker serves: which it claims, their queues, and what heartbeats say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.settings import Settings
from gonogo.settings.release import release
from gonogo.spec.executors import ON_CHIPS
from gonogo_workers.attempts.context import DeviceContext
from gonogo_workers.devices import chips, discovery
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.builds_file import BuildsFile
from gonogo_workers.executors.registry import ExecutorSpec

ALL = "all"


@dataclass(frozen=True)
class Claims:
    """The devices that a worker has claimed, and what their executors need."""

    devices: Mapping[str, Device]
    """By the name of the executor; the worker's name is that of the first one."""
    specs: Mapping[str, ExecutorSpec]
    """Every executor of this host, by its name."""
    builds: BuildsFile


def claim(
    settings: Settings, executor: str, device: str | None, lock_folder: Path, host: str
) -> Claims:
    """Claim a device for each executor: those that `executor` and `device` of create_worker name.

    Raises FieldError or InfrastructureError.
    """
    known, builds = registry.known(settings.executors), builds_file.read(settings.builds)
    if executor == ALL:
        of_builds = (str(entry["executor"]) for entry in builds.builds.values())
        names = registry.ready(known, (*builds.executors, *of_builds))
    else:
        names = [name.strip() for name in executor.split(",")]
    specs = {**known, **{name: registry.find(name, settings.executors) for name in names}}
    on_chips = device is not None or ON_CHIPS & set(names)
    host_chips = chips.look(settings.tt_smi) if on_chips else ()
    devices = {
        name: discovery.claim(
            name,
            device if index == 0 or name in ON_CHIPS else None,
            lock_folder,
            host=host,
            arch=settings.arch,
            board=settings.board,
            chips=host_chips,
        )
        for index, name in enumerate(names)
    }
    return Claims(devices, specs, builds)


@dataclass(frozen=True)
class ServedDevices:
    """The claimed devices by executor, each with the monitor of its health.

    Executors on the same chip share its monitor.
    """

    contexts: Mapping[str, DeviceContext]

    @property
    def monitors(self) -> list[DeviceHealthMonitor]:
        """The monitors, one for each device."""
        by_device = {one.device.name: one.monitor for one in self.contexts.values()}
        return list(by_device.values())

    def wanted_queues(self) -> dict[str, bool]:
        """Return every queue, and whether its device takes work now."""
        return {one.device.queue: one.monitor.takes_work for one in self.contexts.values()}

    def identity(self) -> dict[str, Any]:
        """Return the body of a heartbeat: the worker and its devices."""
        first = next(iter(self.contexts.values()))
        return {
            "worker": first.worker,
            "version": release(),
            "queues": [name for name, takes_work in self.wanted_queues().items() if takes_work],
            "device": first.device.identity,
            "host": first.device.host,
            "executors": list(self.contexts),
            "devices": [
                {**one.monitor.facts, "queue": one.device.queue} for one in self.contexts.values()
            ],
        }
