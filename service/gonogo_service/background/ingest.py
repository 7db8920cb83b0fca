"""Ingest: the tasks that take what workers send into the database. A message is acknowledged after
its commit, never before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.exceptions import Reject
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gonogo_service.kit.background_context import Core, Stopping, log
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.devices import devices, goldens, workers
from gonogo_storage.jobs import attempts
from gonogo_workers.queue import (
    FINISHED,
    HEALTH,
    HEARTBEAT,
    RESULTS,
    STARTED,
    MessageRefused,
    unseal,
)

Body = dict[str, Any]

HEARTBEAT_MAX_AGE_S = 600.0  # an old sign of life is none


def register(core: Core) -> None:
    """Give the Celery app its tasks."""
    handlers: dict[str, Callable[[Core, Body], None]] = {
        STARTED: started,
        HEARTBEAT: heartbeat,
        RESULTS: store,
        FINISHED: finished,
        HEALTH: health,
    }
    for name, handler in handlers.items():
        # acks_late and reject_on_worker_lost: with the defaults a killed ingest loses what it has
        # in hand
        core.app.task(
            _task(core, name, handler),
            name=name,
            acks_late=True,
            reject_on_worker_lost=True,
            ignore_result=True,
            shared=False,
        )


def _task(
    core: Core, name: str, handler: Callable[[Core, Body], None]
) -> Callable[[str, str], None]:
    max_age_s = HEARTBEAT_MAX_AGE_S if name == HEARTBEAT else None

    def run(message: str, signature: str) -> None:
        try:
            handler(core, unseal(core.key, name, message, signature, max_age_s=max_age_s))
        except MessageRefused as problem:
            log.warning("message dropped", task=name, error=str(problem))
        except Stopping as problem:
            raise Reject(problem, requeue=True) from problem
        # signed, and yet it can't be read: kept, it would come back for ever; its seeds are asked
        # for again
        except Exception:
            log.exception("message dropped: it can't be handled", task=name)

    run.__name__ = name.rpartition(".")[2]
    return run


def started(core: Core, body: Body) -> None:
    """A worker took an attempt from its queue: there is room for another one."""
    now = utcnow()

    def work(session: Session) -> str | None:
        job = attempts.started(session, body["attempt"], body, now=now)
        if body.get("worker"):
            workers.heard(
                session,
                body["worker"],
                queues=None,
                device=body.get("device"),
                host=body.get("host"),
                attempt=body["attempt"],
                now=now,
            )
        return job

    if _twice(core, work) is not None:
        core.ring()


def heartbeat(core: Core, body: Body) -> None:
    """A sign of life of a worker, and of the attempt it runs. A worker that is new wakes the
    dispatcher.
    """
    now = utcnow()
    attempt, seed, stage = body.get("attempt"), body.get("seed"), body.get("stage")

    def work(session: Session) -> bool:
        if attempt is not None:
            attempts.heartbeat(session, attempt, seed=seed, stage=stage, now=now)
        where = attempts.device_of(session, attempt)
        for facts in body.get("devices") or ():
            mine = attempt if where in (None, facts["device"]) else None
            devices.heard(session, facts, worker=body["worker"], attempt=mine, now=now)
        return workers.heard(
            session,
            body["worker"],
            queues=body.get("queues") or [],
            device=body.get("device"),
            host=body.get("host"),
            attempt=attempt,
            seed=seed,
            stage=stage,
            now=now,
        )

    if _twice(core, work):
        core.ring()


def store(core: Core, body: Body) -> None:
    """A batch of results."""
    _twice(core, lambda session: attempts.store(session, body["attempt"], body, now=utcnow()))


def finished(core: Core, body: Body) -> None:
    """A worker's last word on an attempt: it is free again."""

    def work(session: Session) -> None:
        attempts.finished(session, body["attempt"], body, now=utcnow())
        if body.get("telemetry"):
            devices.measured(
                session, attempts.device_of(session, body["attempt"]), body["telemetry"]
            )

    _twice(core, work)
    core.ring()


def health(core: Core, body: Body) -> None:
    """A worker's word on the health of its device, and its canary's bits, which are compared with
    those of the other devices.
    """
    told = _twice(core, lambda session: goldens.report(session, body, now=utcnow()))
    if told.changed:
        log.warning(
            "device changed",
            device=body["device"],
            health=body["health"],
            reason=body.get("reason"),
        )
    for device, reason in told.suspected.items():
        log.warning("device suspected", device=device, reason=reason)
    if told.changed or told.asked or told.suspected or told.excused:
        core.ring()


def _twice(core: Core, work: Callable[[Session], Any]) -> Any:
    """`core.patiently`, and once more when two processes made the same row in the same moment."""
    try:
        return core.patiently(work)
    except IntegrityError:
        return core.patiently(work)
