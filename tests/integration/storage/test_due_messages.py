"""Due work of the four kinds: waiting, locked, done, postponed, given up, repeated."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import stored_webhooks
from at_once import at_once
from database_params import BOTH, BOTH_ENGINES
from gonogo.settings import Settings
from gonogo_service.background.deliver import Deliver, events
from gonogo_service.background.reaper import Reaper
from gonogo_service.ci import answers, commit_checks, incoming
from gonogo_service.ci.model import AnswerRow, IncomingDeliveryRow
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import make_engine, reading, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import AnswerState, DeliveryState, HookSource, IncomingState
from gonogo_service.kit.outbox import leases, outbox
from gonogo_service.kit.outbox.model import Backoff, DueWorkRow, LeaseRow, OutboxRow
from gonogo_service.webhooks import store as webhooks
from gonogo_service.webhooks.model import DeliveryRow, DeliveryTryRow
from job_flow import KEY
from patience import WAIT_S

LONG = (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
MONTH = timedelta(days=30)


class Messages(ABC):
    """One kind of due work, as the roles use it."""

    delays_s: tuple[int, ...]
    """The delays until a message is given up, or until the last one repeats."""
    repeats = False
    jitter = 0.0
    row: type[DueWorkRow]

    @abstractmethod
    def add(self, current: Session) -> str: ...

    def due(self, current: Session, now: datetime) -> list[str]:
        return [row.id for row in current.scalars(self.row.due(now=now))]

    @abstractmethod
    def done(self, current: Session, key: str) -> None: ...

    def fail(self, current: Session, key: str, now: datetime) -> None:
        if (row := self.row.locked(current, key)) is not None:
            row.postpone("a bug\0", now=now)


class Outbox(Messages):
    delays_s, repeats, row = (*LONG, LONG[-1], LONG[-1]), True, OutboxRow

    def add(self, current: Session) -> str:
        outbox.add(current, "job.finished", f"job.finished:{new_id()}", {})
        return outbox.due(current, limit=1000)[-1].id

    def done(self, current: Session, key: str) -> None:
        outbox.delivered(current, [key])


class Incoming(Messages):
    delays_s, row = (5, 60, 300, 1800, *(3600,) * 15), IncomingDeliveryRow

    def add(self, current: Session) -> str:
        return incoming.store(current, HookSource.github, new_id(), "push", b"{}")[0]

    def done(self, current: Session, key: str) -> None:
        row = IncomingDeliveryRow.locked(current, key)
        assert row is not None
        incoming.ended(row, IncomingState.started)


class Webhooks(Messages):
    delays_s, jitter, row = LONG, 0.1, DeliveryRow

    def add(self, current: Session) -> str:
        hook = stored_webhooks.with_messages(current, 0)
        return webhooks.send(current, [hook], new_id(), "webhook.test", {})[0]

    def fail(self, current: Session, key: str, now: datetime) -> None:
        webhooks.tried(current, key, DeliveryTryRow(at=now, duration_ms=1.0, status=500))

    def done(self, current: Session, key: str) -> None:
        outcome = DeliveryTryRow(at=utcnow(), duration_ms=1.0, status=200)
        webhooks.tried(current, key, outcome, ended=DeliveryState.delivered)


class Answers(Messages):
    delays_s, row = (5, 30, 300, 1800, 3600, 10800, 21600, 43200), AnswerRow

    def add(self, current: Session) -> str:
        delivery = incoming.store(current, HookSource.github, new_id(), "push", b"{}")[0]
        Incoming().done(current, delivery)
        unknown = ("suite", "installation", "branch", "pull_request", "base_sha", "run", "error")
        nothing = dict.fromkeys((*unknown, "head_build", "base_build", "base_run"))
        source = {"delivery": delivery, "source": HookSource.github.value, "event": "push"}
        commit = {"repository": "lab/kernels", "fork": False, "head_sha": "a1" * 20}
        about = {"rule": "kernels", "occurred_at": utcnow()}
        check = commit_checks.add(current, {**nothing, **source, **commit, **about})
        answers.add(current, check.id)
        return check.id

    def done(self, current: Session, key: str) -> None:
        answers.reported(current, key, AnswerState.reported, again_at=None)


each_kind = pytest.mark.parametrize("kind", [Outbox, Incoming, Webhooks, Answers])


@BOTH_ENGINES
@each_kind
def test_a_message_that_fails_waits_longer_each_time_until_it_is_given_up(
    current: Session, kind: type[Messages]
) -> None:
    messages, now = kind(), utcnow() + timedelta(seconds=1)
    key = messages.add(current)
    assert messages.due(current, now) == [key]
    for delay_s in messages.delays_s:
        messages.fail(current, key, now)
        assert messages.due(current, now + timedelta(seconds=0.99 * delay_s)) == []
        now += timedelta(seconds=(1.01 + messages.jitter) * delay_s)
        assert messages.due(current, now) == [key]
    messages.fail(current, key, now)
    assert messages.due(current, now + MONTH) == ([key] if messages.repeats else [])
    row = current.get_one(messages.row, key)
    assert row.tries == len(messages.delays_s) + 1
    if not messages.repeats:
        assert row.state == "failed"
        row.repeat()
        assert messages.due(current, utcnow()) == [key]
        assert row.state == "waiting"


@BOTH_ENGINES
@each_kind
def test_a_message_that_is_done_is_not_due_not_locked_and_not_postponed(
    current: Session, kind: type[Messages]
) -> None:
    messages, later = kind(), utcnow() + MONTH
    first, second = messages.add(current), messages.add(current)
    assert messages.due(current, later) == [first, second]  # in the order of arrival
    assert messages.row.locked(current, first) is not None
    messages.done(current, first)
    for key in (first, new_id()):
        assert messages.row.locked(current, key) is None
    messages.fail(current, first, utcnow())  # by another process, which comes too late
    assert messages.due(current, later) == [second]


def test_a_message_that_another_process_has_handled_since_it_was_read_is_not_locked(
    migrated_postgres_url: str,
) -> None:
    """On PostgreSQL: on SQLite nobody writes while another transaction may."""
    engine, messages = make_engine(migrated_postgres_url), Outbox()
    with session(engine) as current:
        key = messages.add(current)
    with session(engine) as one:
        row = one.get_one(OutboxRow, key)  # held, so that the session would answer from memory
        assert row.due_at is not None
        with session(engine) as other:
            messages.done(other, key)
        assert OutboxRow.locked(one, key) is None
    engine.dispose()


def test_a_canceled_message_whose_last_try_fails_stays_canceled(current: Session) -> None:
    messages, now = Webhooks(), utcnow()
    keys = failed, accepted = messages.add(current), messages.add(current)
    for key in keys:
        hook = current.get_one(DeliveryRow, key).webhook
        assert hook is not None
        webhooks.disable(current, hook, "by hand")
    messages.fail(current, failed, now)  # the request was on its way
    messages.done(current, accepted)
    assert messages.due(current, now + MONTH) == []
    rows = [current.get_one(DeliveryRow, key) for key in keys]
    assert [(row.state, row.tries) for row in rows] == [("cancelled", 1), ("delivered", 1)]


def test_a_receiver_s_delay_counts_where_it_is_longer_and_chance_spreads_the_tries() -> None:
    now, backoff = utcnow(), Backoff.after(10, 20, tries=4, jitter=0.5)
    for failed, least_s, most_s in ((1, 10, 15), (2, 20, 30), (3, 20, 30)):
        waits = {backoff.next_try(failed, now) or now for _ in range(50)}
        assert len(waits) == 50
        seconds = [(again_at - now).total_seconds() for again_at in waits]
        assert least_s <= min(seconds) <= max(seconds) <= most_s
    assert backoff.next_try(4, now) is None
    steady = Backoff.after(10)
    for requested_s, expected_s in ((3, 10), (60, 60)):
        again_at = steady.next_try(1, now, at_least=timedelta(seconds=requested_s))
        assert again_at == now + timedelta(seconds=expected_s)


@pytest.fixture
def core(lite_database_url: str) -> Any:
    broker, key = "redis://127.0.0.1:1/0", SecretStr(KEY)
    settings = Settings(database_url=lite_database_url, broker_url=broker, secret_key=key)
    context = open_background_context(settings, threading.Event())
    yield context
    context.close()


def add(core: BackgroundContext, count: int = 1) -> None:
    """Store so many messages."""
    with session(core.engine) as current:
        for number in range(count):
            outbox.add(current, "job.finished", f"job.finished:{number}", {"number": number})


def deliver(core: BackgroundContext, handle: Any) -> None:
    """Deliver the outbox once."""
    loop = Deliver(core, {OutboxRow: events(core, {"job.finished": handle})})
    loop.run_once()
    loop.join(WAIT_S)


def test_a_bad_message_stalls_no_other_and_leaves_nothing_of_what_its_handler_stored(
    core: BackgroundContext,
) -> None:
    def handle(current: Session, payload: Mapping[str, Any]) -> None:
        outbox.add(current, "handled", f"handled:{payload['number']}", dict(payload))
        if payload["number"] == 0:
            raise ValueError("a bug")

    add(core, 3)
    deliver(core, handle)
    with reading(core.engine) as current:
        handled = outbox.due(current, topics=["handled"])
        late = utcnow() + timedelta(seconds=6)
        (failed,) = outbox.due(current, topics=["job.finished"], now=late)
        assert sorted(message.payload["number"] for message in handled) == [1, 2]
        assert (failed.payload, failed.tries) == ({"number": 0}, 1)
        assert current.get_one(OutboxRow, failed.id).reason == "ValueError: a bug"


def test_a_process_that_dies_while_it_handles_a_message_leaves_it_due(
    core: BackgroundContext,
) -> None:
    def dies(current: Session, _payload: Mapping[str, Any]) -> None:
        outbox.add(current, "handled", "handled:1", {})
        raise KeyboardInterrupt

    add(core)
    with reading(core.engine) as current:
        (message,) = outbox.due(current)
    with pytest.raises(KeyboardInterrupt):
        events(core, {"job.finished": dies})(message.id)
    with reading(core.engine) as current:
        assert [message.topic for message in outbox.due(current)] == ["job.finished"]


def test_an_unavailable_database_is_no_failed_try(core: BackgroundContext) -> None:
    def handle(_current: Session, _payload: Mapping[str, Any]) -> None:
        raise OperationalError("SELECT 1", {}, Exception("the server closed the connection"))

    add(core)
    deliver(core, handle)
    with reading(core.engine) as current:
        assert [message.tries for message in outbox.due(current)] == [0]


def test_the_hourly_cleanup_deletes_what_was_done_a_month_ago(core: BackgroundContext) -> None:
    kinds = [kind() for kind in (Outbox, Incoming, Webhooks)]
    with session(core.engine) as current:
        keys = [[messages.add(current) for _ in range(2)] for messages in kinds]
        for messages, (done, _) in zip(kinds, keys, strict=True):
            messages.done(current, done)
        for holder, age_s in (("dead", leases.FORGET_S + 60), ("alive", leases.FORGET_S - 60)):
            leases.acquire(current, f"duty of the {holder}", holder, -age_s)

    def has_bodies() -> list[bool]:
        rows = [current.get_one(IncomingDeliveryRow, key) for key in keys[1]]
        return [row.body is not None for row in rows]

    Reaper(core)._sweep(utcnow() + timedelta(days=29))
    with session(core.engine) as current:
        assert current.scalars(select(LeaseRow.holder)).all() == ["alive"]
        assert has_bodies() == [True, True]
    Reaper(core)._sweep(utcnow() + timedelta(days=31))
    with reading(core.engine) as current:
        for messages, of_kind in ((kinds[0], keys[0]), (kinds[2], keys[2])):
            assert [current.get(messages.row, key) is not None for key in of_kind] == [False, True]
        assert has_bodies() == [False, True]  # the row stays, so that a redelivery starts nothing


@BOTH
def test_two_copies_at_once_handle_each_message_once(core: BackgroundContext) -> None:
    handled: list[int] = []
    both_read = threading.Barrier(2)

    def handle(_current: Session, payload: Mapping[str, Any]) -> None:
        handled.append(payload["number"])

    def copy() -> None:
        handler = events(core, {"job.finished": handle})

        def handle_with_the_other(key: str) -> bool:
            both_read.wait(10)  # both copies have read the message as due
            return handler(key)

        loop = Deliver(replace(core, holder=new_id()), {OutboxRow: handle_with_the_other})
        loop.run_once()
        loop.join(WAIT_S)

    add(core, 5)
    at_once(copy, copy)
    assert sorted(handled) == list(range(5))
