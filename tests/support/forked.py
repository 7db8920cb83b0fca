"""Commands of gonogo as processes of their own, forked from a server that has imported everything.

An API, a background process and a worker spend seconds of a core on imports, and the tests start
hundreds of them. `gonogo up` and the installed wheel still begin as a user's commands do.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

PRELOADED = [
    "gonogo_cli.app",
    "gonogo_cli.operate.processes",
    "gonogo_service.app",
    "gonogo_service.background.process",
    "gonogo_workers.worker",
    "celery.worker",
    "kombu.transport.redis",
    "uvicorn",
]


class Forked:
    """A gonogo command; its methods are those of `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it in a session of its own, in the log's folder."""
        log.touch()
        self._process = _server().Process(target=_run, args=(list(words), dict(environment), log))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
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
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _run(words: list[str], environment: dict[str, str], log: Path) -> None:
    os.setsid()
    os.chdir(log.parent)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, out, out)):
        os.dup2(descriptor, number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["gonogo", *words]
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)

    from gonogo_cli.app import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out
