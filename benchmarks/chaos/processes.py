"""The processes of a chaos run: each is started, killed, paused and reaped by its own id."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

import forked

STOP_S = 15.0
"""A process that was told to stop is killed after this time, and the run fails."""
_PR_SET_CHILD_SUBREAPER = 36


class Child:
    """A process with a log, which can be killed and started again."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        listener: socket.socket | None = None,
        is_forked: bool = False,
    ) -> None:
        """A `listener` is handed over by `--fd`, as systemd does.

        One that is forked has its modules from a server that has imported them: it must be a
        gonogo command.
        """
        self.name, self.words, self.environment = name, list(words), dict(environment)
        self.log = folder / f"{name}.log"
        self._listener, self._is_forked = listener, is_forked
        self.process: subprocess.Popen[bytes] | forked.Forked | None = None
        self.starts = 0

    def start(self, ahead_s: float = 0.0) -> None:
        """Start it, in a session of its own; its wall clock is ahead by `ahead_s`."""
        self.starts += 1
        if self._is_forked:
            self.process = forked.Forked(
                self._command(),
                self.environment,
                self.log,
                listener=self._listener,
                ahead_s=ahead_s,
            )
            return
        words = self.words
        if ahead_s:
            skewed = [sys.executable, "-P", "-m", "benchmarks.chaos.skewed", str(ahead_s)]
            words = [*skewed, *self._command()]
        descriptors = [] if self._listener is None else [self._listener.fileno()]
        handed = [word for number in descriptors for word in ("--fd", str(number))]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [*words, *handed],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd=self.log.parent,
                pass_fds=descriptors,
            )

    def _command(self) -> list[str]:
        return self.words[self.words.index("gonogo.cli") + 1 :]

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    def runs(self) -> bool:
        """Return whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def last_words(self) -> str:
        """Return the beginning of the last line of its log."""
        lines = self.log.read_text(errors="replace").split("\n")
        return next((line[:120] for line in reversed(lines) if line.strip()), "")

    def kill(self) -> None:
        """Kill -9 the process alone: what it started is not told."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_S)

    def stop(self) -> bool:
        """SIGTERM; return whether it ended in time.

        One that doesn't is aborted: with PYTHONFAULTHANDLER its log then has the stack of each
        thread.
        """
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)
            self.kill()
            return False
        return True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end of the block."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def descendants(self) -> list[psutil.Process]:
        """Return what it has started, and what that has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.pid).children(recursive=True))
        return []


def adopt_orphans() -> None:
    """Make this process the parent of whatever its children leave behind when they are killed.

    So nothing that a run has started can escape, whatever session it is in.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def left_over(known: Iterable[int]) -> list[psutil.Process]:
    """Return what runs below this process, apart from the `known` ids; reap what has ended.

    The server that forks processes stays for the next run.
    """
    expected, left = {*known, *forked.server_pids()}, []
    for process in psutil.Process().children(recursive=True):
        if process.pid in expected:
            continue
        with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
            if process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)
            else:
                left.append(process)
    return left


def end(processes: Iterable[psutil.Process], seconds: float = 5.0) -> None:
    """Kill processes by their ids and wait for them."""
    ending = list(processes)
    for process in ending:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(ending, timeout=seconds)


@contextmanager
def no_room(pids: Iterable[int], most_bytes: int = 4096) -> Iterator[None]:
    """Let these processes write no file beyond a size, as on a full disk."""
    limited = list(pids)
    _limit(limited, most_bytes)
    try:
        yield
    finally:
        _limit(limited, resource.RLIM_INFINITY)


def _limit(pids: Iterable[int], most_bytes: int) -> None:
    """Set the largest file of processes; only their own user may, whoever has started them."""

    def as_their_user() -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))

    owners = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            owners.add(os.stat(f"/proc/{pid}").st_uid)
    for owner in owners:
        if owner == os.geteuid():
            as_their_user()
        else:
            subprocess.run(
                ["true"],
                user=owner,
                group=owner,
                extra_groups=[],
                preexec_fn=as_their_user,
                check=True,
            )


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until `condition()` is true. Raises TimeoutError, which names `what`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)
