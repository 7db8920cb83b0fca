"""One run of a test program with a deadline, for the gtest and pytest executors.

Its output is passed on and parsed as it comes. The program stays in our process group, so that
everything that ends the kernel host ends it, too. Processes that it leaves behind are found by a
variable in their environment. Standard library only.
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
"""A longer line is handled in pieces: a program may print without end and without line breaks."""
TERM_GRACE_S = 2.0


@dataclass(frozen=True)
class Ended:
    """The end of a program: the end of its output, and the place where it hung, if known.

    `status` as in subprocess (negative: the signal); None: it was ended at its deadline.
    """

    status: int | None
    tail: str
    where: str = ""

    @property
    def words(self) -> str:
        """The end of a sentence that says how the process ended."""
        if self.status is None:
            return "was ended at its deadline"
        if self.status < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-self.status).name}"
            return f"was ended by signal {-self.status}"
        return f"exited with status {self.status}"


class Lines:
    """Turns bytes into lines of text; `on_line` receives each line, and a long one in pieces."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = bytearray()

    def feed(self, piece: bytes) -> None:
        """Add the next bytes."""
        self._rest += piece
        *whole, rest = bytes(self._rest).split(b"\n")
        for line in whole:
            self._on_line(line.decode("utf-8", "replace").rstrip("\r"))
        self._rest = bytearray(rest)
        if len(self._rest) > MAX_LINE_BYTES:
            self.end()

    def end(self) -> None:
        """Handle the rest, which has no line break, as a line."""
        if self._rest:
            self._on_line(bytes(self._rest).decode("utf-8", "replace"))
            self._rest.clear()


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    seconds: float,
    on_line: Callable[[str], None] = lambda _: None,
    folder: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    place: Callable[[subprocess.Popen[bytes], int], str] = lambda _process, _handle: "",
) -> Ended:
    """Run the program to its end or for `seconds`, then kill it and everything that it started.

    `on_line` receives each line of its output, which is passed on to our output unless `quiet`.
    `place` receives a program that still runs at its deadline, with its pidfd, and returns where it
    hangs. Raises OSError when the program can't be started.
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
    tail, lines, where = bytearray(), Lines(on_line), ""

    def take() -> bool:
        """Read one piece of output, if there is any; return False at its end."""
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
        # Read what is in the pipe (64 KiB, unless it was enlarged), but not everything that its
        # children still write
        for _ in range(16):
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
    """Read the output until the program ends (True) or the deadline comes (False)."""
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
    """End the process: TERM, grace, KILL; return when it is dead.

    At TERM a device's driver can still close the device properly.
    """
    if process.poll() is None:
        process.terminate()
        if not select.select([handle], [], [], TERM_GRACE_S)[0]:
            process.kill()
        process.wait()


def _sweep(mark: str) -> None:
    """Kill the processes that the program started and left behind, in any group or session."""
    marker = f"{MARK}={mark}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError), open(f"{entry.path}/environ", "rb") as file:
                if marker in file.read().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
