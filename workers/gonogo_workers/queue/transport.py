"""A Celery transport whose messages are sealed texts, so that a hostile broker can send no others.

Kombu's Redis transport believes what lies in Redis: it parses JSON, decompresses as a header says,
and routes by a table. Here a queue holds texts of `gonogo_workers.queue.envelope`. One of another
form or size is dropped and counted, and what Celery sees is made here: the task that the text
names, with the text as its only argument. The task checks the signature.
"""

# kombu has types for a part of its functions only
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any, Final

from kombu.serialization import register
from kombu.transport import redis as kombu_redis
from redis.exceptions import OutOfMemoryError, ResponseError

from gonogo_workers.queue import envelope
from gonogo_workers.queue.dropped import Dropped
from gonogo_workers.queue.names import MAX_MESSAGE_BYTES

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/x-gonogo"
SERIALIZER: Final = "gonogo"
WRONG_TYPE_S: Final = 0.5


def to_celery(item: bytes, queue: str) -> dict[str, Any] | None:
    """Return Celery's message for an item of a queue; None if it isn't one of ours."""
    if len(item) > MAX_MESSAGE_BYTES:
        Dropped.add(queue, f"has more than {MAX_MESSAGE_BYTES} bytes")
        return None
    try:
        text = item.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    task = envelope.task_of(text)
    if task is None:
        Dropped.add(queue, "isn't a sealed message")
        return None
    return {
        "body": text,
        "content-type": CONTENT_TYPE,
        "content-encoding": "utf-8",
        "headers": {"task": task, "id": str(uuid.uuid4()), "argsrepr": "...", "kwargsrepr": "{}"},
        "properties": {
            "delivery_tag": str(uuid.uuid4()),
            "delivery_info": {"exchange": queue, "routing_key": queue},
        },
    }


def as_text(value: bytes | str) -> str:
    """Return what Redis or Kombu gives as text; other bytes than ASCII become question marks."""
    return value if isinstance(value, str) else value.decode("ascii", "replace")


@contextmanager
def of_wrong_type(key: str) -> Iterator[None]:
    """Go on where somebody has made another value of a key, and where the broker is full.

    Then a crash may lose messages.
    """
    try:
        yield
    except OutOfMemoryError:  # nobody's fault: it counts as no refused message
        log.warning("the broker is full: %s is not written", key)
    except ResponseError as problem:
        Dropped.add(key, f"can't be used: {problem}")


class QoS(kombu_redis.QoS):
    """Keeps delivered messages in Redis until they are acknowledged: as (queue, text), no JSON."""

    def append(self, message: Any, delivery_tag: str) -> None:
        """Note a delivered message."""
        record = f"{message.delivery_info['routing_key']} {as_text(message.body)}"
        with of_wrong_type("unacked"), self.pipe_or_acquire() as pipe:
            pipe.zadd(self.unacked_index_key, {delivery_tag: time.time()})
            pipe.hset(self.unacked_key, delivery_tag, record)
            pipe.execute()
        super(kombu_redis.QoS, self).append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Forget a delivered message. A closed channel has put it back on its queue."""
        if not self.channel.closed:
            with of_wrong_type("unacked"):
                self._remove_from_indices(delivery_tag).execute()
        super(kombu_redis.QoS, self).ack(delivery_tag)

    def restore_visible(self, *arguments: Any, **options: Any) -> None:
        """Put messages of dead consumers back on their queues."""
        with of_wrong_type("unacked"):
            super().restore_visible(*arguments, **options)

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:
        """Put a message that was not acknowledged back on its queue."""

        def restore(pipe: Any) -> None:
            record = pipe.hget(self.unacked_key, tag)
            pipe.multi()
            self._remove_from_indices(tag, pipe)
            queue, _, item = bytes(record or b"").partition(b" ")
            name = as_text(queue[: envelope.MAX_HEAD])
            if item and name in {*self.channel.active_queues, *self.channel.restorable}:
                (pipe.lpush if leftmost else pipe.rpush)(name, item)
            elif record is not None:
                Dropped.add("unacked", "names no queue of this process")

        with self.channel.conn_or_acquire(client) as connection:
            connection.transaction(restore, self.unacked_key)


class Channel(kombu_redis.Channel):
    """Reads sealed texts. Queues need no entry in a table of routes: each is its own route."""

    QoS = QoS
    restorable: frozenset[str] = frozenset()
    """Queues to which messages are restored although this process doesn't read them (yet)."""
    from_transport_options = (  # type: ignore[assignment]
        *kombu_redis.Channel.from_transport_options,
        "restorable",
    )
    # one key for each queue
    priority_steps = [0]  # noqa: RUF012 - the base class has it so

    def close(self) -> None:
        """Close the channel and every connection.

        Kombu disconnects, then connects again to put back what was not acknowledged.
        """
        try:
            super().close()
        finally:
            self._disconnect_pools()

    def _brpop_read(self, **options: Any) -> bool:
        """Read what BRPOP answers. Raises Empty for nothing, and for what isn't a sealed text."""
        try:
            try:
                answer = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                # disconnected, the next pass of the loop connects again
                self.client.connection.disconnect()
                raise
            except ResponseError as problem:
                # somebody made another value of a queue's key: as bad as a broker that is away
                Dropped.add(", ".join(self.active_queues), f"can't be read: {problem}")
                time.sleep(WRONG_TYPE_S)
                raise Empty() from problem
            if not answer:
                raise Empty()
            name, item = answer
            queue = as_text(name)
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

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        with self.conn_or_acquire() as client:
            client.lpush(queue, message["body"])

    def _restore(self, message: Any, leftmost: bool = False) -> None:
        if self.ack_emulation:
            self.qos.restore_by_tag(message.delivery_tag, leftmost=leftmost)
            return
        with self.conn_or_acquire() as client:
            (client.lpush if leftmost else client.rpush)(
                message.delivery_info["routing_key"], message.body
            )

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
    """Return a task's arguments: the text."""
    return [as_text(body)], {}, {}


register(SERIALIZER, None, _arguments, CONTENT_TYPE, "utf-8")
