"""The reference build of a chunk, whose children run the seeds first.

So two builds never need one chip at the same time. A failure of the reference build never counts
against the kernel: a seed that it hangs, crashes or raises on is an `error` that names it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.judging import pairs
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import SeedJudgement
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.attempts.evidence import Artifact
from gonogo_workers.attempts.heartbeat import Vitals
from gonogo_workers.attempts.pipeline import Pipeline
from gonogo_workers.devices.locks import HeldDevice
from gonogo_workers.executors.base import (
    Arrays,
    ExecutorFailure,
    FloatArray,
    HostUnavailable,
    KernelError,
    KernelHang,
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

log = logging.getLogger(__name__)

Inputs = dict[str, NDArray[Any]]


class References:
    """The reference build's outputs for the seeds of one attempt, kept until they are judged."""

    def __init__(
        self, chunk: Chunk, test: TestSpec, reference: pairs.Reference, resolved: ResolvedBuild
    ) -> None:
        self._chunk, self._test, self._resolved = chunk, test, resolved
        self._reference = pairs.Reference(reference.build, resolved.arithmetic, resolved.produced)
        self._todo = deque(dict.fromkeys(seed for seed, _ in chunk.work))
        self._outputs: dict[int, dict[str, FloatArray]] = {}
        self._failures: dict[int, tuple[str, str, str]] = {}
        self.lost = False
        """True when a child hung or died, which may have harmed the device."""
        self._one_at_a_time = threading.Lock()

    def run(
        self,
        locked: HeldDevice,
        pool: HostPool,
        threads: Threads,
        vitals: Vitals,
        started: Callable[[KernelHost], None],
    ) -> None:
        """Run every seed once. Raises Stopped or HostUnavailable.

        `started` receives each child, so that another thread can stop it.
        """
        while self._todo:
            host = pool.take(self._resolved.executor, self._resolved.environment, started=started)
            try:
                locked.record(host.pid, host.host_run)
                self._one_child(host, locked.fd, threads, vitals)
                host.close()  # it releases the device before the next child opens it
            finally:
                host.kill()

    def fail(
        self,
        pipeline: Pipeline,
        batches: Batches,
        log_of: Callable[[Work, str], Iterable[Artifact]],
        device: str,
    ) -> None:
        """Remove the seeds without a reference from the pipeline.

        Each gets a row with the reason.
        """
        for work in pipeline.withdraw(set(self._failures)):
            message, tail, host_run = self._failures[work[0]]
            for artifact in log_of(work, tail):
                batches.add_artifact(artifact)
            batches.add(
                failed(
                    work,
                    Place(device, host_run, 0),
                    None,
                    "error",
                    f"reference build {self._reference.build}: {message}",
                )
            )

    def compare(
        self, judged: SeedJudgement, seed: int, raw: Inputs, given: Inputs, outputs: Arrays
    ) -> SeedJudgement:
        """Return the judgement of a seed with the comparison with the reference build."""
        # One at a time: two large seeds would take twice the memory (2 GiB at 819x8462) and save no
        # time, since a comparison uses all cores
        with self._one_at_a_time, np.errstate(all="ignore"):
            return pairs.compare(
                self._test, judged, raw, given, outputs, self._outputs[seed], self._reference
            )

    def _one_child(self, host: KernelHost, lock_fd: int, threads: Threads, vitals: Vitals) -> None:
        """Run seeds in this child until none is left or it is lost."""
        test, deadline_s = self._test, self._chunk.first_seed_deadline_s
        try:
            host.open(self._reference.build, lock_fd=lock_fd)
        except (Stopped, HostUnavailable):
            raise
        except ExecutorFailure as problem:
            for seed in self._todo:
                self._failures[seed] = (f"can't be run: {problem}", problem.log_tail, host.host_run)
            self._todo.clear()
            return
        shapes = {name: test.shape_of(name) for name in test.input_names}
        slot = Slot(host.folder, "reference", shapes, output_shapes(test, self._resolved.produced))
        ahead = threads.submit(partial(self._inputs, self._todo[0]))
        while self._todo:
            seed, inputs = self._todo[0], ahead
            if len(self._todo) > 1:
                ahead = threads.submit(partial(self._inputs, self._todo[1]))
            vitals.seed = seed
            try:
                self._outputs[seed] = self._run(host, slot, seed, inputs, deadline_s)
            except (Stopped, HostUnavailable):
                raise
            except KernelError as problem:
                self._failures[seed] = (str(problem), problem.log_tail, host.host_run)
            except ExecutorFailure as problem:
                message = (
                    f"no answer within {deadline_s:g} s"
                    if isinstance(problem, KernelHang)
                    else str(problem)
                )
                log.warning("reference build %s, seed %s: %s", self._reference.build, seed, message)
                self._failures[seed] = (message, problem.log_tail, host.host_run)
                self._todo.popleft()
                self.lost = True
                host.kill()
                return
            self._todo.popleft()
            deadline_s = self._chunk.seed_deadline_s

    def _run(
        self, host: KernelHost, slot: Slot, seed: int, inputs: Future[Arrays], deadline_s: float
    ) -> dict[str, FloatArray]:
        slot.write(inputs.result())
        host.submit({"test": self._test.canonical(), "seed": seed, **slot.request()})
        host.receive(time.monotonic() + deadline_s)
        return slot.read()

    def _inputs(self, seed: int) -> Arrays:
        test = self._test
        return shaped_inputs(test, quantise(test, generate(test, seed)))
