"""One attempt at a chunk: the chip's lock, fresh children, the seeds, and a last message that says what was sent."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from gonogo.inputs import generate, quantise
from gonogo.problems import InfrastructureError
from workers import queue
from workers.batches import Batches
from workers.chunk import Chunk
from workers.devices import locks
from workers.devices.discovery import Device
from workers.devices.health import canary
from workers.evidence import Evidence
from workers.executors.base import ExecutorFailure, HostUnavailable, KernelError, Stopped, output_shapes, shaped_inputs
from workers.executors.kernel_host import KernelHost
from workers.executors.meanings import Meaning
from workers.executors.pool import HostPool
from workers.executors.slots import Slot
from workers.heartbeat import Vitals
from workers.pipeline import ChildLost, Pipeline
from workers.postman import Postman
from workers.reference import References
from workers.rows import Place, failed
from workers.threads import Threads

log = logging.getLogger(__name__)

SPARE_AFTER_S = 3.0
"""A chunk that runs this long starts its successor's child while it runs; a shorter one at its end, so as not to take its processor."""
LAST_JUDGEMENTS_S = 1.0
"""How long a stopped attempt waits for the seeds that are being judged: the others are run again elsewhere."""
BARREN_CHILDREN = 3


class Outcome(StrEnum):
    """How an attempt ended."""

    done = "done"
    """Every seed was sent, with or without numbers."""
    cancelled = "cancelled"
    """The job's cancel key was there."""
    handed_back = "handed_back"
    """This worker is shutting down; what is missing must be run by another."""
    error = "error"
    """The device, the child process or this host failed; what is missing may be tried again."""


@dataclass(frozen=True)
class Bench:
    """What a worker lends its attempts: the device and its lock folder, spare children, threads, the postman, the heartbeat's facts."""

    worker: str
    device: Device
    lock_folder: Path
    pool: HostPool
    threads: Threads
    postman: Postman
    vitals: Vitals


class Attempt:
    """Runs one chunk. `run` belongs to one thread; `stop` may come from any."""

    def __init__(self, chunk: Chunk, meaning: Meaning, bench: Bench, reference: Meaning | None = None) -> None:
        self.chunk = chunk
        self._meaning = meaning
        self._bench = bench
        self._stopping: Outcome | None = None
        self._stop_event = threading.Event()
        self._host: KernelHost | None = None
        self._dismissed: KernelHost | None = None
        """The last child, on its way out; waited for when everything else is done."""
        self._batches = Batches(bench.postman, chunk.attempt)
        self._evidence = Evidence(chunk)
        self._pipeline = Pipeline(chunk, meaning, bench.device.identity, bench.threads, self._batches, self._evidence, bench.vitals)
        self._log_tail = ""
        self._references: References | None = None
        if chunk.reference is not None and reference is not None:
            self._references = References(chunk, chunk.reference, reference)
            self._pipeline.compare = self._references.compare

    def stop(self, outcome: Outcome) -> None:
        """End soon: `cancelled` at once, `handed_back` after the seed in hand, if that is quick. The first reason stays."""
        if self._stopping is None:
            self._stopping = outcome
        self._stop_event.set()
        at_once = self._pipeline.stop(graceful=self._stopping is Outcome.handed_back)
        host = self._host
        if at_once and host is not None:
            host.stop()

    def run(self) -> Outcome:
        """Run the chunk to its end, whatever happens: every way out sends `finished`."""
        outcome, error = Outcome.done, None
        self._bench.vitals.begin(self.chunk.attempt)
        try:
            self._run()
        except (Stopped, locks.LockedElsewhere):
            outcome = self._stopping or Outcome.error
        except InfrastructureError as problem:
            outcome, error = self._stopping or Outcome.error, str(problem)
            self._log_tail = getattr(problem, "log_tail", "") or self._log_tail
            log.error("attempt %s: %s", self.chunk.attempt, problem)
        except Exception as problem:
            outcome, error = Outcome.error, f"bug in the worker: {type(problem).__name__}: {problem}"
            log.exception("attempt %s: a bug in the worker", self.chunk.attempt)
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
        held = locks.acquire(self._bench.lock_folder, device.identity.split("/", 1)[1], lambda: self._stopping is None, self._stop_event)
        try:
            if held.left_over:
                self._stage("canary")
                canary(self._meaning)
            if self._references is not None:
                self._run_references(self._references, held)
            barren = 0
            while self._pipeline.has_work:
                self._one_child(held)
                barren = 0 if self._pipeline.answered or not self._pipeline.has_work else barren + 1
                if barren == BARREN_CHILDREN:
                    raise HostUnavailable(f"{barren} child processes in a row ended before they ran a seed", self._log_tail)
        finally:
            held.close()
        # The chip is free for others from here on; what is left is host work
        self._stage("judging")
        self._pipeline.finish()

    def _run_references(self, references: References, held: locks.HeldDevice) -> None:
        """Have the reference build run every seed; those that it fails on are errors, and this build does not run them."""
        self._stage("reference")
        try:
            references.run(held, self._bench.pool, self._bench.threads, self._bench.vitals, self._adopt)
        finally:
            self._host = None
        references.fail(self._pipeline, self._batches, self._evidence, self._bench.device.identity)
        if references.lost:
            self._stage("canary")
            canary(self._meaning)

    def _one_child(self, held: locks.HeldDevice) -> None:
        """Run seeds in one fresh child until all are done or the child is lost."""
        self._stage("starting")
        began = time.monotonic()
        executor, environment = self._meaning.executor, self._meaning.environment
        host = self._bench.pool.take(executor, environment, started=self._adopt)
        clean = False
        try:
            held.record(host.pid, host.host_run)
            place = self._pipeline.begin(host)
            if not self._opened(host, held.fd, place):
                return
            self._stage("running")

            def tend() -> None:
                if time.monotonic() - began > SPARE_AFTER_S:
                    self._bench.pool.prepare(executor, environment)

            self._pipeline.drive(host, tend)
            clean = True
        except ChildLost as loss:
            log.warning("attempt %s: %s", self.chunk.attempt, loss)
        finally:
            self._log_tail = host.log.tail()
            self._host = None
            if clean:
                host.dismiss()
                self._dismissed = host
            else:
                host.kill()

    def _adopt(self, host: KernelHost) -> None:
        self._host = host
        if self._stopping is not None:
            raise Stopped("stopped before the child was used")

    def _opened(self, host: KernelHost, lock_fd: int, place: Callable[[], Place]) -> bool:
        """Open the build and run the context's tests. False: that can't be done, and every seed left says so."""
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
            for work in self._pipeline.take_all():
                for artifact in self._evidence.log_of(work, problem.log_tail):
                    self._batches.add_artifact(artifact)
                self._batches.add(failed(work, place(), None, "error", f"build {self.chunk.build} can't be run: {problem}"))
            return False
        return True

    def _run_before(self, host: KernelHost, index: int) -> None:
        """Run one test of the context. That it fails is part of the context; that it kills the child is not."""
        test = self.chunk.before[index]
        inputs = shaped_inputs(test, quantise(test, generate(test, self.chunk.work[0][0])))
        expected = output_shapes(test, self._meaning.produced)
        slot = Slot(host.folder, f"before{index}", {name: array.shape for name, array in inputs.items()}, expected)
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
