"""One attempt at a chunk: the chip's lock, fresh children, the seeds.

Its last message lists what was sent.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gonogo.errors import InfrastructureError, in_words
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.attempts.heartbeat import Vitals
from gonogo_workers.attempts.lost_child import ChildLost, Hang
from gonogo_workers.attempts.pipeline import HAND_BACK_GRACE_S
from gonogo_workers.attempts.reference import References
from gonogo_workers.attempts.report_pipeline import parts_for
from gonogo_workers.devices import hang, locks
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health import DeviceSick
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor
from gonogo_workers.devices.telemetry import Telemetry
from gonogo_workers.executors.base import (
    ExecutorFailure,
    HostUnavailable,
    KernelError,
    Stopped,
    output_shapes,
    shaped_inputs,
)
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.pool import HostPool
from gonogo_workers.executors.slots import Slot
from gonogo_workers.executors.threads import Threads
from gonogo_workers.messages.batches import Batches
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import Place, failed
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


class Outcome(StrEnum):
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


@dataclass(frozen=True)
class DeviceContext:
    """The resources that a worker lends its attempts on one device."""

    worker: str
    executor: str
    device: Device
    lock_folder: Path
    pool: HostPool
    threads: Threads
    sender: Sender
    vitals: Vitals
    monitor: DeviceHealthMonitor
    telemetry: Telemetry
    """Returns the chip's latest temperature, clock, power and firmware, and starts a refresh."""
    chunk_deadline_s: float
    tt_triage: str | None


class Attempt:
    """One run of a chunk. `run` belongs to one thread; `stop` may come from any."""

    def __init__(
        self,
        chunk: Chunk,
        resolved: ResolvedBuild,
        device_context: DeviceContext,
        reference: ResolvedBuild | None = None,
    ) -> None:
        self.chunk = chunk
        self._resolved = resolved
        self._device_context = device_context
        self._stopping: Outcome | None = None
        self._stop_event = threading.Event()
        self._host: KernelHost | None = None
        self._dismissed: KernelHost | None = None
        """The last child, which is exiting; `run` waits for it at its end."""
        self._batches = Batches(device_context.sender, chunk.attempt)
        self._evidence, self._pipeline = parts_for(
            chunk,
            resolved,
            device_context.device.identity,
            device_context.threads,
            self._batches,
            device_context.vitals,
        )
        monitor = device_context.monitor
        self._pipeline.unreplayed = lambda: monitor.unreplayed
        self._log_tail = ""
        self._error: str | None = None
        self._references: References | None = None
        if (
            chunk.reference is not None
            and reference is not None
            and isinstance(chunk.test, TestSpec)
        ):
            self._references = References(chunk, chunk.test, chunk.reference, reference)
            self._pipeline.compare = self._references.compare

    def stop(
        self, outcome: Outcome, grace_s: float = HAND_BACK_GRACE_S, error: str | None = None
    ) -> None:
        """End soon: `cancelled` at once, `handed_back` after the current seed.

        That seed gets at most `grace_s`. The first reason stays.
        """
        if self._stopping is None:
            self._stopping, self._error = outcome, error
        self._stop_event.set()
        immediate = self._pipeline.stop(grace_s if self._stopping is Outcome.handed_back else 0.0)
        host = self._host
        if immediate and host is not None:
            host.stop()

    def run(self) -> Outcome:
        """Run the chunk to its end; send `finished` in every case."""
        outcome, error = Outcome.done, None
        self._device_context.vitals.begin(self.chunk.attempt, self._device_context.device.identity)
        too_long = f"the attempt took longer than {self._device_context.chunk_deadline_s:g} s"
        alarm = threading.Timer(
            self._device_context.chunk_deadline_s, self.stop, (Outcome.error, 0.0, too_long)
        )
        alarm.daemon = True
        alarm.start()
        try:
            self._run()
        except (Stopped, locks.LockedElsewhere):
            outcome, error = self._stopping or Outcome.error, self._error
        except DeviceSick as problem:
            outcome, error = self._stopping or Outcome.handed_back, str(problem)
            log.error("attempt %s: %s", self.chunk.attempt, problem)
        except InfrastructureError as problem:
            outcome, error = self._stopping or Outcome.error, str(problem)
            self._log_tail = getattr(problem, "log_tail", "") or self._log_tail
            log.error("attempt %s: %s", self.chunk.attempt, problem)
        except Exception as problem:
            outcome, error = (
                Outcome.error,
                f"bug in the worker: {in_words(problem)}",
            )
            log.exception("attempt %s: a bug in the worker", self.chunk.attempt)
        alarm.cancel()
        try:
            with contextlib.suppress(Exception):
                self._pipeline.drain(LAST_JUDGEMENTS_S)
            self._batches.flush()
        except Exception as problem:  # "finished" must be sent: the rest is then run again
            outcome, error = Outcome.error, f"bug in the worker: {in_words(problem)}"
            log.exception("attempt %s: its last results can't be sent", self.chunk.attempt)
        self._device_context.sender.post(
            "POST",
            f"/attempts/{self.chunk.attempt}:finish",
            {
                "outcome": outcome.value,
                "sent": [list(work) for work in self._batches.sent],
                "batches": self._batches.count,
                "log_tail": self._log_tail,
                "error": error,
                "telemetry": dict(self._device_context.telemetry.latest()),
            },
        )
        if self._dismissed is not None:
            self._dismissed.close()
        if self._stopping is None:
            self._device_context.pool.prepare(self._resolved.executor, self._resolved.environment)
        self._device_context.vitals.end()
        return outcome

    def _run(self) -> None:
        device = self._device_context.device
        self._stage("waiting for the device")
        locked = locks.acquire(
            self._device_context.lock_folder,
            device.name,
            lambda: self._stopping is None,
            self._stop_event,
        )
        try:
            why = (
                "its last user did not end properly"
                if locked.left_over
                else self._device_context.monitor.due()
            )
            if why:
                self._check(locked, why)
            self._device_context.telemetry.between_chunks()
            self._device_context.monitor.ran()
            if self._references is not None:
                self._run_references(self._references, locked)
            barren = 0
            while self._pipeline.has_work:
                self._one_child(locked)
                barren = 0 if self._pipeline.answered or not self._pipeline.has_work else barren + 1
                if barren == MAX_BARREN_CHILDREN:
                    raise HostUnavailable(
                        f"{barren} child processes in a row ended before they ran a seed",
                        self._log_tail,
                    )
        finally:
            locked.close()
        # The chip is free for others from here on; only host work is left
        self._stage("judging")
        self._pipeline.finish()

    def _run_references(self, references: References, locked: locks.HeldDevice) -> None:
        """Have the reference build run every seed.

        A seed that it fails on is an error, and this build does not run it.
        """
        self._stage("reference")
        try:
            references.run(
                locked,
                self._device_context.pool,
                self._device_context.threads,
                self._device_context.vitals,
                self._adopt,
            )
        finally:
            self._host = None
        references.fail(
            self._pipeline,
            self._batches,
            self._evidence.log_of,
            self._device_context.device.identity,
        )
        if references.lost:
            self._check(locked, "a kernel of the reference build hung or died")

    def _one_child(self, locked: locks.HeldDevice) -> None:
        """Run seeds in one fresh child until all are done or the child is lost."""
        self._stage("starting")
        began = time.monotonic()
        executor, environment = self._resolved.executor, self._resolved.environment
        host = self._device_context.pool.take(executor, environment, started=self._adopt)
        clean, hung, refused = False, None, None
        try:
            locked.record(host.pid, host.host_run)
            place = self._pipeline.begin(host)
            refused = self._opened(host, locked.fd)
            if refused is None:
                self._stage("running")

                def tend() -> None:
                    if time.monotonic() - began > SPARE_AFTER_S:
                        self._device_context.pool.prepare(executor, environment)

                self._pipeline.drive(host, tend)
                clean = True
        except ChildLost as loss:
            log.warning("attempt %s: %s", self.chunk.attempt, loss)
            hung = loss.hang
            if hung is not None and self._stopping is None:
                self._triage(hung.work)
        finally:
            self._log_tail = host.log.tail()
            self._host = None
            if clean:
                host.dismiss()
                self._dismissed = host
            else:
                self._device_context.monitor.doubt("its last kernel did not end properly")
                host.kill()
        if hung is not None:
            self._after_hang(locked, hung)
        elif refused is not None:
            self._after_refusal(locked, refused, place)

    def _triage(self, work: Work) -> None:
        """Store the device's state as tt-triage reports it, while the process still hangs."""
        self._stage("triage")
        content = hang.triage(
            self._device_context.tt_triage, self._resolved, self._device_context.device.places
        )
        if content is not None:
            self._batches.add_artifact(
                {
                    "kind": "triage",
                    "seed": work[0],
                    "repeat": work[1],
                    "output": None,
                    "content": content,
                }
            )

    def _after_hang(self, locked: locks.HeldDevice, hung: Hang) -> None:
        """Add the hung seed's row, with the findings of a second run under the watcher.

        Then run the canary, before anything else runs.
        """
        examination = hang.Examination()
        try:
            if self._stopping is None and hang.watcher_environment(self._resolved):
                self._check(locked, "a kernel hung")  # a wedged chip would hang again
                self._stage("watcher")
                examination = hang.again(
                    self.chunk,
                    hung.work,
                    self._resolved,
                    locked.fd,
                    started=lambda host: self._lend(locked, host),
                )
        finally:
            self._host = None
            for artifact in examination.artifacts:
                self._batches.add_artifact(artifact)
            self._pipeline.fail_hung(hung, examination.words)
        if self._stopping is None:
            self._check(locked, "a kernel hung")

    def _lend(self, locked: locks.HeldDevice, host: KernelHost) -> None:
        locked.record(host.pid, host.host_run)
        self._adopt(host)

    def _check(self, locked: locks.HeldDevice, why: str) -> None:
        """Run the canary and, where it fails, the recovery steps.

        Raises DeviceSick: then this device does nothing more.
        """
        self._stage("canary")
        self._device_context.monitor.check(locked, why, tell=self._stage)

    def _adopt(self, host: KernelHost) -> None:
        self._host = host
        if self._stopping is not None:
            raise Stopped("stopped before the child was used")

    def _opened(self, host: KernelHost, lock_fd: int) -> ExecutorFailure | None:
        """Open the build and run the context's tests; return the reason where that fails."""
        try:
            host.open(self.chunk.build, lock_fd=lock_fd)
            for index in range(len(self.chunk.before)):
                self._stage("context")
                self._run_before(host, index)
        except (Stopped, HostUnavailable):
            raise
        except ExecutorFailure as problem:
            if self._stopping is not None:
                raise Stopped("stopped while the build was opened") from problem
            return problem
        return None

    def _after_refusal(
        self, locked: locks.HeldDevice, problem: ExecutorFailure, place: Callable[[], Place]
    ) -> None:
        """Find out whether the build or the device is at fault for a build that can't be opened.

        The canary decides: only on a good device are all remaining seeds errors of the build.
        """
        self._check(locked, f"build {self.chunk.build} could not be opened")
        for work in self._pipeline.take_all():
            for artifact in self._evidence.log_of(work, problem.log_tail):
                self._batches.add_artifact(artifact)
            self._batches.add(
                failed(
                    work,
                    place(),
                    None,
                    "error",
                    f"build {self.chunk.build} can't be run: {problem}",
                )
            )

    def _run_before(self, host: KernelHost, index: int) -> None:
        """Run one test of the context.

        A failure of the test is part of the context; a test that kills the child is not.
        """
        test = self.chunk.before[index]
        inputs = shaped_inputs(test, quantise(test, generate(test, self.chunk.work[0][0])))
        expected = output_shapes(test, self._resolved.produced)
        slot = Slot(
            host.folder,
            f"before{index}",
            {name: array.shape for name, array in inputs.items()},
            expected,
        )
        slot.write(inputs)
        host.submit({"test": test.canonical(), "seed": self.chunk.work[0][0], **slot.request()})
        with contextlib.suppress(KernelError):
            host.receive(time.monotonic() + self.chunk.first_seed_deadline_s)
        slot.delete()
        self._pipeline.count_position()

    def _stage(self, stage: str) -> None:
        self._device_context.vitals.stage = stage
