"""Ends process groups reliably (TERM, grace, KILL) and finds descendants that left their group."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path


def start_time(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None without such a process.

    Process ids are used again, pairs of id and start time aren't.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def group_members(group: int) -> list[int]:
    """Return the living processes (no zombies) of a process group."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                stat = (entry / "stat").read_text()
                fields = stat[stat.rindex(")") + 2 :].split()
                if int(fields[2]) == group and fields[0] not in "ZX":
                    members.append(int(entry.name))
    return members


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
    marker = f"{variable}={value}".encode()
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if marker in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
    return pids


def _wait_empty(group: int, seconds: float) -> None:
    # No event tells that a group of other processes is empty, so this loop checks every 20 ms
    deadline = time.monotonic() + seconds
    while group_members(group) and time.monotonic() < deadline:
        time.sleep(0.02)
