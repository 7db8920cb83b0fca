"""`gonogo background`: dispatcher, ingest, reaper, roll-ups, assessment, scheduler, bisections,
delivery; any number may run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from gonogo_service.background import delivery, dispatcher, ingest, scheduler
from gonogo_service.background.assess import Assessor
from gonogo_service.background.bisection import role as bisecting
from gonogo_service.background.consumer import Consumer, recover
from gonogo_service.background.reaper import Reaper
from gonogo_service.background.roles import Role
from gonogo_service.github import answering
from gonogo_service.hooks import catch_up, processor
from gonogo_service.kit.background_context import AWAY, Core, log, open_core
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
    """Work until `stop` is set, then finish what is in hand and return within a few seconds.

    Broker and database may be away at the start, and at any time after it. Raises ValueError when a
    setting is missing.
    """
    core = open_core(settings, stop)
    ingest.register(core)
    delivery.HANDLERS.update({type_: partial(_tell, type_) for type_ in messages.TYPES})
    if _ready(core):
        _work(core)
    core.close()
    log.info("background stopped", holder=core.holder)


def _ready(core: Core) -> bool:
    """Wait for a migrated database; False when told to stop first. (Before that, every message
    would look like one to be dropped.)
    """
    delay = 0.1
    while not core.stop.is_set():
        try:
            found = schema.state(core.engine)
            if found in schema.READY:
                return True
            problem = f"the schema is {found}: run `gonogo db upgrade`"
        except AWAY as away:
            problem = str(away).splitlines()[0]
        log.warning("waiting for the database", error=problem)
        core.stop.wait(delay)
        delay = min(2 * delay, 5.0)
    return False


def _work(core: Core) -> None:
    recover(core)
    reaper = Reaper(core)
    paths = _or_none(catch_up.paths_of, core.settings)
    hooks = processor.Worker(core, paths)
    roles = [
        Role(
            core,
            "dispatcher",
            lambda: dispatcher.run_once(core),
            lambda: dispatcher.wait(core),
            _nothing,
        ),
        Role(core, "reaper", reaper.run_once, lambda: _pause(core), reaper.reset),
        Role(core, "rollups", lambda: _catch_up(core), lambda: _pause(core, CATCH_UP_S), _nothing),
        Role(core, "assess", Assessor(core).run_once, lambda: _pause(core), _nothing),
        Role(core, "scheduler", lambda: scheduler.run_once(core), lambda: _pause(core), _nothing),
        Role(core, "bisecting", lambda: bisecting.run_once(core), lambda: _pause(core), _nothing),
        Role(core, "delivery", lambda: delivery.run_once(core), lambda: _pause(core), _nothing),
        Role(core, "hooks", hooks.run_once, lambda: _pause(core), _nothing),
        Role(core, f"presence/{core.holder}", _nothing, lambda: _pause(core), _nothing),
    ]
    sender = outbound.make(core)
    if sender is None:
        log.warning("webhooks are not sent: GONOGO_SECRET_KEY is not set")
    else:
        cleaner = outbound.Cleaner(core)
        roles.append(
            Role(
                core,
                "webhooks",
                lambda: (sender.run_once(), cleaner.run_once()),
                lambda: _pause(core),
                _nothing,
            )
        )
    answerer = _or_none(answering.make, core)
    if answerer is not None:
        roles.append(Role(core, "github", answerer.run_once, lambda: _pause(core), answerer.lost))
    consumer = Consumer(core)
    for thread in (consumer, *roles):
        thread.start()
    log.info("background runs", holder=core.holder)
    core.stop.wait()
    consumer.shut_down(STOP_S)
    for role in roles:
        role.join(STOP_S)
    if answerer is not None:
        answerer.close(STOP_S / 5)
    if paths is not None:
        paths.close()
    try:
        core.session(lambda session: leases.release(session, core.holder))
    except AWAY as problem:
        log.warning("leases not given back; they end by themselves", error=str(problem))


def _or_none(make: Callable[[S], T | None], of: S) -> T | None:
    try:
        return make(of)
    # everything else must go on; what is not told now is told once the setting is right
    except ValueError as problem:
        log.error("GitHub is neither told nor asked anything", error=str(problem))
        return None


def _catch_up(core: Core) -> None:
    """Ingest counts what it stores; this is for what processes of an older version store while they
    are replaced.
    """
    seeds = rebuild.catch_up(core.engine, keep_on=lambda: not core.stop.is_set())
    if seeds:
        log.info("roll-ups caught up", seeds=seeds)


def _tell(type_: str, core: Core, letter: Mapping[str, Any]) -> None:
    outbound.fan_out(core, type_, letter)


def _pause(core: Core, seconds: float | None = None) -> None:
    core.stop.wait(core.settings.poll_s if seconds is None else seconds)


def _nothing() -> None:
    pass
