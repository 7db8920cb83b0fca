"""Attacks by a stranger with the broker alone, and by a host with a valid key of its own."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError
from sqlalchemy import Engine, delete, func, select

import audit_log
from background_thread import broker, running, short, submit, until
from database_params import BOTH
from gonogo_service.devices import heartbeats, sick_devices, workers
from gonogo_service.devices import store as devices
from gonogo_service.devices.changes import MAX_OF_DEVICE
from gonogo_service.devices.model import CanaryRow, DeviceHealthRow, DeviceRow, WorkerRow
from gonogo_service.hosts import refused_messages
from gonogo_service.hosts import store as hosts
from gonogo_service.hosts.model import HostKeyRow, MessageNumberRow
from gonogo_service.jobs import artifacts, attempts
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.results import seeds as results
from gonogo_workers import queue
from gonogo_workers.queue import PrivateKey
from gonogo_workers.queue.transport import of_wrong_type
from ingest_post import (
    OTHER,
    OTHER_KEY,
    WORKER,
    Post,
    batch,
    beat,
    done,
    ingest_of_two_hosts,
    place,
    report,
)
from job_flow import DEVICE, HOST, HOST_KEY, QUEUE, SimulatedWorker, enroll, row
from running_service import until as eventually


@pytest.fixture
def post(lite_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    """Ingest with two enrolled hosts."""
    with ingest_of_two_hosts(lite_database_url, monkeypatch) as post:
        yield post


@BOTH
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
        (entry,) = audit_log.entries(current, action="message.refused")
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


@BOTH
def test_a_host_fills_the_database_neither_with_devices_nor_with_workers(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "MAX_DEVICES", 2)
    monkeypatch.setattr(workers, "MAX_OF_HOST", 2)
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
        assert len(devices.list_(current)) == 2
        assert len(workers.list_(current).items) == 2


@BOTH
def test_a_host_with_too_many_workers_forgets_those_that_are_silent(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_OF_HOST", 2)
    for number in range(2):
        post.send(queue.HEARTBEAT, beat(worker=f"{HOST}/w{number}", devices=[]))
    with session(post.context.engine) as current:
        current.get_one(WorkerRow, f"{HOST}/w0").heard_at -= timedelta(minutes=4)
    for number in range(2, 4):
        post.send(queue.HEARTBEAT, beat(worker=f"{HOST}/w{number}", devices=[]))
    assert post.refused() == {(HOST, "size"): 1}
    with reading(post.context.engine) as current:
        names = [f"{HOST}/w1", f"{HOST}/w2"]
        assert list(current.scalars(select(WorkerRow.name).order_by(WorkerRow.name))) == names
        numbered = select(MessageNumberRow.subject).order_by(MessageNumberRow.subject)
        assert list(current.scalars(numbered)) == names
        first = workers.list_(current, limit=1)
        assert [worker.name for worker in first.items] == names[:1]
        rest = workers.list_(current, limit=1, cursor=first.next)
    assert ([worker.name for worker in rest.items], rest.next) == (names[1:], None)


def test_a_device_has_the_queues_of_its_last_heartbeat_and_of_its_other_workers(
    post: Post,
) -> None:
    """The list grew by another queue with each heartbeat."""

    def queues(*names: str, worker: str = WORKER) -> list[str]:
        facts = beat()["devices"][0]
        devices = [{**facts, "queue": name} for name in names]
        post.send(queue.HEARTBEAT, beat(worker=worker, devices=devices))
        with reading(post.context.engine) as current:
            return list(current.scalars(select(DeviceRow.queues)).one())

    many = [f"x{number:02}.wormhole.n150" for number in range(40)]
    for name in many[:20]:
        assert queues(name) == [name]
    assert queues(*many) == many[:16]
    assert queues("a", "b") == ["a", "b"]
    assert queues("c", worker=f"{HOST}/worker-2") == ["a", "b", "c"]
    for name in many:
        assert len(queues(name, worker=f"{HOST}/{name}")) <= 16
    assert post.refused() == {}


def test_health_of_a_device_that_nobody_announced_stores_nothing(post: Post) -> None:
    for number in range(5):
        post.send(queue.HEALTH, {**report("good"), "device": f"{HOST}/none:{number}"})
    assert post.refused() == {(HOST, "unknown"): 5}
    with reading(post.context.engine) as current:
        assert current.scalar(select(func.count()).select_from(MessageNumberRow)) == 0


def test_health_that_changes_in_turn_is_set_at_once_and_told_seldom(post: Post) -> None:
    """Each change was an entry of the history and of the audit, and a message to every webhook."""

    def counts() -> tuple[int, int, int]:
        tables = (DeviceHealthRow, OutboxRow, AuditRow)
        with reading(post.context.engine) as current:
            numbers = [current.scalar(select(func.count()).select_from(table)) for table in tables]
        return numbers[0] or 0, numbers[1] or 0, numbers[2] or 0

    post.send(queue.HEARTBEAT, beat())
    before = counts()
    for health in ("bad", "good") * 25:
        post.send(queue.HEALTH, report(health))
        assert post.health() == health
    entries, letters, audited = counts()
    assert entries == MAX_OF_DEVICE + 1  # a sick time that began before has its end
    assert letters - before[1] == audited - before[2] == MAX_OF_DEVICE - 1
    with session(post.context.engine) as current:
        (sick,) = sick_devices.spells(current)[DEVICE][-1:]
        assert sick.end is not None
        newest = current.scalars(
            select(DeviceHealthRow).order_by(DeviceHealthRow.id.desc()).limit(1)
        ).one()
        assert (newest.after, newest.at, (newest.evidence or {})["folded"]) == (
            "good",
            sick.end,
            38,
        )
        assert current.scalars(select(DeviceRow.announced_health)).one() == "bad"
        current.execute(delete(DeviceHealthRow))
    post.send(queue.HEARTBEAT, beat())  # an hour later: what changed too soon is told now
    assert counts() == (0, letters + 1, audited + 1)
    post.send(queue.HEARTBEAT, beat())
    assert counts() == (0, letters + 1, audited + 1)
    assert post.refused() == {}


def test_a_host_rotates_its_key_once_an_hour_and_old_keys_are_deleted(post: Post) -> None:
    with session(post.context.engine) as current:
        host = hosts.get(current, OTHER)
        assert host is not None
        now = utcnow()
        for hours in range(12 * 24):
            key = PrivateKey.generate().public
            names = {"key_id": key.id, "public_key": key.text}
            hosts.rotate(current, host.id, **names, now=now + timedelta(hours=hours))
            soon = PrivateKey.generate().public
            with pytest.raises(ValueError, match="within the last hour"):
                hosts.rotate(
                    current,
                    host.id,
                    key_id=soon.id,
                    public_key=soon.text,
                    now=now + timedelta(hours=hours, minutes=59),
                )
        end = now + timedelta(days=12)
        hosts.forget(current, now=end)
        retired = list(
            current.scalars(select(HostKeyRow.retired_at).where(HostKeyRow.host_id == host.id))
        )
    assert len(retired) == 8 * 24 + 1
    assert min(at for at in retired if at is not None) >= end - hosts.FORGET_AFTER


@BOTH
def test_artifacts_are_those_of_the_attempt_s_work_and_have_a_limit(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "MAX_BYTES", 2500)
    job, attempt = post.attempt()
    post.send(queue.STARTED, {**place(attempt), "host": HOST})

    def of_seed(seed: int, kind: str, repeat: int = 0) -> dict[str, Any]:
        content = {"text": "x" * 1000}
        return {"kind": kind, "seed": seed, "repeat": repeat, "content": content}

    strange = [of_seed(10**6, "log"), of_seed(0, "log", repeat=1)]
    body = {**batch(attempt), "artifacts": [*strange, of_seed(0, "log")]}
    post.send(queue.RESULTS, {**body, "batch": None})
    assert post.refused() == {(HOST, "content"): 1}
    post.send(queue.RESULTS, body)
    for number in range(1, 4):
        more = [of_seed(1, f"kind-{number}")]
        post.send(queue.RESULTS, {**batch(attempt, number=number), "artifacts": more})
    with reading(post.context.engine) as current:
        stored = [(head.kind, head.seed) for head in artifacts.list_(current, job)]
    assert stored == [("kind-1", 1), ("log", 0)]
    assert post.refused() == {(HOST, "content"): 1, (HOST, "size"): 2}


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


def test_a_host_serves_only_the_queues_that_its_invitation_names(post: Post) -> None:
    """The dispatcher sent chunks ahead for a queue that nobody served."""
    public = OTHER_KEY.public
    names = {"key_id": public.id, "public_key": public.text, "actor": "me"}
    with session(post.context.engine) as current:
        hosts.enroll(current, OTHER, queues=["ttnn.*"], **names)
    served = {"queues": ["ttnn.wormhole.n150"]}
    facts = beat(OTHER)["devices"][0]
    for body in (
        beat(OTHER, devices=[]),
        beat(OTHER, **served),
        beat(OTHER, queues=[*served["queues"], QUEUE], devices=[]),
    ):
        post.send(queue.HEARTBEAT, body, OTHER_KEY)
    assert post.refused() == {(OTHER, "sender"): 3}
    hers = {**facts, "queue": served["queues"][0]}
    post.send(queue.HEARTBEAT, beat(OTHER, **served, devices=[hers]), OTHER_KEY)
    canary = {"executor": "emulator", "canary": "correct", "digests": {"dx": "11"}}
    for executor in ("emulator", "ttnn"):
        evidence = {**canary, "executor": executor}
        post.send(queue.HEALTH, {**report("good", OTHER), "evidence": evidence}, OTHER_KEY)
    assert post.refused() == {(OTHER, "sender"): 4}
    with reading(post.context.engine) as current:
        assert workers.live(current, now=utcnow()) == {"ttnn.wormhole.n150": 1}
        assert list(current.scalars(select(CanaryRow.executor))) == ["ttnn"]


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

    def state() -> tuple[Any, ...]:
        stored = post.job(job)
        return stored.version, stored.done, stored.counts, stored.last_event

    before = state()
    for task, text in messages * 2:
        post.deliver(task, text)
    assert state() == before
    assert before[2] == {"pass": 2}
    assert post.refused() == {}


def test_a_broker_that_takes_no_answer_is_not_held_against_the_host_that_asked(post: Post) -> None:
    post.send(queue.HELLO, {"nonce": "0" * 32, "at": time.time()})  # the test has no broker
    with of_wrong_type("unacked"):
        raise OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
    assert post.refused() == {}


def test_a_statistic_that_no_judgment_has_is_refused(post: Post) -> None:
    """It would fail the job's page, and whatever computes with it, for everybody."""
    job, attempt = post.attempt(1)
    post.send(queue.STARTED, place(attempt))
    values = ("NaN", -1, -1.0, 1e308, 10**400, True, [1.0])
    for value in values:
        hostile = row(0)
        hostile["outputs"]["dx"]["rounding_ratio"] = value
        post.send(queue.RESULTS, batch(attempt, hostile))
    post.send(queue.RESULTS, batch(attempt, row(0, position="first")))
    post.send(queue.RESULTS, batch(attempt, row(0, duration_ms=-1)))
    assert (post.job(job).done, post.refused()) == (0, {(HOST, "content"): len(values) + 2})
    post.send(queue.RESULTS, batch(attempt, row(0), number=1))
    assert post.job(job).done == 1


HOSTILE_BEATS: tuple[tuple[str, object], ...] = (
    ("seed", "1"),
    ("seed", -1),
    ("stage", {}),
    ("queues", [{}]),
    ("queues", "all"),
    ("device", 1),
    ("devices.queue", {}),
    ("devices.firmware", {"fw": []}),
    ("devices.board", 1),
)


def test_a_heartbeat_of_another_form_is_refused(post: Post) -> None:
    """One such field failed the list of workers for everybody."""
    for field, value in HOSTILE_BEATS:
        hostile = beat()
        part = hostile["devices"][0] if field.startswith("devices.") else hostile
        part[field.rpartition(".")[2]] = value
        post.send(queue.HEARTBEAT, hostile)
    assert post.refused() == {(HOST, "content"): len(HOSTILE_BEATS)}
    assert post.context.reading(lambda current: workers.list_(current).items) == ()
    post.send(queue.HEARTBEAT, beat(seed=1, stage="running"))
    assert len(post.context.reading(lambda current: workers.list_(current).items)) == 1


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


CELLS = [[0.1, 0.2]]
ERROR_MAP = {
    "rows": 8,
    "features": 64,
    "tile": 32,
    "group": [1, 1],
    "cells": [1, 2],
    "format": "fp32",
    "max_abs": CELLS,
    "max_ulp": CELLS,
    "signed_mean": CELLS,
    "nonfinite": [[0, 1]],
}
FACTOR = {
    "source": "rstd",
    "estimate": 1e-7,
    "deviation": 1e-8,
    "is_certain": False,
    "limit": 2.0**-22,
}
SENSELESS_FACTORS: list[Any] = [
    *("rstd", [FACTOR | {"more": 1}], [FACTOR | {"limit": 0.0}], [FACTOR | {"estimate": 1e308}]),
    *([FACTOR | {"deviation": -1.0}], [FACTOR | {"deviation": 1e-300}], [{"source": "rstd"}]),
]
"""Common factors that pooling a job's seeds would break at."""
BEST = {"id": "twice:s1", "label": "s1 is subtracted twice", "size": 1.0, "share": 0.99}
SENSELESS_CONTENTS: list[tuple[str, Any]] = [
    ("error_map", {}),
    ("error_map", {**ERROR_MAP, "cells": [10**9, 10**9]}),
    ("error_map", {**ERROR_MAP, "max_abs": [[0.1]]}),
    ("error_map", {**ERROR_MAP, "nonfinite": [["1", 0]]}),
    ("stages", {"stages": [{"name": 7}]}),
    ("log", {"text": ["x"]}),
    ("triage", {"text": "nul\0"}),
]
"""Contents of artifacts that pages or the API would break at, by their kind."""
SENSELESS_OUTPUTS: list[dict[str, Any]] = [
    *({"arithmetic": 2**63}, {"arithmetic": 5.0}, {"detection_limits": [[[]]]}, {"count": -1}),
    *({"nonfinite_kinds": {"a": {"b": 1}}}, {"worst_index": 7}, {"digest": {}}, {"is_wide": 1}),
    *({"exact": "x"}, {"reference": {"flips": {"rows": "x"}}}, {"advice": "nul\0"}),
    {"verdict": "splendid"},
    *({"gates": {"kernelbench": "x"}}, {"exact": {"share": 0.5}}, {"reference": {"rms": 0.5}}),
    *({"common": factors} for factors in SENSELESS_FACTORS),
    *({"faults": faults} for faults in ({}, [BEST | {"more": 1}], [BEST | {"size": "x"}])),
]
SENSELESS_ROWS: list[dict[str, Any]] = [
    *({"duration_ms": 2**64}, {"duration_ms": 1e40}, {"verdict": "splendid"}, {"seed": "0"}),
    *({"arithmetic": ["x"]}, {"host_run": {}}, {"message": ["x"]}, {"explanation": 1}),
    *({"edges": "x"}, {"edges": {"dx": {"needed_atol": "x"}}}, {"able": 1}, {"sentence": {}}),
    {"outputs": {"S.t": {"outcome": "splendid", "verdict": "pass"}}},
    {"outputs": {"S.t": {"outcome": "failed", "verdict": "fail", "failures": [{"count": "x"}]}}},
    {"outputs": {"S.t": {"outcome": "failed", "verdict": "fail", "message": {"a": 1}}}},
]


@BOTH
def test_what_pages_would_break_at_is_refused_where_it_comes_in(post: Post) -> None:
    job, attempt = post.attempt()
    post.send(queue.STARTED, {**place(attempt), "host": HOST})
    honest = row(0)
    bodies = [
        {**batch(attempt, honest), "artifacts": [{"kind": kind, "seed": 0, "content": content}]}
        for kind, content in SENSELESS_CONTENTS
    ]
    for changes in SENSELESS_OUTPUTS:
        outputs = {**honest["outputs"], "dx": {**honest["outputs"]["dx"], **changes}}
        bodies.append(batch(attempt, {**honest, "outputs": outputs}))
    bodies += [batch(attempt, {**honest, **changes}) for changes in SENSELESS_ROWS]
    for body in bodies:
        before = sum(post.refused().values())
        post.send(queue.RESULTS, body)
        assert post.refused() == {(HOST, "content"): before + 1}, body
    post.send(queue.FINISHED, {**done(attempt), "sent": [["x"]]})
    post.send(queue.HEALTH, {**report("bad"), "evidence": {"digests": 7}})
    assert post.refused() == {(HOST, "content"): len(bodies) + 2}
    assert post.job(job).done == 0
    long = "x" * 2**18  # a worker keeps as much of a watcher's log
    contents = (
        *(("error_map", ERROR_MAP), ("log", {"text": "x"})),
        *(("triage", {"text": long, "trouble": None}), ("watcher", {"log": long, "prints": long})),
    )
    artifacts = [{"kind": kind, "seed": 0, "content": content} for kind, content in contents]
    post.send(queue.RESULTS, {**batch(attempt, row(0), row(1)), "artifacts": artifacts})
    post.send(queue.FINISHED, done(attempt))
    assert (post.job(job).state, len(bodies) + 2) == ("finished", sum(post.refused().values()))


@BOTH
def test_other_content_for_a_batch_or_a_seed_that_is_stored_is_flagged(post: Post) -> None:
    job, first = post.attempt()
    post.send(queue.RESULTS, batch(first, row(0), row(1)))
    post.send(queue.RESULTS, batch(first, row(1, verdict="fail")))  # the batch's number again
    assert post.refused() == {(HOST, "conflict"): 1}
    wrong = (row(0, verdict="fail"), row(1, verdict="fail"))
    post.send(queue.RESULTS, batch(first, *wrong, number=1))  # one batch, one refusal
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
