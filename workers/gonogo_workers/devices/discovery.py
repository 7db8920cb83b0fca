"""Which device a worker uses: a chip of this host where its executor runs on one, else a virtual
device that nobody has claimed.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gonogo.errors import FieldError, InfrastructureError
from gonogo_workers import queue
from gonogo_workers.devices.chips import Chip
from gonogo_workers.devices.locks import try_claim

ON_CHIPS = frozenset({"ttnn", "gtest", "pytest"})
"""Executors whose kernels run on a chip. Where the host has none (a simulator, a test program for
the processor) they get a virtual device, as all others do; a plug-in gets a chip when `--device`
names one."""
MOST_VIRTUAL = 64
"""Virtual devices of one kind on one host: more workers than this would only starve each other."""

_NAME = re.compile(r"((?P<executor>[a-z][a-z0-9_-]*):)?(?P<index>\d{1,3})", re.ASCII)


@dataclass(frozen=True)
class Device:
    """One chip of one board on one host, or a virtual one. Its claim lasts as long as the worker's
    process.
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
        """Its name on its host: `wormhole:0` for a chip, whichever executor uses it; `emulator:0`
        for a virtual device.
        """
        return self.chip.name if self.chip is not None else f"{self.executor}:{self.index}"

    @property
    def identity(self) -> str:
        """Its name among all hosts: what results store, so that two hosts' first chips are not one
        device.
        """
        return f"{self.host}/{self.name}"

    @property
    def queue(self) -> str:
        """The queue of the chunks that it can run."""
        return queue.chunk_queue(self.executor, self.arch, self.board)

    @property
    def environment(self) -> dict[str, str]:
        """What a child needs to see this chip and no other; in the child it is device 0."""
        return {} if self.chip is None else {"TT_VISIBLE_DEVICES": str(self.chip.index)}

    @property
    def facts(self) -> dict[str, Any]:
        """What the service is told of it in plain JSON."""
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
        """What a command of the settings may name in braces."""
        chip = self.chip
        return {
            "index": self.index,
            "name": self.name,
            "host": self.host,
            "pci": chip.pci if chip else None,
            "serial": chip.serial if chip else None,
        }


def host_name() -> str:
    """This host's name, as results and heartbeats say it."""
    return socket.gethostname() or "localhost"


def claim(
    executor: str,
    wanted: str | None,
    folder: Path,
    *,
    arch: str,
    board: str,
    chips: Sequence[Chip] = (),
) -> Device:
    """The device `wanted` ("0", "emulator:1", a chip's name, serial number or PCI address), or the
    first one that nobody has claimed.

    Raises FieldError for a device that there isn't, InfrastructureError when it is taken or the
    lock folder can't be written.
    """
    meant = [
        chip
        for chip in chips
        if wanted is not None and chip.called(wanted.removeprefix(f"{executor}:"))
    ]
    if executor in ON_CHIPS and chips:
        if wanted is not None and not meant:
            there = ", ".join(
                f"{chip.index} ({', '.join(filter(None, (chip.name, chip.serial, chip.pci)))})"
                for chip in chips
            )
            raise FieldError("device", wanted, "is no chip of this host", limit=f"one of {there}")
        choice = meant or list(chips)
    else:
        # A bare index means a virtual device here; a chip is named in full
        choice = [chip for chip in meant if wanted is not None and not wanted.isdigit()]
    if choice:
        return _claim_chip(executor, choice, wanted, folder, board)
    indices = range(MOST_VIRTUAL)
    if wanted is not None:
        match = _NAME.fullmatch(wanted)
        if match is None or match["executor"] not in (None, executor):
            raise FieldError(
                "device",
                wanted,
                "is no device of this executor",
                limit=f"{executor}:0, {executor}:1, ...",
            )
        indices = range(int(match["index"]), int(match["index"]) + 1)
    for index in indices:
        held = _try(folder / f"{executor}-{index}.claim")
        if held is not None:
            return Device(executor, index, arch, board, host_name(), held)
    raise InfrastructureError(f"device {wanted or executor} is used by another worker of this host")


def _claim_chip(
    executor: str, choice: Sequence[Chip], wanted: str | None, folder: Path, board: str
) -> Device:
    for chip in choice:
        held = _try(folder / f"{executor}-{chip.name.replace(':', '-')}.claim")
        if held is not None:
            return Device(
                executor, chip.index, chip.arch, chip.board or board, host_name(), held, chip
            )
    raise InfrastructureError(f"device {wanted or executor} is used by another worker of this host")


def _try(path: Path) -> int | None:
    try:
        return try_claim(path)
    except OSError as problem:
        raise InfrastructureError(
            f"can't write in the lock folder {path.parent}: {problem.strerror}"
        ) from problem
