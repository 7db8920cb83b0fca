"""The worst seeds of a job, in the order of gonogo.spec.verdicts.severity. Reads only.

Of a job with few seeds all are read. Otherwise only those with the largest errors are, by an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, union_all
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import READ_BY_SEVERITY, Verdict, severity
from gonogo_service.results.rollups.tallies import WHOLE, Tally
from gonogo_service.results.rows import SeedResultRow
from gonogo_service.results.seed_rows import slots, stored
from gonogo_service.results.seed_rows.stored import StoredSeed

RollUp = Mapping[str, Tally] | None
"""A job's roll-up by output, '' for whole seeds; None while the job isn't counted."""
Conditions = Sequence[ColumnElement[bool]]
MAX_WHOLE = 1_000
"""Up to this number of (seed, repeat), all are read."""
CANDIDATES = 100
"""With more than MAX_WHOLE seeds, the number of rows read of each output and verdict: those with
the largest errors, by the number that is the axis of their test."""
_CLASSES = (slots.SILENT, slots.UNGATED, slots.GATED)


def read(
    session: Session,
    job_id: str,
    limit: int,
    rollup: RollUp,
    *conditions: ColumnElement[bool],
    verdict: str | None = None,
) -> list[StoredSeed]:
    """Return the worst (seed, repeat) of a job with all statistics, worst first.

    conditions: on their rows and sources. verdict: leave out all others.
    """
    places: list[int] = []
    verdicts: Sequence[str] | None = None if verdict is None else [verdict]
    if rollup:
        verdicts = verdicts or _enough(rollup[WHOLE].counts, limit)
        if rollup[WHOLE].seeds > MAX_WHOLE:
            places = _by_index(session, job_id, limit, rollup, verdicts, conditions)
    if not places:
        query = stored.query(SeedResultRow.job_id == job_id, *conditions)
        if verdicts is not None:
            query = query.where(SeedResultRow.verdict.in_(verdicts))
        places = _worst(stored.read(session, query, *READ_BY_SEVERITY), limit)
    if not places:
        return []
    # A query for each: PostgreSQL expects few rows of a new job until it has counted them, and
    # would read the whole job for a list.
    of_job = stored.query(SeedResultRow.job_id == job_id)
    union = union_all(*(of_job.where(SeedResultRow.arrival == place) for place in places))
    seeds = {seed.arrival: seed for seed in stored.read(session, union)}
    return [seeds[arrival] for arrival in places]


def _worst(seeds: Iterable[StoredSeed], limit: int) -> list[int]:
    """Return the arrivals of the worst seeds, worst first."""
    order = {
        seed.arrival: (*severity(seed.verdict, seed.outputs), seed.seed, seed.repeat)
        for seed in seeds
    }
    return sorted(order, key=lambda arrival: order[arrival])[:limit]


def _by_index(
    session: Session,
    job_id: str,
    limit: int,
    rollup: Mapping[str, Tally],
    verdicts: Sequence[str],
    conditions: Conditions,
) -> list[int]:
    """Return the worst among the seeds with the largest errors, read by an index.

    Empty where an output has no slot, or none the verdict of its seed: the caller then reads all.
    """
    table = SeedResultRow
    job_slots = slots.of_jobs(session, [job_id]).get(job_id, {})
    if any(output and output not in job_slots for output in rollup):
        return []
    seeds: list[StoredSeed] = []
    for verdict in verdicts:
        for slot, class_ in _ranks(verdict, rollup, job_slots):
            of_rank = slots.rank_column(slot) == slots.rank(verdict, class_)
            # Rows whose seed has a worse verdict are few, as a rule: leaving them out is cheap.
            of_job = table.job_id == job_id
            query = stored.query(of_job, of_rank, table.verdict == verdict, *conditions)
            largest = query.order_by(slots.axis_column(slot).desc()).limit(CANDIDATES)
            seeds += stored.read(session, largest, *READ_BY_SEVERITY)
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
    for verdict in sorted(counts, key=lambda name: Verdict(name).rank):
        if rows >= limit:
            break
        worst.append(verdict)
        rows += counts[verdict]
    return worst
