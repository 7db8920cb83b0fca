"""Artifacts of the arrays that tests handed over, for the first and the worst iterations.

They show which term is wrong in which test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.judging.judging import SeedJudgement
from gonogo.judging.stored_tensors import Tensors
from gonogo.reports.texts import short_name
from gonogo.spec.diagnoses import consistent_diagnosis
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_workers.attempts.evidence import KEPT_BYTES, Artifact, Evidence, of_seed
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import rank

MAX_DIAGNOSED = 4
"""Tests of one iteration that get a diagnosis; each costs about a second of host work."""


@dataclass(frozen=True)
class JudgedArrays:
    """The judged arrays of one test, with the data that a diagnosis needs."""

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
        wrong = worst_of(judged)
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

    def of(self, work: Work, judged: Sequence[JudgedArrays]) -> list[Artifact]:
        """Return the artifacts of one iteration.

        They are one diagnosis for all its tests, and coefficients and error maps of each output.
        """
        diagnoses: list[tuple[str, Mapping[str, Any]]] = []
        artifacts: list[Artifact] = []
        for arrays in worst_of(judged) or list(judged[:1]):
            wrong = {
                name
                for name, judgement in arrays.judgement.outputs.items()
                if judgement.verdict is not Verdict.pass_
            }
            for artifact in of_seed(arrays.test, work, arrays.given, arrays.outputs):
                if wrong and artifact["output"] is not None and artifact["output"] not in wrong:
                    continue  # an output that passes is no evidence
                if artifact["kind"] == "diagnosis":
                    diagnoses.append(
                        (
                            arrays.name,
                            consistent_diagnosis(
                                artifact["content"],
                                arrays.judgement.explanation,
                                {
                                    name: output.statistics
                                    for name, output in arrays.judgement.outputs.items()
                                },
                            ),
                        )
                    )
                else:
                    artifacts.append(
                        {**artifact, "output": short_name(f"{arrays.name}/{artifact['output']}")}
                    )
        if diagnoses:
            artifacts.insert(
                0,
                {
                    "kind": "diagnosis",
                    "seed": work[0],
                    "repeat": work[1],
                    "output": None,
                    "content": joined(diagnoses),
                },
            )
        return artifacts


def worst_of(judged: Sequence[JudgedArrays]) -> list[JudgedArrays]:
    """Return the arrays that rounding doesn't explain, worst first, at most MAX_DIAGNOSED."""
    wrong = [
        arrays
        for arrays in judged
        if arrays.judgement.explanation in (Explanation.unexplained, Explanation.suspect)
    ]
    return sorted(wrong, key=_rank, reverse=True)[:MAX_DIAGNOSED]


def joined(diagnoses: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return one diagnosis of several tests; each term and each sentence names its test."""
    terms = [
        {**term, "output": f"{name}/{term['output']}"}
        for name, content in diagnoses
        for term in content.get("terms", ())
    ]
    words = [f"{name}: {content['words']}" for name, content in diagnoses if content.get("words")]
    return {
        "terms": terms,
        "words": "; ".join(words),
        "can_tell": all(content.get("can_tell", True) for _, content in diagnoses),
        "faults": {
            f"{name}/{output}": words
            for name, content in diagnoses
            for output, words in content.get("faults", {}).items()
        },
        "residuals": {
            f"{name}/{output}": residual
            for name, content in diagnoses
            for output, residual in (content.get("residuals") or {}).items()
        },
    }


def _rank(arrays: JudgedArrays) -> tuple[int, float]:
    return rank(arrays.judgement.to_json())
