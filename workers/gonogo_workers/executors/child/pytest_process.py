"""pytest as a program with a deadline; its stacks tell where it hung. Standard library only."""

from __future__ import annotations

import contextlib
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import child_program

TRACE_WAIT_S = 5.0
TRACE_QUIET_S = 0.2  # no event tells that the stacks are complete; a pause this long does

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)')
_MACHINERY = (
    "/_pytest/",
    "/pluggy/",
    "/pytest_session.py",
    "/site-packages/pytest/",
    "/xdist/",
    "/execnet/",
)


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    seconds: float,
    traces: Path,
) -> child_program.Ended:
    """Run pytest to its end or for `seconds`; on SIGUSR1 it writes its stacks to the file `traces`.

    The place of a hang is `file:line in function`: the innermost frame outside of pytest, and the
    frame of the tests that led there. Raises OSError when it can't be started.
    """
    place = partial(_place, traces=traces, root=cwd)
    return child_program.run(
        command, environment=environment, seconds=seconds, folder=cwd, place=place
    )


def _place(process: subprocess.Popen[bytes], handle: int, *, traces: Path, root: Path) -> str:
    """Have the process write its stacks, and return the place in that of the main thread."""
    process.send_signal(signal.SIGUSR1)
    patience, quiet, text = time.monotonic() + TRACE_WAIT_S, 0.0, ""
    while time.monotonic() < patience and quiet < TRACE_QUIET_S:
        select.select([handle], [], [], 0.02)
        with contextlib.suppress(OSError):
            before, text = text, traces.read_text("utf-8", "replace")
            quiet = quiet + 0.02 if "most recent call first" in text and text == before else 0.0
    main = text.rpartition("(most recent call first)")[2]  # the main thread's stack is the last one
    frames = [
        frame
        for frame in _FRAME.finditer(main)
        if not any(part in frame["file"] for part in _MACHINERY)
    ]
    inside = [frame for frame in frames if frame["file"].startswith(f"{root}/")]
    places = list(dict.fromkeys(_words(frame, root) for frame in (*frames[:1], *inside[:1])))
    return ", called from ".join(places)


def _words(frame: re.Match[str], root: Path) -> str:
    return f"{frame['file'].removeprefix(f'{root}/')}:{frame['line']} in {frame['name']}"
