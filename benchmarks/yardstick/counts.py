"""Count what each gate makes of the results: caught mutants and false alarms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from benchmarks.yardstick.bench import Result, Showing
from gonogo.gauge.gates import GATES
from gonogo.gauge.rates import Rate
from gonogo.gauge.report import gate_passes
from gonogo.spec.verdicts import Explanation

UNEXPLAINED = "GoNoGo: unexplained"
SUSPECT = "GoNoGo: unexplained or suspect"
JUDGES = (UNEXPLAINED, SUSPECT, *GATES)
"""Whoever judges: our verdict on one seed, strict and with what asks for more seeds, and gates."""


@dataclass
class Count:
    """The runs that a judge rejects, of those that it judges."""

    rejected: int = 0
    of: int = 0

    def add(self, passes: bool) -> None:
        """Count one run."""
        self.rejected += not passes
        self.of += 1

    @property
    def rate(self) -> Rate:
        """The share, with its interval."""
        return Rate(self.rejected, self.of)


@dataclass
class Counts:
    """One judge: plain and faint mutants that it rejects, right kernels that it rejects."""

    plain: Count = field(default_factory=Count)
    faint: Count = field(default_factory=Count)
    right: Count = field(default_factory=Count)

    def count_of(self, showing: Showing | None) -> Count | None:
        """Return the count that a run belongs to; None for one that doesn't count."""
        counts = {None: self.right, Showing.plain: self.plain, Showing.faint: self.faint}
        return counts.get(showing)


def passes(judge: str, result: Result) -> bool | None:
    """Return whether a judge passes a run; None where it doesn't judge this kernel or format.

    A gate that compares only some outputs is asked about kernels that have one of them. Where it
    passes a fault in another output, it has missed it.
    """
    if judge in (UNEXPLAINED, SUSPECT):
        explanation = result.row["explanation"]
        rejecting = {Explanation.unexplained.value}
        if judge == SUSPECT:
            rejecting.add(Explanation.suspect.value)
        return explanation not in rejecting
    gate = GATES[judge]
    if not gate.judges(result.kind, result.output_format):
        return None
    return gate_passes(gate, result.row)


def counted(results: Iterable[Result]) -> Mapping[str, Counts]:
    """Return the counts of every judge."""
    counts = {judge: Counts() for judge in JUDGES}
    for result in results:
        for judge, judged in counts.items():
            count = judged.count_of(result.showing)
            answer = passes(judge, result)
            if count is not None and answer is not None:
                count.add(answer)
    return counts
