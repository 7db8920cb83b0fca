"""Error maps of the arrays that tests handed over, for the first and the worst iterations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gonogo.judging.judging import SeedJudgement
from gonogo.judging.stored_tensors import Tensors
from gonogo.reports.texts import short_name
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_workers.attempts.evidence import KEPT_BYTES, Artifact, Evidence, of_seed
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import rank

MAX_MAPPED = 4
"""Tests of one iteration that get error maps."""


@dataclass(frozen=True)
class JudgedArrays:
    """The judged arrays of one test, with what an error map needs."""

    name: str
    test: TestSpec
    judgement: SeedJudgement
    given: Tensors
    outputs: Tensors

    @property
    def nbytes(self) -> int:
        """The size of the arrays in memory."""
        return sum(array.nbytes for array in (*self.given.values(), *self.outputs.values()))


class ReportEvidence:
    """Chooses the iterations of one attempt that get artifacts.

    Used by one thread at a time, except `of`, which is pure.
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._logs = Evidence(chunk)
        self._first: Work | None = None
        self._worst: list[tuple[tuple[int, float], Work, list[JudgedArrays]]] = []

    def wants_first(self, work: Work) -> bool:
        """Return whether this iteration, just judged, is the first of the attempt.

        The first gets its artifacts now.
        """
        if self._first is not None or not self._chunk.evidence_first:
            return False
        self._first = work
        return True

    def consider(self, work: Work, judged: Sequence[JudgedArrays]) -> None:
        """Keep the arrays if the iteration is among the worst so far.

        An iteration that rounding explains never is.
        """
        wrong = _worst_of(judged)
        if (
            not wrong
            or not self._chunk.evidence_worst
            or sum(arrays.nbytes for arrays in wrong) * self._chunk.evidence_worst > KEPT_BYTES
        ):
            return
        self._worst.append((_rank(wrong[0]), work, wrong))
        # The sort is stable: among equally bad iterations the earliest stays
        self._worst.sort(key=lambda entry: entry[0], reverse=True)
        del self._worst[self._chunk.evidence_worst :]

    def log_of(self, work: Work, tail: str) -> Iterator[Artifact]:
        """Yield the log of an iteration that failed, for the first few of an attempt."""
        yield from self._logs.log_of(work, tail)

    def worst(self) -> Iterator[Artifact]:
        """Yield the artifacts of the worst iterations, worst first."""
        for _, work, judged in self._worst:
            yield from self.of(work, judged)

    def of(self, work: Work, judged: Sequence[JudgedArrays]) -> Iterator[Artifact]:
        """Yield the error maps of one iteration: of wrong outputs, else of the first arrays."""
        for arrays in _worst_of(judged) or judged[:1]:
            answers = arrays.judgement.outputs
            wrong = {name for name in answers if answers[name].verdict is not Verdict.pass_}
            outputs = {
                name: array for name, array in arrays.outputs.items() if not wrong or name in wrong
            }
            for artifact in of_seed(arrays.test, work, arrays.given, outputs):
                label = short_name(f"{arrays.name}/{artifact['output']}")
                yield {**artifact, "output": label}


def _worst_of(judged: Sequence[JudgedArrays]) -> list[JudgedArrays]:
    """Return the arrays that rounding doesn't explain, worst first, at most MAX_MAPPED."""
    wrong = [
        arrays
        for arrays in judged
        if arrays.judgement.explanation in (Explanation.unexplained, Explanation.suspect)
    ]
    return sorted(wrong, key=_rank, reverse=True)[:MAX_MAPPED]


def _rank(arrays: JudgedArrays) -> tuple[int, float]:
    return rank(arrays.judgement.to_json())
