"""Attacks by a stranger with the broker alone, and by a host with a valid key of its own."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError
from sqlalchemy import Engine, select

from background_thread import broker, running, short, submit, until
from gonogo_service.background import ingest, keyring
from gonogo_service.background.refusals import Refusals
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_storage.access import audit, hosts, refused_messages
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import reading, session
from gonogo_storage.devices import devices, heartbeats, workers
from gonogo_storage.jobs import attempts, chunks, jobs
from gonogo_storage.seeds import results
from gonogo_storage.tables import AttemptRow, DeviceRow
from gonogo_workers import queue
from gonogo_workers.queue import Numbers, PrivateKey
from gonogo_workers.queue.transport import of_wrong_type
from job_flow import DEVICE, HOST, HOST_KEY, QUEUE, SimulatedWorker, enroll, new_job, row
from running_service import until as eventually

OTHER, OTHER_KEY = "host-2", PrivateKey.of(b"2" * 32)
WORKER = f"{HOST}/worker-1"


class Post:
    """The service's ingest without a broker, and a host's side of it."""

    def __init__(self, context: BackgroundContext) -> None:
        self.context, self.refusals = context, Refusals(context)
        ingest.register(context, self.refusals)
        self.numbers = Numbers()

    def send(
        self,
        task: str,
        body: Mapping[str, Any],
        key: PrivateKey = HOST_KEY,
        number: int | None = None,
    ) -> str:
        """Seal a message and hand it to ingest; its text."""
        text = queue.seal(key, task, body, self.numbers.next() if number is None else number)
        return self.deliver(task, text)

    def deliver(self, task: str, text: str) -> str:
        """Hand a text to ingest, as the broker does; the same text."""
        self.context.app.tasks[task](text)
        return text

    def refused(self) -> dict[tuple[str, str], int]:
        """The refused messages so far, by (sender, reason)."""
        self.refusals.store()
        return self.context.reading(refused_messages.counts)

    def attempt(self, seeds: int = 2) -> tuple[str, str]:
        """Submit a job and dispatch its only chunk; (job, attempt)."""
        job = self.context.session(lambda current: jobs.create(current, new_job(seeds))).id
        now = utcnow()
        chosen = self.context.reading(lambda current: chunks.choose(current, QUEUE, 50))
        self.context.session(lambda current: chunks.dispatch(current, chosen, now=now))
        with reading(self.context.engine) as current:
            query = select(AttemptRow.id).where(AttemptRow.job_id == job)
            return job, str(current.scalars(query.order_by(AttemptRow.id.desc())).first())

    def job(self, job_id: str) -> Any:
        """The job as it is stored."""
        return self.context.reading(lambda current: jobs.get(current, job_id))

    def health(self, device: str = DEVICE) -> str | None:
        """The stored health of a device."""
        with reading(self.context.engine) as current:
            return current.scalar(select(DeviceRow.health).where(DeviceRow.identity == device))


def place(attempt: str, host: str = HOST) -> dict[str, Any]:
    """The part that every message about an attempt has."""
    return {"attempt": attempt, "worker": f"{host}/worker-1", "device": f"{host}/emulator:0"}


def batch(attempt: str, *rows: Mapping[str, Any], number: int = 0) -> dict[str, Any]:
    """A batch of results of the first host."""
    return {**place(attempt), "batch": number, "rows": list(rows), "artifacts": []}


def done(attempt: str, seeds: int = 2) -> dict[str, Any]:
    """The last message of an attempt."""
    sent = [[seed, 0] for seed in range(seeds)]
    return {**place(attempt), "outcome": "done", "sent": sent, "batches": 1}


def beat(host: str = HOST, **changes: Any) -> dict[str, Any]:
    """A heartbeat of a host with one device."""
    facts = {"device": f"{host}/emulator:0", "host": host, "name": "emulator:0", "queue": QUEUE}
    kind = {"arch": "wormhole", "board": "n150", "source": "configured"}
    return {
        "worker": f"{host}/worker-1",
        "device": f"{host}/emulator:0",
        "queues": [QUEUE],
        "devices": [{**facts, **kind}],
        "attempt": None,
        **changes,
    }


def report(health: str, host: str = HOST) -> dict[str, Any]:
    """A report on the health of a host's device."""
    return {
        "worker": f"{host}/worker-1",
        "device": f"{host}/emulator:0",
        "health": health,
        "reason": "its canary",
        "evidence": {},
    }


@pytest.fixture
def post(database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    """Ingest with two enrolled hosts; nothing asks the broker, and each message reads the keys."""
    assert keyring.KNOWN_S <= 5
    monkeypatch.setattr(keyring, "KNOWN_S", 0.0)
    enroll(engine)
    enroll(engine, OTHER, OTHER_KEY)
    settings = short(database_url, "redis://127.0.0.1:1/0")
    context = open_background_context(settings, threading.Event())
    yield Post(context)
    context.close()


def test_a_host_speaks_for_its_own_attempts_and_devices_only(post: Post) -> None:
    job, attempt = post.attempt()
    post.send(queue.HEARTBEAT, beat())
    post.send(queue.STARTED, {**place(attempt), "host": HOST})
    forged = [row(seed, verdict="fail") for seed in range(2)]
    hers = place(attempt, OTHER)
    attacks = [
        (queue.RESULTS, batch(attempt, *forged)),
        (queue.RESULTS, {**batch(attempt, *forged), **hers}),
        (queue.FINISHED, done(attempt)),
        (queue.FINISHED, {**done(attempt), **hers, "telemetry": {"temperature_c": 900}}),
        (queue.STARTED, {**place(attempt), "host": HOST}),
        (queue.STARTED, {**hers, "host": OTHER}),
        (queue.HEARTBEAT, beat()),
        (queue.HEARTBEAT, {**beat(), "worker": f"{OTHER}/w"}),
        (queue.HEARTBEAT, beat(OTHER, devices=[{**beat()["devices"][0], "host": OTHER}])),
        (queue.HEALTH, report("bad")),
        (queue.HEALTH, {**report("bad"), "worker": f"{OTHER}/w"}),
    ]
    for task, body in attacks:
        post.send(task, body, OTHER_KEY)
    assert post.refused() == {(OTHER, "sender"): len(attacks)}
    assert post.health() == "good"
    assert (post.job(job).state, post.job(job).done) == ("running", 0)
    post.send(queue.RESULTS, batch(attempt, row(0), row(1)))
    post.send(queue.FINISHED, done(attempt))
    assert (post.job(job).state, post.job(job).counts) == ("finished", {"pass": 2})
    with reading(post.context.engine) as current:
        flagged, honest = hosts.get(current, OTHER), hosts.get(current, HOST)
        (entry,) = audit.list_(current, audit.AuditFilter(action="message.refused")).items
        live = workers.list_(current).items
    assert flagged is not None
    assert flagged.flagged_at is not None
    assert flagged.refused == {"sender": len(attacks)}
    assert honest is not None
    assert (honest.flagged_at, honest.refused) == (None, {})
    assert (entry.actor, entry.subject, entry.detail["reason"]) == (
        f"host:{OTHER}",
        OTHER,
        "sender",
    )
    assert [worker.name for worker in live] == [WORKER]


def test_a_host_fills_the_database_neither_with_devices_nor_with_workers(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "MAX_DEVICES", 2)
    monkeypatch.setattr(heartbeats, "MAX_NEW_WORKERS", 2)
    facts = beat()["devices"][0]
    named = [{**facts, "device": f"{HOST}/chip:{n}", "name": f"chip:{n}"} for n in range(4)]
    post.send(queue.HEARTBEAT, beat(devices=named[:2]))
    post.send(queue.HEARTBEAT, beat(devices=named[:2]))
    post.send(queue.HEARTBEAT, beat(devices=named[2:]))
    for number in range(2, 4):
        post.send(queue.HEARTBEAT, beat(worker=f"{HOST}/worker-{number}", devices=[]))
    post.send(queue.HEARTBEAT, beat(devices=[facts] * 65))
    assert post.refused() == {(HOST, "size"): 3}
    with reading(post.context.engine) as current:
        assert len(devices.list_(current).items) == 2
        assert len(workers.list_(current).items) == 2


def test_an_attempt_is_its_first_hosts_and_every_row_its_devices(post: Post) -> None:
    job, attempt = post.attempt()
    post.send(queue.HEARTBEAT, beat(OTHER, attempt=attempt, attempt_device=DEVICE), OTHER_KEY)
    with reading(post.context.engine) as current:
        assert attempts.is_unbound(current, attempt)  # not with a device of somebody else
    post.send(queue.RESULTS, batch(attempt, row(0)))  # before "started", which has another queue
    post.send(queue.STARTED, {**place(attempt, OTHER), "host": OTHER}, OTHER_KEY)
    post.send(queue.RESULTS, batch(attempt, row(1, device=f"{HOST}/emulator:1"), number=1))
    others_device = {**place(attempt), "device": f"{HOST}/emulator:1"}
    post.send(queue.FINISHED, {**done(attempt), **others_device})
    assert post.refused() == {(OTHER, "sender"): 2, (HOST, "sender"): 2}
    assert (post.job(job).state, post.job(job).done) == ("running", 1)


def test_a_host_runs_only_attempts_of_the_queues_that_its_invitation_names(post: Post) -> None:
    public = OTHER_KEY.public
    names = {"key_id": public.id, "public_key": public.text, "actor": "me"}
    with session(post.context.engine) as current:
        hosts.enroll(current, OTHER, queues=["ttnn.*", "emulator.*.n300"], **names)
    job, attempt = post.attempt()
    hers = place(attempt, OTHER)
    post.send(queue.STARTED, {**hers, "host": OTHER}, OTHER_KEY)
    rows = [row(0, device=hers["device"])]
    post.send(queue.RESULTS, {**batch(attempt, *rows), **hers}, OTHER_KEY)
    post.send(
        queue.HEARTBEAT, beat(OTHER, attempt=attempt, attempt_device=hers["device"]), OTHER_KEY
    )
    assert post.refused() == {(OTHER, "sender"): 3}
    assert (post.job(job).state, post.job(job).done) == ("queued", 0)


def test_a_heartbeat_binds_an_attempt_whose_started_was_lost_with_the_broker(post: Post) -> None:
    job, attempt = post.attempt()
    post.send(queue.HEARTBEAT, beat(attempt=attempt, attempt_device=DEVICE))
    assert post.job(job).state == "running"
    with reading(post.context.engine) as current:
        assert not attempts.is_unbound(current, attempt)
        assert current.get_one(AttemptRow, attempt).host == HOST


def test_the_host_of_an_attempt_is_the_one_that_sealed_the_message(post: Post) -> None:
    _, attempt = post.attempt()
    post.send(queue.STARTED, {**place(attempt), "host": OTHER})
    with reading(post.context.engine) as current:
        assert current.get_one(AttemptRow, attempt).host == HOST


def test_what_comes_twice_changes_nothing_and_is_held_against_nobody(post: Post) -> None:
    job, attempt = post.attempt()
    messages = [
        (task, post.send(task, body))
        for task, body in [
            (queue.HEARTBEAT, beat()),
            (queue.STARTED, {**place(attempt), "host": HOST}),
            (queue.RESULTS, batch(attempt, row(0), row(1))),
            (queue.FINISHED, done(attempt)),
            (queue.HEALTH, report("good")),
        ]
    ]
    before = post.job(job)
    for task, text in messages * 2:
        post.deliver(task, text)
    assert post.job(job) == before
    assert before.counts == {"pass": 2}
    assert post.refused() == {}


def test_a_broker_that_takes_no_answer_is_not_held_against_the_host_that_asked(post: Post) -> None:
    post.send(queue.HELLO, {"nonce": "0" * 32, "at": time.time()})  # the test has no broker
    with of_wrong_type("unacked"):
        raise OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
    assert post.refused() == {}


def test_a_good_of_yesterday_heals_nothing(post: Post) -> None:
    post.send(queue.HEARTBEAT, beat())
    good = post.send(queue.HEALTH, report("good"))
    withheld = queue.seal(HOST_KEY, queue.HEALTH, report("good"), post.numbers.next())
    old = int((time.time() - 3600) * 1e6)
    post.send(queue.HEALTH, report("bad"))
    assert post.health() == "bad"
    post.deliver(queue.HEALTH, good)  # repeated: the last but one
    post.deliver(queue.HEALTH, withheld)  # held back by the broker
    post.send(queue.HEALTH, report("good"), number=old)
    post.send(queue.HEALTH, report("good"), number=int((time.time() - 3 * 86400) * 1e6))
    post.send(queue.HEALTH, report("good"), number=int((time.time() + 400) * 1e6))
    assert post.health() == "bad"
    # the first two are seconds old: two that come together may be stored in the other order
    assert post.refused() == {(HOST, "number"): 1, (HOST, "age"): 1, (HOST, "future"): 1}
    post.send(queue.HEALTH, report("good"))
    assert post.health() == "good"


def test_other_content_for_a_batch_or_a_seed_that_is_stored_is_flagged(post: Post) -> None:
    job, first = post.attempt()
    post.send(queue.RESULTS, batch(first, row(0)))
    post.send(queue.RESULTS, batch(first, row(1, verdict="fail")))  # the batch's number again
    assert post.refused() == {(HOST, "conflict"): 1}
    post.send(queue.RESULTS, batch(first, row(0, verdict="fail"), number=1))
    post.send(queue.RESULTS, batch(first, row(0, duration_ms=9.0), number=2))  # no contradiction
    assert post.refused() == {(HOST, "conflict"): 2}
    with reading(post.context.engine) as current:
        stored = results.get(current, job, 0)
        host = hosts.get(current, HOST)
    assert stored is not None
    assert stored["verdict"] == "pass"
    assert host is not None
    assert host.flag_reason is not None
    assert "seed 0" in host.flag_reason


def test_a_revoked_host_is_refused_and_a_rotated_key_only_for_what_is_new(
    post: Post,
) -> None:
    post.send(queue.HEARTBEAT, beat())
    new_key = PrivateKey.generate()
    with session(post.context.engine) as current:
        host = hosts.get(current, HOST)
        assert host is not None
        hosts.rotate(
            current,
            host.id,
            key_id=new_key.id,
            public_key=new_key.public.text,
            now=utcnow() - timedelta(hours=1),
        )
    post.send(queue.HEALTH, report("good"))  # sealed by the old key an hour after it was retired
    assert post.refused() == {(HOST, "key"): 1}
    post.send(queue.HEALTH, report("good"), new_key)
    with session(post.context.engine) as current, pytest.raises(ValueError, match="used before"):
        hosts.rotate(current, host.id, key_id=HOST_KEY.id, public_key=HOST_KEY.public.text)
    hour_old = int((time.time() - 7200) * 1e6)
    post.send(queue.RESULTS, batch("01a20784-443a-7000-bb72-8261a88c32a2"), number=hour_old)
    assert post.refused() == {(HOST, "key"): 1}  # a spooled message of the old key is taken
    with session(post.context.engine) as current:
        hosts.revoke(current, HOST, actor="me", reason="stolen")
    post.send(queue.HEALTH, report("bad"), new_key)
    assert post.health() == "good"
    assert post.refused() == {(HOST, "key"): 1, ("", "key"): 1}


def test_a_stranger_with_the_broker_alone_stops_no_consumer_and_stores_nothing(
    engine: Engine, database_url: str, redis_url: str
) -> None:
    enroll(engine)
    settings = short(database_url, redis_url)
    worker = SimulatedWorker(redis_url)
    bomb = gzip.compress(b'"' + b"x" * 50_000_000 + b'"')
    celery = {
        "body": bomb.hex(),
        "headers": {"task": queue.RESULTS, "id": "1", "compression": "gzip"},
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "properties": {"delivery_tag": "1", "delivery_info": {}, "body_encoding": "base64"},
    }
    sealed = queue.seal(PrivateKey.generate(), queue.RESULTS, {"attempt": "x"})
    items = [
        b"no JSON",
        b"{}",
        b"[" * 200_000,
        b"\x00\xff",
        json.dumps(celery).encode(),
        sealed.encode(),
        sealed.replace(queue.RESULTS, "gonogo.nothing").encode(),
        b"x" * (queue.MAX_MESSAGE_BYTES + 1),
    ]
    with running(settings), worker.alive(), broker(settings) as redis:
        for name in (queue.BACKGROUND_QUEUE, queue.HEARTBEAT_QUEUE):
            for item in items:
                redis.lpush(name, item)
        # what a consumer finds at its start, or after a timeout
        redis.hset("unacked", "tag", b'[{"body": 1}, "x", "y"]')
        redis.zadd("unacked_index", {"tag": 1.0})
        job_id = submit(engine, settings, 2)
        worker.run(worker.take())
        job = until(engine, job_id, lambda job: job.state == "finished")

        def counts() -> dict[tuple[str, str], int]:
            with reading(engine) as current:
                return refused_messages.counts(current)

        # all but the sealed one are no messages; "unacked" may be looked at twice
        eventually(
            lambda: (
                counts().get(("", "form"), 0) >= 2 * (len(items) - 1)
                and counts().get(("", "key")) == 2
            )
        )
    worker.close()
    assert job.counts == {"pass": 2}
