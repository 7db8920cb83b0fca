"""The outputs of a job, the seeds to mark in its plot, and its worst seeds. Reads only.

Of a job with few seeds all are read. Otherwise only the worst seeds of each verdict are, by an
index. So a page reads what it shows, however many seeds there are. The totals are in the job's
roll-up (gonogo_service.results.rollups.rollups.of_job), which every function here takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.spec.statistics import ROLLED_UP
from gonogo.spec.verdicts import Verdict, worst_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.results import strips
from gonogo_service.results import worst_seeds as worst
from gonogo_service.results.rollups.tallies import WHOLE
from gonogo_service.results.rows import SeedResultRow
from gonogo_service.results.seed_rows import stored
from gonogo_service.results.seed_rows.layouts import KINDS, TAIL
from gonogo_service.results.seed_rows.stored import StoredSeed
from gonogo_service.results.strips import StripSeed
from gonogo_service.results.worst_seeds import RollUp


@dataclass(frozen=True)
class OutputRecord:
    """One output of a job: its seeds by verdict, and its largest rounding ratio."""

    output: str
    counts: Mapping[str, int]
    rounding_ratio: float | None


@dataclass(frozen=True)
class MarkRecord:
    """One output of one (seed, repeat), with every stored statistic."""

    seed: int
    repeat: int
    output: str
    verdict: str
    explanation: str | None
    device: str | None
    statistics: Mapping[str, Any]
    nonfinite: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SeedRecord:
    """One (seed, repeat) with all its outputs; `message` says what happened without numbers."""

    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    device: str | None
    position: int | None
    duration_ms: float | None
    message: str | None
    outputs: Mapping[str, MarkRecord]


def outputs(session: Session, job_id: str, rollup: RollUp) -> list[OutputRecord]:
    """Return the outputs that a job has numbers for, by name, each with its verdict counts.

    They come from the roll-up, which has no entries for existing tests. A job that isn't counted
    yet is read seed by seed.
    """
    if rollup is not None:
        return [
            OutputRecord(name, entry.counts, entry.sketch("rounding_ratio").largest)
            for name, entry in rollup.items()
            if name
        ]
    counts: dict[str, dict[str, int]] = {}
    ratios: dict[str, float | None] = {}
    of_job = stored.query(SeedResultRow.job_id == job_id)
    for seed in stored.read(session, of_job, "rounding_ratio"):
        for output, judged in seed.outputs.items():
            verdicts = counts.setdefault(output, {})
            verdicts[judged["verdict"]] = verdicts.get(judged["verdict"], 0) + 1
            known = [v for v in (ratios.get(output), judged["rounding_ratio"]) if v is not None]
            ratios[output] = max(known, default=None)
    return [OutputRecord(output, counts[output], ratios[output]) for output in sorted(counts)]


def mark_count(session: Session, job_id: str, output: str, rollup: RollUp) -> int:
    """Count the (seed, repeat) that have the output, or no numbers at all."""
    if rollup is not None and output in rollup and output:
        return rollup[output].seeds + rollup[WHOLE].empty
    seeds = stored.read(session, stored.query(SeedResultRow.job_id == job_id), "digest")
    return sum(output in seed.outputs or not seed.outputs for seed in seeds)


def marks(
    session: Session,
    job: strips.Counted,
    output: str,
    metric: str,
    rollup: RollUp,
    limit: int | None = None,
) -> list[MarkRecord]:
    """Return a job's (seed, repeat) for an output in order of seed, with every statistic.

    Those without numbers have output ''. limit: return about this many, the worst by `metric`
    (strips.METRICS), with a share for each verdict. None: return all.
    """
    if limit is None:
        rows = strips.marks(session, [job], output, metric, None)
    else:
        of_output = None if rollup is None else rollup.get(output)
        sums = (
            {}
            if of_output is None
            else {job.id: strips.Sums(of_output.counts, of_output.sketch(metric))}
        )
        rows = strips.worst(session, [[job]], output, metric, limit, sums, None)
    return sorted((_of_strip(row) for row in rows), key=lambda mark: (mark.seed, mark.repeat))


def worst_seeds(session: Session, job_id: str, limit: int, rollup: RollUp) -> list[SeedRecord]:
    """Return the worst (seed, repeat) of a job, worst first."""
    return [_seed(seed) for seed in worst.read(session, job_id, limit, rollup)]


def outputs_worst_first(seed: SeedRecord) -> list[MarkRecord]:
    """Return the outputs of a seed, worst first (gonogo.spec.verdicts.worst_first)."""
    marks = seed.outputs.values()
    outputs = {mark.output: {**mark.statistics, "verdict": mark.verdict} for mark in marks}
    return [seed.outputs[name] for name in worst_first(outputs)]


def worst_iteration(session: Session, job_id: str) -> int | None:
    """Return the first iteration with the worst verdict; None for none. It reads no outputs.

    An iteration of a selection may have tens of thousands of them.
    """
    table = SeedResultRow
    query = select(table.verdict, func.min(table.seed)).where(table.job_id == job_id)
    firsts = session.execute(query.group_by(table.verdict)).all()
    ranked = [(Verdict(verdict).rank, seed) for verdict, seed in firsts]
    return min(ranked, default=(0, None))[1]


def _of_strip(row: StripSeed) -> MarkRecord:
    numbers = {**dict.fromkeys(ROLLED_UP), **_numbers(row.statistics)}
    return MarkRecord(row.seed, row.repeat, row.output, row.verdict, row.explanation, None, numbers)


def _numbers(output: Mapping[str, Any]) -> dict[str, Any]:
    left_out = {"verdict", "explanation", *TAIL}
    return {name: value for name, value in output.items() if name not in left_out}


def _seed(seed: StoredSeed) -> SeedRecord:
    marks = {
        name: MarkRecord(
            seed.seed,
            seed.repeat,
            name,
            output["verdict"],
            output["explanation"],
            seed.device,
            _numbers(output),
            dict(output[KINDS] or {}),
        )
        for name, output in seed.outputs.items()
    }
    return from_object(SeedRecord, seed, outputs=marks)
