"""One run of a program with a deadline, for the pytest executor: its output is passed on, its last words and its place are kept.

The program stays in our own process group, so that whatever ends the kernel host ends it, too; what it leaves behind is found by a
variable in its environment. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "GONOGO_PYTEST_RUN"
TAIL_BYTES = 8 << 10
CHUNK_BYTES = 1 << 16
TRACE_WAIT_S = 1.0
TERM_GRACE_S = 2.0

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)')
_OURS = ("/_pytest/", "/pluggy/", "/pytest_session.py", "/site-packages/pytest/", "/xdist/", "/execnet/")


@dataclass(frozen=True)
class Ended:
    """How a program ended. `status` as subprocess has it (negative: the signal); None = it was ended at its deadline."""

    status: int | None
    tail: str
    """The last of what it printed."""
    where: str = ""
    """Where it hung: `file:line in function`, the innermost frame that isn't pytest's, and the one of the tests that led there."""

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


def run(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], seconds: float, traces: Path) -> Ended:
    """Run the program to its end or for `seconds`; afterwards neither it nor anything that it started is alive.

    On SIGUSR1 the program writes its stacks to the file `traces`. Raises OSError when it can't be started.
    """
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        list(command),
        cwd=cwd,
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
    tail = bytearray()
    where = ""
    deadline = time.monotonic() + seconds
    try:
        ended = _follow(output, handle, tail, deadline)
        if not ended:
            where = _place(process, handle, traces, cwd)
            _end(process, handle)
        _drain(output, tail)
        status = process.wait()
    finally:
        _end(process, handle)
        _sweep(mark)
        os.close(handle)
        process.stdout.close()
    return Ended(status if ended else None, tail.decode("utf-8", "replace"), where)


def _follow(output: int, handle: int, tail: bytearray, deadline: float) -> bool:
    """Pass the output on until the program ends (True) or the deadline comes (False)."""
    poll = select.poll()
    poll.register(output, select.POLLIN)
    poll.register(handle, select.POLLIN)
    while True:
        ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1e3))
        if output in ready and not _pass_on(output, tail):
            poll.unregister(output)  # closed: it prints no more, but may still run
        elif handle in ready:
            return True
        if time.monotonic() >= deadline:
            return False


def _pass_on(output: int, tail: bytearray) -> bool:
    """One piece of output, if there is any; False at its end."""
    try:
        piece = os.read(output, CHUNK_BYTES)
    except BlockingIOError:
        return True
    tail += piece
    del tail[:-TAIL_BYTES]
    rest = memoryview(piece)
    while rest:
        with contextlib.suppress(InterruptedError):
            rest = rest[os.write(1, rest) :]
    return bool(piece)


def _drain(output: int, tail: bytearray) -> None:
    """What lies in the pipe when the program has ended; not what its children still write."""
    for _ in range(16):  # a pipe holds 64 KiB, unless somebody made it larger
        if not select.select([output], [], [], 0)[0] or not _pass_on(output, tail):
            return


def _place(process: subprocess.Popen[bytes], handle: int, traces: Path, root: Path) -> str:
    """Ask for the stacks, and name the place in that of the main thread."""
    process.send_signal(signal.SIGUSR1)
    patience = time.monotonic() + TRACE_WAIT_S
    text = ""
    while time.monotonic() < patience and "most recent call first" not in text:
        select.select([handle], [], [], 0.02)  # no event tells that the file is written
        with contextlib.suppress(OSError):
            text = traces.read_text("utf-8", "replace")
    select.select([handle], [], [], 0.05)  # it may be in the middle of it
    with contextlib.suppress(OSError):
        text = traces.read_text("utf-8", "replace")
    main = text.rpartition("(most recent call first)")[2]  # the main thread's stack is the last one
    frames = [frame for frame in _FRAME.finditer(main) if not any(part in frame["file"] for part in _OURS)]
    inside = [frame for frame in frames if frame["file"].startswith(f"{root}/")]
    places = list(dict.fromkeys(_words(frame, root) for frame in (*frames[:1], *inside[:1])))
    return ", called from ".join(places)


def _words(frame: re.Match[str], root: Path) -> str:
    return f"{frame['file'].removeprefix(f'{root}/')}:{frame['line']} in {frame['name']}"


def _end(process: subprocess.Popen[bytes], handle: int) -> None:
    """TERM, grace, KILL; returns when the process is dead. pytest has nothing to tidy at TERM, but a test's own program may."""
    if process.poll() is None:
        process.terminate()
        if not select.select([handle], [], [], TERM_GRACE_S)[0]:
            process.kill()
        process.wait()


def _sweep(mark: str) -> None:
    """Kill what the program started and left behind, wherever it went."""
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
