"""The task `run_attempt`: claim the attempt that an id names, and run it, one at a time.

Nothing runs after the order to stop.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
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
from gonogo_workers.attempts.heartbeat import Heartbeat
from gonogo_workers.devices.discovery import Device
from gonogo_workers.executors import builds_file
from gonogo_workers.executors.registry import ExecutorSpec
from gonogo_workers.messages.chunk import Chunk
from gonogo_workers.server.client import Away, Refused, Server

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerContext:
    """The settings, executors and devices that the task needs to run any chunk of this worker.

    `device_contexts` has one entry per executor that the worker serves.
    """

    settings: Settings
    server: Server
    heartbeat: Heartbeat
    executors: Mapping[str, ExecutorSpec]
    device_contexts: Mapping[str, DeviceContext]
    builds: builds_file.BuildsFile


class Runner:
    """Runs chunks one at a time. `stop` may come from any thread, also from a signal handler."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._attempt: Attempt | None = None
        self._stopped = False
        self._ran: deque[str] = deque(maxlen=1000)
        """Attempts that this worker has claimed: the end of one may still be on its way."""
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

    def run_attempt(self, attempt_id: str, name: str) -> None:
        """Claim an attempt for the device that serves the queue `name`, and run it.

        An id that the service doesn't know, or that somebody else has, is dropped with a log line.
        So is one while the service is away, or after the order to stop: it wakes a worker again.
        """
        context = next(
            (one for one in self._context.device_contexts.values() if one.device.queue == name),
            None,
        )
        if context is None or not self._takes(context) or attempt_id in self._ran:
            log.warning("attempt %s of queue %s is left to others", attempt_id, name)
            return
        body = self._claimed(attempt_id, context)
        if body is None:
            return
        attempt = self._attempt_of(body, context)
        if attempt is None:
            return
        with self._lock:
            self._attempt = attempt
        if not self._takes(context):
            attempt.stop(Outcome.handed_back)
        self._context.heartbeat.watch(attempt_id, lambda: attempt.stop(Outcome.cancelled))
        try:
            outcome = attempt.run()
        finally:
            self._context.heartbeat.forget()
            with self._lock:
                self._attempt = None
        log.info("attempt %s of chunk %s: %s", attempt_id, attempt.chunk.chunk, outcome.value)

    def _takes(self, context: DeviceContext) -> bool:
        return not self._stopped and context.monitor.takes_work

    def _claimed(self, attempt_id: str, context: DeviceContext) -> Mapping[str, Any] | None:
        """Return what the attempt has to do; None where this worker must not run it."""
        place = {"worker": context.worker, "device": context.device.identity}
        try:
            body = self._context.server.request("POST", f"/attempts/{attempt_id}:claim", place)
        except (Away, Refused) as problem:
            log.warning("attempt %s is not run here: %s", attempt_id, problem)
            return None
        target = body.get("target")
        self._ran.append(attempt_id)
        device = context.device
        own_target = {"executor": context.executor, "arch": device.arch, "board": device.board}
        if body.get("attempt") != attempt_id or target != own_target:
            log.warning(
                "attempt %s is for %s, and this worker has %s", attempt_id, target, own_target
            )
            return None
        return body

    def _attempt_of(self, body: Mapping[str, Any], device_context: DeviceContext) -> Attempt | None:
        """Return the attempt that the service describes.

        For one that this worker can't run, report the reason as its end and return None.
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
            device_context.sender.post(
                "POST",
                f"/attempts/{body['attempt']}:finish",
                {
                    "outcome": Outcome.error.value,
                    "sent": [],
                    "batches": 0,
                    "log_tail": "",
                    "error": str(problem),
                    "telemetry": {},
                },
            )
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
    """Make `run_attempt` a task of the app and call `done` after each run.

    The message is acknowledged before it runs: an attempt that kills its worker must not come back
    to kill the next one. The database knows what is missing.
    """

    def run_attempt(attempt_id: str, name: str) -> None:
        try:
            runner.run_attempt(attempt_id, name)
        finally:
            done()

    app.task(run_attempt, name=queue.RUN_ATTEMPT, acks_late=False, ignore_result=True)
