"""Ingest: the tasks that store workers' messages in the database.

A message is acknowledged after its commit, never before. docs/protocol.md says what is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from celery.exceptions import Reject
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gonogo.reports.forms import SenselessResult
from gonogo_service.background import enrollment, message_forms
from gonogo_service.background.keyring import Keyring, Refused
from gonogo_service.background.refusals import Refusals
from gonogo_service.devices import goldens, heartbeats, workers
from gonogo_service.hosts import message_numbers
from gonogo_service.hosts import store as hosts
from gonogo_service.hosts.message_numbers import OldNumber
from gonogo_service.hosts.senders import ConflictingContent, ForeignSender, Sender
from gonogo_service.jobs import attempts
from gonogo_service.kit.background_context import BackgroundContext, Stopping, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_workers.queue import (
    ENROLL,
    FINISHED,
    HEALTH,
    HEARTBEAT,
    HELLO,
    RESULTS,
    ROTATE,
    STARTED,
    Message,
    MessageRefused,
    chunk_queue,
)

Body = dict[str, Any]
MAX_DEVICES = 64
"""The devices that one worker serves."""
MAX_VERSION = 64
MAX_TELEMETRY = 10_000
TOGETHER_S = 10.0
"""Messages that are sealed within this time may be stored in another order."""


@dataclass(frozen=True)
class CheckedMessage:
    """A message that is checked, with its sender."""

    message: Message
    sender: Sender

    @property
    def body(self) -> Body:
        """The content of the message."""
        return self.message.body

    def advance(self, session: Session, subject: str, now: datetime) -> bool:
        """Record its number; return False where it came before. Raises OldNumber."""
        message = self.message
        return message_numbers.advance(
            session, subject, message.task, message.number, message.digest, now=now
        )


Handler = Callable[[BackgroundContext, CheckedMessage], None]


def register(context: BackgroundContext, refusals: Refusals) -> None:
    """Register the tasks with the Celery app."""
    keyring = Keyring(context)
    handlers: dict[str, Handler] = {
        STARTED: started,
        HEARTBEAT: heartbeat,
        RESULTS: store,
        FINISHED: finished,
        HEALTH: health,
        HELLO: lambda context, checked: enrollment.hello(context, checked.message, checked.sender),
        ROTATE: lambda context, checked: enrollment.rotate(
            context, checked.message, checked.sender
        ),
        ENROLL: lambda context, checked: enrollment.enroll(context, checked.message),
    }
    for name, handler in handlers.items():
        # acks_late and reject_on_worker_lost: with the defaults a killed ingest process loses its
        # unacknowledged messages
        context.app.task(
            _task(context, keyring, refusals, name, handler),
            name=name,
            acks_late=True,
            reject_on_worker_lost=True,
            ignore_result=True,
            shared=False,
        )


def _task(
    context: BackgroundContext, keyring: Keyring, refusals: Refusals, name: str, handler: Handler
) -> Callable[[str], None]:
    def run(text: str) -> None:
        sender = ""
        try:
            message, key = keyring.unseal(name, text)
            sender = key.name
            handler(context, CheckedMessage(message, Sender(key.host, key.name, key.queues)))
        except Stopping as problem:
            raise Reject(problem, requeue=True) from problem
        except Refused as problem:
            # an old heartbeat is no news: its host or its queue was slow
            if problem.reason != "age" or name != HEARTBEAT:
                refusals.add(problem.sender, problem.reason, f"{name}: {problem}")
        except OldNumber as problem:
            # two that came together were stored in the other order: the later one says it all
            if problem.behind_s > TOGETHER_S:
                refusals.add(sender, "number", f"{name}: {problem}")
        except MessageRefused as problem:
            refusals.add(sender, problem.reason, f"{name}: {problem}")
        except ForeignSender as problem:
            refusals.add(sender, "sender", f"{name}: {problem}")
        except ConflictingContent as problem:
            refusals.add(sender, "conflict", f"{name}: {problem}")
        except SenselessResult as problem:
            refusals.add(sender, "content", f"{name}: {problem}")
        # signed, but it can't be processed: if requeued, it would come back forever; its seeds are
        # dispatched again
        except Exception as problem:
            if refusals.add(sender, "content", f"{name}: {type(problem).__name__}"):
                log.exception("message dropped: it can't be processed", task=name, sender=sender)

    run.__name__ = name.rpartition(".")[2]
    return run


def started(context: BackgroundContext, checked: CheckedMessage) -> None:
    """Store that a worker started an attempt; its queue has room for another one."""
    now, body = utcnow(), checked.body
    message_forms.check("started", body)

    def work(session: Session) -> str | None:
        return attempts.started(session, body["attempt"], body, now=now, sender=checked.sender)

    if _twice(context, work) is not None:
        context.notify()


def heartbeat(context: BackgroundContext, checked: CheckedMessage) -> None:
    """Store the heartbeat of a worker and of its attempt. A new worker wakes the dispatcher."""
    now, body, sender = utcnow(), checked.body, checked.sender
    attempt, seed, stage = body.get("attempt"), body.get("seed"), body.get("stage")
    worker, devices = body.get("worker"), body.get("devices") or []
    sender.check(worker, "worker")
    if len(devices) > MAX_DEVICES:
        raise MessageRefused("size", f"{len(devices)} devices; allowed: {MAX_DEVICES}")
    for facts in devices:
        sender.check(facts.get("device"), "device")
        if facts.get("host") != sender.name:
            raise ForeignSender(f"{sender.name} sent facts of the host {facts.get('host')!r}")
    message_forms.check("heartbeat", body)
    by_device: dict[str, list[str]] = {}
    for facts in devices:
        by_device.setdefault(facts["device"], []).append(facts["queue"])
    # the dispatcher sends chunks ahead for a queue that somebody serves
    for name in {*(body.get("queues") or ()), *chain.from_iterable(by_device.values())}:
        sender.check_queue(name, "serve the chunks")

    def work(session: Session) -> bool:
        excess = heartbeats.excess(session, sender.name, by_device) or workers.make_room(
            session, str(worker), host=sender.name, task=HEARTBEAT, now=now
        )
        if excess is not None:
            raise MessageRefused("size", excess)
        if not checked.advance(session, str(worker), now):
            return False
        hosts.heard(session, sender.id, now=now, clock_skew_s=_number(body.get("clock_skew_s")))
        if attempt is not None:
            if attempts.is_unbound(session, attempt):  # its "started" was lost with the broker
                place = {"worker": worker, "device": body.get("attempt_device")}
                attempts.started(session, attempt, place, now=now, sender=sender)
            attempts.heartbeat(session, attempt, seed=seed, stage=stage, now=now, worker=worker)
        attempt_device = attempts.device_of(session, attempt)
        for facts in devices:
            running = attempt if attempt_device in (None, facts["device"]) else None
            queues = by_device[facts["device"]]
            heartbeats.heard(
                session, facts, worker=str(worker), attempt=running, queues=queues, now=now
            )
        return workers.heard(
            session,
            str(worker),
            queues=body.get("queues") or [],
            device=body.get("device"),
            host=sender.name,
            attempt=attempt,
            seed=seed,
            stage=stage,
            version=_short(body.get("version")),
            now=now,
        )

    if _twice(context, work):
        context.notify()


def store(context: BackgroundContext, checked: CheckedMessage) -> None:
    """Store a batch of results."""
    body = checked.body
    message_forms.check("results", body)
    _twice(
        context,
        lambda session: attempts.store(
            session,
            body["attempt"],
            body,
            now=utcnow(),
            sender=checked.sender,
            digest=checked.message.digest,
        ),
    )


def finished(context: BackgroundContext, checked: CheckedMessage) -> None:
    """Store the end of an attempt; the worker is free again."""
    body = checked.body
    message_forms.check("finished", body)

    def work(session: Session) -> None:
        now, telemetry = utcnow(), body.get("telemetry")
        if len(str(telemetry)) > MAX_TELEMETRY:
            raise MessageRefused("size", f"telemetry of more than {MAX_TELEMETRY} characters")
        done = attempts.finished(session, body["attempt"], body, now=now, sender=checked.sender)
        if done is not None and telemetry:
            heartbeats.measured(session, attempts.device_of(session, body["attempt"]), telemetry)

    _twice(context, work)
    context.notify()


def health(context: BackgroundContext, checked: CheckedMessage) -> None:
    """Store a device's health and its canary's bits, and compare them with other devices' bits."""
    body, now, sender = checked.body, utcnow(), checked.sender
    message_forms.check("health", body)
    sender.check(body.get("device"), "device")
    sender.check(body.get("worker"), "worker")
    proof = body.get("evidence") or {}

    def work(session: Session) -> goldens.ReportOutcome | None:
        kind = heartbeats.kind_of(session, body["device"])
        if kind is None:  # before anything of it is stored
            raise MessageRefused("unknown", f"no heartbeat has announced {body['device'][:200]!r}")
        if proof.get("canary"):
            canary_of = chunk_queue(str(proof.get("executor") or ""), *kind)
            sender.check_queue(canary_of, "report a canary")
        if not checked.advance(session, str(body["device"]), now):
            return None
        return goldens.report(session, body, now=now)

    report = _twice(context, work)
    if report is None:
        return
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


def _short(value: object) -> str | None:
    return value[:MAX_VERSION] if isinstance(value, str) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e12 else None


def _twice(context: BackgroundContext, work: Callable[[Session], Any]) -> Any:
    """Run `work`, and once more if another process inserted the same row at the same moment."""
    try:
        return context.patiently(work)
    except IntegrityError:
        return context.patiently(work)
