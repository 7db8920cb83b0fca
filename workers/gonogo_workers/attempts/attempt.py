"""One attempt at a chunk: the chip's lock, fresh children, the seeds.

Its last message lists what was sent.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from enum import StrEnum
from typing import Any

from gonogo.errors import InfrastructureError, in_words
from gonogo.judging.inputs import generate, quantise
from gonogo_workers.attempts.context import DeviceContext
from gonogo_workers.attempts.pipeline import HAND_BACK_GRACE_S, ChildLost, Failure, Pipeline
from gonogo_workers.attempts.reference import ReferencePipeline
from gonogo_workers.attempts.report_pipeline import pipeline_of
from gonogo_workers.devices import hang, locks
from gonogo_workers.devices.health import DeviceSick
from gonogo_workers.executors.base import ExecutorFailure, HostUnavailable, KernelError, Stopped
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.messages.batches import Batches
from gonogo_workers.messages.chunk import Chunk
from gonogo_workers.messages.rows import artifact
from gonogo_workers.server.sender import Sender

log = logging.getLogger(__name__)

SPARE_AFTER_S = 3.0
"""A chunk that runs this long starts its successor's child while it runs.

A shorter one starts it at its end, so as not to compete for the processor.
"""
LAST_JUDGEMENTS_S = 1.0
"""The seconds for which a stopped attempt waits for the judgements in progress.

Other seeds run again elsewhere.
"""
MAX_BARREN_CHILDREN = 3
"""An attempt ends as an error after this many children in a row that ran no seed."""


class EndOfAttempt(StrEnum):
    """The ways in which an attempt ends."""

    done = "done"
    """Every seed was sent, with or without numbers."""
    cancelled = "cancelled"
    """The job was canceled."""
    handed_back = "handed_back"
    """This worker is shutting down, or its device is bad or needed for something else.

    Another worker must run the missing seeds."""
    error = "error"
    """The device, the child process or this host failed; missing seeds may be tried again."""


def finish(
    sender: Sender, attempt: str, outcome: EndOfAttempt, error: str | None, **more: object
) -> None:
    """Send the last message of an attempt."""
    body = {"sent": [], "batches": 0, "log_tail": "", "telemetry": {}, **more}
    body |= {"outcome": outcome.value, "error": error}
    sender.post("POST", f"/attempts/{attempt}:finish", body)


def _blamed(problem: Exception) -> str:
    """Return what ended an attempt besides its kernel, its device and its child: host or worker."""
    whose = "this host" if isinstance(problem, OSError | MemoryError) else "bug in the worker"
    return f"{whose}: {in_words(problem)}"


class Attempt:
    """One run of a chunk. `run` belongs to one thread; `stop` may come from any."""

    def __init__(
        self,
        chunk: Chunk,
        resolved: ResolvedBuild,
        context: DeviceContext,
        reference: ResolvedBuild | None = None,
    ) -> None:
        self.chunk = chunk
        self._context, self._monitor = context, context.monitor
        self._stopping: EndOfAttempt | None = None
        self._stop_event = threading.Event()
        self._host: KernelHost | None = None
        self._dismissed: KernelHost | None = None
        """The last child, which is exiting."""
        self._batches = Batches(context.sender, chunk.attempt)
        self._pipeline = pipeline_of(chunk, resolved, context, self._batches)
        self._log_tail = ""
        self._error: str | None = None
        self._references: ReferencePipeline | None = None
        if chunk.reference is not None and reference is not None:
            self._references = ReferencePipeline(
                chunk, chunk.reference, reference, context, self._batches
            )
            self._pipeline.compare = self._references.with_reference

    def stop(
        self, outcome: EndOfAttempt, grace_s: float = HAND_BACK_GRACE_S, error: str | None = None
    ) -> None:
        """End soon: `cancelled` at once, `handed_back` after the current seed.

        That seed gets at most `grace_s`. The first reason stays.
        """
        if self._stopping is None:
            self._stopping, self._error = outcome, error
        self._stop_event.set()
        grace_s = grace_s if self._stopping is EndOfAttempt.handed_back else 0.0
        pipelines = filter(None, (self._pipeline, self._references))
        waits = [pipeline for pipeline in pipelines if not pipeline.stop(grace_s)]
        host = self._host
        if not waits and host is not None:
            host.stop()

    def run(self) -> EndOfAttempt:
        """Run the chunk to its end; send `finished` in every case."""
        context, attempt = self._context, self.chunk.attempt
        outcome, error = EndOfAttempt.done, None
        context.vitals.begin(attempt)
        too_long = f"the attempt took longer than {context.chunk_deadline_s:g} s"
        alarm = threading.Timer(
            context.chunk_deadline_s, self.stop, (EndOfAttempt.error, 0.0, too_long)
        )
        alarm.daemon = True
        alarm.start()
        try:
            self._run()
        except (Stopped, locks.LockedElsewhere):
            outcome, error = self._stopping or EndOfAttempt.error, self._error
        except DeviceSick as problem:
            outcome, error = self._stopping or EndOfAttempt.handed_back, str(problem)
            log.error("attempt %s: %s", attempt, problem)
        except InfrastructureError as problem:
            outcome, error = self._stopping or EndOfAttempt.error, str(problem)
            self._log_tail = getattr(problem, "log_tail", "") or self._log_tail
            log.error("attempt %s: %s", attempt, problem)
        except Exception as problem:
            outcome, error = EndOfAttempt.error, _blamed(problem)
            log.exception("attempt %s: %s", attempt, error)
        alarm.cancel()
        try:
            with contextlib.suppress(Exception):
                self._pipeline.drain(LAST_JUDGEMENTS_S)
            self._batches.flush()
        except Exception as problem:  # "finished" must be sent: the rest is then run again
            outcome, error = EndOfAttempt.error, _blamed(problem)
            log.exception("attempt %s: its last results can't be sent", attempt)
        finish(
            context.sender,
            attempt,
            outcome,
            error,
            sent=[list(work) for work in self._batches.sent],
            batches=self._batches.count,
            log_tail=self._log_tail,
            telemetry=dict(context.telemetry.latest()),
        )
        self._await_dismissed()
        if self._stopping is None:
            self._prepare_spare()
        context.vitals.end()
        return outcome

    def _run(self) -> None:
        context = self._context
        self._stage("waiting for the device")
        locked = locks.acquire(
            context.lock_folder,
            context.device.name,
            lambda: self._stopping is None,
            self._stop_event,
        )
        try:
            left_over = "its last user did not end properly" if locked.left_over else None
            self._check_if(left_over or self._monitor.due(), locked)
            context.telemetry.between_chunks()
            self._monitor.ran()
            if self._references is not None:
                # A seed on which the reference build fails is an error, and not run by this one
                self._children(locked, self._references)
                self._references.finish()
                self._pipeline.withdraw(self._references.failures)
                self._check_if(self._monitor.doubted, locked)
            self._children(locked, self._pipeline)
        finally:
            locked.close()
        # The chip is free for others from here on; only host work is left
        self._stage("judging")
        self._pipeline.finish()

    def _children(self, locked: locks.HeldDevice, pipeline: Pipeline) -> None:
        """Run the seeds of a build in as many fresh children as it takes."""
        barren = 0
        while pipeline.has_work:
            self._one_child(locked, pipeline)
            barren = 0 if pipeline.answered or not pipeline.has_work else barren + 1
            if barren == MAX_BARREN_CHILDREN:
                words = f"{barren} child processes in a row ended before they ran a seed"
                raise HostUnavailable(words, self._log_tail)

    def _one_child(self, locked: locks.HeldDevice, pipeline: Pipeline) -> None:
        """Run seeds in one fresh child until all are done or the child is lost."""
        self._stage("starting")
        self._await_dismissed()  # it releases the device before the next child opens it
        began = time.monotonic()
        resolved = pipeline.resolved
        host = self._context.pool.take(resolved.executor, resolved.environment, started=self._adopt)
        clean, hung, refused = False, None, None
        try:
            locked.record(host.pid, host.host_run)
            pipeline.begin(host)
            refused = self._opened(host, locked.fd, pipeline)
            if refused is None:
                self._stage(pipeline.stage)

                def tend() -> None:
                    if time.monotonic() - began > SPARE_AFTER_S:
                        self._prepare_spare()

                pipeline.drive(host, tend)
                clean = True
        except ChildLost as loss:
            log.warning("attempt %s: %s", self.chunk.attempt, loss)
            hung = loss.hang
            if hung is not None and pipeline is self._pipeline and self._stopping is None:
                self._triage(hung)
        finally:
            self._log_tail = host.log.tail()
            self._host = None
            if clean:
                host.dismiss()
                self._dismissed = host
            else:
                self._monitor.doubted = "its last kernel did not end properly"
                host.kill()
        if hung is not None:
            self._after_hang(locked, hung, pipeline)
        elif refused is not None:
            # The canary decides: only on a good device it is the build that can't be opened
            self._check_if(f"build {pipeline.build} could not be opened", locked)
            pipeline.refuse(refused)

    def _prepare_spare(self) -> None:
        resolved = self._pipeline.resolved
        self._context.pool.prepare(resolved.executor, resolved.environment)

    def _await_dismissed(self) -> None:
        if self._dismissed is not None:
            self._dismissed.close()
            self._dismissed = None

    def _triage(self, hung: Failure) -> None:
        """Store the device's state as tt-triage reports it, while the process still hangs."""
        self._stage("triage")
        device = self._context.device
        content = hang.triage(self._context.tt_triage, self._pipeline.resolved, device.places)
        if content is not None:
            self._batches.add_artifact(artifact("triage", hung.work, content))

    def _after_hang(self, locked: locks.HeldDevice, hung: Failure, pipeline: Pipeline) -> None:
        """Add the hung seed's row, with the findings of a second run under the watcher.

        Then run the canary, before anything else runs.
        """
        is_examined = pipeline is self._pipeline and hang.watcher_environment(pipeline.resolved)
        words = ""
        artifacts: tuple[dict[str, Any], ...] = ()
        try:
            if is_examined and self._stopping is None:
                self._check_if("a kernel hung", locked)  # a wedged chip would hang again
                self._stage("watcher")

                def started(host: KernelHost) -> None:
                    locked.record(host.pid, host.host_run)
                    self._adopt(host)

                words, artifacts = hang.again(
                    self.chunk, hung.work, pipeline.resolved, locked.fd, started=started
                )
        finally:
            self._host = None
            for one in artifacts:
                self._batches.add_artifact(one)
            pipeline.fail_hung(hung, words)
        if self._stopping is None:
            self._check_if("a kernel hung", locked)

    def _check_if(self, why: str | None, locked: locks.HeldDevice) -> None:
        """Where there is a reason, run the canary and, where it fails, the recovery steps.

        Raises DeviceSick: then this device does nothing more.
        """
        if why:
            self._stage("canary")
            self._monitor.check(locked, why, tell=self._stage)

    def _adopt(self, host: KernelHost) -> None:
        self._host = host
        if self._stopping is not None:
            raise Stopped("stopped before the child was used")

    def _opened(self, host: KernelHost, lock_fd: int, pipeline: Pipeline) -> ExecutorFailure | None:
        """Open the build and run the context's tests; return the reason where that fails.

        A test of the context may fail, but not kill the child.
        """
        seed, limit_s = self.chunk.work[0][0], self.chunk.first_seed_deadline_s
        try:
            host.open(pipeline.build, lock_fd=lock_fd)
            for test in pipeline.before:
                self._stage("context")
                given = quantise(test, generate(test, seed))
                with contextlib.suppress(KernelError):
                    host.run(test, given, seed, pipeline.resolved.produced, limit_s)
                pipeline.count_position()
        except (Stopped, HostUnavailable):
            raise
        except ExecutorFailure as problem:
            if self._stopping is not None:
                raise Stopped("stopped while the build was opened") from problem
            return problem
        return None

    def _stage(self, stage: str) -> None:
        self._context.vitals.stage = stage
