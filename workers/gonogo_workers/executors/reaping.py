"""Ends process groups reliably (TERM, grace, KILL) and finds descendants that left their group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from gonogo_workers.executors.child_user import ChildUser

P = TypeVar("P")
_PR_SET_CHILD_SUBREAPER: Final = 36
_ORPHANS_S: Final = 5.0


class Family:
    """The processes that this one has started, and those that their descendants left behind.

    A kernel's process may start one that leaves its group and its session, and clears the
    environment by which we would find it. In a worker (`adopt`) the system makes such an orphan a
    child of this process; who else is a child in a session of its own was started here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: set[int] = set()
        self._adopts = False

    def adopt(self) -> None:
        """Become the parent of orphans from now on. Only where all children are started here."""
        if sys.platform == "linux":
            self._adopts = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0

    def start(self, start: Callable[[], P], pid: Callable[[P], int]) -> P:
        """Start a process in a session of its own and return it; it is no orphan until `ended`."""
        with self._lock:
            process = start()
            self._started.add(pid(process))
        return process

    def ended(self, pid: int) -> None:
        """Forget a process, which has been waited for."""
        with self._lock:
            self._started.discard(pid)

    def end_orphans(self) -> None:
        """Kill orphans, and theirs, until none is left or 5 s are over."""
        deadline = time.monotonic() + _ORPHANS_S
        while self._adopts and self._kill_orphans() and time.monotonic() < deadline:
            time.sleep(0.005)

    def _kill_orphans(self) -> bool:
        with self._lock:
            orphans = [pid for pid in _children_elsewhere() if pid not in self._started]
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
        return bool(orphans)


FAMILY: Final = Family()


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield the id of each process, and its fields in /proc/PID/stat from the state on."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            yield int(entry.name), fields


def _stat(pid: int) -> list[str] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat[stat.rindex(")") + 2 :].split()


def _children_elsewhere() -> list[int]:
    """Return this process's children, dead ones too, in other sessions than its own."""
    me, session = str(os.getpid()), str(os.getsid(0))
    return [pid for pid, stat in _processes() if stat[1] == me and stat[3] != session]


def start_time(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None without such a process.

    Process ids are used again, pairs of id and start time aren't. A kernel may have written the id:
    it may have any number of digits.
    """
    stat = _stat(pid)
    return None if stat is None or stat[0] in "ZX" else int(stat[19])


def group_members(group: int) -> list[int]:
    """Return the living processes (no zombies) of a process group."""
    return [pid for pid, stat in _processes() if stat[2] == str(group) and stat[0] not in "ZX"]


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group, which may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def kill_group(leader: int, pidfd: int, grace_s: float) -> None:
    """End our child's group: TERM, then KILL after `grace_s` or as soon as the leader is dead.

    Does not reap the leader: until it is reaped its id can't be used again, so the KILL can't hit
    another group.
    """
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    if not poll.poll(0):
        signal_group(leader, signal.SIGTERM)
        poll.poll(grace_s * 1e3)
    signal_group(leader, signal.SIGKILL)
    poll.poll(5e3)


def kill_left_over(group: int, grace_s: float) -> None:
    """End a process group of a dead worker's child: TERM, grace, KILL.

    Returns when the group is empty, or after 5 s more.
    """
    signal_group(group, signal.SIGTERM)
    _wait_empty(group, grace_s)
    if group_members(group):
        signal_group(group, signal.SIGKILL)
        _wait_empty(group, 5.0)


def strays(variable: str, value: str) -> list[int]:
    """Return the processes with this environment variable: descendants in sessions of their own."""
    marker, pids = f"{variable}={value}".encode(), []
    for pid, _ in _processes():
        with contextlib.suppress(OSError):
            if marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                pids.append(pid)
    return pids


def kill_marked(variable: str, value: str, user: ChildUser | None) -> None:
    """Kill our processes with this environment variable, and those of the second user."""
    if user is not None:
        user.clean_up(None, variable, value)
    for pid in strays(variable, value):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _wait_empty(group: int, seconds: float) -> None:
    # No event tells that a group of other processes is empty, so this loop checks every 20 ms
    deadline = time.monotonic() + seconds
    while group_members(group) and time.monotonic() < deadline:
        time.sleep(0.02)
