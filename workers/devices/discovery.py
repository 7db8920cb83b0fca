"""Which device a worker uses: for the emulator and for plug-ins a virtual one, the first that no other worker of this host has claimed."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from gonogo.problems import FieldError, InfrastructureError
from workers import queue
from workers.devices.locks import try_claim

MOST_VIRTUAL = 64
"""Virtual devices of one kind on one host: more workers than this would only starve each other."""

_NAME = re.compile(r"(?P<executor>[a-z][a-z0-9_-]*):(?P<index>\d{1,3})", re.ASCII)


@dataclass(frozen=True)
class Device:
    """One chip of one board on one host. Its claim lasts as long as the worker's process."""

    executor: str
    index: int
    arch: str
    board: str
    host: str
    claim: int = field(default=-1, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Its name on its host, such as `emulator:0`."""
        return f"{self.executor}:{self.index}"

    @property
    def identity(self) -> str:
        """Its name among all hosts: what results store, so that two hosts' first chips are not one device."""
        return f"{self.host}/{self.name}"

    @property
    def queue(self) -> str:
        """The queue of the chunks that it can run."""
        return queue.chunk_queue(self.executor, self.arch, self.board)


def host_name() -> str:
    """This host's name, as results and heartbeats say it."""
    return socket.gethostname() or "localhost"


def claim(executor: str, wanted: str | None, folder: Path, *, arch: str, board: str) -> Device:
    """The virtual device `wanted` ("emulator:1"), or the first unclaimed one. Raises FieldError for a wrong name, InfrastructureError
    when it is taken or the lock folder can't be written."""
    indices = range(MOST_VIRTUAL)
    if wanted is not None:
        match = _NAME.fullmatch(wanted)
        if match is None or match["executor"] != executor:
            raise FieldError("device", wanted, "is no device of this executor", limit=f"{executor}:0, {executor}:1, ...")
        indices = range(int(match["index"]), int(match["index"]) + 1)
    for index in indices:
        try:
            held = try_claim(folder / f"{executor}-{index}.claim")
        except OSError as problem:
            raise InfrastructureError(f"can't write in the lock folder {folder}: {problem.strerror}") from problem
        if held is not None:
            return Device(executor, index, arch, board, host_name(), held)
    raise InfrastructureError(f"device {wanted or executor} is used by another worker of this host")
