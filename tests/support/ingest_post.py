"""The service's ingest without a broker, and what hosts send to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from gonogo_service.background.refusals import Refusals
from sqlalchemy import select

from background_thread import short
from gonogo_service.background import ingest, keyring
from gonogo_service.devices.model import DeviceRow
from gonogo_service.hosts import refused_messages
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading
from gonogo_workers import queue
from gonogo_workers.queue import Dropped, Numbers, PrivateKey
from job_flow import DEVICE, HOST, HOST_KEY, QUEUE, enroll, new_job

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
        self.context.session(lambda current: dispatching.dispatch(current, chosen, now=now))
        with reading(self.context.engine) as current:
            query = select(AttemptRow.id).where(AttemptRow.job_id == job)
            return job, str(current.scalars(query.order_by(AttemptRow.id.desc())).first())

    def job(self, job_id: str) -> Any:
        """The job as it is stored."""
        return self.context.reading(lambda current: jobs.get(current, job_id))

    def health(self, device: str = DEVICE) -> str | None:
        """The stored health of a device."""
        with reading(self.context.engine) as current:
            return current.scalar(select(DeviceRow.health).where(DeviceRow.device == device))


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


@contextmanager
def ingest_of_two_hosts(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    """Nothing asks the broker, and each message reads the keys.

    What another test of this process dropped unread is no refused message of this one.
    """
    assert keyring.KNOWN_S <= 5
    Dropped.take()
    monkeypatch.setattr(keyring, "KNOWN_S", 0.0)
    settings = short(database_url, "redis://127.0.0.1:1/0")
    context = open_background_context(settings, threading.Event())
    enroll(context.engine)
    enroll(context.engine, OTHER, OTHER_KEY)
    yield Post(context)
    context.close()
