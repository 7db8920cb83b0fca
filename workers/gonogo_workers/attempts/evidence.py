"""Artifacts of an attempt: error maps of the first and the worst seeds, logs of failed ones.

What a diagnosis needs is in the seed's row.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from gonogo.judging.error_maps import error_map
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Verdict
from gonogo.workloads import exact_outputs
from gonogo_workers.executors.base import FloatArray
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import Row, rank

log = logging.getLogger(__name__)

KEPT_BYTES = 2**30
"""Outputs of the worst seeds that stay in memory until the attempt's end; more are dropped."""
MAX_LOGS = 3

Artifact = dict[str, Any]
Outputs = Mapping[str, FloatArray]


@dataclass(order=True)
class _Candidate:
    """A seed among the worst so far, with its outputs."""

    rank: tuple[int, float]
    order: int
    work: Work = field(compare=False)
    outputs: Outputs = field(compare=False)


class Evidence:
    """Chooses the seeds of one attempt that get artifacts.

    Used by one thread at a time, except `of_seed`, which is pure.
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._worst: list[_Candidate] = []
        self._seen = 0
        self._logs = 0
        self._first: Work | None = None

    def wants_first(self, work: Work) -> bool:
        """Return whether this seed, just judged, is the first of the attempt.

        The first gets its artifacts now.
        """
        if self._first is not None or not self._chunk.evidence_first:
            return False
        self._first = work
        return True

    def consider(self, work: Work, row: Row, outputs: Outputs) -> None:
        """Keep the outputs if the seed is among the worst so far; a seed that passes never is."""
        self._seen += 1
        size = sum(array.nbytes for array in outputs.values())
        if (
            row["verdict"] == Verdict.pass_.value
            or size * max(1, self._chunk.evidence_worst) > KEPT_BYTES
        ):
            return
        if work != self._first and self._chunk.evidence_worst:
            # -seen: among equally bad seeds the earliest stays
            heapq.heappush(self._worst, _Candidate(rank(row), -self._seen, work, outputs))
            if len(self._worst) > self._chunk.evidence_worst:
                heapq.heappop(self._worst)

    def log_of(self, work: Work, tail: str) -> Iterator[Artifact]:
        """Yield the log of a failed seed, for the first few of an attempt."""
        if tail and self._logs < MAX_LOGS:
            self._logs += 1
            yield _artifact("log", work, None, {"text": tail})

    def worst(self) -> Iterator[Artifact]:
        """Yield the artifacts of the worst seeds, worst first; their inputs are generated again."""
        test = self._chunk.test
        assert isinstance(test, TestSpec)
        for candidate in sorted(self._worst, reverse=True):
            yield from of_seed(
                test,
                candidate.work,
                quantise(test, generate(test, candidate.work[0])),
                candidate.outputs,
            )


def of_seed(
    test: TestSpec, work: Work, given: Mapping[str, NDArray[Any]], outputs: Outputs
) -> list[Artifact]:
    """Return the error map of each output of one seed; a downstream output has none.

    Never raises: evidence must not cost a result.
    """
    artifacts: list[Artifact] = []
    try:
        references = exact_outputs(test, given)
        for name in (name for name in test.outputs if name in outputs):
            shape = test.matrix_shape_of(name)
            content = error_map(
                outputs[name].reshape(shape), references[name].reshape(shape), test.numerics.output
            ).to_json()
            artifacts.append(_artifact("error_map", work, name, content))
    except Exception:  # a bug in GoNoGo, logged with its trace
        log.exception("no evidence for seed %s: %s", work[0], test.key)
    return artifacts


def _artifact(kind: str, work: Work, output: str | None, content: Mapping[str, Any]) -> Artifact:
    return {"kind": kind, "seed": work[0], "repeat": work[1], "output": output, "content": content}
