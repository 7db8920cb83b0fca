"""Ingest stores good messages, and wakes the dispatcher where there may be work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import select, update

from gonogo_service.background import ingest
from gonogo_service.devices.model import DeviceRow, Telemetry, WorkerRow
from gonogo_service.hosts import store as hosts
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.background_context import BackgroundContext
from gonogo_service.kit.database.encoding import utcnow
from gonogo_workers import queue
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
from job_flow import DEVICE, HOST, QUEUE, row


@pytest.fixture
def post(migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    """Ingest with two enrolled hosts."""
    with ingest_of_two_hosts(migrated_sqlite_url, monkeypatch) as post:
        yield post


def stored(post: Post, *columns: Any) -> Any:
    """The columns of the only row."""
    return tuple(post.context.reading(lambda current: current.execute(select(*columns)).one()))


def test_a_message_is_acknowledged_after_its_commit_by_this_app_alone(post: Post) -> None:
    names = {name for name in post.context.app.tasks if name.startswith("gonogo.")}
    assert len(names) == 8
    for name in names:
        task = post.context.app.tasks[name]
        assert (task.acks_late, task.reject_on_worker_lost, task.ignore_result) == (True,) * 3
    assert not names & set(Celery().tasks)


def test_what_may_give_work_to_a_worker_wakes_the_dispatcher(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = []
    monkeypatch.setattr(BackgroundContext, "notify", lambda _: woken.append(True))

    def wakes(task: str, body: dict[str, Any]) -> int:
        woken.clear()
        text = post.send(task, body)
        count = len(woken)
        post.deliver(task, text)
        assert task == queue.FINISHED or len(woken) == count  # what comes twice is no news
        return count

    _, attempt = post.attempt()
    start = {**place(attempt), "host": HOST}
    seen = [
        wakes(queue.HEARTBEAT, beat()),
        wakes(queue.HEARTBEAT, beat()),
        wakes(queue.HEARTBEAT, beat(queues=[QUEUE, "ttnn.wormhole.n150"])),
        wakes(queue.STARTED, start),
        wakes(queue.STARTED, start),
        wakes(queue.RESULTS, batch(attempt, row(0), row(1))),
        wakes(queue.FINISHED, done(attempt)),
        wakes(queue.HEALTH, report("good")),
        wakes(queue.HEALTH, report("bad")),
        wakes(queue.HEALTH, report("bad")),
    ]
    assert seen == [1, 0, 1, 1, 0, 0, 1, 0, 1, 0]
    assert post.refused() == {}


def test_a_heartbeat_says_who_lives_where_it_is_and_what_the_clock_is(post: Post) -> None:
    _, attempt = post.attempt()
    chips = [{**beat()["devices"][0], "device": f"{HOST}/chip:{n}"} for n in range(2)]
    running = {"attempt": attempt, "attempt_device": chips[1]["device"]}
    where = {"seed": 1, "stage": "running", "version": "9" * 99, "clock_skew_s": 2.5}
    post.send(queue.HEARTBEAT, beat(devices=chips, **running, **where))
    assert stored(post, AttemptRow.worker, AttemptRow.seed, AttemptRow.stage) == (
        WORKER,
        1,
        "running",
    )
    worker = stored(post, WorkerRow.name, WorkerRow.queues, WorkerRow.version, WorkerRow.attempt)
    assert worker == (WORKER, [QUEUE], "9" * 64, attempt)
    with post.context.engine.connect() as connection:
        query = select(DeviceRow.device, DeviceRow.attempt).order_by(DeviceRow.device)
        assert connection.execute(query).all() == [
            (f"{HOST}/chip:0", None),
            (f"{HOST}/chip:1", attempt),
        ]

    def skew() -> float | None:
        host = post.context.reading(lambda current: hosts.get(current, HOST))
        assert host is not None
        assert host.heard_at is not None
        return host.clock_skew_s

    assert skew() == 2.5
    for nonsense in (1e12, "7", None):
        post.send(queue.HEARTBEAT, beat(clock_skew_s=nonsense))
        assert skew() == 2.5
    post.send(queue.HEARTBEAT, beat(clock_skew_s=999_999_999_999))
    assert skew() == 999_999_999_999
    assert post.refused() == {}


def test_a_repeated_message_makes_nothing_look_alive_or_ill(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat = post.send(queue.HEARTBEAT, beat())
    bad = post.send(queue.HEALTH, report("bad"))
    before = stored(post, WorkerRow.heard_at)
    post.context.session(lambda current: current.execute(update(DeviceRow).values(health="good")))
    later = utcnow() + timedelta(seconds=30)
    monkeypatch.setattr(ingest, "utcnow", lambda: later)
    post.deliver(queue.HEARTBEAT, heartbeat)
    post.deliver(queue.HEALTH, bad)
    assert stored(post, WorkerRow.heard_at) == stored(post, DeviceRow.heard_at) == before
    assert post.health() == "good"
    assert post.refused() == {}


def test_messages_may_overtake_each_other_by_ten_seconds_and_old_heartbeats_are_no_news(
    post: Post,
) -> None:
    now = int(time.time() * 1e6)
    for behind_s in (0, 10, 300):
        post.send(queue.HEARTBEAT, beat(), number=now - int(behind_s * 1e6))
    assert post.refused() == {}
    post.send(queue.HEARTBEAT, beat(), number=now - int(10e6) - 1)
    post.send(queue.HEARTBEAT, beat(), number=now + int(400e6))
    assert post.refused() == {(HOST, "number"): 1, (HOST, "future"): 1}


@pytest.mark.parametrize(
    ("task", "body"),
    [
        (queue.HEARTBEAT, beat(OTHER, worker=WORKER, devices=[])),
        (queue.HEARTBEAT, beat(OTHER, devices=[{**beat(OTHER)["devices"][0], "host": HOST}])),
        (queue.HEALTH, {**report("bad", OTHER), "worker": WORKER}),
        (queue.HEALTH, {**report("bad", OTHER), "device": DEVICE}),
    ],
    ids=["worker", "host of a device", "reporting worker", "reported device"],
)
def test_one_foreign_name_in_a_message_is_enough_to_refuse_it(
    post: Post, task: str, body: dict[str, Any]
) -> None:
    post.send(queue.HEARTBEAT, beat())
    post.send(queue.HEARTBEAT, beat(OTHER), OTHER_KEY)
    post.send(task, body, OTHER_KEY)
    assert post.refused() == {(OTHER, "sender"): 1}
    assert [post.health(device) for device in (DEVICE, f"{OTHER}/emulator:0")] == ["good", "good"]


def test_a_heartbeat_has_up_to_64_devices_and_telemetry_ten_thousand_characters(post: Post) -> None:
    facts = beat()["devices"][0]
    post.send(queue.HEARTBEAT, beat(devices=[facts] * 64))
    assert post.refused() == {}
    post.send(queue.HEARTBEAT, beat(devices=[facts] * 65))
    _, attempt = post.attempt()
    post.send(queue.RESULTS, batch(attempt, row(0), row(1)))
    telemetry = {"clock_mhz": 1000.0, "noise": ""}
    telemetry["noise"] = "x" * (10_000 - len(str(telemetry)))
    longer = {**telemetry, "noise": f"{telemetry['noise']}x"}
    post.send(queue.FINISHED, {**done(attempt), "telemetry": longer})
    assert stored(post, DeviceRow.telemetry) == (None,)
    post.send(queue.FINISHED, {**done(attempt), "telemetry": telemetry})
    assert stored(post, DeviceRow.telemetry) == (Telemetry(clock_mhz=1000.0),)
    post.send(queue.FINISHED, {**done(attempt), "telemetry": {"clock_mhz": 99.0}})  # it is over
    assert stored(post, DeviceRow.telemetry) == (Telemetry(clock_mhz=1000.0),)
    assert post.refused() == {(HOST, "size"): 2}
