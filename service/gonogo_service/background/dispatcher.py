"""The dispatcher.

It keeps two unstarted chunks per live worker in each queue (of gauges and bisections one, because
jobs of people can't overtake what is sent), and signals running attempts to stop.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from sqlalchemy.orm import Session

from gonogo.spec import hang_limits
from gonogo_service.devices import workers
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.jobs.dispatching import Sendable
from gonogo_service.kit.background_context import BROKER_AWAY, BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox import outbox
from gonogo_workers.queue import CANCEL, DISPATCH_NOTIFICATION_KEY, RUN_CHUNK, cancel_key
from gonogo_workers.queue import publish as to_queue

PER_WORKER = 2
BACKGROUND_PER_WORKER = 1
"""Nothing overtakes what a worker has been sent: a job waits for no more of a gauge than this."""
CANCEL_KEY_S = 24 * 3600
TOPICS = ("job.created", "attempt.cancel")


def run_once(context: BackgroundContext) -> int:
    """Run one pass; return the number of published attempts.

    Raises the AWAY errors. The next pass publishes what this one did not.
    """
    now = utcnow()
    due = context.reading(lambda session: outbox.due(session, now=now, topics=TOPICS))
    for message in due:
        if message.topic == "attempt.cancel":
            request_cancel(context, message.payload["attempt"])
    generation = context.broker_generation()
    chosen, pending, live = context.reading(
        lambda session: _choose(session, context, generation, now)
    )
    if due or chosen:
        message_ids = [message.id for message in due]
        pending = context.session(
            lambda session: _write(session, chosen, message_ids, generation, now)
        )
    return publish(context, shuffled(pending, live), generation)


def request_cancel(context: BackgroundContext, attempt: str) -> None:
    """Ask the worker of an attempt to stop. Raises RedisError."""
    text = context.sealed(CANCEL, {"attempt": attempt})
    context.redis.set(cancel_key(attempt), text, ex=CANCEL_KEY_S)


def wait(context: BackgroundContext) -> None:
    """Sleep until a notification arrives, or for the poll interval.

    One pass serves all notifications that arrived before it.
    """
    try:
        context.redis.blpop([DISPATCH_NOTIFICATION_KEY], timeout=context.settings.poll_s)
    except BROKER_AWAY:
        context.stop.wait(context.settings.poll_s)


def publish(context: BackgroundContext, pending: Sequence[Sendable], broker_generation: str) -> int:
    """Put attempts on their queues, and store the broker generation that has them."""
    done: list[str] = []
    try:
        for item in pending:
            limits = hang_limits.of(item.seed_s, context.settings.per_seed_deadline_s)
            names = ("seed_deadline_s", "first_seed_deadline_s")
            message = item.message | dict(zip(names, limits, strict=True))
            text = context.sealed(RUN_CHUNK, message)
            to_queue(context.redis, item.queue, text)
            done.append(item.attempt)
    finally:
        if done:
            context.session(
                lambda session: dispatching.published(
                    session, done, broker_generation, now=utcnow()
                )
            )
            log.info("dispatched", attempts=len(done))
    return len(done)


def shuffled(pending: Sequence[Sendable], live: Mapping[str, int]) -> list[Sendable]:
    """Return the attempts with each job's attempts in random order, if several workers are live.

    Idle workers of equal devices take attempts one after the other, so chance decides which seeds
    run on which device. A fault of one device then shows as scattered seeds, never always the same.
    """
    mixed: list[Sendable] = []
    for (queue, _), group in groupby(pending, key=lambda item: (item.queue, item.job)):
        equals = list(group)
        mixed += random.sample(equals, len(equals)) if live.get(queue, 0) > 1 else equals
    return mixed


def choose(session: Session, waiting: Iterable[str], live: Mapping[str, int]) -> list[chunks.Place]:
    """Return the chunks to dispatch: on each queue as many as its live workers have room for."""
    chosen: list[chunks.Place] = []
    unstarted = chunks.unstarted(session) if live else {}
    for queue in waiting:
        workers_here, sent = live.get(queue, 0), unstarted.get(queue, 0)
        if (room := PER_WORKER * workers_here - sent) > 0:
            chosen += chunks.choose(
                session, queue, room, background=max(0, BACKGROUND_PER_WORKER * workers_here - sent)
            )
    return chosen


def _choose(
    session: Session, context: BackgroundContext, broker_generation: str, now: datetime
) -> tuple[list[chunks.Place], list[Sendable], Mapping[str, int]]:
    """Return (chunks to dispatch, attempts to publish, live workers per queue).

    The workers are counted only when chunks wait.
    """
    live: Mapping[str, int] = {}
    waiting = chunks.waiting(session)
    if waiting:
        live = workers.live(session, now=now, timeout_s=context.settings.heartbeat_timeout_s)
    chosen = choose(session, waiting, live)
    return chosen, dispatching.unpublished(session, broker_generation), live


def _write(
    session: Session,
    chosen: Sequence[chunks.Place],
    message_ids: Sequence[str],
    broker_generation: str,
    now: datetime,
) -> list[Sendable]:
    if message_ids:
        outbox.delivered(session, list(message_ids), now=now)
    dispatching.dispatch(session, chosen, now=now)
    return dispatching.unpublished(session, broker_generation)
