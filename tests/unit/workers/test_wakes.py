"""A queue holds ids of attempts: whatever else lies there never reaches Celery."""

from __future__ import annotations

import pytest
import redis

from gonogo_workers import queue
from gonogo_workers.queue.transport import to_celery

NAME = "emulator.wormhole.n150"
ATTEMPT = "0192f0c4-7a3e-7bcd-8ef0-5d2b6c1a9e47"


@pytest.mark.parametrize(
    "item",
    [
        b"",
        b"x" * 100_000,
        b'{"task": "gonogo.run_attempt", "args": []}',
        ATTEMPT.replace("-", "").encode(),
        ATTEMPT.upper().encode(),
        f"{ATTEMPT}\n".encode(),
        b"\xff" * 36,
        "01234567-89ab-cdef-0123-45678\u0661abcdef"[:36].encode(),
    ],
)
def test_celery_sees_no_item_that_is_not_an_id(item: bytes) -> None:
    assert to_celery(item, NAME) is None


def test_what_celery_sees_of_an_id_is_made_here() -> None:
    message = to_celery(ATTEMPT.encode(), NAME)
    assert message is not None
    assert message["body"] == f"{ATTEMPT} {NAME}"
    assert message["headers"]["task"] == queue.RUN_ATTEMPT
    assert set(message["headers"]) == {"task", "id", "argsrepr", "kwargsrepr"}


def test_a_flood_of_items_is_counted_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(1000):
        assert to_celery(b"", "flooded.wormhole.n150") is None
    assert [record.args[2] for record in caplog.records if record.args] == [1, 10, 100, 1000]


def test_a_dead_broker_raises_within_seconds() -> None:
    client = queue.redis_client("redis://127.0.0.1:1/0")
    with pytest.raises(redis.ConnectionError):
        client.ping()
    client.close()


def test_unix_sockets_are_spelled_for_whoever_reads_the_url() -> None:
    assert queue.celery_url("unix:///a/b.sock?db=3") == "redis+socket:///a/b.sock?virtual_host=3"
    assert queue.celery_url("redis://h/1") == "redis://h/1"
    assert queue.celery_url("rediss://h/1") == "rediss://h/1?ssl_cert_reqs=required"
