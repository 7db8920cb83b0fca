"""`gonogo chips lock`: a person's program and the workers never share a chip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from gonogo_workers.devices import locks
from gonogo_workers.executors.reaping import group_members, start_time
from patience import WAIT_S
from running_service import clean_environment, gone, gonogo, until

HOLDS = """
import os, pathlib, time
pathlib.Path("here").write_text(str(os.getpid()))
while not pathlib.Path("release").exists(): time.sleep(0.02)
raise SystemExit(7)
"""
KEEPS = (sys.executable, "-c", HOLDS)


def lock(folder: Path, *words: str, device: str = "emulator:0") -> subprocess.Popen[str]:
    """Start `gonogo chips lock` for a device in a folder with its locks."""
    command = gonogo("chips", "lock", "--device", device, *words)
    environment = clean_environment(GONOGO_LOCK_DIR=str(folder))
    with (folder / "stderr").open("w") as stderr:
        return subprocess.Popen(command, env=environment, cwd=folder, stderr=stderr, text=True)


def running(folder: Path) -> str:
    """Return the id of the program's process; empty until it runs."""
    file = folder / "here"
    return file.read_text() if file.exists() else ""


def acquire(folder: Path) -> locks.HeldDevice:
    """Take the device as a worker does."""
    return locks.acquire(folder, "emulator:0", lambda: False, threading.Event())


def test_a_program_has_the_device_for_itself_and_its_exit_code_is_ours(tmp_path: Path) -> None:
    process = lock(tmp_path, "--", *KEEPS)
    until(lambda: running(tmp_path), what="the program")
    with pytest.raises(locks.LockedElsewhere, match=str(process.pid)):
        acquire(tmp_path)
    assert lock(tmp_path, "--no-wait", "--", "true").wait(WAIT_S) == 3
    assert "is in use by process" in (tmp_path / "stderr").read_text()
    (tmp_path / "release").touch()
    assert process.wait(WAIT_S) == 7
    device_lock = acquire(tmp_path)
    assert not device_lock.left_over
    device_lock.close()


def test_a_killed_lock_leaves_its_program_to_the_next_user(tmp_path: Path) -> None:
    process = lock(tmp_path, "--", *KEEPS)
    pid = until(lambda: running(tmp_path), what="the program")
    program = psutil.Process(int(pid))
    process.kill()
    process.wait()
    device_lock = locks.acquire(tmp_path, "emulator:0", lambda: True, threading.Event())
    assert device_lock.left_over
    assert gone([program])
    device_lock.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start programs as another user")
def test_a_lock_file_ends_no_process_of_another_user(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/true"]) as worker:
        worker.wait()
    with subprocess.Popen(["/bin/sleep", "600"], user="nobody", start_new_session=True) as other:
        group = {"group": other.pid, "group_start": start_time(other.pid)}
        claim = {"worker": worker.pid, "worker_start": 1, **group}
        locks.lock_path(tmp_path, "emulator:0").write_text(json.dumps(claim) + "\n")
        device_lock = acquire(tmp_path)
        assert device_lock.left_over
        device_lock.close()
        is_running = other.poll() is None
        other.kill()
    assert is_running


def test_whatever_a_kernel_writes_into_the_lock_file_the_device_can_be_used(tmp_path: Path) -> None:
    locks.lock_path(tmp_path, "emulator:0").write_text("[" * 4096)
    acquire(tmp_path).close()


def test_a_process_whose_name_is_no_text_hides_no_other() -> None:
    """Else any user of the host stops its workers from ending processes."""
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff) R 1', 0, 0, 0); print(flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{rename}; input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as named:
        assert named.stdout is not None
        named.stdout.readline()
        assert group_members(named.pid) == [named.pid]
        assert start_time(named.pid) is not None
        named.kill()


def test_a_device_that_there_is_not_is_named(tmp_path: Path) -> None:
    assert lock(tmp_path, "--", "true", device="5").wait(WAIT_S) == 2
    errors = (tmp_path / "stderr").read_text()
    assert "device" in errors
    assert "5" in errors
