"""A worker that is ready, and the queues that it takes chunks from while Celery runs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from celery import Celery, bootsteps, signals
from celery.worker import state

log = logging.getLogger(__name__)

RECHECK_S = 0.002


class QueueConsumer(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Gives the worker access to Celery's event loop.

    The end of a task wakes the loop at once, not at its next timer; only queues whose device takes
    work are consumed.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)
    hub: Any = None
    consumer: Any = None
    wanted_queues: Callable[[], dict[str, bool]] = staticmethod(dict)
    """Returns every queue of the worker, and whether to consume it now."""

    def start(self, consumer: Any) -> None:
        """Note the event loop of this connection (each new connection has a new one)."""
        QueueConsumer.hub, QueueConsumer.consumer = getattr(consumer, "hub", None), consumer
        QueueConsumer._update()

    @classmethod
    def wake(cls) -> None:
        """Make the loop check for messages now; from any thread."""
        cls._soon(cls._until_idle)

    @classmethod
    def update(cls) -> None:
        """Consume the queues whose device takes work now, and no others; from any thread."""
        cls._soon(lambda _hub: cls._update())

    @classmethod
    def _soon(cls, call: Callable[[Any], None]) -> None:
        hub = cls.hub
        if hub is not None:
            with contextlib.suppress(Exception):  # the connection of this loop was just lost
                hub.call_soon(call, hub)

    @classmethod
    def _update(cls) -> None:
        consumer = cls.consumer
        for name, takes_work in cls.wanted_queues().items():
            consumes = consumer.task_consumer.consuming_from(name)
            if takes_work and not consumes:
                consumer.add_task_queue(name)
            elif consumes and not takes_work:
                consumer.cancel_task_queue(name)

    @staticmethod
    def _until_idle(hub: Any) -> None:
        """Check again until Celery has booked the end of the last task.

        A task that has returned stays booked for a moment, and until then the loop asks for no
        message.
        """
        if state.reserved_requests:
            hub.call_later(RECHECK_S, QueueConsumer._until_idle, hub)


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
