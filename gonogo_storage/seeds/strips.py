"""The data of a test's strip plot: one output's seeds over many jobs as marks, and sums.

The caller chooses the jobs (gonogo_storage.rollups.variants.jobs_of), newest first. If there are
few seeds, all are read. Otherwise only the worst of each verdict are read, by an index, so that no
more is read than shown. The other seeds are only in the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, Protocol

from sqlalchemy import TextClause, TextualSelect, bindparam, select, text
from sqlalchemy.orm import Session

from gonogo.flakiness import sketches
from gonogo.flakiness.sketches import Sketch
from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_storage.db.columns import IdType, JsonType
from gonogo_storage.rollups.tallies import WHOLE
from gonogo_storage.seeds.results import COLUMNS
from gonogo_storage.tables import JobTallyRow

METRICS = ("tolerance_ratio", "budget_ratio")
"""The statistics that may be the axis: they have a column and a sketch."""
_NUMBERED: Mapping[str, str] = {
    "tolerance_ratio": "tolerance_ratio IS NOT NULL ORDER BY tolerance_ratio DESC",
    "budget_ratio": (
        "tolerance_ratio IS NULL AND budget_ratio IS NOT NULL ORDER BY budget_ratio DESC"
    ),
}
"""Conditions for the rows of a verdict, the worst first, as their index needs them."""
_SILENT: Mapping[str, str] = {
    "tolerance_ratio": "tolerance_ratio IS NULL LIMIT :most",
    "budget_ratio": "tolerance_ratio IS NULL AND budget_ratio IS NULL LIMIT :most",
}
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_LOST = (Verdict.error, Verdict.crash, Verdict.hang)
"""The verdicts of seeds without numbers; their row has no output."""
_FEW_SILENT = 8
"""At most one in this many marks of a column has no number, so that hangs don't hide the others."""
_MAX_PARTS = 100
"""Number of parts of one statement; SQLite allows 500."""


class StripSeed(NamedTuple):
    """One (seed, repeat) of a job for an output; `value` is None without a number (hang, NaN)."""

    job: str
    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    value: float | None
    more: tuple[Any, ...] = ()
    """The values of the further columns, in the requested order."""


class Counted(Protocol):
    """A job with its number of (seed, repeat), in total and by verdict."""

    @property
    def id(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def counts(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Sums:
    """All seeds of some jobs for an output: verdicts, and the distribution of the axis' statistic.

    They come from the roll-ups.
    """

    counts: Mapping[str, int]
    sketch: Sketch


def outputs(session: Session, job_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return {output: seeds by verdict} over these jobs, from their roll-ups."""
    table = JobTallyRow
    query = select(table.output, table.counts).where(
        table.job_id.in_(job_ids), table.shadow.is_(False), table.output != WHOLE
    )
    by_output: dict[str, dict[str, int]] = {}
    for output, counts in session.execute(query):
        total = by_output.setdefault(output, {})
        for verdict, number in counts.items():
            total[verdict] = total.get(verdict, 0) + number
    return by_output


def marks(
    session: Session, jobs: Sequence[Counted], output: str, metric: str, more: Sequence[str] = ()
) -> list[StripSeed]:
    """Return every (seed, repeat) of the jobs for an output, including those without numbers.

    `more` are further columns to read, as SQL. Raises ValueError for an unknown metric.
    """
    parts = [_Part(job.id, name, "TRUE") for job in jobs for name in dict.fromkeys((output, WHOLE))]
    return _read(session, parts, _known(metric), more)


def worst(
    session: Session,
    columns: Sequence[Sequence[Counted]],
    output: str,
    metric: str,
    limit: int,
    totals: Mapping[str, Sums],
    more: Sequence[str] = (),
) -> list[StripSeed]:
    """Return the worst seeds of each column (jobs of a build), about `limit` over all columns.

    Each verdict gets a share of the column's marks, and its largest values are taken first.
    `totals` are the jobs' sums (see `sums`); jobs without sums are searched for every verdict.
    `more` is as in `marks`.
    """
    rooms = shares([sum(job.done for job in jobs) for jobs in columns], limit)
    parts = [
        part
        for jobs, room in zip(columns, rooms, strict=True)
        for part in _worst_of(jobs, output, _known(metric), room, totals)
    ]
    place = {job.id: number for number, jobs in enumerate(columns) for job in jobs}
    candidates: list[list[StripSeed]] = [[] for _ in columns]
    for seed in _read(session, parts, metric, more):
        candidates[place[seed.job]].append(seed)
    return [
        seed for seeds, room in zip(candidates, rooms, strict=True) for seed in _shown(seeds, room)
    ]


def _worst_of(
    jobs: Sequence[Counted], output: str, metric: str, room: int, totals: Mapping[str, Sums]
) -> Iterator[_Part]:
    """Yield the parts of a column's query: per job and verdict as many rows as could be shown."""
    for job in jobs:
        job_sums = totals.get(job.id)
        for verdict, number in (
            dict.fromkeys(_RANK, job.done) if job_sums is None else job_sums.counts
        ).items():
            if number and verdict not in _LOST:
                yield _Part(
                    job.id,
                    output,
                    f"verdict = :verdict AND {_NUMBERED[metric]} LIMIT :most",
                    verdict,
                    min(number, room),
                )
                if job_sums is None or _unnumbered(job_sums.sketch):
                    yield _Part(
                        job.id,
                        output,
                        f"verdict = :verdict AND {_SILENT[metric]}",
                        verdict,
                        _few(room),
                    )
        for verdict in _LOST:
            if job.counts.get(verdict):
                yield _Part(
                    job.id, WHOLE, f"verdict = :verdict AND {_SILENT[metric]}", verdict, _few(room)
                )


def _shown(seeds: Sequence[StripSeed], room: int) -> list[StripSeed]:
    """Return a column's marks: the largest values of each verdict, and a few without numbers."""
    groups: dict[str, list[StripSeed]] = {}
    silent = []
    for seed in sorted(seeds, key=_severity):
        if seed.value is None:
            silent.append(seed)
        else:
            groups.setdefault(seed.verdict, []).append(seed)
    sizes = shares([len(group) for group in groups.values()], room)
    return [
        *silent[: _few(room)],
        *(
            seed
            for group, size in zip(groups.values(), sizes, strict=True)
            for seed in group[:size]
        ),
    ]


def _severity(seed: StripSeed) -> tuple[Any, ...]:
    return (
        _RANK.get(seed.verdict, len(_RANK)),
        -(seed.value or 0.0),
        seed.job,
        seed.seed,
        seed.repeat,
    )


def _few(room: int) -> int:
    return max(1, room // _FEW_SILENT)


def _unnumbered(sketch: Sketch) -> int:
    return sketch.inf + sketch.nan + sketch.missing


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


def sums(session: Session, job_ids: Sequence[str], output: str, metric: str) -> dict[str, Sums]:
    """Return {job: sums}; jobs that the roll-ups don't contain yet are left out."""
    table = JobTallyRow
    sketches_of_metric = table.sketches[metric]
    query = select(table.job_id, table.counts, sketches_of_metric).where(
        table.job_id.in_(job_ids), table.output == output, table.shadow.is_(False)
    )
    return {
        job_id: Sums(counts, Sketch.parse(sketch or {}))
        for job_id, counts, sketch in session.execute(query)
    }


def together(parts: Sequence[Sums]) -> Sums:
    """Return the sum of all parts."""
    counts: dict[str, int] = {}
    for part in parts:
        for verdict, number in part.counts.items():
            counts[verdict] = counts.get(verdict, 0) + number
    return Sums(counts, sketches.total(part.sketch for part in parts))


def statistics(
    session: Session, chosen: Mapping[str, Sequence[tuple[int, int]]], output: str
) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Return all stored statistics of the `chosen` (seed, repeat), by (job, seed, repeat).

    Seeds without numbers are left out.
    """
    remaining = iter(
        [(job, sorted({seed for seed, _ in pairs})) for job, pairs in chosen.items() if pairs]
    )
    by_seed: dict[tuple[str, int, int], dict[str, Any]] = {}
    while batch := list(islice(remaining, _MAX_PARTS)):
        values: dict[str, Any] = {"output": output}
        for place, (job, seeds) in enumerate(batch):
            values |= {
                f"job{place}": job,
                **{f"seed{place}_{number}": seed for number, seed in enumerate(seeds)},
            }
        query = _statistics_query(tuple(len(seeds) for _, seeds in batch))
        for place, seed, repeat, more, *numbers in session.execute(query, values).all():
            job, _ = batch[place]
            if (seed, repeat) in chosen[job]:
                by_seed[job, seed, repeat] = {
                    **(more or {}),
                    **dict(zip(COLUMNS, numbers, strict=True)),
                }
    return by_seed


@lru_cache(maxsize=64)  # building a statement of a hundred parts takes longer than running it
def _statistics_query(sizes: tuple[int, ...]) -> TextualSelect:
    """Return the query for `sizes[i]` seeds of job i."""
    parts = []
    for place, size in enumerate(sizes):
        columns = ", ".join((f"{place} AS place", "seed", "repeat", "statistics", *COLUMNS))
        listed = ", ".join(f":seed{place}_{number}" for number in range(size))
        parts.append(
            f"SELECT {columns} FROM seed_results"
            f" WHERE job_id = :job{place} AND output = :output AND seed IN ({listed})"
        )
    ids = (bindparam(f"job{place}", type_=IdType) for place in range(len(sizes)))
    return text(" UNION ALL ".join(parts)).bindparams(*ids).columns(statistics=JsonType)


class _Part(NamedTuple):
    """A part of a statement: rows of one job and output."""

    job: str
    output: str
    where: str
    verdict: str = ""
    most: int = 0


def _read(
    session: Session, parts: Sequence[_Part], metric: str, more: Sequence[str]
) -> list[StripSeed]:
    """Return the rows of all parts.

    Each row has the index of its part instead of the job's id, because parsing thousands of ids
    would take longest.
    """
    remaining = iter(parts)
    seeds: list[StripSeed] = []
    while batch := list(islice(remaining, _MAX_PARTS)):
        values: dict[str, Any] = {}
        for place, part in enumerate(batch):
            values |= {f"job{place}": part.job, f"output{place}": part.output}
            values |= (
                {f"verdict{place}": part.verdict, f"most{place}": part.most} if part.verdict else {}
            )
        rows = session.execute(
            _query(tuple(part.where for part in batch), metric, tuple(more)), values
        ).all()  # twice as fast as row by row
        for place, seed, repeat, verdict, explanation, value, *others in rows:
            seeds.append(
                StripSeed(
                    batch[place].job, seed, repeat, verdict, explanation, value, tuple(others)
                )
            )
    return seeds


@lru_cache(maxsize=64)
def _query(wheres: tuple[str, ...], metric: str, more: tuple[str, ...]) -> TextClause:
    statement = " UNION ALL ".join(
        _select(place, where, metric, more) for place, where in enumerate(wheres)
    )
    return text(statement).bindparams(
        *(bindparam(f"job{place}", type_=IdType) for place in range(len(wheres)))
    )


def _select(place: int, where: str, metric: str, more: Sequence[str]) -> str:
    where = where.replace(":verdict", f":verdict{place}").replace(":most", f":most{place}")
    named = [f"{column} AS more{number}" for number, column in enumerate(more)]
    columns = ", ".join(
        [f"{place} AS place, seed, repeat, verdict, explanation, {metric} AS value", *named]
    )
    of_job = f"job_id = :job{place} AND output = :output{place}"
    rows = f"SELECT {columns} FROM seed_results WHERE {of_job} AND {where}"
    return f"SELECT * FROM ({rows}) AS part{place}"


def _known(metric: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; allowed: {', '.join(METRICS)}")
    return metric
