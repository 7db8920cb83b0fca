"""One run of a test program with a deadline, for the gtest and pytest executors: its output is
passed on and looked at as it comes.

The program stays in our own process group, so that whatever ends the kernel host ends it, too; what
it leaves behind is found by a variable in its environment. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MARK = "GONOGO_PROGRAM_RUN"
TAIL_BYTES = 8 << 10
CHUNK_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 16
"""A longer line is looked at in pieces: a program may print without end and without line breaks."""
TERM_GRACE_S = 2.0


@dataclass(frozen=True)
class Ended:
    """How a program ended. `status` as subprocess has it (negative: the signal); None = it was
    ended at its deadline.
    """

    status: int | None
    tail: str
    """The last of what it printed."""
    where: str = ""
    """Where it hung, when whoever ran it could tell."""

    @property
    def words(self) -> str:
        """How the process ended, as the end of a sentence."""
        if self.status is None:
            return "was ended at its deadline"
        if self.status < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-self.status).name}"
            return f"was ended by signal {-self.status}"
        return f"exited with status {self.status}"


class Lines:
    """Bytes as they come into lines of text; `see` gets each line, and a long one in pieces."""

    def __init__(self, see: Callable[[str], None]) -> None:
        self._see = see
        self._rest = bytearray()

    def feed(self, piece: bytes) -> None:
        """The next bytes."""
        self._rest += piece
        *whole, rest = bytes(self._rest).split(b"\n")
        for line in whole:
            self._see(line.decode("utf-8", "replace").rstrip("\r"))
        self._rest = bytearray(rest)
        if len(self._rest) > MAX_LINE_BYTES:
            self.end()

    def end(self) -> None:
        """What is left is a line, too."""
        if self._rest:
            self._see(bytes(self._rest).decode("utf-8", "replace"))
            self._rest.clear()


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    seconds: float,
    see: Callable[[str], None] = lambda _: None,
    folder: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    place: Callable[[subprocess.Popen[bytes], int], str] = lambda _process, _handle: "",
) -> Ended:
    """Run the program to its end or for `seconds`; afterwards neither it nor anything that it
    started is alive.

    `see` gets each line of its output, which is passed on to our own unless `quiet`. `place` says,
    of a program that has reached its deadline and still runs (with its pidfd), where it hangs.
    Raises OSError when it can't be started.
    """
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        list(command),
        cwd=folder,
        env={**environment, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    )
    assert process.stdout is not None
    output = process.stdout.fileno()
    os.set_blocking(output, False)
    handle = os.pidfd_open(process.pid)
    tail, lines, where = bytearray(), Lines(see), ""

    def take() -> bool:
        """One piece of output, if there is any; False at its end."""
        try:
            piece = os.read(output, CHUNK_BYTES)
        except BlockingIOError:
            return True
        tail.extend(piece)
        del tail[:-TAIL_BYTES]
        lines.feed(piece)
        if not quiet:
            _pass_on(piece)
        return bool(piece)

    try:
        ended = _follow(output, handle, take, time.monotonic() + seconds)
        if not ended:
            where = place(process, handle)
            _end(process, handle)
        for _ in range(
            16
            # what lies in the pipe (64 KiB, unless somebody made it larger), not what its children
            # still write
        ):
            if not select.select([output], [], [], 0)[0] or not take():
                break
        lines.end()
        status = process.wait()
    finally:
        _end(process, handle)
        _sweep(mark)
        os.close(handle)
        process.stdout.close()
    return Ended(status if ended else None, tail.decode("utf-8", "replace"), where)


def _follow(output: int, handle: int, take: Callable[[], bool], deadline: float) -> bool:
    """Take the output until the program ends (True) or the deadline comes (False)."""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(handle, select.POLLIN)
    while True:
        ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1e3))
        if output in ready and not take():
            poll.unregister(output)  # closed: it prints no more, but may still run
        elif handle in ready:
            return True
        if time.monotonic() >= deadline:
            return False


def _pass_on(piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        with contextlib.suppress(InterruptedError):
            rest = rest[os.write(1, rest) :]


def _end(process: subprocess.Popen[bytes], handle: int) -> None:
    """TERM, grace, KILL; returns when the process is dead. A device's driver closes it properly at
    TERM, if it still can.
    """
    if process.poll() is None:
        process.terminate()
        if not select.select([handle], [], [], TERM_GRACE_S)[0]:
            process.kill()
        process.wait()


def _sweep(mark: str) -> None:
    """Kill what the program started and left behind, wherever it went."""
    wanted = f"{MARK}={mark}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError), open(f"{entry.path}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
