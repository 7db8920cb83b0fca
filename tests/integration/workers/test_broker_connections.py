"""Connections of a consumer with a real broker."""

from __future__ import annotations

from gonogo_workers import queue
from gonogo_workers.queue import PrivateKey, redis_client


def test_a_closed_consumer_puts_its_messages_back_and_leaves_no_connection(redis_url: str) -> None:
    """A task may end, and acknowledge its message, after its consumer lost the broker."""
    app = queue.make_app(redis_url, visibility_timeout_s=60)
    name = queue.BACKGROUND_QUEUE
    with redis_client(redis_url) as client, app.connection_for_read() as connection:
        sealed = [queue.seal(PrivateKey.generate(), queue.RESULTS, {"x": x}) for x in (1, 2)]
        client.lpush(name, *sealed)
        channel = connection.default_channel
        in_hand = [channel.basic_get(name) for _ in sealed]
        assert client.llen(name) == 0
        before = len(client.client_list())
        channel.close()
        in_hand[0].ack()
        assert sorted(client.lrange(name, 0, -1)) == sorted(text.encode() for text in sealed)
        assert (before > 1, len(client.client_list())) == (True, 1)
