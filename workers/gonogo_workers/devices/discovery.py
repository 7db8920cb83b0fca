"""Chooses the device of a worker: a chip where its executor runs on one, else a virtual device.

Each device is claimed by at most one worker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gonogo.errors import FieldError, InfrastructureError
from gonogo.spec.executors import ON_CHIPS
from gonogo_workers import queue
from gonogo_workers.devices.chip import Chip
from gonogo_workers.devices.locks import try_claim

MAX_VIRTUAL = 64
"""Virtual devices of one kind on one host: more workers would only starve each other."""

_NAME = re.compile(r"((?P<executor>[a-z][a-z0-9_-]*):)?(?P<index>\d{1,3})", re.ASCII)


@dataclass(frozen=True)
class Device:
    """One chip of one board on one host, or a virtual device.

    Its claim lasts as long as the worker's process.
    """

    executor: str
    index: int
    arch: str
    board: str
    host: str
    claim: int = field(default=-1, compare=False, repr=False)
    chip: Chip | None = None

    @property
    def name(self) -> str:
        """Its name on its host: `wormhole:0` for a chip, `emulator:0` for a virtual device.

        A chip has the same name for every executor.
        """
        return self.chip.name if self.chip is not None else f"{self.executor}:{self.index}"

    @property
    def identity(self) -> str:
        """Its name among all hosts, as results store it.

        Two hosts' first chips are different devices.
        """
        return f"{self.host}/{self.name}"

    @property
    def queue(self) -> str:
        """The queue of the chunks that it can run."""
        return queue.chunk_queue(self.executor, self.arch, self.board)

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a child sees this chip only; in the child it is device 0."""
        return {} if self.chip is None else {"TT_VISIBLE_DEVICES": str(self.chip.index)}

    @property
    def facts(self) -> dict[str, Any]:
        """The description of the device for the service, in plain JSON."""
        chip = self.chip
        return {
            "device": self.identity,
            "host": self.host,
            "name": self.name,
            "arch": self.arch,
            "board": self.board,
            "queue": self.queue,
            "serial": chip.serial if chip else None,
            "pci": chip.pci if chip else None,
            "firmware": dict(chip.firmware) if chip else {},
            "driver": chip.driver if chip else None,
            "source": chip.source if chip else "configured",
        }

    @property
    def places(self) -> dict[str, object]:
        """The values that a command of the settings may name in braces."""
        chip = self.chip
        return {
            "index": self.index,
            "name": self.name,
            "host": self.host,
            "pci": chip.pci if chip else None,
            "serial": chip.serial if chip else None,
        }


def claim(
    executor: str,
    requested: str | None,
    folder: Path,
    *,
    host: str,
    arch: str,
    board: str,
    chips: Sequence[Chip] = (),
) -> Device:
    """Claim and return the requested device, or the first unclaimed one.

    `requested` is "0", "emulator:1", or a chip's name, serial number or PCI address. Raises
    FieldError for a device that doesn't exist, InfrastructureError when it is claimed or the lock
    folder can't be written.
    """
    matches = [
        chip
        for chip in chips
        if requested is not None and chip.called(requested.removeprefix(f"{executor}:"))
    ]
    if executor in ON_CHIPS and chips:
        if requested is not None and not matches:
            available = ", ".join(
                f"{chip.index} ({', '.join(filter(None, (chip.name, chip.serial, chip.pci)))})"
                for chip in chips
            )
            raise FieldError("device", requested, "is not a chip of this host", limit=available)
        choice = matches or list(chips)
    else:
        # A bare index means a virtual device here; a chip is named in full
        choice = [chip for chip in matches if requested is not None and not requested.isdigit()]
    in_use = f"device {requested or executor} is used by another worker of this host"
    for chip in choice:
        claim_fd = _try(folder / f"{executor}-{chip.name.replace(':', '-')}.claim")
        if claim_fd is not None:
            place = chip.arch, chip.board or board, host
            return Device(executor, chip.index, *place, claim_fd, chip)
    if choice:
        raise InfrastructureError(in_use)
    indices = range(MAX_VIRTUAL)
    if requested is not None:
        match = _NAME.fullmatch(requested)
        if match is None or match["executor"] not in (None, executor):
            limit = f"{executor}:0, {executor}:1, ..."
            raise FieldError("device", requested, "is not a device of this executor", limit=limit)
        indices = range(int(match["index"]), int(match["index"]) + 1)
    for index in indices:
        claim_fd = _try(folder / f"{executor}-{index}.claim")
        if claim_fd is not None:
            return Device(executor, index, arch, board, host, claim_fd)
    raise InfrastructureError(in_use)


def _try(path: Path) -> int | None:
    try:
        return try_claim(path)
    except OSError as problem:
        raise InfrastructureError(
            f"can't write in the lock folder {path.parent}: {problem.strerror}"
        ) from problem
