"""The worst seeds of jobs, and the marks of charts. Reads only.

A table of the worst seeds is a few steps along an index. A chart shows all seeds as marks where
there are few, else the worst of each verdict, and the spread of the newest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Double, Integer, Select, Text, func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.classes import LOST
from gonogo.spec.verdicts import WORST_FIRST
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.columns import IdType, VerdictType
from gonogo_service.kit.database.each import Ask, Columns, Given, among, of_each
from gonogo_service.kit.database.paging import batched
from gonogo_service.results import seeds as stored
from gonogo_service.results.model import WHOLE, JobBlockRow, ResultRow
from gonogo_service.results.seeds import SEED, StoredSeed
from gonogo_service.results.tallies import Tally, of_jobs
from gonogo_service.tests.variants import JobFacts

METRICS = ("tolerance_ratio", "rounding_ratio")
"""The statistics that may be the axis of a chart."""
MAX_WHOLE = 1_000
"""Seeds of a job with a mark each in its chart."""
NEWEST = 1_000
"""Newest seeds whose values make the quantiles of a chart."""
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_FEW_SILENT = 8
"""At most one in this many marks has no number, so that hangs don't hide the others."""
_AT_ONCE = 100
"""Parts of one statement; SQLite allows 500."""
_FINITE = 1.7e308
_PART: Columns = (
    *(("job", IdType), ("output", Text()), ("verdict", VerdictType)),
    *(("low", Double()), ("high", Double()), ("most", Integer())),
)
_CHOSEN = (("job", IdType), ("seed", BigInteger()), ("repeat", Integer()), ("output", Text()))
Names = frozenset[str] | None
"""The statistics to read; None: all."""


def read(
    session: Session,
    job_id: str,
    limit: int,
    *conditions: ColumnElement[bool],
    verdict: str | None = None,
) -> list[StoredSeed]:
    """Return the worst (seed, repeat) of a job with all statistics, worst first.

    conditions: on their rows. verdict: leave out all others.
    """
    table = ResultRow
    places = select(table.arrival).where(table.job_id == job_id, SEED, *conditions)
    if verdict is not None:
        places = places.where(table.seed_verdict == verdict)
    order = table.seed_verdict, table.minus_size, table.seed, table.repeat
    arrivals = session.scalars(places.order_by(*order).limit(limit))
    return list(stored.read_at(session, [(job_id, arrival) for arrival in arrivals]))


def worst_iteration(session: Session, job_id: str) -> int | None:
    """Return the first seed or iteration with the worst verdict; None for none."""
    table = JobBlockRow
    query = select(table.seed).where(table.job_id == job_id, table.output == WHOLE)
    return session.scalar(query.order_by(table.verdict, table.seed).limit(1))


class Mark(NamedTuple):
    """One output of one (seed, repeat); `value` is None without a number (hang, NaN)."""

    job: str
    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    value: float | None
    statistics: Mapping[str, Any] = MappingProxyType({})
    """The requested statistics; empty without the output."""
    output: str = WHOLE
    """WHOLE for a seed without outputs."""


Counted = JobRow | JobFacts
"""A job with its number of (seed, repeat), in total and by verdict."""


def marks(
    session: Session,
    jobs: Sequence[Counted],
    output: str,
    metric: str,
    more: Collection[str] | None = (),
) -> list[Mark]:
    """Return every (seed, repeat) of the jobs for an output, including those without numbers.

    more: further statistics to read; None: all. Raises ValueError for an unknown metric.
    """
    table, names = ResultRow, _names(_known(metric), more)
    every: list[Mark] = []
    for ids in batched([job.id for job in jobs], _AT_ONCE):
        where = among(session, table.job_id, ids), table.output.in_((output, WHOLE))
        query = select(table.job_id, *_columns(names)).where(*where)
        rows = session.execute(query.order_by(table.job_id, table.seed, table.repeat))
        every += [_mark(job, row, metric, names) for job, *row in rows]
    return every


def worst_marks(
    session: Session,
    columns: Sequence[Sequence[Counted]],
    output: str,
    metric: str,
    limit: int,
    totals: Mapping[str, Tally],
    more: Collection[str] | None = (),
) -> list[Mark]:
    """Return the worst seeds of each column (jobs of a build), about `limit` over all columns.

    Each verdict gets a share of the column's marks, and its worst seeds are taken first. totals:
    the sums of the output by job. `more` is as in `marks`.
    """
    rooms = shares([sum(job.done for job in jobs) for jobs in columns], limit)
    place = {job.id: number for number, jobs in enumerate(columns) for job in jobs}
    parts: list[tuple[Any, ...]] = []
    for jobs, room in zip(columns, rooms, strict=True):
        for job in jobs:
            for verdict, number in (totals[job.id].counts if job.id in totals else {}).items():
                parts.append((job.id, output, verdict, -_FINITE, 0.0, min(number, room)))
                parts.append((job.id, output, verdict, -math.inf, -_FINITE, _few(room)))
            for verdict in filter(job.counts.get, LOST):  # these have no numbers
                parts.append((job.id, WHOLE, verdict.value, -math.inf, 0.0, _few(room)))
    candidates: list[list[Mark]] = [[] for _ in columns]
    names = _names(_known(metric), more)
    for batch in batched(parts, _AT_ONCE):
        for number, *row in of_each(session, _worst_of(names), _PART, batch):
            job_id = batch[number][0]
            candidates[place[job_id]].append(_mark(job_id, row, metric, names))
    rooms_of = zip(candidates, rooms, strict=True)
    return [mark for of_column, room in rooms_of for mark in _shown(of_column, room)]


def statistics(
    session: Session, chosen: Mapping[str, Sequence[tuple[int, int]]], output: str
) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Return all stored statistics of the `chosen` (seed, repeat), by (job, seed, repeat).

    Seeds without the output are left out.
    """
    pairs = [(job, *pair, output) for job, of_job in chosen.items() for pair in of_job]
    return {
        some[number][:3]: dict(_mark("", row, METRICS[0], None).statistics)
        for some in batched(pairs, _AT_ONCE)
        for number, *row in of_each(session, _row_of, _CHOSEN, some)
    }


@cache
def _worst_of(names: Names) -> Ask:
    """Return what makes the query of the worst rows of an output's verdict."""
    table = ResultRow

    def ask(given: Given) -> Select[Any]:
        of_verdict = (
            table.job_id == given("job"),
            table.output == given("output"),
            table.verdict == given("verdict"),
            table.minus_size.between(given("low"), given("high")),
        )
        query = select(*_columns(names)).where(*of_verdict)
        return query.order_by(table.minus_size).limit(given("most"))

    return ask


def _row_of(given: Given) -> Select[Any]:
    table = ResultRow
    keys = (table.job_id, table.seed, table.repeat, table.output)
    names = ("job", "seed", "repeat", "output")
    is_chosen = (key == given(name) for key, name in zip(keys, names, strict=True))
    return select(*_columns(None)).where(*is_chosen)


def _columns(names: Names) -> list[Any]:
    table = ResultRow
    return [table.seed, table.repeat, *stored.Reader.of(names).columns()]


def _names(metric: str, more: Collection[str] | None) -> Names:
    return None if more is None else frozenset({metric, "nonfinite", *more})


def _mark(job: str, row: Sequence[Any], metric: str, names: Names) -> Mark:
    seed, repeat, output, verdict, explanation, *_ = row
    if output == WHOLE:
        return Mark(job, seed, repeat, verdict, explanation, None)
    judged = stored.Reader.of(names).output(row[2:])
    del judged["verdict"], judged["explanation"]
    # Statistics of an output with NaN or Inf describe its finite elements only.
    value = None if judged.get("nonfinite") else judged.get(metric)
    return Mark(job, seed, repeat, verdict, explanation, value, judged, output)


def _shown(seeds: Sequence[Mark], room: int) -> list[Mark]:
    """Return a column's marks: the largest values of each verdict, and a few without numbers."""
    groups: dict[str, list[Mark]] = {}
    silent = []
    for seed in sorted(seeds, key=_severity):
        if seed.value is None:
            silent.append(seed)
        else:
            groups.setdefault(seed.verdict, []).append(seed)
    sizes = shares([len(group) for group in groups.values()], room)
    numbered = zip(groups.values(), sizes, strict=True)
    return [*silent[: _few(room)], *(seed for group, size in numbered for seed in group[:size])]


def _severity(seed: Mark) -> tuple[Any, ...]:
    rank = _RANK.get(seed.verdict, len(_RANK))
    return rank, -(seed.value or 0.0), seed.job, seed.seed, seed.repeat


def _few(room: int) -> int:
    return max(1, room // _FEW_SILENT)


def shares(sizes: Sequence[int], budget: int) -> list[int]:
    """Share a budget fairly: each size gets what it needs, but at most an equal part of the rest.

    Each gets at least 1.
    """
    parts = [0] * len(sizes)
    left = budget
    for done, place in enumerate(sorted(range(len(sizes)), key=lambda place: sizes[place])):
        parts[place] = max(1, min(sizes[place], left // (len(sizes) - done)))
        left -= parts[place]
    return parts


@dataclass(frozen=True)
class Spread:
    """The smallest value, the 10th, 50th and 90th percentile of the newest, and the largest of all.

    None without any finite value.
    """

    low: float | None
    most_from: float | None
    middle: float | None
    most_to: float | None
    high: float | None
    unnumbered: int
    """Seeds without a finite value."""


def spread(
    session: Session,
    jobs: Sequence[Counted],
    output: str,
    metric: str,
    totals: Mapping[str, Tally],
    most: int | None = None,
) -> Spread:
    """Return the spread of an output's values over jobs, newest first, with these sums by job."""
    figures = [totals[job.id] for job in jobs if job.id in totals]
    largest = [tally.figure(metric).largest for tally in figures]
    unnumbered = sum(tally.seeds - tally.figure(metric).known for tally in figures)
    return spread_of(
        newest(session, jobs, output, metric, most),
        high=max((value for value in largest if value is not None), default=None),
        unnumbered=unnumbered,
    )


def spread_of(
    values: Collection[float], *, high: float | None = None, unnumbered: int = 0
) -> Spread:
    """Return the spread of finite values; high: the largest, where others are left out."""
    ordered = sorted(values)
    if not ordered:
        return Spread(None, None, None, None, high, unnumbered)
    most_from, middle, most_to = (
        ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.1, 0.5, 0.9)
    )
    largest = max(ordered[-1], high or ordered[-1])
    return Spread(ordered[0], most_from, middle, most_to, largest, unnumbered)


def newest(
    session: Session, jobs: Sequence[Counted], output: str, metric: str, most: int | None = None
) -> list[float]:
    """Return the finite values of the newest seeds of jobs, newest job first.

    Of WHOLE they are those of each seed's worst output.
    """
    table = ResultRow
    column: Any = getattr(table, _known(metric))
    values: list[float] = []
    for job in jobs:
        left = (most or NEWEST) - len(values)
        if left <= 0:
            break
        where = [table.job_id == job.id, table.arrival > job.done - left, column.is_not(None)]
        query = select(column if output != WHOLE else func.max(column)).where(*where)
        if output == WHOLE:
            query = query.group_by(table.arrival).order_by(table.arrival)
        else:  # by the index of arrivals: that of outputs has all seeds
            query = query.where(func.coalesce(table.output, WHOLE) == output)
            query = query.order_by(table.job_id, table.arrival, table.place)
        values += [value for value in session.scalars(query) if math.isfinite(value)]
    return values


def of_output(session: Session, job_ids: Collection[str], output: str) -> dict[str, Tally]:
    """Return the sums of an output by job."""
    jobs = of_jobs(session, job_ids, JobBlockRow.output == output)
    return {job: outputs[output] for job, outputs in jobs.items()}


def _known(metric: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; allowed: {', '.join(METRICS)}")
    return metric
