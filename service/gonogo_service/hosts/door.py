"""The routes of device hosts: join, heartbeat, claim, results, the end, health.

A token of a host opens these routes only, and they take no other token (docs/protocol.md). Each
calls one function in one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import chain
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import Depends, Request
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from gonogo.reports.forms import SenselessResult
from gonogo.spec import hang_limits
from gonogo_service.devices import goldens, heartbeats, workers
from gonogo_service.devices import store as devices
from gonogo_service.hosts import forms, refused_requests, store
from gonogo_service.hosts.senders import (
    AttemptOver,
    ConflictingContent,
    ForeignSender,
    OthersAttempt,
    Sender,
)
from gonogo_service.jobs import attempts, batches, dispatching
from gonogo_service.kit.answers import make_router, principal_of
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.principals import unauthorized
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.kit.strict import Strict
from gonogo_service.people import auth
from gonogo_service.people.context import Context, Ctx
from gonogo_workers.queue import chunk_queue

log = structlog.get_logger("gonogo.hosts")
router = make_router("hosts")
Body = dict[str, Any]
T = TypeVar("T")
MAX_VERSION = 64
SMALL = 2**20
"""A body of more bytes keeps its turn until it is answered: it may take 20 times its size."""


async def sender(request: Request) -> Sender:
    """Return the host of the request's token. Raises Problem 401 or 403."""
    principal = principal_of(request)
    if principal is None:
        raise unauthorized("This needs the token of a host: Authorization: Bearer gnh_...")
    if principal.kind != "host":
        raise Problem(403, "This takes the tokens of hosts only.", slug="scope")
    return Sender(principal.id, principal.name, principal.queues)


async def _body(context: Ctx, request: Request) -> AsyncIterator[Body]:
    """Yield the object of a body: a few kilobytes may unpack to hundreds of megabytes."""
    content = await request.body()
    encoding = request.headers.get("content-encoding", "identity").lower()
    async with AsyncExitStack() as turn:
        await turn.enter_async_context(context.unpacking)
        body, size = await run_in_threadpool(forms.unpacked, content, encoding)
        if size <= SMALL:
            await turn.aclose()
        yield body


Host = Annotated[Sender, Depends(sender)]
Json = Annotated[Body, Depends(_body)]


class Code(Strict):
    """A one-time code."""

    code: str


@router.post("/hosts:join", summary="Exchange a code for the token of a host")
def join(context: Ctx, request: Request, body: Code) -> forms.HostToken:
    """Return the token, which can't be shown again. The code works once, for ten minutes."""
    client = request.state.visit.client
    try:
        with context.session() as session:
            issued = store.join(session, context.keys, body.code, client=client)
            return _issued(context, issued)
    except store.BadCode as problem:
        request.state.limits.rejected_code(client)
        raise unauthorized(str(problem)) from problem
    except store.Elsewhere as problem:
        refusal = auth.elsewhere(problem)
        request.state.limits.refused("login", client, refusal)
        raise refusal.problem from problem


@router.post("/hosts/self:rotate", summary="Exchange the token of a host for another")
def rotate(context: Ctx, _host: Host, request: Request) -> forms.HostToken:
    """Return another token; the one that the request shows works for ten minutes more."""
    token = request.headers["authorization"].partition(" ")[2].strip()
    with context.session() as session:
        issued = store.rotate(session, context.keys, token)
        if issued is None:
            raise unauthorized("This token works no longer.")
        return _issued(context, issued)


@router.put(
    "/hosts/self",
    summary="Say what a worker of a host does",
    openapi_extra=forms.taking(forms.HostHeartbeat),
)
def heartbeat(context: Ctx, host: Host, body: Json) -> forms.Orders:
    """Take a worker's heartbeat; answer with the orders for its devices."""
    forms.check(forms.HostHeartbeat, body)
    with _held_against(context, host):
        host.check(body["worker"], "worker")
        by_device: dict[str, list[str]] = {}
        for facts in body.get("devices") or ():
            host.check(facts["device"], "device")
            if facts["host"] != host.name:
                raise ForeignSender(f"{host.name} sent facts of the host {facts['host']!r}")
            by_device.setdefault(facts["device"], []).append(facts["queue"])
        # the dispatcher sends chunks ahead for a queue that somebody serves
        for name in {*(body.get("queues") or ()), *chain.from_iterable(by_device.values())}:
            host.check_queue(name, "serve the chunks")
        changed, answer = _twice(
            context, lambda session: _beat(session, context, host, body, by_device)
        )
    if changed:
        context.notifier.notify()
    return answer


def _beat(
    session: Session, context: Context, host: Sender, body: Body, by_device: dict[str, list[str]]
) -> tuple[bool, forms.Orders]:
    now, worker, attempt = utcnow(), body["worker"], body.get("attempt")
    excess = heartbeats.excess(session, host.name, by_device) or workers.make_room(
        session, worker, host=host.name, now=now
    )
    if excess is not None:
        raise Problem(422, f"{excess}.", slug="quota")
    store.heard(session, host.id, now=now, clock=body.get("clock"))
    seed, stage = body.get("seed"), body.get("stage")
    if attempt is not None:
        attempts.heartbeat(session, attempt, seed=seed, stage=stage, now=now, worker=worker)
    attempt_device = attempts.device_of(session, attempt)
    for facts in body.get("devices") or ():
        running = attempt if attempt_device in (None, facts["device"]) else None
        queues = by_device[facts["device"]]
        heartbeats.heard(session, facts, worker=worker, attempt=running, queues=queues, now=now)
    version = body.get("version")
    changed = workers.heard(
        session,
        worker,
        queues=body.get("queues") or [],
        device=body.get("device"),
        host=host.name,
        attempt=attempt,
        seed=seed,
        stage=stage,
        version=None if version is None else version[:MAX_VERSION],
        now=now,
    )
    return changed, _answer(session, context, host, attempt)


@router.post(
    "/attempts/{attempt}:claim",
    summary="Claim an attempt",
    response_model=None,  # it may have a million pairs, which nobody checks again
    responses=forms.answering(forms.AttemptWork),
    openapi_extra=forms.taking(forms.AttemptClaim),
)
def claim(context: Ctx, host: Host, attempt: str, body: Json) -> Body:
    """Give an attempt to a worker, and say what it has to run. The same worker may ask again."""
    forms.check(forms.AttemptClaim, body)

    def work(session: Session) -> Body:
        place = body["worker"], body["device"]
        row = attempts.claim(session, attempt, *place, sender=host, now=utcnow())
        item = dispatching.described(session, row.id)
        limits = hang_limits.of(item.seed_s, context.settings.per_seed_deadline_s)
        names = ("seed_deadline_s", "first_seed_deadline_s")
        return item.message | dict(zip(names, limits, strict=True))

    with _held_against(context, host):
        message: Body = _twice(context, work)
    context.notifier.notify()  # its queue has room for another attempt
    return message


@router.put(
    "/attempts/{attempt}/results/{batch}",
    summary="Store a batch of results",
    openapi_extra=forms.taking(forms.ResultsBatch),
)
def results(context: Ctx, host: Host, attempt: str, batch: int, body: Json) -> forms.Orders:
    """Store the rows and artifacts of a batch, each once; the same batch again changes nothing."""
    forms.check(forms.ResultsBatch, body)
    digest = hashlib.sha256(repr(sorted(body.items())).encode()).hexdigest()

    def work(session: Session) -> forms.Orders:
        batches.store(
            session, attempt, {**body, "batch": batch}, now=utcnow(), sender=host, digest=digest
        )
        return _answer(session, context, host, attempt)

    with _held_against(context, host):
        return _twice(context, work)


@router.post(
    "/attempts/{attempt}:finish",
    summary="End an attempt",
    openapi_extra=forms.taking(forms.AttemptEnd),
)
def finish(context: Ctx, host: Host, attempt: str, body: Json) -> forms.Orders:
    """Store the end of an attempt; the worker is free again."""
    forms.check(forms.AttemptEnd, body)

    def work(session: Session) -> forms.Orders:
        now, telemetry = utcnow(), body.get("telemetry")
        done = attempts.finished(session, attempt, body, now=now, sender=host)
        if done is not None and telemetry:
            heartbeats.measured(session, attempts.device_of(session, attempt), telemetry)
        return _answer(session, context, host, attempt)

    with _held_against(context, host):
        answer = _twice(context, work)
    context.notifier.notify()
    return answer


@router.post(
    "/hosts/self/health",
    summary="Report the health of a device",
    openapi_extra=forms.taking(forms.HealthReport),
)
def health(context: Ctx, host: Host, body: Json) -> forms.Orders:
    """Store a device's health and its canary's bits, and compare them with other devices' bits."""
    forms.check(forms.HealthReport, body)
    device, proof = body["device"], body.get("evidence") or {}

    def work(session: Session) -> tuple[goldens.ReportOutcome, forms.Orders]:
        kind = heartbeats.kind_of(session, device)
        if kind is None:  # before anything of it is stored
            raise BadField("device", device[:200], "no heartbeat has announced it")
        if proof.get("canary"):
            queue = chunk_queue(str(proof.get("executor") or ""), *kind)
            host.check_queue(queue, "report a canary")
        report = goldens.report(session, body, now=utcnow())
        return report, _answer(session, context, host, None)

    with _held_against(context, host):
        host.check(device, "device")
        host.check(body["worker"], "worker")
        report, answer = _twice(context, work)
    if report.changed:
        words = {"health": body["health"], "reason": body.get("reason")}
        log.warning("device changed", device=device, **words)
    for suspect, reason in report.suspected.items():
        log.warning("device suspected", device=suspect, reason=reason)
    if report.changed or report.canary_requested or report.suspected or report.excused:
        context.notifier.notify()
    return answer


def _answer(session: Session, context: Context, host: Sender, attempt: str | None) -> forms.Orders:
    """Return what every answer says: whether to stop, and the orders for the host's devices."""
    return forms.Orders(
        canceled=attempts.is_canceled(session, attempt),
        orders=devices.orders(session, host=host.name),
        lease_s=context.settings.heartbeat_timeout_s,
    )


def _issued(context: Context, issued: store.Issued) -> forms.HostToken:
    ends = issued.host.token_expires_at
    assert ends is not None
    return forms.HostToken(
        host=issued.host.name,
        token=issued.secret,
        expires_at=ends,
        heartbeat_s=context.settings.heartbeat_s,
    )


@contextmanager
def _held_against(context: Context, host: Sender) -> Iterator[None]:
    """Answer what a host may not do with its problem, and count it against the host."""
    try:
        yield
    except AttemptOver as problem:
        raise Problem(410, f"{problem}.", slug="attempt-over") from problem
    except OthersAttempt as problem:
        raise Problem(409, f"{problem}.", slug="foreign") from problem
    except (ForeignSender, ConflictingContent, SenselessResult) as problem:
        reason, status, slug = {
            ForeignSender: ("sender", 409, "foreign"),
            ConflictingContent: ("conflict", 409, "foreign"),
            SenselessResult: ("content", 422, "invalid-field"),
        }[type(problem)]
        with context.session() as session:
            refused_requests.record(session, host.name, reason, str(problem), now=utcnow())
        raise Problem(status, f"{problem}.", slug=slug) from problem


def _twice(context: Context, work: Callable[[Session], T]) -> T:
    """Run `work`, and once more if another process inserted the same row at the same moment."""
    try:
        with context.session() as session:
            return work(session)
    except IntegrityError:
        with context.session() as session:
            return work(session)
