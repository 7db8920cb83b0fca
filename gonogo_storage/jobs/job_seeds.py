"""What a job's page reads of its seeds: its outputs, the seeds that are marks of its plot, and the
worst. Reads only.

Few seeds are read whole. Of many the worst of each verdict are, by an index, so that what is read
is what is shown, however many there are. What all of them came to, the job's roll-up knows
(gonogo_storage.rollups.rollups.of_job, which every function here is given).
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

Told = Mapping[str, Sums] | None
"""A job's roll-up by output, '' for whole seeds; None while it isn't counted."""
MOST_WHOLE = 1_000
"""(seed, repeat) of which all are read."""
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_NO_BUDGET = 1e300  # a NaN or a hang has no budget ratio: among equals it comes first
_LOOKED_AT = 100
"""Of more than MOST_WHOLE seeds so many of each output and verdict, those with the largest errors,
are looked at to find the worst."""
_MORE = ("output", "CAST(statistics AS TEXT)", *COLUMNS)
"""Of a mark. As text: of the rows that are read some are left out, and need not be parsed."""


@dataclass(frozen=True)
class OutputRecord:
    """One output of a job: how many seeds got which verdict for it, and its largest budget
    ratio.
    """

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
    """One (seed, repeat) with all its outputs; `message` says what happened where there are no
    numbers.
    """

    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    device: str | None
    position: int | None
    duration_ms: float | None
    message: str | None
    outputs: Mapping[str, MarkRecord]


def outputs(session: Session, job_id: str, told: Told) -> list[OutputRecord]:
    """The outputs that a job has numbers for, by name, each with its verdict counts; from its
    roll-up, which has no entries of tests that exist already. A job that isn't counted yet is read
    seed by seed.
    """
    if told is not None:
        return [
            OutputRecord(name, each.counts, each.sketch("budget_ratio").largest)
            for name, each in told.items()
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


def mark_count(session: Session, job_id: str, output: str, told: Told) -> int:
    """How many (seed, repeat) have a row for the output, or no numbers at all."""
    if told is not None and output in told and output:
        return told[output].seeds + told[WHOLE].empty
    of_output = (SeedResultRow.job_id == job_id, SeedResultRow.output.in_({output, WHOLE}))
    return session.scalar(select(func.count()).select_from(SeedResultRow).where(*of_output)) or 0


def marks(
    session: Session,
    job: strips.Counted,
    output: str,
    metric: str,
    told: Told,
    limit: int | None = None,
) -> list[MarkRecord]:
    """The (seed, repeat) of a job for an output, in order of seed, with every statistic; those
    without numbers have output ''.

    limit: about so many, the worst by `metric` (strips.METRICS): each verdict has its share. None:
    all.
    """
    if limit is None:
        rows = strips.marks(session, [job], output, metric, _MORE)
    else:
        own = None if told is None else told.get(output)
        sums = {} if own is None else {job.id: strips.Sums(own.counts, own.sketch(metric))}
        rows = strips.worst(session, [[job]], output, metric, limit, sums, _MORE)
    return sorted((_of_strip(row) for row in rows), key=lambda mark: (mark.seed, mark.repeat))


def worst_seeds(session: Session, job_id: str, limit: int, told: Told) -> list[SeedRecord]:
    """The worst (seed, repeat) of a job, worst first: by the seed's verdict, then by how far its
    worst output is beyond rounding, then by seed. Only the outputs that have the seed's verdict
    count: those are the ones that a reader sees.

    Of more than MOST_WHOLE seeds those are looked at whose errors are the largest, by the number
    that is the axis of their test.
    """
    keys = (
        _worst_by_index(session, job_id, limit, told)
        if told and told[WHOLE].seeds > MOST_WHOLE
        else []
    )
    if not keys:
        keys = _worst_of_all(session, job_id, limit, told)
    if not keys:
        return []
    table = SeedResultRow
    # each by its key: for a list of pairs SQLite would read the whole job. In the key's order:
    # PostgreSQL, which thinks that a new job has a few rows until it has counted, then takes the
    # index of the key and no other
    of_job = (
        select(table).where(table.job_id == job_id).order_by(table.seed, table.repeat, table.output)
    )
    named = [of_job.where(table.seed == seed, table.repeat == repeat) for seed, repeat in keys]
    rows = session.scalars(
        select(table).from_statement(union_all(*(select(each.subquery()) for each in named)))
    )
    found: dict[tuple[int, int], list[SeedResultRow]] = {}
    for row in rows:
        found.setdefault((row.seed, row.repeat), []).append(row)
    return [_seed(sorted(found[key], key=lambda row: row.output)) for key in keys]


def _worst_of_all(session: Session, job_id: str, limit: int, told: Told) -> list[tuple[int, int]]:
    rank = case(_RANK, value=SeedResultRow.seed_verdict, else_=len(_RANK))
    beyond = func.max(
        case((SeedResultRow.verdict == SeedResultRow.seed_verdict, _severity()), else_=0.0)
    )
    of_job = [SeedResultRow.job_id == job_id]
    if told:
        of_job.append(SeedResultRow.seed_verdict.in_(_enough(told[WHOLE].counts, limit)))
    rows = session.execute(
        select(SeedResultRow.seed, SeedResultRow.repeat)
        .where(*of_job)
        .group_by(SeedResultRow.seed, SeedResultRow.repeat, rank)
        .order_by(rank, beyond.desc(), SeedResultRow.seed, SeedResultRow.repeat)
        .limit(limit)
    )
    return [(seed, repeat) for seed, repeat in rows]


def _worst_by_index(
    session: Session, job_id: str, limit: int, told: Mapping[str, Sums]
) -> list[tuple[int, int]]:
    """The same of the seeds with the largest errors. Empty where no output has the verdict of its
    seed: all must be read then.
    """
    parts = [
        part
        for verdict in _enough(told[WHOLE].counts, limit)
        for part in _largest(job_id, verdict, told)
    ]
    if not parts:
        return []
    beyond: dict[tuple[int, int], tuple[int, float]] = {}
    for seed, repeat, rank, severity in session.execute(union_all(*parts)):
        known = beyond.get((seed, repeat), (rank, 0.0))
        beyond[seed, repeat] = (rank, max(known[1], severity))
    return sorted(beyond, key=lambda pair: (beyond[pair][0], -beyond[pair][1], pair))[:limit]


def _largest(job_id: str, verdict: str, told: Mapping[str, Sums]) -> Iterable[Select[Any]]:
    """Of each output that has the verdict: the rows without numbers, and those with the largest,
    each by its index.
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
    for output, sums in told.items():
        # a whole seed has the verdict of one of its outputs, so its row without an output is one of
        # those without any
        if not sums.counts.get(verdict) or (output == WHOLE and not sums.empty):
            continue
        # what is worse than a verdict is fewer than are asked for: to leave it out costs no more
        of_output = (
            table.job_id == job_id,
            table.output == output,
            table.verdict == verdict,
            table.seed_verdict == verdict,
        )
        gated = sums.sketch("tolerance_ratio")
        all_gated = gated.count == sums.seeds and not gated.inf
        for where, order in orders[:1] if output == WHOLE else orders[2:] if all_gated else orders:
            part = select(*columns).where(*of_output, where).order_by(order).limit(_LOOKED_AT)
            yield select(part.subquery())


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
    """How far an output is beyond what rounding explains, from the statistics that have a column
    (gonogo.spec.verdicts.evidence has all).
    """
    limits = {
        "chi": POLICY.chi,
        **{name: POLICY.direction for name in COLUMNS if name.endswith("_z")},
    }
    largest: ColumnElement[float] = func.coalesce(
        SeedResultRow.budget_ratio / POLICY.budget_ratio, _NO_BUDGET
    )
    for name, limit in limits.items():
        each = getattr(SeedResultRow, name) / limit
        largest = case((each > largest, each), else_=largest)  # a null is larger than nothing
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
