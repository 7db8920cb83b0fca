"""The dispatcher.

It keeps two unclaimed chunks per live worker in each queue (of gauges and bisections one, because
jobs of people can't overtake what is sent). A queue only wakes workers: what an attempt has to do,
its worker asks the API.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from sqlalchemy.orm import Session

from gonogo_service.devices import workers
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.jobs.dispatching import Unclaimed
from gonogo_service.kit.background_context import BROKER_AWAY, BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_workers.queue import DISPATCH_NOTIFICATION_KEY

PER_WORKER = 2
BACKGROUND_PER_WORKER = 1
"""Nothing overtakes what a worker has been sent: a job waits for no more of a gauge than this."""
LONGEST_S = 4.0
"""A wait for a notification must end before the client takes the broker for dead (5 s)."""
MISSING_S = 5.0
"""A worker that has taken an id claims the attempt within this time; else it is woken again."""


class Dispatcher:
    """Gives chunks to queues, and wakes workers for the attempts that nobody has claimed."""

    def __init__(self, context: BackgroundContext) -> None:
        self._context = context
        self._missing: dict[str, float] = {}
        """Attempt -> the monotonic time since when it is neither claimed nor in its queue."""

    def run_once(self) -> int:
        """Run one pass; return how many attempts nobody had claimed. Raises the AWAY errors."""
        context, now = self._context, utcnow()
        chosen, unclaimed, live = context.reading(lambda session: _choose(session, context, now))
        if chosen:
            unclaimed = context.session(lambda session: _write(session, chosen, now))
        self._wake(unclaimed, live)
        return len(unclaimed)

    def _wake(self, unclaimed: Sequence[Unclaimed], live: Mapping[str, int]) -> None:
        """Put ids on their queues: new ones, and those that have been missing for a while."""
        redis, tick = self._context.redis, time.monotonic()
        sent = [item for item in unclaimed if item.published_at is not None]
        gone: list[Unclaimed] = []
        if sent:
            with redis.pipeline(transaction=False) as pipe:
                for item in sent:
                    pipe.lpos(item.queue, item.attempt)
                places = pipe.execute()
            gone = [item for item, place in zip(sent, places, strict=True) if place is None]
        self._missing = {item.attempt: self._missing.get(item.attempt, tick) for item in gone}
        again = [item for item in gone if tick - self._missing[item.attempt] >= MISSING_S]
        new = [item for item in unclaimed if item.published_at is None]
        done: list[str] = []
        try:
            for item in (*again, *shuffled(new, live)):
                redis.lpush(item.queue, item.attempt)
                self._missing.pop(item.attempt, None)
                done.append(item.attempt)
        finally:
            if done:
                self._context.session(
                    lambda session: dispatching.published(session, done, now=utcnow())
                )
                log.info("dispatched", attempts=len(done))


def wait(context: BackgroundContext, seconds: float) -> None:
    """Sleep until a notification arrives.

    One pass serves all notifications that arrived before it. A notification wakes the other roles.
    """
    try:
        if context.redis.blpop([DISPATCH_NOTIFICATION_KEY], timeout=min(seconds, LONGEST_S)):
            context.wake()
    except BROKER_AWAY:
        context.stop.wait(context.settings.poll_s)


def shuffled(pending: Sequence[Unclaimed], live: Mapping[str, int]) -> list[Unclaimed]:
    """Return the attempts with each job's attempts in random order, if several workers are live.

    Idle workers of equal devices take attempts one after the other, so chance decides which seeds
    run on which device. A fault of one device then shows as scattered seeds, never always the same.
    """
    mixed: list[Unclaimed] = []
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
    session: Session, context: BackgroundContext, now: datetime
) -> tuple[list[chunks.Place], list[Unclaimed], Mapping[str, int]]:
    """Return (chunks to dispatch, unclaimed attempts, live workers per queue).

    The workers are counted only when chunks wait.
    """
    live: Mapping[str, int] = {}
    waiting = chunks.waiting(session)
    if waiting:
        live = workers.live(session, now=now, timeout_s=context.settings.heartbeat_timeout_s)
    chosen = choose(session, waiting, live)
    return chosen, dispatching.unclaimed(session), live


def _write(session: Session, chosen: Sequence[chunks.Place], now: datetime) -> list[Unclaimed]:
    dispatching.dispatch(session, chosen, now=now)
    return dispatching.unclaimed(session)
