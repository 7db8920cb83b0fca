"""create_background(): the composition root of `gonogo background`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gonogo.kernels import registry as kernels
from gonogo.settings import Settings
from gonogo_service.background import bisections as bisection
from gonogo_service.background import dispatcher, scheduler
from gonogo_service.background.assess import Assessor
from gonogo_service.background.deliver import make_deliver
from gonogo_service.background.reaper import Reaper
from gonogo_service.background.retention import POLL_S, Pruner
from gonogo_service.background.roles import Duties, Role
from gonogo_service.kit.background_context import (
    AWAY,
    BackgroundContext,
    log,
    open_background_context,
)
from gonogo_service.kit.outbox import leases
from gonogo_service.operate import presence, schema

SIGNALS_S = 0.5
"""A signal that another thread received is handled within this time."""
STOP_S = 5.0


def create_background(settings: Settings, stop: threading.Event) -> Background:
    """Return the parts of a background process, which works until `stop` is set.

    They don't connect yet. Raises ValueError when a required setting is missing, and FieldError for
    a kernel in GONOGO_KERNELS that can't be loaded.
    """
    kernels.load(settings.kernels)
    context = open_background_context(settings, stop)
    reaper = Reaper(context)
    deliver = make_deliver(context)
    role = partial(Role, context, duties=Duties(context))
    roles = [
        role(
            "dispatcher",
            dispatcher.Dispatcher(context).run_once,
            pause=partial(dispatcher.wait, context),
        ),
        role("reaper", reaper.run_once, lost=reaper.reset),
        role("retention", Pruner(context).run_once, every_s=POLL_S),
        role("assess", Assessor(context).run_once),
        role("scheduler", partial(scheduler.run_once, context)),
        role("bisecting", partial(bisection.run_once, context)),
        role("deliver", deliver.run_once, lost=deliver.lost),
        role(f"{presence.BACKGROUND}{context.holder}", lambda: None),
    ]
    return Background(context, roles, [deliver.close])


@dataclass(frozen=True)
class Background:
    """The parts of a background process. Any number of such processes may run."""

    context: BackgroundContext
    roles: Sequence[Role]
    closing: Sequence[Callable[[], object]]
    """Called at the end, when no role works any more."""

    def run(self) -> None:
        """Work until the stop event is set, then finish open tasks within a few seconds.

        Broker and database may be unavailable at any time, also at the start.
        """
        if self._ready():
            self._work()
        for close in self.closing:
            close()
        self.context.close()
        log.info("background stopped", holder=self.context.holder)

    def _work(self) -> None:
        context = self.context
        for role in self.roles:
            role.start()
        log.info("background runs", holder=context.holder)
        # Linux may give a signal to any thread, as right after SIGCONT. Python runs its handler in
        # this one, which a wait without an end would keep from it
        while not context.stop.wait(SIGNALS_S):
            pass
        context.wake()
        context.notify()
        for role in self.roles:
            role.join(STOP_S)
        try:
            context.session(lambda session: leases.release(session, context.holder))
        except AWAY as problem:
            log.warning("leases not released; they will expire", error=str(problem))

    def _ready(self) -> bool:
        """Wait for a migrated database; return False when asked to stop first."""
        delay = 0.1
        while not self.context.stop.is_set():
            try:
                state = schema.state(self.context.engine)
                if state in schema.READY:
                    return True
                problem = f"the schema is {state}: run `gonogo db upgrade`"
            except AWAY as away:
                problem = str(away).splitlines()[0]
            log.warning("waiting for the database", error=problem)
            self.context.stop.wait(delay)
            delay = min(2 * delay, 5.0)
        return False
