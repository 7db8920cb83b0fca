"""The Celery worker inside `gonogo background`.

It consumes results and heartbeats in threads, restarts when it fails, and stops on request.
"""

from __future__ import annotations

import threading
import time

from celery.worker import WorkController
from celery.worker import state as celery_state

from gonogo_service.background.roles import is_dead
from gonogo_service.kit.background_context import BROKER_AWAY, DATABASE_AWAY, BackgroundContext, log
from gonogo_service.kit.outbox import leases
from gonogo_workers.queue import BACKGROUND_QUEUE, HEARTBEAT_QUEUE

CONCURRENCY = 2
RESTORE = 10_000


class Consumer(threading.Thread):
    """Runs Celery's worker until the process stops.

    It is a plain WorkController, which installs no signal handlers and prints no banner.
    """

    def __init__(self, context: BackgroundContext) -> None:
        super().__init__(name="consumer", daemon=True)
        self._context = context

    def run(self) -> None:
        """Run the worker; log a failure and restart with backoff. Celery reconnects by itself."""
        delay = 0.1
        while not self._context.stop.is_set():
            began = time.monotonic()
            try:
                self._worker().start()
            except SystemExit:  # Celery's WorkerShutdown and WorkerTerminate
                pass
            except Exception:
                log.exception("the consumer failed; starting it again")
            delay = 0.1 if time.monotonic() - began > 60 else min(2 * delay, 5.0)
            self._context.stop.wait(delay)

    def shut_down(self, timeout_s: float) -> None:
        """Finish the running tasks and end.

        Tasks that wait for the database are put back into their queue.
        """
        celery_state.should_stop = 0
        try:
            self.join(timeout_s)
        finally:
            celery_state.should_stop = None

    def _worker(self) -> WorkController:
        # Celery looks up tasks in the process's default app, whichever app the worker uses
        self._context.app.set_default()
        return WorkController(
            app=self._context.app,
            hostname=f"background@{self._context.holder}",
            queues=[BACKGROUND_QUEUE, HEARTBEAT_QUEUE],
            pool="threads",
            concurrency=CONCURRENCY,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )


def recover(context: BackgroundContext) -> None:
    """Requeue the messages of dead ingest processes, unless another live process may have them.

    Celery would do it after the visibility timeout; until then their results would be missing.
    """
    try:
        others = context.reading(lambda session: leases.holders(session, "presence/"))
        if any(
            not is_dead(holder, context.holder)
            for holder in others.values()
            if holder != context.holder
        ):
            return
        with context.app.connection_for_read() as connection:
            channel = connection.default_channel
            channel.visibility_timeout = 0
            channel.qos.restore_visible(num=RESTORE, interval=1)
    except (*BROKER_AWAY, *DATABASE_AWAY) as problem:
        log.warning("messages of an earlier process are redelivered later", error=str(problem))
