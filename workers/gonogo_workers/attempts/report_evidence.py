"""Artifacts of the arrays that tests handed over: which term is wrong in which test, for the first
and the worst iterations.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.judging.judging import SeedJudgement
from gonogo.judging.stored_tensors import Tensors
from gonogo.reports.texts import short_name
from gonogo.spec.diagnoses import beside
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_workers.attempts.evidence import KEPT_BYTES, Artifact, Evidence, of_seed
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import rank

log = logging.getLogger(__name__)

MOST_DIAGNOSED = 4
"""Tests of one iteration that get a diagnosis, each about a second of host work."""


@dataclass(frozen=True)
class Found:
    """Arrays of one test, judged, with what a diagnosis needs."""

    name: str
    test: TestSpec
    judgement: SeedJudgement
    given: Tensors
    outputs: Tensors

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in (*self.given.values(), *self.outputs.values()))


class ReportEvidence:
    """Chooses the iterations of one attempt that get artifacts. Used by one thread at a time,
    except `of`, which is pure.
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._logs = Evidence(chunk)
        self._first: Work | None = None
        self._worst: list[tuple[tuple[int, float], Work, list[Found]]] = []

    def wants_first(self, work: Work) -> bool:
        """Whether this iteration, just judged, is the attempt's first and gets its artifacts
        now.
        """
        if self._first is not None or not self._chunk.evidence_first:
            return False
        self._first = work
        return True

    def consider(self, work: Work, found: Sequence[Found]) -> None:
        """Keep the arrays if the iteration is among the worst so far. One that is explained is no
        evidence of anything.
        """
        wrong = worst_of(found)
        if (
            not wrong
            or not self._chunk.evidence_worst
            or sum(each.nbytes for each in wrong) * self._chunk.evidence_worst > KEPT_BYTES
        ):
            return
        self._worst.append((_rank(wrong[0]), work, wrong))
        self._worst.sort(
            key=lambda each: each[0], reverse=True
        )  # stable: of equally bad ones the earliest is kept
        del self._worst[self._chunk.evidence_worst :]

    def log_of(self, work: Work, tail: str) -> Iterator[Artifact]:
        """The log of an iteration that failed, for the first few of an attempt."""
        yield from self._logs.log_of(work, tail)

    def worst(self) -> Iterator[Artifact]:
        """The artifacts of the worst iterations, worst first."""
        for _, work, found in self._worst:
            yield from self.of(work, found)

    def of(self, work: Work, found: Sequence[Found]) -> list[Artifact]:
        """The artifacts of one iteration: one diagnosis for all its tests, coefficients and error
        maps of each output.
        """
        diagnoses: list[tuple[str, Mapping[str, Any]]] = []
        artifacts: list[Artifact] = []
        for each in worst_of(found) or list(found[:1]):
            wrong = {
                name
                for name, said in each.judgement.outputs.items()
                if said.verdict is not Verdict.pass_
            }
            for artifact in of_seed(each.test, work, each.given, each.outputs):
                if wrong and artifact["output"] is not None and artifact["output"] not in wrong:
                    continue  # what passes is no evidence of anything
                if artifact["kind"] == "diagnosis":
                    diagnoses.append(
                        (each.name, beside(artifact["content"], each.judgement.explanation))
                    )
                else:
                    artifacts.append(
                        {**artifact, "output": short_name(f"{each.name}/{artifact['output']}")}
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


def worst_of(found: Sequence[Found]) -> list[Found]:
    """The arrays that rounding doesn't explain, worst first, as many as are diagnosed."""
    wrong = [
        each
        for each in found
        if each.judgement.explanation in (Explanation.unexplained, Explanation.suspect)
    ]
    return sorted(wrong, key=_rank, reverse=True)[:MOST_DIAGNOSED]


def joined(diagnoses: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """One diagnosis of several tests: each term and each sentence says whose it is."""
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
        "residuals": {
            f"{name}/{output}": each
            for name, content in diagnoses
            for output, each in (content.get("residuals") or {}).items()
        },
    }


def _rank(found: Found) -> tuple[int, float]:
    serious = found.judgement.verdict is not Verdict.pass_
    order, ratio = rank(
        {
            "explanation": found.judgement.explanation.value,
            "outputs": found.judgement.to_json()["outputs"],
        }
    )
    return order + int(serious), ratio
