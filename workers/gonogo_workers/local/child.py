"""A kernel host for a command, without a server, and how long the command waits for its answers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from gonogo.settings import load as load_settings
from gonogo.spec import hang_limits
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost

TELL_AFTER_S = 5.0
"""A command that prints nothing for longer looks broken."""


@dataclass(frozen=True)
class Patience:
    """The limits of a command's runs.

    deadline_s: what the user gave, which is taken as it is; None: it follows the run's size, and is
    at most most_s. tell: gets a sentence about a run that takes long, from another thread.
    """

    deadline_s: float | None = None
    most_s: float = math.inf
    tell: Callable[[str], None] | None = None

    def limit_s(self, executor: str, elements: int | None, *, is_first: bool) -> float:
        """Return after how many seconds a run is a hang.

        elements: those of its shape; None for tests that exist already. is_first: in its child.
        """
        if self.deadline_s is not None:
            return self.deadline_s
        guess_s = None if elements is None else hang_limits.guess_s(executor, elements)
        return hang_limits.of(guess_s, self.most_s)[int(is_first)]

    @contextmanager
    def telling(self, run: str, limit_s: float) -> Iterator[None]:
        """Say after a while that this run, in words, isn't over, and when it is a hang."""
        if self.tell is None or limit_s <= TELL_AFTER_S:
            yield
            return
        words = f"waiting for {run}: it is a hang after {limit_s:g} s (--deadline)"
        timer = threading.Timer(TELL_AFTER_S, self.tell, [words])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class LocalChild:
    """One build's child process, started again after each end; leaving its block ends the child."""

    def __init__(self, resolved: ResolvedBuild, build: str, patience: Patience) -> None:
        self.resolved, self.build, self.patience = resolved, build, patience
        self._host: KernelHost | None = None
        self.position = 0
        """The number of kernels that this child has run so far."""

    def close(self, *, kill: bool = False) -> None:
        """End the child; the next run would start another.

        `kill`: it can no longer be asked to close its device.
        """
        host, self._host, self.position = self._host, None, 0
        if host is not None and kill:
            host.kill()
        elif host is not None:
            host.close()

    def _open(self) -> KernelHost:
        """Return a child with the build loaded.

        Raises HostUnavailable when none can be started, KernelError when the build can't be loaded.
        """
        host = KernelHost(self.resolved.executor, self.resolved.environment)
        try:
            host.open(self.build)
        except BaseException:
            host.kill()
            raise
        self._host, self.position = host, 0
        return host

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def resolved_here(
    executor: str, build: str, deadline_s: float | None, tell: Callable[[str], None] | None
) -> tuple[ResolvedBuild, Patience]:
    """Return a build of this host, and the limits of a command that runs it. Raises FieldError."""
    settings = load_settings()
    file = builds_file.read(settings.builds)
    resolved = builds_file.resolve_build(registry.find(executor), build, file)
    return resolved, Patience(deadline_s, settings.per_seed_deadline_s, tell)
