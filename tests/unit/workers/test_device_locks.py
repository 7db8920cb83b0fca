"""Locks of devices: a device whose last user did not end properly is said to be in doubt."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gonogo_workers.devices import locks
from gonogo_workers.executors.reaping import start_time

DEVICE = "wormhole:0"
WAITS = threading.Event()
DEAD = {"worker": 2**22 + 1, "worker_start": 1}
"""A worker that lives no more: no process has an id that large."""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A kernel's process that keeps the device for a moment after its worker died."""
    path = locks.lock_path(tmp_path, DEVICE)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(60)"],
            pass_fds=[file.fileno()],
            start_new_session=True,
        )
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("ended", [{}, {"ended": True}])
def test_a_device_whose_worker_and_child_both_died_is_in_doubt(
    tmp_path: Path, child: subprocess.Popen[bytes], ended: dict[str, bool]
) -> None:
    user = {**DEAD, "group": child.pid, "group_start": start_time(child.pid), **ended}
    locks.lock_path(tmp_path, DEVICE).write_text(json.dumps(user) + "\n")
    threading.Thread(target=child.wait).start()  # reaped, as init does for a dead worker's child
    held_device = locks.acquire(tmp_path, DEVICE, lambda: True, WAITS)
    assert held_device.left_over
    held_device.close()
    assert child.wait(10) != 0


def test_a_proper_end_leaves_no_doubt(tmp_path: Path) -> None:
    for _ in range(2):
        held_device = locks.acquire(tmp_path, DEVICE, lambda: True, WAITS)
        assert not held_device.left_over
        held_device.close()
    path = locks.lock_path(tmp_path, DEVICE)
    path.write_text(json.dumps({**DEAD, "group": 1, "group_start": 1}) + "\n")
    held_device = locks.acquire(tmp_path, DEVICE, lambda: True, WAITS)
    assert held_device.left_over
    held_device.close()
