"""The outputs of a job, the seeds to mark in its plot, and its worst seeds. Reads only.

Of a job with few seeds all are read. Otherwise only the worst seeds of each verdict are, by an
index. So a page reads what it shows, however many seeds there are. The totals are in the job's
roll-up (gonogo_storage.rollups.rollups.of_job), which every function here takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, literal_column, select, union_all
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import POLICY, WORST_FIRST
from gonogo_storage.db.encoding import decode
from gonogo_storage.rollups.rollups import Sums
from gonogo_storage.rollups.tallies import WHOLE
from gonogo_storage.seeds import strips
from gonogo_storage.seeds.results import COLUMNS
from gonogo_storage.seeds.strips import StripSeed
from gonogo_storage.tables import SeedResultRow

RollUp = Mapping[str, Sums] | None
"""A job's roll-up by output, '' for whole seeds; None while the job isn't counted."""
MAX_WHOLE = 1_000
"""Up to this number of (seed, repeat), all are read."""
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_NO_BUDGET = 1e300  # a NaN or a hang has no budget ratio: among equals it comes first
_CANDIDATES = 100
"""With more than MAX_WHOLE seeds, the number of rows read of each output and verdict.

They are the rows with the largest errors; the worst seed is among them.
"""
_MORE = ("output", "CAST(statistics AS TEXT)", *COLUMNS)
"""Columns of a mark. The statistics are text: some of the rows read are left out unparsed."""


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
    query = (
        select(
            SeedResultRow.output,
            SeedResultRow.verdict,
            func.count(),
            func.max(SeedResultRow.budget_ratio),
        )
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


def mark_count(session: Session, job_id: str, output: str, rollup: RollUp) -> int:
    """Count the (seed, repeat) that have a row for the output, or no numbers at all."""
    if rollup is not None and output in rollup and output:
        return rollup[output].seeds + rollup[WHOLE].empty
    of_output = (SeedResultRow.job_id == job_id, SeedResultRow.output.in_({output, WHOLE}))
    return session.scalar(select(func.count()).select_from(SeedResultRow).where(*of_output)) or 0


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
        rows = strips.marks(session, [job], output, metric, _MORE)
    else:
        of_output = None if rollup is None else rollup.get(output)
        sums = (
            {}
            if of_output is None
            else {job.id: strips.Sums(of_output.counts, of_output.sketch(metric))}
        )
        rows = strips.worst(session, [[job]], output, metric, limit, sums, _MORE)
    return sorted((_of_strip(row) for row in rows), key=lambda mark: (mark.seed, mark.repeat))


def worst_seeds(session: Session, job_id: str, limit: int, rollup: RollUp) -> list[SeedRecord]:
    """Return the worst (seed, repeat) of a job, worst first.

    The order is the seed's verdict, then how far its worst output is beyond rounding, then the
    seed. Only outputs with the seed's verdict count: those are the ones that a reader sees.

    With more than MAX_WHOLE seeds, only those with the largest errors are read, by the number that
    is the axis of their test.
    """
    keys = (
        _worst_by_index(session, job_id, limit, rollup)
        if rollup and rollup[WHOLE].seeds > MAX_WHOLE
        else []
    )
    if not keys:
        keys = _worst_of_all(session, job_id, limit, rollup)
    if not keys:
        return []
    table = SeedResultRow
    # One query by key for each pair: for a list of pairs SQLite would read the whole job. In the
    # key's order: until PostgreSQL has counted a new job's rows it expects few, and only this order
    # makes it use the key's index.
    of_job = (
        select(table).where(table.job_id == job_id).order_by(table.seed, table.repeat, table.output)
    )
    named = [of_job.where(table.seed == seed, table.repeat == repeat) for seed, repeat in keys]
    rows = session.scalars(
        select(table).from_statement(
            union_all(*(select(seed_rows.subquery()) for seed_rows in named))
        )
    )
    rows_of: dict[tuple[int, int], list[SeedResultRow]] = {}
    for row in rows:
        rows_of.setdefault((row.seed, row.repeat), []).append(row)
    return [_seed(sorted(rows_of[key], key=lambda row: row.output)) for key in keys]


def _worst_of_all(
    session: Session, job_id: str, limit: int, rollup: RollUp
) -> list[tuple[int, int]]:
    rank = case(_RANK, value=SeedResultRow.seed_verdict, else_=len(_RANK))
    beyond = func.max(
        case((SeedResultRow.verdict == SeedResultRow.seed_verdict, _severity()), else_=0.0)
    )
    of_job = [SeedResultRow.job_id == job_id]
    if rollup:
        of_job.append(SeedResultRow.seed_verdict.in_(_enough(rollup[WHOLE].counts, limit)))
    rows = session.execute(
        select(SeedResultRow.seed, SeedResultRow.repeat)
        .where(*of_job)
        .group_by(SeedResultRow.seed, SeedResultRow.repeat, rank)
        .order_by(rank, beyond.desc(), SeedResultRow.seed, SeedResultRow.repeat)
        .limit(limit)
    )
    return [(seed, repeat) for seed, repeat in rows]


def _worst_by_index(
    session: Session, job_id: str, limit: int, rollup: Mapping[str, Sums]
) -> list[tuple[int, int]]:
    """Return the worst among the seeds with the largest errors, read by an index.

    Empty where no output has the verdict of its seed: the caller then reads all.
    """
    parts = [
        part
        for verdict in _enough(rollup[WHOLE].counts, limit)
        for part in _largest(job_id, verdict, rollup)
    ]
    if not parts:
        return []
    beyond: dict[tuple[int, int], tuple[int, float]] = {}
    for seed, repeat, rank, severity in session.execute(union_all(*parts)):
        known = beyond.get((seed, repeat), (rank, 0.0))
        beyond[seed, repeat] = (rank, max(known[1], severity))
    return sorted(beyond, key=lambda pair: (beyond[pair][0], -beyond[pair][1], pair))[:limit]


def _largest(job_id: str, verdict: str, rollup: Mapping[str, Sums]) -> Iterable[Select[Any]]:
    """Select the rows of each output with the verdict: those without numbers, and the largest.

    Each selection uses its own index.
    """
    table = SeedResultRow
    ungated = table.tolerance_ratio.is_(None)
    orders: tuple[tuple[Any, ...], ...] = (
        (ungated & table.budget_ratio.is_(None), None),
        (ungated & table.budget_ratio.is_not(None), table.budget_ratio.desc()),
        (table.tolerance_ratio.is_not(None), table.tolerance_ratio.desc()),
    )
    rank: ColumnElement[int] = literal_column(str(_RANK.get(verdict, len(_RANK))))
    columns: tuple[Any, ...] = (
        table.seed,
        table.repeat,
        rank.label("rank"),
        _severity().label("severity"),
    )
    for output, sums in rollup.items():
        # A whole seed has the verdict of one of its outputs. So a row of WHOLE matters only for
        # seeds that have no outputs.
        if not sums.counts.get(verdict) or (output == WHOLE and not sums.empty):
            continue
        # rows whose seed has a worse verdict are fewer than `limit`, so filtering them out is cheap
        of_output = (
            table.job_id == job_id,
            table.output == output,
            table.verdict == verdict,
            table.seed_verdict == verdict,
        )
        gated = sums.sketch("tolerance_ratio")
        all_gated = gated.count == sums.seeds and not gated.inf
        for where, order in orders[:1] if output == WHOLE else orders[2:] if all_gated else orders:
            part = select(*columns).where(*of_output, where).order_by(order).limit(_CANDIDATES)
            yield select(part.subquery())


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


def _severity() -> ColumnElement[float]:
    """Return the SQL for how far an output is beyond what rounding explains.

    It uses the statistics that have a column; gonogo.spec.verdicts.evidence uses all.
    """
    limits = {
        "chi": POLICY.chi,
        **{name: POLICY.direction for name in COLUMNS if name.endswith("_z")},
    }
    largest: ColumnElement[float] = func.coalesce(
        SeedResultRow.budget_ratio / POLICY.budget_ratio, _NO_BUDGET
    )
    for name, limit in limits.items():
        ratio = getattr(SeedResultRow, name) / limit
        largest = case(
            (ratio > largest, ratio), else_=largest
        )  # a comparison with null is never true
    return largest


def _of_strip(row: StripSeed) -> MarkRecord:
    output, statistics, *columns = row.more
    numbers = (decode(statistics) or {}) if statistics else {}
    numbers.update(zip(COLUMNS, columns, strict=True))
    return MarkRecord(row.seed, row.repeat, output, row.verdict, row.explanation, None, numbers)


def _mark(row: SeedResultRow) -> MarkRecord:
    statistics = {**(row.statistics or {}), **{name: getattr(row, name) for name in COLUMNS}}
    return MarkRecord(
        row.seed,
        row.repeat,
        row.output,
        row.verdict,
        row.explanation,
        row.device,
        statistics,
        dict(row.nonfinite or {}),
    )


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
