"""One attempt at a chunk: the chip's lock, fresh children, the seeds, and a last message that says
what was sent.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from gonogo.errors import InfrastructureError
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from gonogo_workers import queue
from gonogo_workers.attempts.lost_child import ChildLost, Hang
from gonogo_workers.attempts.pipeline import HAND_BACK_GRACE_S
from gonogo_workers.attempts.reference import References
from gonogo_workers.attempts.report_pipeline import parts_for
from gonogo_workers.devices import hang, locks
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health import DeviceSick
from gonogo_workers.devices.keeper import Keeper
from gonogo_workers.executors.base import (
    ExecutorFailure,
    HostUnavailable,
    KernelError,
    Stopped,
    output_shapes,
    shaped_inputs,
)
from gonogo_workers.executors.builds_file import Meaning
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.pool import HostPool
from gonogo_workers.executors.slots import Slot
from gonogo_workers.executors.threads import Threads
from gonogo_workers.messages.batches import Batches
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.heartbeat import Vitals
from gonogo_workers.messages.result_sender import Postman
from gonogo_workers.messages.rows import Place, failed

log = logging.getLogger(__name__)

SPARE_AFTER_S = 3.0
"""A chunk that runs this long starts its successor's child while it runs; a shorter one at its end,
so as not to take its processor."""
LAST_JUDGEMENTS_S = 1.0
"""How long a stopped attempt waits for the seeds that are being judged: the others are run again
elsewhere."""
BARREN_CHILDREN = 3


class Outcome(StrEnum):
    """How an attempt ended."""

    done = "done"
    """Every seed was sent, with or without numbers."""
    cancelled = "cancelled"
    """The job's cancel key was there."""
    handed_back = "handed_back"
    """This worker is shutting down, or its device fell ill or is wanted for something else; what is
    missing must be run by another."""
    error = "error"
    """The device, the child process or this host failed; what is missing may be tried again."""


@dataclass(frozen=True)
class Bench:
    """What a worker lends its attempts: the device and its lock folder, spare children, threads,
    the postman, the heartbeat's facts.
    """

    worker: str
    device: Device
    lock_folder: Path
    pool: HostPool
    threads: Threads
    postman: Postman
    vitals: Vitals
    keeper: Keeper
    telemetry: Callable[[], Mapping[str, Any]]
    """The chip's latest temperature, clock, power and firmware; asking for it makes it new again
    soon."""
    chunk_deadline_s: float
    tt_triage: str | None


class Attempt:
    """Runs one chunk. `run` belongs to one thread; `stop` may come from any."""

    def __init__(
        self, chunk: Chunk, meaning: Meaning, bench: Bench, reference: Meaning | None = None
    ) -> None:
        self.chunk = chunk
        self._meaning = meaning
        self._bench = bench
        self._stopping: Outcome | None = None
        self._stop_event = threading.Event()
        self._host: KernelHost | None = None
        self._dismissed: KernelHost | None = None
        """The last child, on its way out; waited for when everything else is done."""
        self._batches = Batches(bench.postman, chunk.attempt)
        self._evidence, self._pipeline = parts_for(
            chunk, meaning, bench.device.identity, bench.threads, self._batches, bench.vitals
        )
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
        """End soon: `cancelled` at once, `handed_back` after the seed in hand, if that takes at
        most `grace_s`. The first reason stays.
        """
        if self._stopping is None:
            self._stopping, self._error = outcome, error
        self._stop_event.set()
        at_once = self._pipeline.stop(grace_s if self._stopping is Outcome.handed_back else 0.0)
        host = self._host
        if at_once and host is not None:
            host.stop()

    def run(self) -> Outcome:
        """Run the chunk to its end, whatever happens: every way out sends `finished`."""
        outcome, error = Outcome.done, None
        self._bench.vitals.begin(self.chunk.attempt)
        self._bench.telemetry()
        too_long = f"the attempt took longer than {self._bench.chunk_deadline_s:g} s"
        alarm = threading.Timer(
            self._bench.chunk_deadline_s, self.stop, (Outcome.error, 0.0, too_long)
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
                f"bug in the worker: {type(problem).__name__}: {problem}",
            )
            log.exception("attempt %s: a bug in the worker", self.chunk.attempt)
        alarm.cancel()
        with contextlib.suppress(Exception):
            self._pipeline.drain(LAST_JUDGEMENTS_S)
        self._batches.flush()
        self._bench.postman.post(
            queue.BACKGROUND_QUEUE,
            queue.FINISHED,
            {
                "attempt": self.chunk.attempt,
                "outcome": outcome.value,
                "sent": [list(work) for work in self._batches.sent],
                "batches": self._batches.count,
                "log_tail": self._log_tail,
                "error": error,
                "telemetry": dict(self._bench.telemetry()),
            },
        )
        if self._dismissed is not None:
            self._dismissed.close()
        if self._stopping is None:
            self._bench.pool.prepare(self._meaning.executor, self._meaning.environment)
        self._bench.vitals.end()
        return outcome

    def _run(self) -> None:
        device = self._bench.device
        self._stage("waiting for the device")
        self._send_started()
        held = locks.acquire(
            self._bench.lock_folder, device.name, lambda: self._stopping is None, self._stop_event
        )
        try:
            why = (
                "its last user did not end properly" if held.left_over else self._bench.keeper.due()
            )
            if why:
                self._check(held, why)
            self._bench.keeper.ran()
            if self._references is not None:
                self._run_references(self._references, held)
            barren = 0
            while self._pipeline.has_work:
                self._one_child(held)
                barren = 0 if self._pipeline.answered or not self._pipeline.has_work else barren + 1
                if barren == BARREN_CHILDREN:
                    raise HostUnavailable(
                        f"{barren} child processes in a row ended before they ran a seed",
                        self._log_tail,
                    )
        finally:
            held.close()
        # The chip is free for others from here on; what is left is host work
        self._stage("judging")
        self._pipeline.finish()

    def _run_references(self, references: References, held: locks.HeldDevice) -> None:
        """Have the reference build run every seed; those that it fails on are errors, and this
        build does not run them.
        """
        self._stage("reference")
        try:
            references.run(
                held, self._bench.pool, self._bench.threads, self._bench.vitals, self._adopt
            )
        finally:
            self._host = None
        references.fail(
            self._pipeline, self._batches, self._evidence.log_of, self._bench.device.identity
        )
        if references.lost:
            self._check(held, "a kernel of the reference build hung or died")

    def _one_child(self, held: locks.HeldDevice) -> None:
        """Run seeds in one fresh child until all are done or the child is lost."""
        self._stage("starting")
        began = time.monotonic()
        executor, environment = self._meaning.executor, self._meaning.environment
        host = self._bench.pool.take(executor, environment, started=self._adopt)
        clean, hung, refused = False, None, None
        try:
            held.record(host.pid, host.host_run)
            place = self._pipeline.begin(host)
            refused = self._opened(host, held.fd)
            if refused is None:
                self._stage("running")

                def tend() -> None:
                    if time.monotonic() - began > SPARE_AFTER_S:
                        self._bench.pool.prepare(executor, environment)

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
                self._bench.keeper.doubt("its last kernel did not end properly")
                host.kill()
        if hung is not None:
            self._after_hang(held, hung)
        elif refused is not None:
            self._after_refusal(held, refused, place)

    def _triage(self, work: Work) -> None:
        """The device's state as tt-triage sees it, while the process still hangs."""
        self._stage("triage")
        found = hang.triage(self._bench.tt_triage, self._meaning, self._bench.device.places)
        if found is not None:
            self._batches.add_artifact(
                {
                    "kind": "triage",
                    "seed": work[0],
                    "repeat": work[1],
                    "output": None,
                    "content": found,
                }
            )

    def _after_hang(self, held: locks.HeldDevice, hung: Hang) -> None:
        """The hung seed's row, with what a second run under the watcher shows; then the canary,
        before anything else runs.
        """
        found = hang.Examined()
        try:
            if self._stopping is None and hang.watcher_environment(self._meaning):
                self._check(held, "a kernel hung")  # a wedged chip would only hang again
                self._stage("watcher")
                found = hang.again(
                    self.chunk,
                    hung.work,
                    self._meaning,
                    held.fd,
                    started=lambda host: self._lend(held, host),
                )
        finally:
            self._host = None
            for artifact in found.artifacts:
                self._batches.add_artifact(artifact)
            self._pipeline.fail_hung(hung, found.words)
        if self._stopping is None:
            self._check(held, "a kernel hung")

    def _lend(self, held: locks.HeldDevice, host: KernelHost) -> None:
        held.record(host.pid, host.host_run)
        self._adopt(host)

    def _check(self, held: locks.HeldDevice, why: str) -> None:
        """Canary and ladder. Raises DeviceSick: then this device does nothing more."""
        self._stage("canary")
        self._bench.keeper.check(held, why, tell=self._stage)

    def _adopt(self, host: KernelHost) -> None:
        self._host = host
        if self._stopping is not None:
            raise Stopped("stopped before the child was used")

    def _opened(self, host: KernelHost, lock_fd: int) -> ExecutorFailure | None:
        """Open the build and run the context's tests; why that can't be done."""
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
        self, held: locks.HeldDevice, problem: ExecutorFailure, place: Callable[[], Place]
    ) -> None:
        """The build, or the device? The canary decides: only on a device that is well every seed
        left is the build's error.
        """
        self._check(held, f"build {self.chunk.build} could not be opened")
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
        """Run one test of the context. That it fails is part of the context; that it kills the
        child is not.
        """
        test = self.chunk.before[index]
        inputs = shaped_inputs(test, quantise(test, generate(test, self.chunk.work[0][0])))
        expected = output_shapes(test, self._meaning.produced)
        slot = Slot(
            host.folder,
            f"before{index}",
            {name: array.shape for name, array in inputs.items()},
            expected,
        )
        slot.write(inputs)
        host.submit({"test": test.canonical(), "seed": self.chunk.work[0][0], **slot.request()})
        with contextlib.suppress(KernelError):
            host.receive(time.monotonic() + self.chunk.seed_deadline_s)
        slot.delete()
        self._pipeline.count_position()

    def _send_started(self) -> None:
        device = self._bench.device
        body: dict[str, Any] = {
            "attempt": self.chunk.attempt,
            "worker": self._bench.worker,
            "device": device.identity,
            "host": device.host,
            "host_run": None,
            "at": time.time(),
        }
        self._bench.postman.post(queue.HEARTBEAT_QUEUE, queue.STARTED, body)

    def _stage(self, stage: str) -> None:
        self._bench.vitals.stage = stage
