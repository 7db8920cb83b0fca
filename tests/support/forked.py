"""Commands of gonogo as processes of their own, forked from a server that has imported everything.

An API, a background process and a worker spend seconds of a core on imports, and the tests start
hundreds of them. `gonogo up` and the installed wheel still begin as a user's commands do.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import cache
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from pathlib import Path

from patience import WAIT_S


class Forked:
    """A gonogo command; its methods are those of `subprocess.Popen`."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        errors: Path | None = None,
        folder: Path | None = None,
        listener: socket.socket | None = None,
        ahead_s: float = 0.0,
    ) -> None:
        """Start it in a session of its own, in this folder or the log's. `errors` takes its stderr,
        or the log does. It gets the `listener` by `--fd`, as systemd hands it over. Its wall clock
        is ahead by `ahead_s`."""
        files, place = (log, errors or log), folder or log.parent
        for file in files:
            file.touch()
        self._process = _server().Process(
            target=_run, args=(list(words), dict(environment), place, *files, listener, ahead_s)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. TimeoutExpired after `timeout` seconds."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float = WAIT_S
) -> subprocess.CompletedProcess[str]:
    """Run a command in this folder to its end; its output, as `subprocess.run` captures it."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="output-") as captured:
        out, errors = Path(captured, "out"), Path(captured, "errors")
        command = Forked(words, environment, out, errors=errors, folder=folder)
        try:
            code = command.wait(seconds)
        finally:
            command.kill()
        return subprocess.CompletedProcess(
            ["gonogo", *words], code, out.read_text(), errors.read_text()
        )


def server_pids() -> list[int]:
    """The processes that fork others, and count what these share; both end with this process."""
    # multiprocessing has no public names for these two
    tracker = resource_tracker._resource_tracker  # type: ignore[attr-defined]
    pids = (forkserver._forkserver._forkserver_pid, tracker._pid)  # type: ignore[attr-defined]
    return [pid for pid in pids if pid is not None]


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["preloaded"])
    # Python 3.11's server looks for what it preloads where its environment says only
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        os.environ.update({} if path is None else {"PYTHONPATH": path})
    return context


def _clock_ahead(seconds: float) -> AbstractContextManager[object]:
    if not seconds:
        return nullcontext()
    import time_machine

    there = datetime.fromtimestamp(time.time() + seconds, UTC)
    return time_machine.travel(there, tick=True)


def _run(
    words: list[str],
    environment: dict[str, str],
    folder: Path,
    log: Path,
    errors: Path,
    listener: socket.socket | None,
    ahead_s: float,
) -> None:
    assert "preloaded" in sys.modules  # the server leaves out what it can't import
    os.setsid()
    os.chdir(folder)
    nothing = os.open(os.devnull, os.O_RDONLY)
    appended = [os.open(file, os.O_WRONLY | os.O_APPEND) for file in (log, errors)]
    for number, descriptor in enumerate((nothing, *appended)):
        os.dup2(descriptor, number)
    os.environ.clear()
    os.environ.update(environment)
    handed = [] if listener is None else ["--fd", str(listener.detach())]
    sys.argv = ["gonogo", *words, *handed]
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)

    from gonogo.cli.app import main

    try:
        with _clock_ahead(ahead_s):
            main()
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out
