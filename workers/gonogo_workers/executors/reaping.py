"""Ending process groups for sure: TERM, grace, KILL; and finding the descendants that left their
group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None = no such process. Ids are used
    again, (id, start) isn't.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def group_members(group: int) -> list[int]:
    """The living processes (no zombies) of a process group."""
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
    """Send a signal to a process group that may be gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def kill_group(leader: int, pidfd: int, grace_s: float) -> None:
    """TERM to our child's group, KILL after `grace_s` or as soon as the leader is dead. Does not
    reap the leader.

    As long as the leader is not reaped its id can't be used again, so the KILL can't hit a
    stranger.
    """
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    if not poll.poll(0):
        signal_group(leader, signal.SIGTERM)
        poll.poll(grace_s * 1e3)
    signal_group(leader, signal.SIGKILL)
    poll.poll(5e3)


def kill_left_over(group: int, grace_s: float) -> None:
    """End a process group that is not our child's (its worker is dead): TERM, grace, KILL; returns
    when it is empty or after 5 s more.
    """
    signal_group(group, signal.SIGTERM)
    _wait_empty(group, grace_s)
    if group_members(group):
        signal_group(group, signal.SIGKILL)
        _wait_empty(group, 5.0)


def strays(variable: str, value: str) -> list[int]:
    """Processes of ours with this environment variable: descendants that made a session of their
    own.
    """
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _wait_empty(group: int, seconds: float) -> None:
    # There is no event for "this group of strangers is empty", so this one place looks every 20 ms
    deadline = time.monotonic() + seconds
    while group_members(group) and time.monotonic() < deadline:
        time.sleep(0.02)
