"""The dispatcher: keeps two unstarted chunks per live worker in each queue, and tells running
attempts to stop.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby

from sqlalchemy.orm import Session

from gonogo_service.kit.background_context import BROKER_AWAY, Core, log
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.devices import workers
from gonogo_storage.jobs import attempts, chunks
from gonogo_storage.jobs.attempts import Sendable
from gonogo_storage.messages import outbox
from gonogo_workers.queue import DOORBELL_KEY, MAX_AGE_S, RUN_CHUNK, cancel_key, send

PER_WORKER = 2
CANCEL_KEY_S = 24 * 3600
WORST_ARTIFACTS = 3
TOPICS = ("job.created", "attempt.cancel")


def run_once(core: Core) -> int:
    """One pass; the number of attempts published. Raises core.AWAY errors: whatever was not
    published is found by the next pass.
    """
    now = utcnow()
    letters = core.reading(lambda session: outbox.due(session, now=now, topics=TOPICS))
    for letter in letters:
        if letter.topic == "attempt.cancel":
            core.redis.set(cancel_key(letter.payload["attempt"]), "1", ex=CANCEL_KEY_S)
    epoch = core.epoch()
    chosen, pending, live = core.reading(lambda session: _look(session, core, epoch, now))
    if letters or chosen:
        pending = core.session(
            lambda session: _write(session, chosen, [letter.id for letter in letters], epoch, now)
        )
    return publish(core, shuffled(pending, live), epoch)


def wait(core: Core) -> None:
    """Sleep until the doorbell rings, or for the poll interval. Rings are swallowed: one pass
    serves them all.
    """
    try:
        core.redis.blpop([DOORBELL_KEY], timeout=core.settings.poll_s)
    except BROKER_AWAY:
        core.stop.wait(core.settings.poll_s)


def publish(core: Core, pending: Sequence[Sendable], epoch: str) -> int:
    """Put attempts on their queues, and remember which life of the broker has them."""
    done: list[str] = []
    try:
        for item in pending:
            send(
                core.app, core.key, item.queue, RUN_CHUNK, message(core, item), expires_s=MAX_AGE_S
            )
            done.append(item.attempt)
    finally:
        if done:
            core.session(lambda session: attempts.published(session, done, epoch, now=utcnow()))
            log.info("dispatched", attempts=len(done))
    return len(done)


def shuffled(pending: Sequence[Sendable], live: Mapping[str, int]) -> list[Sendable]:
    """The attempts in their order; those of one job at random among themselves where several
    workers serve the queue.

    Idle workers of equal devices take them one after the other, so which seeds run on which device
    is chance: a fault of one device shows as scattered seeds, and never always as the same ones.
    """
    mixed: list[Sendable] = []
    for (queue, _), group in groupby(pending, key=lambda item: (item.queue, item.job)):
        equals = list(group)
        mixed += random.sample(equals, len(equals)) if live.get(queue, 0) > 1 else equals
    return mixed


def message(core: Core, item: Sendable) -> dict[str, object]:
    """The body of `run_chunk`: the build's name, never how it is run; its arithmetic model and
    outputs, when it is registered with them.
    """
    return {
        "attempt": item.attempt,
        "chunk": item.chunk,
        "job": item.job,
        "test": item.test,
        "work": item.work,
        "build": item.build,
        "target": item.target,
        "context": item.context,
        "seed_deadline_s": core.settings.per_seed_deadline_s,
        "artifacts": {"first": item.first, "worst": WORST_ARTIFACTS if item.gauge is None else 0},
        "arithmetic": item.arithmetic,
        "outputs": item.outputs,
        "reference": item.reference,
        "gauge": item.gauge,
    }


def _look(
    session: Session, core: Core, epoch: str, now: datetime
) -> tuple[list[str], list[Sendable], Mapping[str, int]]:
    """Chunks to dispatch, attempts that the broker hasn't got, and how many workers serve each
    queue (when anything waits for one).
    """
    chosen: list[str] = []
    live: Mapping[str, int] = {}
    waiting = chunks.waiting(session)
    if waiting:
        live = workers.live(session, now=now, timeout_s=core.settings.heartbeat_timeout_s)
        unstarted = chunks.unstarted(session)
        for queue in waiting:
            room = PER_WORKER * live.get(queue, 0) - unstarted[queue]
            if room > 0:
                chosen += chunks.choose(session, queue, room)
    return chosen, attempts.unpublished(session, epoch), live


def _write(
    session: Session, chosen: Sequence[str], letters: Sequence[str], epoch: str, now: datetime
) -> list[Sendable]:
    if letters:
        outbox.delivered(session, list(letters), now=now)
    chunks.dispatch(session, chosen, now=now)
    return attempts.unpublished(session, epoch)
