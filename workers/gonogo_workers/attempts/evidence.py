"""Artifacts of an attempt: error maps of the first and the worst seeds, logs of failed ones.

What a diagnosis needs is in the seed's row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from gonogo.judging.error_maps import error_map
from gonogo.judging.inputs import generate, quantise
from gonogo.reports.texts import short_name
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import artifact

log = logging.getLogger(__name__)

KEPT_BYTES = 2**30
"""Arrays of the worst seeds that stay in memory until the attempt's end; more are dropped."""
MAX_LOGS = 3

Artifact = dict[str, Any]
Tensors = Mapping[str, NDArray[Any]]
Rank = tuple[int, float]
"""gonogo_workers.messages.rows.rank: larger is worse."""


@dataclass(frozen=True)
class Shown:
    """The arrays of one run of a kernel, for its error maps."""

    test: TestSpec
    outputs: Tensors
    given: Tensors | None
    """The inputs; None where they are drawn again from the seed."""
    label: str = ""
    """The prefix of its outputs' names: the test that handed the arrays over."""

    @property
    def nbytes(self) -> int:
        """The size of the arrays in memory."""
        arrays = (*self.outputs.values(), *(self.given or {}).values())
        return sum(array.nbytes for array in arrays)

    def maps(self, work: Work) -> Iterator[Artifact]:
        """Yield the error map of each output."""
        test, given = self.test, self.given
        if given is None:
            given = quantise(test, generate(test, work[0]))
        for one in of_seed(test, work, given, self.outputs):
            name = short_name(f"{self.label}/{one['output']}") if self.label else one["output"]
            yield {**one, "output": name}


class EvidenceChooser:
    """Chooses the seeds of one attempt that get artifacts. Used by one thread at a time."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._worst: list[tuple[Rank, Work, Sequence[Shown]]] = []
        self._logs = 0
        self._first: Work | None = None

    def wants_first(self, work: Work) -> bool:
        """Return whether this seed, just judged, is the attempt's first, which is shown now."""
        if self._first is not None or not self._chunk.evidence_first:
            return False
        self._first = work
        return True

    def consider(self, work: Work, rank: Rank, shown: Sequence[Shown]) -> None:
        """Keep the arrays if the seed is among the worst so far."""
        count = self._chunk.evidence_worst
        if isinstance(self._chunk.test, TestSpec):  # they are drawn again, which saves memory
            shown = [replace(arrays, given=None) for arrays in shown]
        if not count or sum(arrays.nbytes for arrays in shown) * count > KEPT_BYTES:
            return
        self._worst.append((rank, work, shown))
        # The sort is stable: among equally bad seeds the earliest stays
        self._worst.sort(key=lambda entry: entry[0], reverse=True)
        del self._worst[count:]

    def log_of(self, work: Work, tail: str) -> Iterator[Artifact]:
        """Yield the log of a failed seed, for the first few of an attempt."""
        if tail and self._logs < MAX_LOGS:
            self._logs += 1
            yield artifact("log", work, {"text": tail})

    def worst(self) -> Iterator[Artifact]:
        """Yield the artifacts of the worst seeds, worst first."""
        for _, work, shown in self._worst:
            for arrays in shown:
                yield from arrays.maps(work)


def of_seed(test: TestSpec, work: Work, given: Tensors, outputs: Tensors) -> list[Artifact]:
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
            artifacts.append(artifact("error_map", work, content, name))
    except Exception:  # a bug in GoNoGo, logged with its trace
        log.exception("no evidence for seed %s: %s", work[0], test.key)
    return artifacts
