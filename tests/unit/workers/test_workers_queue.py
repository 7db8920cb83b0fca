"""Messages between service and workers: signed, bounded, and refused when anything about them is
wrong."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import zlib

import pytest
from kombu.exceptions import OperationalError

from gonogo_workers import queue

KEY = "k" * 40


def test_a_sealed_message_opens_with_the_same_key_and_task() -> None:
    body = {"attempt": "a", "rows": [1, 2.5, None, "é"]}
    message, signature = queue.seal(KEY, queue.RESULTS, body)
    assert body.items() <= queue.unseal(KEY, queue.RESULTS, message, signature).items()


def test_the_signature_is_the_plain_hmac_of_the_message() -> None:
    import hashlib
    import hmac

    message, signature = queue.seal(KEY, queue.RESULTS, {})
    assert signature == hmac.new(KEY.encode(), message.encode(), hashlib.sha256).hexdigest()


@pytest.mark.parametrize("wrong", ["message", "signature", "key", "task"])
def test_a_message_that_was_touched_is_refused(wrong: str) -> None:
    message, signature = queue.seal(KEY, queue.RUN_CHUNK, {"attempt": "a"})
    key, task = KEY, queue.RUN_CHUNK
    if wrong == "message":
        message = message.replace('"a"', '"b"')
    elif wrong == "signature":
        signature = "0" * len(signature)
    elif wrong == "key":
        key = "l" * 40
    else:
        task = queue.RESULTS
    with pytest.raises(queue.MessageRefused):
        queue.unseal(key, task, message, signature)


def test_an_old_message_is_refused_only_where_age_matters() -> None:
    message, signature = queue.seal(KEY, queue.RUN_CHUNK, {}, now=1_000.0)
    late = 1_000.0 + queue.MAX_AGE_S + 1
    with pytest.raises(queue.MessageRefused, match="old"):
        queue.unseal(KEY, queue.RUN_CHUNK, message, signature, max_age_s=queue.MAX_AGE_S, now=late)
    assert queue.unseal(KEY, queue.RUN_CHUNK, message, signature, now=late)["sent_at"] == 1_000.0
    with pytest.raises(queue.MessageRefused):
        queue.unseal(KEY, queue.RUN_CHUNK, message, signature, now=1_000.0 - queue.CLOCK_SKEW_S - 1)


def test_large_bodies_travel_compressed_and_small_ones_plain() -> None:
    rows = [{"seed": number, "verdict": "pass"} for number in range(2_000)]
    text = queue.pack({"rows": rows})
    assert set(json.loads(text)) == {"z"}
    assert len(text) < len(json.dumps(rows)) / 4
    assert queue.unpack(text) == {"rows": rows}
    assert queue.pack({"a": 1}) == '{"a":1}'


def test_a_body_that_unpacks_to_more_than_the_limit_is_refused() -> None:
    bomb = zlib.compress(b" " * (queue.MAX_BODY_BYTES + 1) + b"{}", 9)
    with pytest.raises(queue.MessageRefused, match="more than"):
        queue.unpack(json.dumps({"z": base64.b64encode(bomb).decode()}))


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "{", '{"z": 3}', '{"z": "!"}', '{"z": "AAAA"}', "[" * 100_000]
)
def test_unreadable_bodies_are_refused(text: str) -> None:
    with pytest.raises(queue.MessageRefused):
        queue.unpack(text)


def test_nan_never_gets_into_a_message() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        queue.pack({"max_abs": float("nan")})


def test_without_a_key_nothing_is_signed() -> None:
    with pytest.raises(ValueError, match="GONOGO_WORKER_KEY"):
        queue.seal("", queue.RUN_CHUNK, {})


def test_a_dead_broker_raises_within_seconds() -> None:
    app = queue.make_app("redis://127.0.0.1:1/0")
    start = time.monotonic()
    with pytest.raises(OperationalError):
        queue.send(app, KEY, "background", queue.RESULTS, {})
    assert time.monotonic() - start < 5


def test_unix_sockets_are_spelled_for_whoever_reads_the_url() -> None:
    assert (
        queue.celery_url("unix:///tmp/r.sock?db=2") == "redis+socket:///tmp/r.sock?virtual_host=2"
    )
    assert queue.celery_url("redis://host/1") == "redis://host/1"
    for url in ("unix:///tmp/r.sock?db=2", "redis+socket:///tmp/r.sock?virtual_host=2"):
        with queue.redis_client(url) as client:
            assert client.connection_pool.connection_kwargs["path"] == "/tmp/r.sock"
            assert client.connection_pool.connection_kwargs["db"] == 2


def test_the_service_gets_no_device_code_with_the_queue() -> None:
    code = (
        "import sys, gonogo_workers.queue; print([name for name in ('numpy', 'numba', "
        "'scipy', 'gonogo', 'sqlalchemy') if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
