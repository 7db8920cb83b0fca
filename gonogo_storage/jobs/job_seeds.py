"""The outputs of a job, the seeds to mark in its plot, and its worst seeds. Reads only.

Of a job with few seeds all are read. Otherwise only the worst seeds of each verdict are, by an
index. So a page reads what it shows, however many seeds there are. The totals are in the job's
roll-up (gonogo_storage.rollups.rollups.of_job), which every function here takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select, union_all
from sqlalchemy.orm import Session

from gonogo.spec.statistics import ROLLED_UP
from gonogo.spec.verdicts import POLICY, WORST_FIRST
from gonogo_storage.db.records import from_object
from gonogo_storage.rollups.tallies import WHOLE, Tally
from gonogo_storage.seed_rows import slots, stored
from gonogo_storage.seed_rows.layouts import KINDS, TAIL
from gonogo_storage.seed_rows.stored import StoredSeed
from gonogo_storage.seeds import strips
from gonogo_storage.seeds.strips import StripSeed
from gonogo_storage.tables import SeedResultRow

RollUp = Mapping[str, Tally] | None
"""A job's roll-up by output, '' for whole seeds; None while the job isn't counted."""
MAX_WHOLE = 1_000
"""Up to this number of (seed, repeat), all are read."""
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_NO_BUDGET = 1e300  # a NaN or a hang has no budget ratio: among equals it comes first
_CLASSES = (slots.SILENT, slots.UNGATED, slots.GATED)
_LIMITS = {
    "chi": POLICY.chi,
    **{name: POLICY.direction for name in ROLLED_UP if name.endswith("_z")},
}
_CANDIDATES = 100
"""With more than MAX_WHOLE seeds, the number of rows read of each output and verdict.

They are the rows with the largest errors; the worst seed is among them.
"""


@dataclass(frozen=True)
class OutputRecord:
    """One output of a job: its seeds by verdict, and its largest budget ratio."""

    output: str
    counts: Mapping[str, int]
    budget_ratio: float | None


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
            OutputRecord(name, entry.counts, entry.sketch("budget_ratio").largest)
            for name, entry in rollup.items()
            if name
        ]
    counts: dict[str, dict[str, int]] = {}
    budget: dict[str, float | None] = {}
    of_job = stored.query(SeedResultRow.job_id == job_id)
    for seed in stored.read(session, of_job, "budget_ratio"):
        for output, judged in seed.outputs.items():
            verdicts = counts.setdefault(output, {})
            verdicts[judged["verdict"]] = verdicts.get(judged["verdict"], 0) + 1
            known = [v for v in (budget.get(output), judged["budget_ratio"]) if v is not None]
            budget[output] = max(known, default=None)
    return [OutputRecord(output, counts[output], budget[output]) for output in sorted(counts)]


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
    """Return the worst (seed, repeat) of a job, worst first.

    The order is the seed's verdict, then how far its worst output is beyond rounding, then the
    seed. Only outputs with the seed's verdict count: those are the ones that a reader sees.

    With more than MAX_WHOLE seeds, only those with the largest errors are read, by the number that
    is the axis of their test.
    """
    places: list[int] = []
    if rollup and rollup[WHOLE].seeds > MAX_WHOLE:
        places = _worst_by_index(session, job_id, limit, rollup)
    places = places or _worst_of_all(session, job_id, limit, rollup)
    if not places:
        return []
    # A query for each: PostgreSQL expects few rows of a new job until it has counted them, and
    # would read the whole job for a list.
    of_job = stored.query(SeedResultRow.job_id == job_id)
    query = union_all(*(of_job.where(SeedResultRow.arrival == place) for place in places))
    seeds = {seed.arrival: seed for seed in stored.read(session, query)}
    return [_seed(seeds[arrival]) for arrival in places]


def worst_iteration(session: Session, job_id: str) -> int | None:
    """Return the first iteration with the worst verdict; None for none. It reads no outputs.

    An iteration of a selection may have tens of thousands of them.
    """
    table = SeedResultRow
    query = select(table.verdict, func.min(table.seed)).where(table.job_id == job_id)
    firsts = session.execute(query.group_by(table.verdict)).all()
    ranked = sorted((_RANK.get(verdict, len(_RANK)), seed) for verdict, seed in firsts)
    return ranked[0][1] if ranked else None


def _worst_of_all(session: Session, job_id: str, limit: int, rollup: RollUp) -> list[int]:
    query = stored.query(SeedResultRow.job_id == job_id)
    if rollup:
        query = query.where(SeedResultRow.verdict.in_(_enough(rollup[WHOLE].counts, limit)))
    return _worst(stored.read(session, query, *ROLLED_UP), limit)


def _worst(seeds: Iterable[StoredSeed], limit: int) -> list[int]:
    """Return the arrivals of the worst seeds, worst first."""
    order = {
        seed.arrival: (
            _RANK.get(seed.verdict, len(_RANK)),
            -_beyond(seed),
            seed.seed,
            seed.repeat,
        )
        for seed in seeds
    }
    return sorted(order, key=lambda arrival: order[arrival])[:limit]


def _worst_by_index(
    session: Session, job_id: str, limit: int, rollup: Mapping[str, Tally]
) -> list[int]:
    """Return the worst among the seeds with the largest errors, read by an index.

    Empty where an output has no slot, or none the verdict of its seed: the caller then reads all.
    """
    table = SeedResultRow
    job_slots = slots.of_jobs(session, [job_id]).get(job_id, {})
    if any(output and output not in job_slots for output in rollup):
        return []
    seeds: list[StoredSeed] = []
    for verdict in _enough(rollup[WHOLE].counts, limit):
        for slot, class_ in _ranks(verdict, rollup, job_slots):
            of_rank = slots.rank_column(slot) == slots.rank(verdict, class_)
            # Rows whose seed has a worse verdict are fewer than `limit`: leaving them out is cheap.
            query = stored.query(table.job_id == job_id, of_rank, table.verdict == verdict)
            largest = query.order_by(slots.axis_column(slot).desc()).limit(_CANDIDATES)
            seeds += stored.read(session, largest, *ROLLED_UP)
    return _worst(seeds, limit)


def _ranks(
    verdict: str, rollup: Mapping[str, Tally], job_slots: Mapping[str, int]
) -> Iterator[tuple[int, int]]:
    """Yield the slot and class of the outputs that may have the verdict."""
    for output, sums in rollup.items():
        # A whole seed has the verdict of one of its outputs. So the entry of WHOLE matters only for
        # seeds that have no outputs.
        if output == WHOLE:
            if sums.empty and sums.counts.get(verdict):
                yield 0, slots.EMPTY
        elif sums.counts.get(verdict):
            gated = sums.sketch("tolerance_ratio")
            all_gated = gated.count == sums.seeds and not gated.inf
            for class_ in (slots.GATED,) if all_gated else _CLASSES:
                yield job_slots[output], class_


def _enough(counts: Mapping[str, int], limit: int) -> list[str]:
    """Return the worst verdicts that together have `limit` rows: the others need no sorting."""
    worst: list[str] = []
    rows = 0
    for verdict in sorted(counts, key=lambda name: _RANK.get(name, len(_RANK))):
        if rows >= limit:
            break
        worst.append(verdict)
        rows += counts[verdict]
    return worst


def _beyond(seed: StoredSeed) -> float:
    """Return how far the outputs with the seed's verdict are beyond what rounding explains."""
    return max(
        (_severity(row) for row in seed.outputs.values() if row["verdict"] == seed.verdict),
        default=0.0 if seed.outputs else _NO_BUDGET,
    )


def _severity(output: Mapping[str, Any]) -> float:
    """Return how far an output is beyond what rounding explains.

    It uses ROLLED_UP; gonogo.spec.verdicts.evidence uses all statistics.
    """
    budget = output["budget_ratio"]
    ratios = [output[name] / limit for name, limit in _LIMITS.items() if output[name] is not None]
    return float(max([_NO_BUDGET if budget is None else budget / POLICY.budget_ratio, *ratios]))


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
