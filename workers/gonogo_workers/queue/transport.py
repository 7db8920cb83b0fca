"""A Celery transport whose messages are ids of attempts, so that a hostile broker can only wake.

Kombu's Redis transport believes what lies in Redis: it parses JSON, decompresses as a header says,
and routes by a table. Here an item of a queue is the id of an attempt. Anything else is dropped and
counted. What Celery sees is made here: the task, with the id and the queue as its arguments.
"""

# kombu has types for a part of its functions only
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from queue import Empty
from typing import Any, Final
from uuid import uuid4

from kombu.serialization import register
from kombu.transport import redis as kombu_redis
from redis.exceptions import ResponseError

from gonogo_workers.queue.names import RUN_ATTEMPT

CONTENT_TYPE: Final = "application/x-gonogo"
SERIALIZER: Final = "gonogo"
log = logging.getLogger(__name__)
ID: Final = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""An attempt's id: a UUID of 36 characters."""
WRONG_TYPE_S: Final = 0.5
_dropped: Final = Counter[str]()
"""Queue -> items that were dropped."""


def _drop(queue: str, why: str) -> None:
    """Count a dropped item. The log has the first, the tenth, the hundredth, ...: no flood."""
    _dropped[queue] += 1
    if str(_dropped[queue]).strip("0") == "1":
        log.warning("the queue %s: %s (%d dropped)", queue, why, _dropped[queue])


def to_celery(item: bytes, queue: str) -> dict[str, Any] | None:
    """Return Celery's message for an item of a queue; None if it is no id."""
    if ID.fullmatch(item) is None:
        _drop(queue, "an item isn't the id of an attempt")
        return None
    return {
        "body": f"{item.decode()} {queue}",
        "content-type": CONTENT_TYPE,
        "content-encoding": "utf-8",
        "headers": {
            "task": RUN_ATTEMPT,
            "id": str(uuid4()),
            "argsrepr": "...",
            "kwargsrepr": "{}",
        },
        "properties": {
            "delivery_tag": str(uuid4()),
            "delivery_info": {"exchange": queue, "routing_key": queue},
        },
    }


class Channel(kombu_redis.Channel):
    """Reads ids. Queues need no entry in a table of routes: each is its own route."""

    # one key for each queue
    priority_steps = [0]  # noqa: RUF012 - the base class has it so

    def close(self) -> None:
        """Close the channel and every connection: kombu connects again to put messages back."""
        try:
            super().close()
        finally:
            self._disconnect_pools()

    def _brpop_read(self, **options: Any) -> bool:
        """Read the answer to BRPOP. Raises Empty for nothing, and for an item that is no id."""
        try:
            try:
                answer = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                # disconnected, the next pass of the loop connects again
                self.client.connection.disconnect()
                raise
            except ResponseError as problem:
                # somebody made another value of a queue's key: as bad as a broker that is away
                _drop(", ".join(self.active_queues), f"it can't be read: {problem}")
                time.sleep(WRONG_TYPE_S)
                raise Empty() from problem
            if not answer:
                raise Empty()
            name, item = answer
            queue = name.decode("ascii", "replace")
            self._queue_cycle.rotate(queue)
            message = to_celery(item, queue)
            if message is None:
                raise Empty()
            self.connection._deliver(message, queue)
            return True
        finally:
            self._in_poll = None  # type: ignore[assignment]
            self._flush_brpop_reauth()

    def _get(self, queue: str, *_: Any) -> dict[str, Any]:
        with self.conn_or_acquire() as client:
            item = client.rpop(queue)
        message = None if item is None else to_celery(item, queue)
        if message is None:
            raise Empty()
        return message

    def _restore(self, message: Any, leftmost: bool = False) -> None:
        """Put an id back that was taken and not run: the worker stops, or takes no work now."""
        with self.conn_or_acquire() as client:
            (attempt, queue), *_ = _arguments(message.body)
            client.rpush(queue, attempt)

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        return [routing_key or exchange]

    def _queue_bind(self, *_: Any) -> None:
        pass

    def get_table(self, exchange: str) -> list[Any]:
        """Return no routes."""
        return []

    def maybe_refresh_binding_expiry(self) -> None:
        """Do nothing: there are no routes to refresh."""

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return True

    def _size(self, queue: str) -> int:
        # nobody asks, and an account that may take from a queue needn't measure it
        return 0


class Transport(kombu_redis.Transport):
    """Kombu's Redis transport with the channel above."""

    Channel = Channel


def _arguments(body: bytes | str) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """Return a task's arguments: the id, and the queue."""
    text = body if isinstance(body, str) else body.decode("ascii", "replace")
    return text.split(" ", 1), {}, {}


register(SERIALIZER, None, _arguments, CONTENT_TYPE, "utf-8")
