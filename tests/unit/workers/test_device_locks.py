"""Locks of devices: one whose last user did not end properly is in doubt, and only a kernel that a
dead worker left there is ended."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gonogo_workers.devices import locks
from gonogo_workers.executors.kernel_host import HOST_RUN_VARIABLE
from gonogo_workers.executors.reaping import start_time
from running_service import until

DEVICE = "wormhole:0"
WAITS = threading.Event()
DEAD = {"worker": 2**22 + 1, "worker_start": 1}
"""A worker that lives no more: no process has an id that large."""
KERNEL = {"group": os.getpid(), "group_start": start_time(os.getpid()), "host_run": "no process"}


def left_by(folder: Path, **user: Any) -> None:
    """Write what a dead worker left in the lock file."""
    locks.lock_path(folder, DEVICE).write_text(json.dumps({**DEAD, **user}) + "\n")


def acquire(folder: Path) -> locks.HeldDevice:
    return locks.acquire(folder, DEVICE, lambda: True, WAITS)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A kernel's process that keeps the device for a moment after its worker died."""
    with locks.lock_path(tmp_path, DEVICE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
        process = subprocess.Popen(sleep, pass_fds=[file.fileno()], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("changes", [{}, {"ended": True}, {"worker_start": None}])
def test_a_device_whose_worker_and_child_both_died_is_in_doubt(
    tmp_path: Path, child: subprocess.Popen[bytes], changes: dict[str, Any]
) -> None:
    left_by(tmp_path, group=child.pid, group_start=start_time(child.pid), **changes)
    threading.Thread(target=child.wait).start()  # reaped, as init does for a dead worker's child
    held_device = acquire(tmp_path)
    assert held_device.left_over
    held_device.close()
    assert child.wait(10) != 0


def test_a_proper_end_leaves_no_doubt(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "locks"
    path = locks.lock_path(folder, DEVICE)
    for mark in ("a longer mark", "mark"):
        held_device = acquire(folder)
        assert not held_device.left_over
        held_device.record(os.getpid(), mark)
        held_device.close()
        user = json.loads(path.read_text())
        assert (user["worker"], user["group"], user["host_run"]) == (os.getpid(), os.getpid(), mark)
        assert user["worker_start"] == user["group_start"] == start_time(os.getpid())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("changes", "is_ended"),
    [
        ({}, True),
        ({"ended": True}, False),
        ({"group_start": 1}, False),  # the id was used again
        ({"group_start": None}, False),
        ({"group": "12"}, False),
        ({"group": 1, "group_start": start_time(1)}, False),
        ({"group": DEAD["worker"], "group_start": None}, False),
    ],
)
@pytest.mark.parametrize("second_user", [False, True])
def test_only_a_kernels_process_that_its_dead_worker_left_is_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    is_ended: bool,
    second_user: bool,
) -> None:
    groups, marks = [], []
    kernels = SimpleNamespace(uid=os.getuid() + 7, clean_up=lambda *words: marks.append(words))
    uid = kernels.uid if second_user else os.getuid()
    monkeypatch.setattr(locks, "child_user", lambda: kernels if second_user else None)
    monkeypatch.setattr(locks, "kill_left_over", lambda group, grace_s: groups.append(group))
    monkeypatch.setattr(locks, "_owner", lambda pid: uid)
    left_by(tmp_path, **{**KERNEL, **changes})
    held_device = acquire(tmp_path)
    assert held_device.left_over == ("ended" not in changes)
    assert groups == [os.getpid()] * is_ended
    assert bool(marks) == (second_user and held_device.left_over)
    assert set(marks) <= {(None, HOST_RUN_VARIABLE, "no process")}
    held_device.close()


def test_what_left_its_group_is_ended_by_its_mark(tmp_path: Path) -> None:
    environment = {HOST_RUN_VARIABLE: str(tmp_path)}
    stray = subprocess.Popen(["/bin/sleep", "60"], env=environment, start_new_session=True)
    try:
        # for a moment after the start of its program, Linux shows an empty environment
        until(lambda: Path(f"/proc/{stray.pid}/environ").read_bytes(), what="its environment")
        left_by(tmp_path, host_run=str(tmp_path))
        acquire(tmp_path).close()
        assert stray.wait(10) == -signal.SIGKILL
    finally:
        stray.kill()
        stray.wait()
