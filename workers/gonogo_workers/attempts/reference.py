"""The reference build of a chunk, whose children run the seeds first.

So two builds never need one chip at the same time. A failure of the reference build never counts
against the kernel: a seed that it hangs, crashes or raises on is an `error` that names it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.judging import pairs
from gonogo.judging.judging import SeedJudgement
from gonogo_workers.attempts.context import DeviceContext
from gonogo_workers.attempts.pipeline import Failure, PendingSeed, Pipeline
from gonogo_workers.executors.base import Arrays, FloatArray
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.messages.batches import Batches
from gonogo_workers.messages.chunk import Chunk
from gonogo_workers.messages.rows import Place

Inputs = Mapping[str, NDArray[Any]]


class ReferencePipeline(Pipeline):
    """The reference build's runs, one for each seed; its outputs are kept until they are judged."""

    stage = "reference"

    def __init__(
        self,
        chunk: Chunk,
        reference: pairs.Reference,
        resolved: ResolvedBuild,
        context: DeviceContext,
        batches: Batches,
    ) -> None:
        super().__init__(chunk, resolved, context, batches)
        self.build, self.before, self._subject = reference.build, (), ""
        self._todo = deque((seed, 0) for seed in dict.fromkeys(seed for seed, _ in chunk.work))
        self._reference = pairs.Reference(reference.build, resolved.arithmetic, resolved.produced)
        self._by_seed: dict[int, dict[str, FloatArray]] = {}
        self.failures: dict[int, Failure] = {}
        """By seed."""
        self._one_at_a_time = threading.Lock()

    def fail(self, one: Failure) -> None:
        """Note that a seed has no reference."""
        message = f"reference build {self.build}: {one.message}"
        self.failures[one.work[0]] = Failure(one.work, one.place, message, log_tail=one.log_tail)

    def with_reference(
        self, judged: SeedJudgement, seed: int, raw: Inputs, given: Inputs, outputs: Arrays
    ) -> SeedJudgement:
        """Return the judgement of a seed with the comparison with the reference build."""
        # One at a time: two large seeds would take twice the memory (2 GiB at 819x8462) and save no
        # time, since a comparison uses all cores
        with self._one_at_a_time, np.errstate(all="ignore"):
            return pairs.compare(
                self._test,
                judged,
                raw,
                given,
                outputs,
                self._by_seed[seed],
                self._reference,
            )

    def _judge(self, item: PendingSeed, place: Place, duration_ms: float | None) -> None:
        self._by_seed[item.work[0]] = self._outputs(item)
