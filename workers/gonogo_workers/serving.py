"""A worker that is ready: what it calls before it serves, when it is stopped, and at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from celery import Celery, signals

from gonogo_workers.messages.consumed_queues import QueueConsumer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """A worker that is ready to serve its devices' queues."""

    app: Celery
    hostname: str
    log_level: str
    wanted_queues: Callable[[], dict[str, bool]]
    """Returns every queue, and whether its device takes work now."""
    beginning: Sequence[Callable[[], object]]
    """Called in order before it serves."""
    stopping: Sequence[Callable[[], object]]
    """Called in the signal handler, when the worker is told to stop."""
    closing: Sequence[Callable[[], object]]
    """Called at the end."""

    def run(self) -> int:
        """Run Celery in this thread until SIGTERM or SIGINT; return 0 after an orderly stop."""
        QueueConsumer.wanted_queues = staticmethod(self.wanted_queues)
        for begin in self.beginning:
            begin()

        def on_shutdown(**_: Any) -> None:
            for stop in (*self.stopping, QueueConsumer.wake):
                stop()

        signals.worker_shutting_down.connect(on_shutdown, weak=False)
        queues = self.wanted_queues()
        log.info("worker %s serves %s", self.hostname, ", ".join(queues))
        try:
            served = self.app.Worker(
                pool="threads",
                concurrency=1,
                queues=list(queues),
                # else it takes a chunk before QueueConsumer starts, also for a drained device
                exclude_queues=[name for name, takes_work in queues.items() if not takes_work],
                hostname=self.hostname,
                loglevel=self.log_level,
                without_gossip=True,
                without_mingle=True,
                without_heartbeat=True,
                quiet=True,
            )
            served.start()
            return int(served.exitcode or 0)
        finally:
            signals.worker_shutting_down.disconnect(on_shutdown)
            for close in self.closing:
                close()
