"""What the strip plot of a test reads: the seeds of one output over many jobs as marks, and the sums of those that aren't marks.

Everything is of jobs that the caller has chosen (storage.variants.jobs_of), newest first: what it costs is bounded by LOOKED and RARE,
however many seeds there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, case, or_, select
from sqlalchemy.orm import Session

from gonogo.flakiness import sketches
from gonogo.flakiness.sketches import Sketch
from gonogo.verdicts import WORST_FIRST, Verdict
from storage.results import COLUMNS
from storage.tables import JobTallyRow, SeedResultRow
from storage.tallies import WHOLE
from storage.variants import JobFacts

METRICS = ("tolerance_ratio", "budget_ratio")
"""What may be the axis: statistics that have a column and a sketch."""
LOOKED = 8_000
"""(seed, repeat) among which the worst are looked for: the newest ones of each build. Ranges and counts are of all, from the roll-ups."""
RARE = 120_000
"""(seed, repeat) of jobs that are read for the few seeds of a verdict that the newest ones may not have."""
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_NUMBERED = (Verdict.pass_, Verdict.pass_by_tolerance, Verdict.fail_by_tolerance, Verdict.suspect)
"""A seed of such a verdict has numbers; one of another may be a hang, or NaN."""
_SILENT = 8
"""Of the marks of a column at most one in so many has no number: a hang must not hide what the others look like."""


class StripSeed(NamedTuple):
    """One (seed, repeat) of a job for an output; `value` is None where it has no number (hang, NaN)."""

    job: str
    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    value: float | None


@dataclass(frozen=True)
class Sums:
    """All seeds of some jobs for an output, from their roll-ups: verdicts, and the spread of the axis' statistic."""

    counts: Mapping[str, int]
    sketch: Sketch


def outputs(session: Session, job_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Output -> its seeds by verdict, over these jobs, from their roll-ups."""
    table = JobTallyRow
    query = select(table.output, table.counts).where(table.job_id.in_(job_ids), table.shadow.is_(False), table.output != WHOLE)
    found: dict[str, dict[str, int]] = {}
    for output, counts in session.execute(query):
        told = found.setdefault(output, {})
        for verdict, number in counts.items():
            told[verdict] = told.get(verdict, 0) + number
    return found


def marks(session: Session, jobs: Sequence[JobFacts], output: str, metric: str) -> list[StripSeed]:
    """Every (seed, repeat) of the jobs for the output, those without any numbers too. Raises ValueError for another metric."""
    return _read(session, _of(jobs, output), metric)


def worst(
    session: Session, columns: Sequence[Sequence[JobFacts]], output: str, metric: str, limit: int
) -> tuple[list[StripSeed], int]:
    """The worst seeds of each column (jobs of a build, newest first), by verdict, then by size, about `limit` over all columns; and among
    how many they were looked for: of each column its newest share of LOOKED. Verdicts that few seeds of a job have are looked for in all
    of it, as far as RARE goes, the newest columns first."""
    sizes = [sum(job.done for job in jobs) for jobs in columns]
    looked, rooms, rare = shares(sizes, LOOKED), shares(sizes, limit), RARE
    found: list[StripSeed] = []
    value = _value(metric)
    rank = case(_RANK, value=SeedResultRow.verdict, else_=len(_RANK))
    for place in reversed(range(len(columns))):
        jobs, left, most = columns[place], looked[place], rooms[place]
        parts: list[ColumnElement[bool]] = []
        for job in jobs:
            if left > 0:
                newest = SeedResultRow.arrival > max(0, job.done - left)
                parts.append(and_(*_of([job], output), newest))
            unseen, few = job.done - max(0, left), _few(job)
            if unseen > 0 and few and job.done <= rare:
                rare -= job.done
                parts.append(and_(*_of([job], output), SeedResultRow.verdict.in_(few)))
            left -= job.done
        places = SeedResultRow.job_id, SeedResultRow.seed, SeedResultRow.repeat
        found += _read(session, [or_(*parts), value.is_not(None)], metric, order=(rank, value.desc(), *places), limit=most)
        if any(verdict not in _NUMBERED for job in jobs for verdict in job.counts):
            silent = max(1, most // _SILENT)
            found += _read(session, [or_(*parts), value.is_(None)], metric, order=(rank, *places), limit=silent)
    return found, sum(looked)


def shares(sizes: Sequence[int], budget: int) -> list[int]:
    """How much of a budget each gets: as much as it needs where that is less than an equal share of what is left, at least 1."""
    found = [0] * len(sizes)
    left = budget
    for done, place in enumerate(sorted(range(len(sizes)), key=lambda place: sizes[place])):
        found[place] = max(1, min(sizes[place], left // (len(sizes) - done)))
        left -= found[place]
    return found


def _few(job: JobFacts) -> list[str]:
    """The verdicts that at most a tenth of the seeds of a job have: a sample may miss them. None of them is a plain pass."""
    return [verdict for verdict, number in job.counts.items() if verdict != Verdict.pass_ and 0 < number <= job.done / 10]


def sums(session: Session, job_ids: Sequence[str], output: str, metric: str) -> dict[str, Sums]:
    """Job -> its sums; jobs that the roll-ups don't hold yet are left out."""
    table = JobTallyRow
    told = table.sketches[metric]
    query = select(table.job_id, table.counts, told).where(table.job_id.in_(job_ids), table.output == output, table.shadow.is_(False))
    return {job_id: Sums(counts, Sketch.parse(sketch or {})) for job_id, counts, sketch in session.execute(query)}


def together(parts: Sequence[Sums]) -> Sums:
    """All of them."""
    counts: dict[str, int] = {}
    for part in parts:
        for verdict, number in part.counts.items():
            counts[verdict] = counts.get(verdict, 0) + number
    return Sums(counts, sketches.total(part.sketch for part in parts))


def statistics(
    session: Session, chosen: Mapping[str, Sequence[tuple[int, int]]], output: str
) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Every stored statistic of some (seed, repeat) of each job, by (job, seed, repeat); those without numbers are left out."""
    table = SeedResultRow
    wanted = [and_(table.job_id == job, table.seed.in_({seed for seed, _ in pairs})) for job, pairs in chosen.items() if pairs]
    if not wanted:
        return {}
    columns = [getattr(table, name) for name in ("job_id", "seed", "repeat", "statistics", *COLUMNS)]
    found = {}
    for row in session.execute(select(*columns).where(table.output == output, or_(*wanted))):
        if (row.seed, row.repeat) in chosen[row.job_id]:
            numbers = {**(row.statistics or {}), **{name: getattr(row, name) for name in COLUMNS}}
            found[row.job_id, row.seed, row.repeat] = numbers
    return found


def _of(jobs: Sequence[JobFacts], output: str) -> tuple[ColumnElement[bool], ...]:
    return SeedResultRow.job_id.in_([job.id for job in jobs]), SeedResultRow.output.in_({output, WHOLE})


def _value(metric: str) -> Any:
    if metric not in METRICS:
        raise ValueError(f"no strip of {metric!r}; there are {', '.join(METRICS)}")
    return getattr(SeedResultRow, metric)


def _read(
    session: Session, where: Sequence[ColumnElement[bool]], metric: str, *, order: Sequence[Any] = (), limit: int | None = None
) -> list[StripSeed]:
    table = SeedResultRow
    query = select(table.job_id, table.seed, table.repeat, table.verdict, table.explanation, _value(metric)).where(*where)
    return [StripSeed(*row) for row in session.execute(query.order_by(*order).limit(limit))]
