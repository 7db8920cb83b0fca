"""The task `run_chunk`: check the message, run the attempt; one at a time, and nothing after the
order to stop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery import Celery

from gonogo.errors import GonogoError
from gonogo_settings import Settings
from gonogo_workers import queue
from gonogo_workers.attempts.attempt import Attempt, Bench, Outcome
from gonogo_workers.devices.discovery import Device
from gonogo_workers.executors import builds_file
from gonogo_workers.executors.registry import ExecutorSpec
from gonogo_workers.messages.cancel import CancelWatcher
from gonogo_workers.messages.chunk import Chunk

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Shop:
    """What the task needs to run any chunk of this worker: a bench per executor that it serves."""

    settings: Settings
    key: str
    executors: Mapping[str, ExecutorSpec]
    benches: Mapping[str, Bench]
    builds: builds_file.BuildsFile
    watcher: CancelWatcher


class Runner:
    """Runs chunks one at a time. `stop` may come from any thread, also from a signal handler."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._attempt: Attempt | None = None
        self._stopped = False
        self._lock = threading.RLock()  # a signal handler may come while the same thread holds it

    def stop(self) -> None:
        """Hand back the attempt at hand and refuse further ones."""
        self._stopped = True
        attempt = self._attempt
        if attempt is not None:
            threading.Thread(
                target=attempt.stop, args=(Outcome.handed_back,), name="hand-back", daemon=True
            ).start()

    def hand_back(self, device: Device, patiently: bool) -> None:
        """Hand back the attempt at hand if it runs on this device; `patiently`: after its current
        seed, however long that takes.
        """
        attempt = self._attempt
        if (
            attempt is not None
            and self._shop.benches[attempt.chunk.executor].device.name == device.name
        ):
            grace_s = attempt.chunk.seed_deadline_s if patiently else 0.0
            attempt.stop(
                Outcome.handed_back,
                grace_s,
                "its device is wanted for something else" if patiently else None,
            )

    def run_chunk(self, message: str, signature: str) -> None:
        """Check a message and run its chunk. A message that isn't ours, or is too old, is dropped
        with a line in the log.
        """
        try:
            body = queue.unseal(
                self._shop.key, queue.RUN_CHUNK, message, signature, max_age_s=queue.MAX_AGE_S
            )
        except queue.MessageRefused as problem:
            log.warning("a chunk was refused: %s", problem)
            return
        attempt = self._attempt_of(body)
        if attempt is None:
            return
        with self._lock:
            self._attempt = attempt
        if self._stopped or not self._shop.benches[attempt.chunk.executor].keeper.takes_work:
            attempt.stop(Outcome.handed_back)
        self._shop.watcher.watch(attempt.chunk.attempt, lambda: attempt.stop(Outcome.cancelled))
        try:
            outcome = attempt.run()
        finally:
            self._shop.watcher.forget()
            with self._lock:
                self._attempt = None
        log.info(
            "attempt %s of chunk %s: %s", attempt.chunk.attempt, attempt.chunk.chunk, outcome.value
        )

    def _attempt_of(self, body: Mapping[str, Any]) -> Attempt | None:
        """The attempt that the message asks for; one that this worker can't do is answered with its
        reason.
        """
        settings = self._shop.settings
        try:
            chunk = Chunk.parse(
                body,
                max_elements=settings.max_elements,
                seed_deadline_s=settings.per_seed_deadline_s,
            )
            if chunk.executor not in self._shop.benches:
                raise GonogoError(
                    f"this worker has no executor {chunk.executor}, only {', '.join(self._shop.benches)}"
                )
            spec = self._shop.executors[chunk.executor]
            bench = self._shop.benches[chunk.executor]
            meaning = builds_file.meaning(
                spec,
                chunk.build,
                self._shop.builds,
                arithmetic=chunk.arithmetic,
                produced=chunk.produced,
            )
            meaning = replace(
                meaning, environment={**meaning.environment, **bench.device.environment}
            )
            asked, reference = chunk.reference, None
            if asked is not None:
                reference = builds_file.meaning(
                    spec,
                    asked.build,
                    self._shop.builds,
                    arithmetic=asked.arithmetic,
                    produced=asked.produced,
                )
                reference = replace(
                    reference, environment={**reference.environment, **bench.device.environment}
                )
        except GonogoError as problem:
            log.warning("chunk %s can't be run here: %s", body.get("chunk"), problem)
            if isinstance(body.get("attempt"), str):
                nothing = {"sent": [], "batches": 0, "log_tail": ""}
                finished = {
                    "attempt": body["attempt"],
                    "outcome": Outcome.error.value,
                    "error": str(problem),
                    **nothing,
                }
                next(iter(self._shop.benches.values())).postman.post(
                    queue.BACKGROUND_QUEUE, queue.FINISHED, finished
                )
            return None
        return Attempt(chunk, meaning, bench, reference)


def register(app: Celery, runner: Runner, done: Callable[[], None]) -> None:
    """Make `run_chunk` the app's task: acknowledged before it runs (a chunk that kills its worker
    must not come back to kill the next; the database knows what is missing). `done` is called after
    each.
    """

    def run_chunk(message: str, signature: str) -> None:
        try:
            runner.run_chunk(message, signature)
        finally:
            done()

    app.task(run_chunk, name=queue.RUN_CHUNK, acks_late=False, ignore_result=True)
