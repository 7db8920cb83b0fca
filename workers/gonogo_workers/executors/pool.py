"""Spare children: one per kind of executor is started ahead of the chunk that needs it.

A spare has imported its executor and loaded compiled code, but has run no kernel and opened no
device: it counts as fresh.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping

from gonogo_workers.executors.base import HostUnavailable
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.registry import ExecutorSpec

Environment = tuple[tuple[str, str], ...]

MAX_SPARES = 4
"""A build with a private environment needs private spares: those used least recently end."""


class HostPool:
    """At most one idle spare per (executor, environment), and MAX_SPARES in total.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._spares: dict[tuple[ExecutorSpec, Environment], KernelHost] = {}
        self._lock = threading.Lock()
        self._closed = False

    def take(
        self,
        spec: ExecutorSpec,
        environment: Mapping[str, str] | None = None,
        started: Callable[[KernelHost], None] | None = None,
    ) -> KernelHost:
        """Return a fresh, loaded child: the spare when there is a live one, else a new one.

        `started` receives the child before it is loaded, so that another thread may `stop` it; then
        Stopped is raised. Raises HostUnavailable.
        """
        with self._lock:
            host = self._spares.pop(_key(spec, environment), None)
        if host is not None and not host.alive:
            host.kill()
            host = None
        host = host or KernelHost(spec, environment)
        try:
            if started is not None:
                started(host)
            host.wait_until_loaded()
        except BaseException:
            host.kill()
            raise
        return host

    def prepare(self, spec: ExecutorSpec, environment: Mapping[str, str] | None = None) -> None:
        """Start a spare unless there is one; don't wait for it.

        If a spare can't be started, the next `take` raises.
        """
        key = _key(spec, environment)
        with self._lock:
            if self._closed or key in self._spares:
                return
            with contextlib.suppress(HostUnavailable):
                self._spares[key] = KernelHost(spec, environment)
            idle = [self._spares.pop(oldest) for oldest in list(self._spares)[:-MAX_SPARES]]
        for host in idle:
            host.kill()

    def close(self) -> None:
        """End all spares and start no more."""
        with self._lock:
            self._closed = True
            spares = list(self._spares.values())
            self._spares.clear()
        for host in spares:
            host.kill()


def _key(
    spec: ExecutorSpec, environment: Mapping[str, str] | None
) -> tuple[ExecutorSpec, Environment]:
    return spec, tuple(sorted((environment or {}).items()))
