"""The task `run_chunk`: check the message and run the attempt, one at a time.

Nothing runs after the order to stop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from celery import Celery

from gonogo.errors import GonogoError
from gonogo.settings import Settings
from gonogo.spec.builds import known_build
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import check_build
from gonogo_workers import queue
from gonogo_workers.attempts.attempt import Attempt, DeviceContext, Outcome
from gonogo_workers.devices.discovery import Device
from gonogo_workers.executors import builds_file
from gonogo_workers.executors.registry import ExecutorSpec
from gonogo_workers.messages.cancel import CancelWatcher
from gonogo_workers.messages.chunk import Chunk
from gonogo_workers.messages.chunk_record import ChunkRecord
from gonogo_workers.messages.sealing import Sealer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerContext:
    """The settings, executors and devices that the task needs to run any chunk of this worker.

    `device_contexts` has one entry per executor that the worker serves.
    """

    settings: Settings
    sealer: Sealer
    record: ChunkRecord
    executors: Mapping[str, ExecutorSpec]
    device_contexts: Mapping[str, DeviceContext]
    builds: builds_file.BuildsFile
    watcher: CancelWatcher


class Runner:
    """Runs chunks one at a time. `stop` may come from any thread, also from a signal handler."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._attempt: Attempt | None = None
        self._stopped = False
        self._lock = threading.RLock()  # a signal handler may come while the same thread holds it

    def stop(self) -> None:
        """Hand back the current attempt and refuse further ones."""
        self._stopped = True
        attempt = self._attempt
        if attempt is not None:
            threading.Thread(
                target=attempt.stop, args=(Outcome.handed_back,), name="hand-back", daemon=True
            ).start()

    def hand_back(self, device: Device, patiently: bool) -> None:
        """Hand back the current attempt if it runs on this device.

        `patiently`: after its current seed, no matter how long that takes.
        """
        attempt = self._attempt
        if (
            attempt is not None
            and self._context.device_contexts[attempt.chunk.executor].device.name == device.name
        ):
            grace_s = attempt.chunk.first_seed_deadline_s if patiently else 0.0
            attempt.stop(
                Outcome.handed_back,
                grace_s,
                "its device is needed for something else" if patiently else None,
            )

    def run_chunk(self, text: str) -> None:
        """Check a message and run its chunk.

        A message that is too old, not signed by our service, for another device, or that came
        before is dropped with a log line.
        """
        try:
            body = self._context.sealer.unseal(queue.RUN_CHUNK, text).body
            self._check_target(body)
        except queue.MessageRefused as problem:
            log.warning("a chunk was refused: %s", problem)
            return
        attempt = self._attempt_of(body)
        if attempt is None:
            return
        with self._lock:
            self._attempt = attempt
        if (
            self._stopped
            or not self._context.device_contexts[attempt.chunk.executor].monitor.takes_work
        ):
            attempt.stop(Outcome.handed_back)
        self._context.watcher.watch(attempt.chunk.attempt, lambda: attempt.stop(Outcome.cancelled))
        try:
            outcome = attempt.run()
        finally:
            self._context.watcher.forget()
            with self._lock:
                self._attempt = None
        log.info(
            "attempt %s of chunk %s: %s", attempt.chunk.attempt, attempt.chunk.chunk, outcome.value
        )

    def _check_target(self, body: Mapping[str, Any]) -> None:
        """Raise MessageRefused for a chunk of another kind of device, or one that ran here before.

        The service sent neither: somebody else has put it on this worker's queue. An answer would
        end the chunk as an error, though a worker of the right queue can run it.
        """
        target = body.get("target")
        name = target.get("executor") if isinstance(target, dict) else None
        context = self._context.device_contexts.get(name) if isinstance(name, str) else None
        if not isinstance(target, dict) or context is None:
            served = ", ".join(self._context.device_contexts)
            raise queue.MessageRefused(
                "target", f"it is for the executor {str(name)[:100]!r}; served: {served}"
            )
        kind = target.get("arch"), target.get("board")
        if kind != (context.device.arch, context.device.board):
            raise queue.MessageRefused(
                "target", f"it is for {kind}, and {context.device.identity} is another"
            )
        attempt = body.get("attempt")
        if isinstance(attempt, str) and not self._context.record.add(attempt):
            raise queue.MessageRefused("replay", f"attempt {attempt} ran on this host before")

    def _attempt_of(self, body: Mapping[str, Any]) -> Attempt | None:
        """Return the attempt that the message asks for.

        For one that this worker can't run, report the reason as its `finished` and return None.
        """
        settings = self._context.settings
        try:
            chunk = Chunk.parse(
                body,
                max_elements=settings.max_elements,
                seed_deadline_s=settings.per_seed_deadline_s,
            )
            _check_builds(chunk)
            spec = self._context.executors[chunk.executor]
            device_context = self._context.device_contexts[chunk.executor]
            resolved = builds_file.resolve_build(
                spec,
                chunk.build,
                self._context.builds,
                arithmetic=chunk.arithmetic,
                produced=chunk.produced,
            )
            resolved = replace(
                resolved, environment={**resolved.environment, **device_context.device.environment}
            )
            requested, reference = chunk.reference, None
            if requested is not None:
                reference = builds_file.resolve_build(
                    spec,
                    requested.build,
                    self._context.builds,
                    arithmetic=requested.arithmetic,
                    produced=requested.produced,
                )
                reference = replace(
                    reference,
                    environment={**reference.environment, **device_context.device.environment},
                )
        except GonogoError as problem:
            log.warning("chunk %s can't be run here: %s", body.get("chunk"), problem)
            if isinstance(body.get("attempt"), str):
                nothing = {"sent": [], "batches": 0, "log_tail": ""}
                context = next(iter(self._context.device_contexts.values()))
                finished = {
                    "attempt": body["attempt"],
                    "worker": context.worker,
                    "device": context.device.identity,
                    "outcome": Outcome.error.value,
                    "error": str(problem),
                    **nothing,
                }
                context.sender.post(queue.BACKGROUND_QUEUE, queue.FINISHED, finished)
            return None
        return Attempt(chunk, resolved, device_context, reference)


def _check_builds(chunk: Chunk) -> None:
    """Raise FieldError for a build that doesn't belong to the test's kernel.

    The service refuses it at submission; a job from before that, resubmitted, ends here.
    """
    if not isinstance(chunk.test, TestSpec):
        return
    named = {"build": chunk.build}
    if chunk.reference is not None:
        named["reference.build"] = chunk.reference.build
    for path, name in named.items():
        known = known_build(name, chunk.executor)
        if known is not None:
            check_build(known, chunk.test, path)


def register(app: Celery, runner: Runner, done: Callable[[], None]) -> None:
    """Make `run_chunk` a task of the app and call `done` after each run.

    The message is acknowledged before it runs: a chunk that kills its worker must not come back to
    kill the next one. The database knows what is missing.
    """

    def run_chunk(text: str) -> None:
        try:
            runner.run_chunk(text)
        finally:
            done()

    app.task(run_chunk, name=queue.RUN_CHUNK, acks_late=False, ignore_result=True)
