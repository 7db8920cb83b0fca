"""What the pages read beside the nouns' own queries: the latest jobs, and a job's seeds as marks, bands and worst rows. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, case, func, select, union_all
from sqlalchemy.orm import Session

from gonogo.verdicts import POLICY, WORST_FIRST
from storage import jobs, rollups
from storage.jobs import Job
from storage.results import COLUMNS
from storage.states import TOLD_KINDS, FlagState, JobState
from storage.tables import JobRow, SeedResultRow
from storage.tallies import WHOLE

OPEN_STATES = tuple(state for state in JobState if not state.final)
FINAL_STATES = tuple(state for state in JobState if state.final)
OPEN_FLAGS = (FlagState.open, FlagState.reopened, FlagState.acknowledged)
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_MARK = ("seed", "repeat", "output", "verdict", "explanation", "device", "statistics", "nonfinite", *COLUMNS)
_NO_BUDGET = 1e300  # a NaN or a hang has no budget ratio: among equals it comes first


@dataclass(frozen=True)
class FlagRecord:
    """A finding about a test, with its evidence as ingest wrote it."""

    id: str
    kind: str
    state: str
    test_key: str
    kernel: str
    build: str
    jobs: int
    last_job: str
    owner: str | None
    reason: str | None
    opened_at: datetime
    updated_at: datetime
    evidence: Mapping[str, Any]
    test: Mapping[str, Any]


@dataclass(frozen=True)
class OutputRecord:
    """One output of a job: how many seeds got which verdict for it, and its largest budget ratio and chi."""

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
class BandRecord:
    """Many seeds in one: the smallest, mean and largest value of a statistic over the seeds of [first, last]."""

    first: int
    last: int
    seeds: int
    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class SeedRecord:
    """One (seed, repeat) with all its outputs; `message` says what happened where there are no numbers."""

    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    device: str | None
    position: int | None
    duration_ms: float | None
    message: str | None
    outputs: Mapping[str, MarkRecord]


def latest_jobs(session: Session, states: Sequence[JobState], limit: int) -> list[Job]:
    """The latest jobs in any of the states, newest first: of each state the latest by their ids, for which there is an index."""
    told = JobRow.kind.in_(TOLD_KINDS)
    parts = [select(JobRow.id).where(JobRow.state == each, told).order_by(JobRow.id.desc()).limit(limit).subquery() for each in states]
    ids = union_all(*(select(part.c.id) for part in parts))
    found = jobs.many(session, sorted(session.scalars(ids), reverse=True)[:limit])
    return [found[job_id] for job_id in sorted(found, reverse=True)]


def outputs(session: Session, job_id: str) -> list[OutputRecord]:
    """The outputs that a job has numbers for, by name, each with its verdict counts; from its roll-up, which has no entries of tests that
    exist already. A job that isn't counted yet is read seed by seed."""
    sums = rollups.of_job(session, job_id)
    if sums is not None:
        return [OutputRecord(name, each.counts, each.sketch("budget_ratio").largest) for name, each in sums.items() if name]
    query = (
        select(SeedResultRow.output, SeedResultRow.verdict, func.count(), func.max(SeedResultRow.budget_ratio))
        .where(SeedResultRow.job_id == job_id, SeedResultRow.output != "")
        .group_by(SeedResultRow.output, SeedResultRow.verdict)
        .order_by(SeedResultRow.output)
    )
    counts: dict[str, dict[str, int]] = {}
    budget: dict[str, float | None] = {}
    for output, verdict, count, ratio in session.execute(query):
        counts.setdefault(output, {})[verdict] = count
        known = [value for value in (budget.get(output), ratio) if value is not None]
        budget[output] = max(known, default=None)
    return [OutputRecord(output, counts[output], budget[output]) for output in counts]


def mark_count(session: Session, job_id: str, output: str) -> int:
    """How many (seed, repeat) have a row for the output, or no numbers at all."""
    sums = rollups.of_job(session, job_id)
    if sums is not None and output in sums and output:
        return sums[output].seeds + sums[WHOLE].empty
    return session.scalar(select(func.count()).select_from(SeedResultRow).where(*_marks_of(job_id, output))) or 0


def marks(session: Session, job_id: str, output: str, limit: int) -> list[MarkRecord]:
    """The worst `limit` (seed, repeat) of a job for an output, in order of seed; those without numbers have output ''."""
    # columns, not whole rows: five thousand of them are read while someone waits
    query = select(*(getattr(SeedResultRow, name) for name in _MARK)).where(*_marks_of(job_id, output))
    sums = rollups.of_job(session, job_id)
    if sums is not None and output in sums:
        query = query.where(SeedResultRow.verdict.in_(_enough(sums[output].counts, limit)) | (SeedResultRow.output == WHOLE))
    rows = session.execute(query.order_by(*_worst_first(SeedResultRow.verdict)).limit(limit))
    return sorted((_mark(row) for row in rows), key=lambda mark: (mark.seed, mark.repeat))


def bands(session: Session, job_id: str, output: str, statistic: str, count: int) -> list[BandRecord]:
    """All seeds of a job in at most `count` groups of neighbours, with the range of a statistic that has a column."""
    column = getattr(SeedResultRow, statistic)
    of_output = (SeedResultRow.job_id == job_id, SeedResultRow.output == output, column > 0)
    # the first and the last along the key: min and max of them would walk over all seeds
    orders = SeedResultRow.seed.asc(), SeedResultRow.seed.desc()
    edges = (select(SeedResultRow.seed).where(*of_output).order_by(each).limit(1).scalar_subquery() for each in orders)
    ends = session.execute(select(*edges)).one()
    low: int | None = ends[0]
    high: int | None = ends[1]
    if low is None or high is None:
        return []
    width = (high - low) // count + 1
    bucket = (SeedResultRow.seed - low) // width
    query = (
        select(bucket, func.count(), func.min(column), func.avg(column), func.max(column))
        .where(*of_output)
        .group_by(bucket)
        .order_by(bucket)
    )
    return [
        BandRecord(low + int(place) * width, min(high, low + (int(place) + 1) * width - 1), seeds, least, mean, most)
        for place, seeds, least, mean, most in session.execute(query)
    ]


def worst_seeds(session: Session, job_id: str, limit: int) -> list[SeedRecord]:
    """The worst (seed, repeat) of a job, worst first: by the seed's verdict, then by how far its worst output is beyond rounding, then by
    seed. Only the outputs that have the seed's verdict count: those are the ones that a reader sees."""
    rank = case(_RANK, value=SeedResultRow.seed_verdict, else_=len(_RANK))
    beyond = func.max(case((SeedResultRow.verdict == SeedResultRow.seed_verdict, _severity()), else_=0.0))
    of_job = [SeedResultRow.job_id == job_id]
    sums = rollups.of_job(session, job_id)
    if sums:
        of_job.append(SeedResultRow.seed_verdict.in_(_enough(sums[WHOLE].counts, limit)))
    keys = session.execute(
        select(SeedResultRow.seed, SeedResultRow.repeat)
        .where(*of_job)
        .group_by(SeedResultRow.seed, SeedResultRow.repeat, rank)
        .order_by(rank, beyond.desc(), SeedResultRow.seed, SeedResultRow.repeat)
        .limit(limit)
    ).all()
    if not keys:
        return []
    rows = session.scalars(select(SeedResultRow).where(SeedResultRow.job_id == job_id, SeedResultRow.seed.in_({seed for seed, _ in keys})))
    found: dict[tuple[int, int], list[SeedResultRow]] = {}
    for row in rows:
        found.setdefault((row.seed, row.repeat), []).append(row)
    return [_seed(sorted(found[seed, repeat], key=lambda row: row.output)) for seed, repeat in keys]


def _enough(counts: Mapping[str, int], limit: int) -> list[str]:
    """The worst verdicts, so many that `limit` rows have them: the others need not be sorted."""
    found: list[str] = []
    rows = 0
    for verdict in sorted(counts, key=lambda name: _RANK.get(name, len(_RANK))):
        if rows >= limit:
            break
        found.append(verdict)
        rows += counts[verdict]
    return found


def _severity() -> ColumnElement[float]:
    """How far an output is beyond what rounding explains, from the statistics that have a column (gonogo.verdicts.evidence has all)."""
    limits = {"chi": POLICY.chi, **{name: POLICY.direction for name in COLUMNS if name.endswith("_z")}}
    largest: ColumnElement[float] = func.coalesce(SeedResultRow.budget_ratio / POLICY.budget_ratio, _NO_BUDGET)
    for name, limit in limits.items():
        each = getattr(SeedResultRow, name) / limit
        largest = case((each > largest, each), else_=largest)  # a null is larger than nothing
    return largest


def _marks_of(job_id: str, output: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return SeedResultRow.job_id == job_id, SeedResultRow.output.in_({output, ""})


def _worst_first(verdict: Any) -> tuple[Any, ...]:
    ratio = func.coalesce(SeedResultRow.budget_ratio, _NO_BUDGET)
    return case(_RANK, value=verdict, else_=len(_RANK)), ratio.desc(), SeedResultRow.seed, SeedResultRow.repeat


def _mark(row: SeedResultRow | Row[Any]) -> MarkRecord:
    statistics = {**(row.statistics or {}), **{name: getattr(row, name) for name in COLUMNS}}
    return MarkRecord(row.seed, row.repeat, row.output, row.verdict, row.explanation, row.device, statistics, dict(row.nonfinite or {}))


def _seed(rows: list[SeedResultRow]) -> SeedRecord:
    first = rows[0]
    return SeedRecord(
        first.seed,
        first.repeat,
        first.seed_verdict,
        first.seed_explanation,
        first.device,
        first.position,
        first.duration_ms,
        first.message,
        {row.output: _mark(row) for row in rows if row.output},
    )
