"""One user per chip: a lock file per device, shared with the child that uses the chip.

The lock is a flock on an open file description. The child gets a copy of the descriptor: as long as
one of the two lives, the chip is locked, so the lock outlives a killed worker. The file names the
worker, the child's process group and its host run, so that the next worker can end leftover
processes. It also records whether the last user ended properly.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gonogo.devices.boards import ARCHES
from gonogo.errors import InfrastructureError
from gonogo.settings import Settings
from gonogo_workers.devices.chip import Chip
from gonogo_workers.executors.child_user import child_user
from gonogo_workers.executors.kernel_host import HOST_RUN_VARIABLE, TERM_GRACE_S
from gonogo_workers.executors.reaping import kill_left_over, kill_marked, start_time

log = logging.getLogger(__name__)

RETRY_S = (0.005, 0.1)
"""The shortest and the longest pause between two tries, in seconds.

A waiting flock can't be canceled, so the lock is tried often: soon at first (this worker's last
child is just exiting), then less.
"""


_CHIPS = tuple(f"{arch}-" for arch in sorted(ARCHES))
"""The beginnings of the lock files of chips; other devices are virtual."""


class LockedElsewhere(InfrastructureError):
    """The device is in use, and the caller did not want to wait any longer."""


class HeldDevice:
    """A device that is locked until `close`.

    `left_over` says that its last user did not end properly: run the canary first.
    """

    def __init__(self, fd: int, path: Path, left_over: bool) -> None:
        self.fd, self.path, self.left_over = fd, path, left_over
        me = os.getpid()
        self._user: dict[str, Any] = {"worker": me, "worker_start": start_time(me)}
        self._write(self._user)

    def record(self, group: int, host_run: str) -> None:
        """Record which process group uses the device now."""
        self._user |= {"group": group, "group_start": start_time(group), "host_run": host_run}
        self._write(self._user)

    def close(self) -> None:
        """Record a proper end and release the device; the chip is free once the child is gone, too.

        There is no LOCK_UN: that would unlock the child's copy as well. The file keeps the user's
        identity: the child is just exiting, and if we die meanwhile the next worker must be able to
        end it.
        """
        with contextlib.suppress(InfrastructureError):
            self._write(self._user | {"ended": True})
        os.close(self.fd)

    def _write(self, content: dict[str, Any]) -> None:
        # One pwrite before the truncation: a reader sees whole JSON at any time, perhaps followed
        # by old bytes
        text = json.dumps(content).encode() + b"\n"
        try:
            os.pwrite(self.fd, text, 0)
            os.ftruncate(self.fd, len(text))
        except OSError as problem:
            words = f"can't write the lock file {self.path}: {problem.strerror}"
            raise InfrastructureError(words) from problem


def folder_of(settings: Settings) -> Path:
    """Return the folder of a host's lock files, and of what it knows about its devices."""
    return Path(settings.lock_dir or Path(settings.var_dir) / "locks").absolute()


def lock_path(folder: Path, device: str) -> Path:
    """Return the path of a device's lock file."""
    return folder / (device.replace("/", "_").replace(":", "-") + ".lock")


def acquire(
    folder: Path, device: str, keep_waiting: Callable[[], bool], wait: threading.Event
) -> HeldDevice:
    """Lock the device.

    Processes that a dead worker left on it are killed; a living worker is waited for while
    `keep_waiting()`. `wait` ends a pause early. Raises LockedElsewhere when `keep_waiting` says so,
    InfrastructureError when the file can't be made.
    """
    path = lock_path(folder, device)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        words = f"can't make the lock file {path}: {problem.strerror}"
        raise InfrastructureError(words) from problem
    left_over, pause = False, RETRY_S[0]
    try:
        while not _try_lock(fd):
            user = _read(fd)
            if user is not None and not _alive(user):
                words = "device %s: its worker %s is dead, ending the processes it left"
                log.warning(words, device, user.get("worker"))
                _end(user)
                left_over = True
            if not keep_waiting():
                who = (user or {}).get("worker", "unknown")
                raise LockedElsewhere(f"device {device} is in use by process {who}")
            wait.wait(pause)
            pause = min(2 * pause, RETRY_S[1])
        user = _read(fd)
        if user is not None and not user.get("ended"):
            _end(user)
            left_over = True
        return HeldDevice(fd, path, left_over)
    except BaseException:
        os.close(fd)
        raise


def try_claim(path: Path) -> int | None:
    """Lock a plain lock file for the life of the descriptor; None when another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if _try_lock(fd):
        return fd
    os.close(fd)
    return None


@contextlib.contextmanager
def others(folder: Path, chip: Chip) -> Iterator[bool]:
    """Lock every other chip of this host, without waiting; False if a worker uses one of them."""
    own_path = lock_path(folder, chip.name)
    with contextlib.ExitStack() as claims:
        for path in sorted(folder.glob("*.lock")):
            if path == own_path or not path.stem.startswith(_CHIPS):
                continue
            fd = try_claim(path)
            if fd is None:
                yield False
                return
            claims.callback(os.close, fd)
        yield True


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            return False
        raise
    return True


def _read(fd: int) -> dict[str, Any] | None:
    try:
        content = json.loads(os.pread(fd, 4096, 0).split(b"\n")[0] or b"null")
    except (ValueError, RecursionError):
        return {}  # unreadable: a process died while it wrote, or a kernel wrote it
    return content if isinstance(content, dict) else None


def _alive(user: dict[str, Any]) -> bool:
    worker = user.get("worker")
    return (
        isinstance(worker, int)
        and user.get("worker_start") is not None
        and start_time(worker) == user["worker_start"]
    )


def _end(user: dict[str, Any]) -> None:
    """End the child of a dead worker.

    Its group is killed if that is still the same process; so is every process that bears its mark.
    The child can write this file, too: nothing but a kernel's processes may be ended on its word.
    """
    kernels = child_user()
    uid = os.getuid() if kernels is None else kernels.uid
    group = user.get("group")
    if (
        isinstance(group, int)
        and group > 1
        and user.get("group_start") is not None
        and start_time(group) == user["group_start"]
        and _owner(group) == uid
    ):
        kill_left_over(group, TERM_GRACE_S)
    if isinstance(user.get("host_run"), str):
        kill_marked(HOST_RUN_VARIABLE, user["host_run"], kernels)


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
