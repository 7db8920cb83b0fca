"""The queues that a worker takes chunks from, changed while Celery runs.

Only queues whose device may take work are consumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from celery import bootsteps
from celery.worker import state

RECHECK_S = 0.002


class QueueConsumer(bootsteps.StartStopStep):  # type: ignore[misc]
    """Gives the worker access to Celery's event loop.

    The end of a task wakes the loop at once, not at its next timer, and queues can be added and
    dropped.
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
