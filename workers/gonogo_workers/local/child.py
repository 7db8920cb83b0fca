"""A kernel host for a command, without a server.

It is opened when it is needed and ends with the `with` block.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost


class LocalChild:
    """One build's child process, started again after each end.

    A context manager: leaving it ends the child.
    """

    def __init__(self, resolved: ResolvedBuild, build: str) -> None:
        self.resolved = resolved
        self.build = build
        self._host: KernelHost | None = None
        self._position = 0

    def close(self, *, kill: bool = False) -> None:
        """End the child; the next run would start another.

        `kill`: it can no longer be asked to close its device.
        """
        host, self._host = self._host, None
        if host is not None:
            if kill:
                host.kill()
            else:
                host.close()
        self._position = 0

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
        self._host, self._position = host, 0
        return host

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
