"""`gonogo background`: the background process.

It runs the dispatcher, ingest, the reaper, roll-ups, assessments, the scheduler, bisections, and
delivery. Any number of such processes may run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from gonogo_service.background import dispatcher, ingest, scheduler
from gonogo_service.background.assess import Assessor
from gonogo_service.background.bisection import role as bisection_role
from gonogo_service.background.consumer import Consumer, recover
from gonogo_service.background.delivery import OutboxDelivery
from gonogo_service.background.reaper import Reaper
from gonogo_service.background.roles import Role
from gonogo_service.github import answering
from gonogo_service.hooks import catch_up, processor
from gonogo_service.kit.background_context import (
    AWAY,
    BackgroundContext,
    log,
    open_background_context,
)
from gonogo_service.webhooks import messages, outbound
from gonogo_settings import Settings
from gonogo_storage.messages import leases
from gonogo_storage.ops import schema
from gonogo_storage.rollups import rebuild

S = TypeVar("S")
T = TypeVar("T")
STOP_S = 5.0
CATCH_UP_S = 300.0


def run(settings: Settings, stop: threading.Event) -> None:
    """Work until `stop` is set, then finish open tasks and return within a few seconds.

    Broker and database may be unavailable at any time, also at the start. Raises ValueError when a
    setting is missing.
    """
    context = open_background_context(settings, stop)
    ingest.register(context)
    if _ready(context):
        _work(context)
    context.close()
    log.info("background stopped", holder=context.holder)


def _ready(context: BackgroundContext) -> bool:
    """Wait for a migrated database; return False when asked to stop first.

    With an older schema ingest would drop every message, because it couldn't store it.
    """
    delay = 0.1
    while not context.stop.is_set():
        try:
            state = schema.state(context.engine)
            if state in schema.READY:
                return True
            problem = f"the schema is {state}: run `gonogo db upgrade`"
        except AWAY as away:
            problem = str(away).splitlines()[0]
        log.warning("waiting for the database", error=problem)
        context.stop.wait(delay)
        delay = min(2 * delay, 5.0)
    return False


def _work(context: BackgroundContext) -> None:
    recover(context)
    reaper = Reaper(context)
    paths = _or_none(catch_up.paths_of, context.settings)
    hooks = processor.Processor(context, paths)
    roles = [
        Role(
            context,
            "dispatcher",
            lambda: dispatcher.run_once(context),
            lambda: dispatcher.wait(context),
            _nothing,
        ),
        Role(context, "reaper", reaper.run_once, lambda: _pause(context), reaper.reset),
        Role(
            context,
            "rollups",
            lambda: _catch_up(context),
            lambda: _pause(context, CATCH_UP_S),
            _nothing,
        ),
        Role(context, "assess", Assessor(context).run_once, lambda: _pause(context), _nothing),
        Role(
            context,
            "scheduler",
            lambda: scheduler.run_once(context),
            lambda: _pause(context),
            _nothing,
        ),
        Role(
            context,
            "bisecting",
            lambda: bisection_role.run_once(context),
            lambda: _pause(context),
            _nothing,
        ),
        Role(
            context,
            "delivery",
            OutboxDelivery(
                context,
                {
                    type_: partial(outbound.fan_out, type_=type_, url=context.settings.url)
                    for type_ in messages.TYPES
                },
            ).run_once,
            lambda: _pause(context),
            _nothing,
        ),
        Role(context, "hooks", hooks.run_once, lambda: _pause(context), _nothing),
        Role(context, f"presence/{context.holder}", _nothing, lambda: _pause(context), _nothing),
    ]
    sender = outbound.make(context)
    if sender is None:
        log.warning("webhooks are not sent: GONOGO_SECRET_KEY is not set")
    else:
        cleaner = outbound.Cleaner(context)
        roles.append(
            Role(
                context,
                "webhooks",
                lambda: (sender.run_once(), cleaner.run_once()),
                lambda: _pause(context),
                _nothing,
            )
        )
    answerer = _or_none(answering.make, context)
    if answerer is not None:
        roles.append(
            Role(context, "github", answerer.run_once, lambda: _pause(context), answerer.lost)
        )
    consumer = Consumer(context)
    for thread in (consumer, *roles):
        thread.start()
    log.info("background runs", holder=context.holder)
    context.stop.wait()
    consumer.shut_down(STOP_S)
    for role in roles:
        role.join(STOP_S)
    if answerer is not None:
        answerer.close(STOP_S / 5)
    if paths is not None:
        paths.close()
    try:
        context.session(lambda session: leases.release(session, context.holder))
    except AWAY as problem:
        log.warning("leases not released; they will expire", error=str(problem))


def _or_none(make: Callable[[S], T | None], argument: S) -> T | None:
    try:
        return make(argument)
    # everything else must go on; pending answers are sent once the setting is correct
    except ValueError as problem:
        log.error("nothing is sent to GitHub or read from it", error=str(problem))
        return None


def _catch_up(context: BackgroundContext) -> None:
    """Count seeds that ingest has not counted.

    Ingest counts what it stores. Processes of an older version, while they are being replaced, may
    store seeds without counting them.
    """
    seeds = rebuild.catch_up(context.engine, keep_going=lambda: not context.stop.is_set())
    if seeds:
        log.info("roll-ups caught up", seeds=seeds)


def _pause(context: BackgroundContext, seconds: float | None = None) -> None:
    context.stop.wait(context.settings.poll_s if seconds is None else seconds)


def _nothing() -> None:
    pass
