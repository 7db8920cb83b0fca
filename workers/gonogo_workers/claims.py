"""The executors that a worker serves, each with the device that the worker has claimed for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gonogo.settings import Settings
from gonogo.spec.executors import ON_CHIPS
from gonogo_workers.devices import chips, discovery
from gonogo_workers.devices.discovery import Device
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.builds_file import BuildsFile, interpreters
from gonogo_workers.executors.registry import ExecutorSpec

ALL = "all"


@dataclass(frozen=True)
class Claims:
    """The executors of a worker, and what they need."""

    devices: Mapping[str, Device]
    """By the name of the executor; the worker's name is that of the first one."""
    specs: Mapping[str, ExecutorSpec]
    """Every executor of this host, by its name."""
    builds: BuildsFile

    @property
    def first(self) -> Device:
        """Return the device of the first executor."""
        return next(iter(self.devices.values()))

    @property
    def first_executor(self) -> ExecutorSpec:
        """Return the executor that is started before the first chunk comes."""
        return self.specs[next(iter(self.devices))]


def claim(
    settings: Settings, executor: str, device: str | None, lock_folder: Path, host: str
) -> Claims:
    """Claim a device for each executor: those that `executor` and `device` of create_worker name.

    Raises FieldError or InfrastructureError.
    """
    known, builds = registry.known(settings.executors), builds_file.read(settings.builds)
    names = _executors(executor, known, builds)
    specs = {**known, **{name: registry.find(name, settings.executors) for name in names}}
    on_chips = device is not None or ON_CHIPS & set(names)
    host_chips = chips.look(settings.tt_smi, interpreters(specs, builds)) if on_chips else ()
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


def _executors(
    executor: str, known: Mapping[str, ExecutorSpec], builds: BuildsFile
) -> Sequence[str]:
    """Return the names of the executors to serve."""
    if executor == ALL:
        of_builds = (str(entry["executor"]) for entry in builds.builds.values())
        return registry.ready(known, (*builds.executors, *of_builds))
    return [name.strip() for name in executor.split(",")]
