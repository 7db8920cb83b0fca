"""Messages between service and hosts: sealed, bounded, and refused when anything about them is
wrong, before anything in them is unpacked."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import redis
import time_machine

from gonogo_workers import queue
from gonogo_workers.messages.chunk_record import ChunkRecord
from gonogo_workers.queue import dropped, envelope, transport
from gonogo_workers.queue.keys import Invitation, PrivateKey, PublicKey, proof, proves
from gonogo_workers.queue.numbers import SAVE_EVERY, Numbers, ServiceClock
from patience import scaled

KEY, OTHER = PrivateKey.of(b"k" * 32), PrivateKey.of(b"o" * 32)
NOW = 1_800_000_000.0


def find(key_id: str) -> PublicKey | None:
    """The receiver knows one key."""
    return KEY.public if key_id == KEY.id else None


def at(seconds: float) -> int:
    """The number of a message that was sealed then."""
    return int(seconds * 1e6)


def sealed(payload: str, encoding: str = "json", number: object = at(NOW)) -> str:
    """A text with a right signature, whatever its payload and its number are."""
    signed = f"2 {KEY.id} {queue.RESULTS} {number} {encoding}\n{payload}"
    return f"{envelope.keys.encode(KEY.sign(signed.encode()))} {signed}"


def test_a_sealed_message_opens_with_its_key_and_task() -> None:
    body = {"attempt": "a", "rows": [1, 2.5, None, "é"]}
    message = queue.unseal(queue.seal(KEY, queue.RESULTS, body, 7), queue.RESULTS, find, now=1.0)
    assert (message.body, message.number, message.key_id) == (body, 7, KEY.id)
    again = queue.unseal(queue.seal(KEY, queue.RESULTS, body, 8), queue.RESULTS, find, now=1.0)
    assert again.digest == message.digest


def test_a_message_is_sealed_now_and_good_from_now_on_unless_a_time_is_given() -> None:
    with time_machine.travel(NOW, tick=False):
        message = queue.unseal(queue.seal(KEY, queue.HEARTBEAT, {}), queue.HEARTBEAT, find)
    assert message.number == at(NOW)


def _changed(text: str) -> str:
    return text.replace('"a"', '"b"')


def _shortened(text: str) -> str:
    return text[:-1]


def _renumbered(text: str) -> str:
    return text.replace(str(at(NOW)), str(at(NOW) + 1))


def _renamed(text: str) -> str:
    return text.replace(queue.RESULTS, queue.FINISHED)


def _without_signature(text: str) -> str:
    return "A" * 86 + text[86:]


def _spelled_otherwise(text: str) -> str:
    """The last character of 64 bytes in base64 has four bits that mean nothing."""
    last = text[85]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return text[:85] + alphabet[alphabet.index(last) ^ 1] + text[86:]


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (_changed, "signature"),
        (_shortened, "signature"),
        (_renumbered, "signature"),
        (_renamed, "task"),
        (_without_signature, "signature"),
        (_spelled_otherwise, "signature"),
        (lambda text: text.replace(KEY.id, OTHER.id), "key"),
        (lambda text: text.replace("\n", " "), "form"),
        (lambda text: text.replace(" 2 ", " 1 "), "form"),
        (lambda text: text.replace(" json\n", " gzip\n"), "form"),
        (lambda text: text.replace("a", "é"), "form"),
        (lambda text: " " * 300 + text, "form"),
        (lambda _: "", "form"),
        (lambda _: "x" * (queue.MAX_MESSAGE_BYTES + 1), "size"),
    ],
)
def test_a_message_that_was_touched_is_refused(forge: Callable[[str], str], reason: str) -> None:
    text = queue.seal(KEY, queue.RESULTS, {"attempt": "a"}, at(NOW))
    with pytest.raises(queue.MessageRefused) as refused:
        queue.unseal(forge(text), queue.RESULTS, find, now=NOW)
    assert refused.value.reason == reason


def test_a_key_that_is_not_the_receivers_opens_nothing() -> None:
    text = queue.seal(OTHER, queue.RESULTS, {}, at(NOW))
    with pytest.raises(queue.MessageRefused, match="nobody that may send"):
        queue.unseal(text, queue.RESULTS, find, now=NOW)
    with pytest.raises(queue.MessageRefused, match="signature"):
        queue.unseal(text, queue.RESULTS, lambda _: KEY.public, now=NOW)


def test_nothing_is_unpacked_before_the_signature_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("unpacked")

    monkeypatch.setattr(envelope, "unpack", never)
    bomb = base64.b64encode(zlib.compress(b" " * 10_000_000, 9)).decode()
    with pytest.raises(queue.MessageRefused, match="signature"):
        queue.unseal(_without_signature(sealed(bomb, "zlib")), queue.RESULTS, find, now=NOW)


@pytest.mark.parametrize("task", sorted(queue.LIMITS))
def test_every_kind_of_message_has_a_maximum_age_and_few_may_come_from_the_future(
    task: str,
) -> None:
    limits = queue.LIMITS[task]
    text = queue.seal(KEY, task, {}, at(NOW))
    queue.unseal(text, task, find, now=NOW - queue.CLOCK_SKEW_S)
    # what is answered to a nonce, or works once, needs no age
    if task in (queue.REPLY, queue.HELLO, queue.ENROLL):
        queue.unseal(text, task, find, now=NOW + 1e9)
    else:
        queue.unseal(text, task, find, now=NOW + limits.max_age_s)
        with pytest.raises(queue.MessageRefused) as refused:
            queue.unseal(text, task, find, now=NOW + limits.max_age_s + 1)
        age = f"{limits.max_age_s + 1:.0f}"
        assert (refused.value.reason, str(refused.value)) == ("age", f"the message is {age} s old")
    if not limits.future:
        with pytest.raises(queue.MessageRefused, match="future") as refused:
            queue.unseal(text, task, find, now=NOW - queue.CLOCK_SKEW_S - 1)
        assert refused.value.reason == "future"


def test_results_outlive_a_broker_that_is_away_for_days_and_heartbeats_do_not() -> None:
    assert queue.LIMITS[queue.RESULTS].max_age_s > 3 * 86400
    assert queue.LIMITS[queue.HEALTH].max_age_s < 3 * 86400
    assert queue.LIMITS[queue.HEARTBEAT].max_age_s <= 60


def test_small_kinds_of_messages_have_a_small_limit() -> None:
    with pytest.raises(queue.MessageRefused, match="more than 262144 bytes"):
        queue.unseal("x" * 300_000, queue.HEARTBEAT, find, now=NOW)
    with pytest.raises(ValueError, match="too large"):
        queue.seal(KEY, queue.HEALTH, {"noise": random.Random(1).randbytes(300_000).hex()})


def test_a_message_may_be_as_large_as_its_limit_and_its_head_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = {"a": "x" * 100}
    text = queue.seal(KEY, queue.RESULTS, body, at(NOW))
    head, signed = text.partition("\n")[0], len(text.partition(" ")[2])

    def limit(max_bytes: int) -> None:
        limits = replace(queue.LIMITS[queue.RESULTS], max_bytes=max_bytes)
        monkeypatch.setitem(queue.LIMITS, queue.RESULTS, limits)

    limit(signed + envelope.MAX_HEAD)
    assert queue.seal(KEY, queue.RESULTS, body, at(NOW)) == text
    limit(signed + envelope.MAX_HEAD - 1)
    with pytest.raises(ValueError, match="too large"):
        queue.seal(KEY, queue.RESULTS, body, at(NOW))
    limit(len(text))
    assert queue.unseal(text, queue.RESULTS, find, now=NOW).body == body
    limit(len(text) - 1)
    with pytest.raises(queue.MessageRefused, match="bytes"):
        queue.unseal(text, queue.RESULTS, find, now=NOW)
    for spare, reason, task in ((0, "key", queue.RESULTS), (1, "form", None)):
        longer = head.replace(KEY.id, KEY.id + "x" * (envelope.MAX_HEAD - len(head) + spare))
        with pytest.raises(queue.MessageRefused) as refused:
            queue.unseal(f"{longer}\n", queue.RESULTS, find, now=NOW)
        assert refused.value.reason == reason
        assert queue.task_of(f"{longer}\n") == task


def test_large_bodies_travel_compressed_and_small_ones_plain() -> None:
    rows = [{"seed": number, "verdict": "pass"} for number in range(2_000)]
    text = queue.seal(KEY, queue.RESULTS, {"rows": rows}, at(NOW))
    assert len(text) < len(json.dumps(rows)) / 4
    assert queue.unseal(text, queue.RESULTS, find, now=NOW).body == {"rows": rows}
    assert queue.seal(KEY, queue.RESULTS, {"a": 1}).endswith('json\n{"a":1}')
    spare = envelope.COMPRESS_FROM_BYTES - len('{"a":""}')
    assert [envelope.pack({"a": "x" * (spare + more)})[0] for more in (0, 1)] == ["json", "zlib"]


def test_a_body_that_unpacks_to_more_than_the_limit_is_refused() -> None:
    bomb = zlib.compress(b" " * (queue.MAX_BODY_BYTES + 1) + b"{}", 9)
    text = sealed(base64.b64encode(bomb).decode(), "zlib")
    with pytest.raises(queue.MessageRefused, match="more than"):
        queue.unseal(text, queue.RESULTS, find, now=NOW)


def test_a_body_of_more_values_than_memory_has_room_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists = b'{"a":[' + b"[]," * envelope.MAX_VALUES + b"[]]}"
    assert len(lists) < queue.MAX_BODY_BYTES
    text = sealed(base64.b64encode(zlib.compress(lists, 1)).decode(), "zlib")
    with pytest.raises(queue.MessageRefused, match="values"):
        queue.unseal(text, queue.RESULTS, find, now=NOW)
    monkeypatch.setattr(envelope, "MAX_VALUES", 3)
    assert envelope.unpack("json", '{"a":[1,2]}') == {"a": [1, 2]}
    with pytest.raises(queue.MessageRefused, match="values"):
        envelope.unpack("json", '{"a":[1,2,3]}')


@pytest.mark.parametrize("number", ["", "-1", "1e9", "9" * 19])
def test_a_number_has_digits_alone_and_fits_into_the_database(number: str) -> None:
    with pytest.raises(queue.MessageRefused, match="no number"):
        queue.unseal(sealed("{}", number=number), queue.RESULTS, find, now=NOW)
    assert queue.unseal(sealed("{}", number="9" * 18), queue.RESULTS, find, now=NOW).body == {}


@pytest.mark.parametrize(
    ("payload", "encoding"),
    [
        ("", "json"),
        ("[]", "json"),
        ("3", "json"),
        ("{", "json"),
        ('{"a": NaN}', "json"),
        ("[" * 100_000, "json"),
        ("9" * 5_000, "json"),
        ("!", "zlib"),
        ("AAAA", "zlib"),
    ],
)
def test_unreadable_bodies_are_refused_even_when_they_are_signed(
    payload: str, encoding: str
) -> None:
    with pytest.raises(queue.MessageRefused) as refused:
        queue.unseal(sealed(payload, encoding), queue.RESULTS, find, now=NOW)
    assert refused.value.reason == "form"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"x": " " * queue.MAX_BODY_BYTES}, "bytes is too large"),
        ({"x": [0] * envelope.MAX_VALUES}, "values is too large"),
    ],
    ids=["bytes", "values"],
)
def test_a_sender_seals_nothing_that_its_reader_cannot_unpack(
    body: dict[str, object], words: str
) -> None:
    """Compressed, both are small: the reader refused them only after they had been sent."""
    with pytest.raises(ValueError, match=words):
        queue.seal(KEY, queue.RESULTS, body)


def test_a_sender_seals_no_nan() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        queue.seal(KEY, queue.RESULTS, {"max_abs": float("nan")})


@pytest.mark.parametrize(
    "item",
    [
        b"",
        b"no JSON",
        b'{"body": "e30=", "headers": {"task": "gonogo.results", "compression": "gzip"}}',
        b"\xff\xfe",
        queue.seal(KEY, queue.RESULTS, {}).replace(queue.RESULTS, "celery.chord").encode(),
        b"x" * (queue.MAX_MESSAGE_BYTES + 1),
    ],
)
def test_celery_sees_no_item_of_a_queue_that_is_not_a_sealed_message(item: bytes) -> None:
    queue.Dropped.take()
    assert transport.to_celery(item, "background") is None
    assert sum(queue.Dropped.take().values()) == 1


def test_a_flood_of_dropped_texts_has_few_reasons() -> None:
    queue.Dropped.take()
    for number in range(200):
        transport.to_celery(b"", f"queue-{number}")
    counts = queue.Dropped.take()
    assert sum(counts.values()) == 200
    assert len(counts) <= dropped.MAX_REASONS + 1


def test_what_celery_sees_of_a_sealed_message_is_made_here() -> None:
    text = queue.seal(KEY, queue.RESULTS, {})
    message = transport.to_celery(text.encode(), "background")
    assert message is not None
    assert (message["body"], message["headers"]["task"]) == (text, queue.RESULTS)
    assert set(message["headers"]) == {"task", "id", "argsrepr", "kwargsrepr"}


def test_a_code_carries_the_services_key_and_a_secret_and_detects_mistakes() -> None:
    invitation = Invitation.generate(KEY.public)
    assert Invitation.parse(f" {invitation.code}\n") == invitation
    assert Invitation.parse(invitation.code).key.id == invitation.key.id
    assert invitation.code not in repr(invitation)
    for wrong in (
        invitation.code[:-1],
        invitation.code.replace("gni_", "gng_"),
        invitation.code[:20] + ("A" if invitation.code[20] != "A" else "B") + invitation.code[21:],
        "",
    ):
        with pytest.raises(ValueError, match="incomplete or mistyped") as problem:
            Invitation.parse(wrong)
        assert invitation.code[10:50] not in str(problem.value)


def test_a_proof_is_for_one_message_key_and_shows_the_private_half() -> None:
    text = proof(OTHER, KEY.id)
    assert proves(OTHER.public, text, KEY.id)
    assert not proves(OTHER.public, text, OTHER.id)
    assert not proves(KEY.public, text, KEY.id)
    assert not proves(OTHER.public, "no proof", KEY.id)


def test_numbers_rise_through_a_clock_that_is_set_back_and_a_restart(tmp_path: Path) -> None:
    times = iter([100.0, 100.0, 50.0, 200.0])
    path = tmp_path / "numbers"
    numbers = Numbers(lambda: next(times), path)
    seen = [numbers.next() for _ in range(4)]
    assert seen == [at(100), at(100) + 1, at(100) + 2, at(200)]
    after = Numbers(lambda: 150.0, path).next()  # restarted, with the clock set back
    assert at(200) < after <= at(200) + SAVE_EVERY + 1
    assert Numbers(lambda: 1.0, tmp_path / "nowhere" / "file" / "x").next() == at(1)


def test_attempts_are_remembered_by_all_workers_of_a_host_for_two_days(tmp_path: Path) -> None:
    times = {"now": 0.0}
    records = [ChunkRecord(tmp_path / "state", lambda: times["now"]) for _ in range(2)]
    assert records[0].add("a")
    assert not records[0].add("a")
    assert not records[1].add("a")
    times["now"] = 3 * 86400.0
    later = ChunkRecord(tmp_path / "state", lambda: times["now"])
    assert later.add("b")  # the first one of a worker forgets what is old
    assert later.add("a")
    (tmp_path / "file").write_text("")
    lonely = ChunkRecord(tmp_path / "file", lambda: 0.0)  # its folder can't be made
    assert [lonely.add("a"), lonely.add("a")] == [True, False]


def test_the_services_clock_does_not_follow_the_hosts() -> None:
    clock = ServiceClock()
    clock.synchronize(skew_s=40.0)
    assert clock.now() == pytest.approx(time.time() - 40.0, abs=1.0)
    assert clock.skew_s == pytest.approx(40.0, abs=1.0)
    with time_machine.travel(time.time() + 3600, tick=True):
        assert clock.skew_s == pytest.approx(3640.0, abs=1.0)
    assert clock.now() == pytest.approx(time.time() - 40.0, abs=1.0)


def test_a_dead_broker_raises_within_seconds() -> None:
    start = time.monotonic()
    with queue.redis_client("redis://127.0.0.1:1/0") as client, pytest.raises(redis.RedisError):
        queue.send(client, KEY, "background", queue.RESULTS, {})
    assert time.monotonic() - start < scaled(5)


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
