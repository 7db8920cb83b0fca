"""Which queues a worker takes chunks from, changed while Celery runs: only those whose device may
take work.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from celery import bootsteps
from celery.worker import state

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.002


class Wake(bootsteps.StartStopStep):  # type: ignore[misc]
    """Hands Celery's event loop to the worker: the end of a task wakes it up at once and not at its
    next timer, and queues can be left.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)
    hub: Any = None
    consumer: Any = None
    wanted: Callable[[], dict[str, bool]] = staticmethod(dict)
    """Every queue of the worker, and whether it is to be consumed now."""

    def start(self, consumer: Any) -> None:
        """The loop of this connection (a new one after each loss)."""
        Wake.hub, Wake.consumer = getattr(consumer, "hub", None), consumer
        Wake._choose()

    @classmethod
    def wake(cls) -> None:
        """Make the loop look round now; from any thread."""
        cls._soon(cls._until_idle)

    @classmethod
    def choose(cls) -> None:
        """Consume the queues that are wanted now and no others; from any thread."""
        cls._soon(lambda _hub: cls._choose())

    @classmethod
    def _soon(cls, call: Callable[[Any], None]) -> None:
        hub = cls.hub
        if hub is not None:
            with contextlib.suppress(Exception):  # the loop of a connection that has just been lost
                hub.call_soon(call, hub)

    @classmethod
    def _choose(cls) -> None:
        consumer = cls.consumer
        for name, wanted in cls.wanted().items():
            consumes = consumer.task_consumer.consuming_from(name)
            if wanted and not consumes:
                consumer.add_task_queue(name)
            elif consumes and not wanted:
                consumer.cancel_task_queue(name)

    @staticmethod
    def _until_idle(hub: Any) -> None:
        """A task that has returned is still booked for a moment, and as long as it is the loop asks
        for no further message.
        """
        if state.reserved_requests:
            hub.call_later(LOOK_AGAIN_S, Wake._until_idle, hub)
