"""The task `run_attempt`: claim the attempt that an id names, and run it, one at a time.

Nothing runs after the order to stop.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from celery import Celery

from gonogo.errors import GonogoError
from gonogo.settings import Settings
from gonogo.spec.builds import known_build
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import check_build
from gonogo_workers import queue
from gonogo_workers.attempts.attempt import Attempt, EndOfAttempt, finish
from gonogo_workers.attempts.context import DeviceContext
from gonogo_workers.attempts.heartbeat import Heartbeat
from gonogo_workers.devices.discovery import Device
from gonogo_workers.executors.builds_file import ResolvedBuild, resolve_build
from gonogo_workers.messages.chunk import Chunk
from gonogo_workers.served_devices import Claims
from gonogo_workers.server.client import CLAIM_TIMEOUT, Away, Refused, Server

log = logging.getLogger(__name__)


class Runner:
    """Runs chunks one at a time. `stop` may come from any thread, also from a signal handler."""

    def __init__(
        self,
        settings: Settings,
        server: Server,
        heartbeat: Heartbeat,
        claims: Claims,
        contexts: Mapping[str, DeviceContext],
    ) -> None:
        """`contexts` has one entry per executor that the worker serves."""
        self._settings, self._server, self._heartbeat = settings, server, heartbeat
        self._claims, self._contexts = claims, contexts
        self._attempt: Attempt | None = None
        self._stopped = False
        self._ran: deque[str] = deque(maxlen=1000)
        """Attempts that this worker has claimed: the end of one may still be on its way."""

    def stop(self) -> None:
        """Hand back the current attempt and refuse further ones."""
        self._stopped = True
        attempt = self._attempt
        if attempt is not None:
            threading.Thread(
                target=attempt.stop, args=(EndOfAttempt.handed_back,), name="hand-back", daemon=True
            ).start()

    def hand_back(self, device: Device, patiently: bool) -> None:
        """Hand back the current attempt if it runs on this device.

        `patiently`: after its current seed, no matter how long that takes.
        """
        attempt = self._attempt
        if attempt is None or self._contexts[attempt.chunk.executor].device.name != device.name:
            return
        grace_s = attempt.chunk.first_seed_deadline_s if patiently else 0.0
        why = "its device is needed for something else" if patiently else None
        attempt.stop(EndOfAttempt.handed_back, grace_s, why)

    def run_attempt(self, attempt_id: str, name: str) -> None:
        """Claim an attempt for the device that serves the queue `name`, and run it.

        An id that the service doesn't know, or that somebody else has, is dropped with a log line.
        So is one while the service is away, or after the order to stop: it wakes a worker again.
        """
        context = next((one for one in self._contexts.values() if one.device.queue == name), None)
        if context is None or not self._takes(context) or attempt_id in self._ran:
            log.warning("attempt %s of queue %s is left to others", attempt_id, name)
            return
        body = self._claimed(attempt_id, context)
        attempt = None if body is None else self._attempt_of(body, context)
        if attempt is None:
            return
        self._attempt = attempt
        if not self._takes(context):
            attempt.stop(EndOfAttempt.handed_back)
        self._heartbeat.watch(attempt_id, lambda: attempt.stop(EndOfAttempt.cancelled))
        try:
            outcome = attempt.run()
        finally:
            self._heartbeat.forget()
            self._attempt = None
        log.info("attempt %s of chunk %s: %s", attempt_id, attempt.chunk.chunk, outcome.value)

    def _takes(self, context: DeviceContext) -> bool:
        return not self._stopped and context.monitor.takes_work

    def _claimed(self, attempt_id: str, context: DeviceContext) -> Mapping[str, Any] | None:
        """Return the attempt's chunk; None where this worker must not run it."""
        device = context.device
        place = {"worker": context.worker, "device": device.identity}
        try:
            path = f"/attempts/{attempt_id}:claim"
            body = self._server.request("POST", path, place, CLAIM_TIMEOUT)
        except (Away, Refused) as problem:
            log.warning("attempt %s is not run here: %s", attempt_id, problem)
            return None
        self._ran.append(attempt_id)
        target = body.get("target")
        own_target = {"executor": context.executor, "arch": device.arch, "board": device.board}
        if body.get("attempt") != attempt_id or target != own_target:
            words = "attempt %s is for %s, and this worker has %s"
            log.warning(words, attempt_id, target, own_target)
            return None
        return body

    def _attempt_of(self, body: Mapping[str, Any], context: DeviceContext) -> Attempt | None:
        """Return the attempt that the service describes.

        For one that this worker can't run, report the reason as its end and return None.
        """
        settings = self._settings
        try:
            chunk = Chunk.parse(
                body,
                max_elements=settings.max_elements,
                seed_deadline_s=settings.per_seed_deadline_s,
            )
            resolved = self._resolved(
                "build", chunk.build, chunk, context, chunk.arithmetic, chunk.produced
            )
            other, reference = chunk.reference, None
            if other is not None:
                reference = self._resolved(
                    "reference.build", other.build, chunk, context, other.arithmetic, other.produced
                )
        except GonogoError as problem:
            log.warning("chunk %s can't be run here: %s", body.get("chunk"), problem)
            finish(context.sender, body["attempt"], EndOfAttempt.error, str(problem))
            return None
        return Attempt(chunk, resolved, context, reference)

    def _resolved(
        self,
        path: str,
        build: str,
        chunk: Chunk,
        context: DeviceContext,
        arithmetic: str | None,
        produced: tuple[str, ...] | None,
    ) -> ResolvedBuild:
        """Return a build of the chunk as its child on this device gets it.

        Raises FieldError for one that doesn't belong to the test's kernel. The service refuses it
        at submission; a job from before that, resubmitted, ends here.
        """
        known = known_build(build, chunk.executor)
        if known is not None and isinstance(chunk.test, TestSpec):
            check_build(known, chunk.test, path)
        spec, file = self._claims.specs[chunk.executor], self._claims.builds
        resolved = resolve_build(spec, build, file, arithmetic=arithmetic, produced=produced)
        environment = {**resolved.environment, **context.device.environment}
        return replace(resolved, environment=environment)


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
