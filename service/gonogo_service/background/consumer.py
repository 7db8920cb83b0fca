"""The Celery worker inside `gonogo background`: consumes results and heartbeats in threads,
restarts when it dies, stops on request.
"""

from __future__ import annotations

import threading
import time

from celery.worker import WorkController
from celery.worker import state as celery_state

from gonogo_service.background.roles import is_dead
from gonogo_service.kit.background_context import BROKER_AWAY, DATABASE_AWAY, Core, log
from gonogo_storage.messages import leases
from gonogo_workers.queue import BACKGROUND_QUEUE, HEARTBEAT_QUEUE

CONCURRENCY = 2
RESTORE = 10_000


class Consumer(threading.Thread):
    """Runs Celery's worker until the core stops. A plain WorkController: it installs no signal
    handlers and prints no banner.
    """

    def __init__(self, core: Core) -> None:
        super().__init__(name="consumer", daemon=True)
        self._core = core

    def run(self) -> None:
        """Celery reconnects by itself; whatever ends it nevertheless is logged, and it starts again
        with backoff.
        """
        delay = 0.1
        while not self._core.stop.is_set():
            began = time.monotonic()
            try:
                self._worker().start()
            except SystemExit:  # Celery's WorkerShutdown and WorkerTerminate
                pass
            except Exception:
                log.exception("the consumer failed; starting it again")
            delay = 0.1 if time.monotonic() - began > 60 else min(2 * delay, 5.0)
            if not self._core.stop.is_set():
                self._core.stop.wait(delay)

    def shut_down(self, timeout_s: float) -> None:
        """Finish the tasks in hand and end. Those that wait for the database are put back into
        their queue.
        """
        celery_state.should_stop = 0
        try:
            self.join(timeout_s)
        finally:
            celery_state.should_stop = None

    def _worker(self) -> WorkController:
        # Celery looks tasks up in the process's default app, whichever app the worker was made of
        self._core.app.set_default()
        return WorkController(
            app=self._core.app,
            hostname=f"background@{self._core.holder}",
            queues=[BACKGROUND_QUEUE, HEARTBEAT_QUEUE],
            pool="threads",
            concurrency=CONCURRENCY,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )


def recover(core: Core) -> None:
    """Put messages that a dead ingest had in hand back into their queues now, if no other ingest
    lives that might still have them.

    Celery would do it after the visibility timeout; until then their results would be missing.
    """
    try:
        others = core.reading(lambda session: leases.holders(session, "presence/"))
        if any(
            not is_dead(holder, core.holder) for holder in others.values() if holder != core.holder
        ):
            return
        with core.app.connection_for_read() as connection:
            channel = connection.default_channel
            channel.visibility_timeout = 0
            channel.qos.restore_visible(num=RESTORE, interval=1)
    except (*BROKER_AWAY, *DATABASE_AWAY) as problem:
        log.warning("messages of an earlier process come back later", error=str(problem))
