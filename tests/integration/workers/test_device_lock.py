"""`gonogo chips lock`: a person's program and the workers never share a chip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gonogo_workers.devices import locks
from gonogo_workers.executors.reaping import group_members, start_time
from patience import WAIT_S
from running_service import clean_environment, gonogo


def lock(folder: Path, *words: str, wait: bool = True) -> subprocess.Popen[str]:
    """Start `gonogo chips lock` for the virtual device emulator:0."""
    options = ["--device", "emulator:0", *([] if wait else ["--no-wait"])]
    environment = clean_environment(GONOGO_LOCK_DIR=str(folder))
    with (folder / "stderr").open("w") as stderr:
        return subprocess.Popen(
            gonogo("chips", "lock", *options, "--", *words),
            env=environment,
            stderr=stderr,
            text=True,
        )


def test_a_program_has_the_device_for_itself_and_its_exit_code_is_ours(tmp_path: Path) -> None:
    # The program keeps the device until the refusal was seen, however slow the machine is
    program = (
        f"import pathlib, time; end = time.monotonic() + {WAIT_S}\n"
        f"pathlib.Path({str(tmp_path / 'here')!r}).touch()\n"
        f"while not pathlib.Path({str(tmp_path / 'release')!r}).exists():\n"
        "    assert time.monotonic() < end\n"
        "    time.sleep(0.02)\n"
        "raise SystemExit(7)"
    )
    process = lock(tmp_path, sys.executable, "-c", program)
    deadline = time.monotonic() + WAIT_S
    while not (tmp_path / "here").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(locks.LockedElsewhere, match=str(process.pid)):
        locks.acquire(tmp_path, "emulator:0", lambda: False, threading.Event())
    refused = lock(tmp_path, "true", wait=False)
    assert refused.wait(WAIT_S) == 3
    assert "is in use by process" in (tmp_path / "stderr").read_text()
    (tmp_path / "release").touch()
    assert process.wait(WAIT_S) == 7
    device_lock = locks.acquire(tmp_path, "emulator:0", lambda: False, threading.Event())
    assert not device_lock.left_over
    device_lock.close()


def test_a_killed_lock_leaves_its_program_to_the_next_user(tmp_path: Path) -> None:
    program = (
        f"import pathlib, time; pathlib.Path({str(tmp_path / 'here')!r}).touch(); time.sleep(600)"
    )
    process = lock(tmp_path, sys.executable, "-c", program)
    deadline = time.monotonic() + WAIT_S
    while not (tmp_path / "here").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    device_lock = locks.acquire(
        tmp_path, "emulator:0", lambda: time.monotonic() < deadline, threading.Event()
    )
    assert device_lock.left_over
    device_lock.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start programs as another user")
def test_a_lock_file_ends_no_process_of_another_user(tmp_path: Path) -> None:
    other = subprocess.Popen(["/bin/sleep", "600"], user="nobody", start_new_session=True)
    try:
        worker = subprocess.Popen(["/bin/true"])
        worker.wait()
        claim = {
            "worker": worker.pid,
            "worker_start": 1,
            "group": other.pid,
            "group_start": start_time(other.pid),
        }
        locks.lock_path(tmp_path, "emulator:0").write_text(json.dumps(claim) + "\n")
        device_lock = locks.acquire(tmp_path, "emulator:0", lambda: False, threading.Event())
        assert device_lock.left_over
        device_lock.close()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_whatever_a_kernel_writes_into_the_lock_file_the_device_can_be_used(
    tmp_path: Path,
) -> None:
    locks.lock_path(tmp_path, "emulator:0").write_text("[" * 4096)
    locks.acquire(tmp_path, "emulator:0", lambda: False, threading.Event()).close()


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
    environment = clean_environment(GONOGO_LOCK_DIR=str(tmp_path))
    done = subprocess.run(
        gonogo("chips", "lock", "--device", "5", "--", "true"),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "device" in done.stderr
    assert "5" in done.stderr
