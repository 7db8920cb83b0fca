"""Ingest: the tasks that store workers' messages in the database.

A message is acknowledged after its commit, never before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.exceptions import Reject
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gonogo_service.kit.background_context import BackgroundContext, Stopping, log
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.devices import goldens, heartbeats, workers
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

HEARTBEAT_MAX_AGE_S = 600.0  # stale heartbeats are ignored


def register(context: BackgroundContext) -> None:
    """Register the tasks with the Celery app."""
    handlers: dict[str, Callable[[BackgroundContext, Body], None]] = {
        STARTED: started,
        HEARTBEAT: heartbeat,
        RESULTS: store,
        FINISHED: finished,
        HEALTH: health,
    }
    for name, handler in handlers.items():
        # acks_late and reject_on_worker_lost: with the defaults a killed ingest process loses its
        # unacknowledged messages
        context.app.task(
            _task(context, name, handler),
            name=name,
            acks_late=True,
            reject_on_worker_lost=True,
            ignore_result=True,
            shared=False,
        )


def _task(
    context: BackgroundContext, name: str, handler: Callable[[BackgroundContext, Body], None]
) -> Callable[[str, str], None]:
    max_age_s = HEARTBEAT_MAX_AGE_S if name == HEARTBEAT else None

    def run(message: str, signature: str) -> None:
        try:
            handler(context, unseal(context.key, name, message, signature, max_age_s=max_age_s))
        except MessageRefused as problem:
            log.warning("message dropped", task=name, error=str(problem))
        except Stopping as problem:
            raise Reject(problem, requeue=True) from problem
        # signed, but it can't be processed: if requeued, it would come back forever; its seeds are
        # dispatched again
        except Exception:
            log.exception("message dropped: it can't be processed", task=name)

    run.__name__ = name.rpartition(".")[2]
    return run


def started(context: BackgroundContext, body: Body) -> None:
    """Store that a worker started an attempt; its queue has room for another one."""
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

    if _twice(context, work) is not None:
        context.notify()


def heartbeat(context: BackgroundContext, body: Body) -> None:
    """Store the heartbeat of a worker and of its attempt. A new worker wakes the dispatcher."""
    now = utcnow()
    attempt, seed, stage = body.get("attempt"), body.get("seed"), body.get("stage")

    def work(session: Session) -> bool:
        if attempt is not None:
            attempts.heartbeat(session, attempt, seed=seed, stage=stage, now=now)
        attempt_device = attempts.device_of(session, attempt)
        for facts in body.get("devices") or ():
            running = attempt if attempt_device in (None, facts["device"]) else None
            heartbeats.heard(session, facts, worker=body["worker"], attempt=running, now=now)
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

    if _twice(context, work):
        context.notify()


def store(context: BackgroundContext, body: Body) -> None:
    """Store a batch of results."""
    _twice(context, lambda session: attempts.store(session, body["attempt"], body, now=utcnow()))


def finished(context: BackgroundContext, body: Body) -> None:
    """Store the end of an attempt; the worker is free again."""

    def work(session: Session) -> None:
        attempts.finished(session, body["attempt"], body, now=utcnow())
        if body.get("telemetry"):
            heartbeats.measured(
                session, attempts.device_of(session, body["attempt"]), body["telemetry"]
            )

    _twice(context, work)
    context.notify()


def health(context: BackgroundContext, body: Body) -> None:
    """Store a device's health and its canary's bits, and compare them with other devices' bits."""
    report = _twice(context, lambda session: goldens.report(session, body, now=utcnow()))
    if report.changed:
        log.warning(
            "device changed",
            device=body["device"],
            health=body["health"],
            reason=body.get("reason"),
        )
    for device, reason in report.suspected.items():
        log.warning("device suspected", device=device, reason=reason)
    if report.changed or report.canary_requested or report.suspected or report.excused:
        context.notify()


def _twice(context: BackgroundContext, work: Callable[[Session], Any]) -> Any:
    """Run `work`, and once more if another process inserted the same row at the same moment."""
    try:
        return context.patiently(work)
    except IntegrityError:
        return context.patiently(work)
