"""What the strip plot of a test reads: the seeds of one output over many jobs as marks, and the
sums of those that aren't marks.

Everything is of jobs that the caller has chosen (gonogo_storage.rollups.variants.jobs_of), newest first.
Few seeds are read whole; of many the worst of each verdict by an index, so that what is read is
what is shown, however many seeds there are.
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
"""What may be the axis: statistics that have a column and a sketch."""
_NUMBERED: Mapping[str, str] = {
    "tolerance_ratio": "tolerance_ratio IS NOT NULL ORDER BY tolerance_ratio DESC",
    "budget_ratio": "tolerance_ratio IS NULL AND budget_ratio IS NOT NULL ORDER BY budget_ratio DESC",
}
"""The rows of a verdict from the worst on, in the words of their index."""
_SILENT: Mapping[str, str] = {
    "tolerance_ratio": "tolerance_ratio IS NULL LIMIT :most",
    "budget_ratio": "tolerance_ratio IS NULL AND budget_ratio IS NULL LIMIT :most",
}
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_LOST = (Verdict.error, Verdict.crash, Verdict.hang)
"""Seeds without numbers: their row has no output."""
_FEW_SILENT = 8
"""Of the marks of a column at most one in so many has no number: a hang must not hide what the
others look like."""
_AT_ONCE = 100
"""Parts of one statement; SQLite takes 500."""


class StripSeed(NamedTuple):
    """One (seed, repeat) of a job for an output; `value` is None where it has no number (hang,
    NaN).
    """

    job: str
    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    value: float | None
    more: tuple[Any, ...] = ()
    """What else was asked for, in that order."""


class Counted(Protocol):
    """What is needed of a job: how many (seed, repeat) it has, and how many of each verdict."""

    @property
    def id(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def counts(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Sums:
    """All seeds of some jobs for an output, from their roll-ups: verdicts, and the spread of the
    axis' statistic.
    """

    counts: Mapping[str, int]
    sketch: Sketch


def outputs(session: Session, job_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Output -> its seeds by verdict, over these jobs, from their roll-ups."""
    table = JobTallyRow
    query = select(table.output, table.counts).where(
        table.job_id.in_(job_ids), table.shadow.is_(False), table.output != WHOLE
    )
    found: dict[str, dict[str, int]] = {}
    for output, counts in session.execute(query):
        told = found.setdefault(output, {})
        for verdict, number in counts.items():
            told[verdict] = told.get(verdict, 0) + number
    return found


def marks(
    session: Session, jobs: Sequence[Counted], output: str, metric: str, more: Sequence[str] = ()
) -> list[StripSeed]:
    """Every (seed, repeat) of the jobs for the output, those without any numbers too. Raises
    ValueError for another metric.

    more: SQL of what else to read of each row.
    """
    parts = [_Part(job.id, name, "TRUE") for job in jobs for name in dict.fromkeys((output, WHOLE))]
    return _read(session, parts, _known(metric), more)


def worst(
    session: Session,
    columns: Sequence[Sequence[Counted]],
    output: str,
    metric: str,
    limit: int,
    told: Mapping[str, Sums],
    more: Sequence[str] = (),
) -> list[StripSeed]:
    """The worst seeds of each column (jobs of a build), about `limit` over all columns: each
    verdict has its share of a column's marks, and in it the largest values come first.

    told: the jobs' sums (`sums`); of a job that has none yet every verdict is looked for. more: as
    of `marks`.
    """
    rooms = shares([sum(job.done for job in jobs) for jobs in columns], limit)
    parts = [
        part
        for jobs, room in zip(columns, rooms, strict=True)
        for part in _worst_of(jobs, output, _known(metric), room, told)
    ]
    place = {job.id: number for number, jobs in enumerate(columns) for job in jobs}
    found: list[list[StripSeed]] = [[] for _ in columns]
    for seed in _read(session, parts, metric, more):
        found[place[seed.job]].append(seed)
    return [seed for own, room in zip(found, rooms, strict=True) for seed in _kept(own, room)]


def _worst_of(
    jobs: Sequence[Counted], output: str, metric: str, room: int, told: Mapping[str, Sums]
) -> Iterator[_Part]:
    """What to ask for a column: of each job and verdict as many as could be shown."""
    for job in jobs:
        own = told.get(job.id)
        for verdict, number in (
            dict.fromkeys(_RANK, job.done) if own is None else own.counts
        ).items():
            if number and verdict not in _LOST:
                yield _Part(
                    job.id,
                    output,
                    f"verdict = :verdict AND {_NUMBERED[metric]} LIMIT :most",
                    verdict,
                    min(number, room),
                )
                if own is None or _unnumbered(own.sketch):
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


def _kept(seeds: Sequence[StripSeed], room: int) -> list[StripSeed]:
    """A column's marks: its room shared by the verdicts, the largest values of each; beside them a
    few without numbers.
    """
    groups: dict[str, list[StripSeed]] = {}
    silent = []
    for seed in sorted(seeds, key=_severity):
        if seed.value is None:
            silent.append(seed)
        else:
            groups.setdefault(seed.verdict, []).append(seed)
    own = shares([len(group) for group in groups.values()], room)
    return [
        *silent[: _few(room)],
        *(seed for group, most in zip(groups.values(), own, strict=True) for seed in group[:most]),
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
    """How much of a budget each gets: as much as it needs where that is less than an equal share of
    what is left, at least 1.
    """
    found = [0] * len(sizes)
    left = budget
    for done, place in enumerate(sorted(range(len(sizes)), key=lambda place: sizes[place])):
        found[place] = max(1, min(sizes[place], left // (len(sizes) - done)))
        left -= found[place]
    return found


def sums(session: Session, job_ids: Sequence[str], output: str, metric: str) -> dict[str, Sums]:
    """Job -> its sums; jobs that the roll-ups don't hold yet are left out."""
    table = JobTallyRow
    told = table.sketches[metric]
    query = select(table.job_id, table.counts, told).where(
        table.job_id.in_(job_ids), table.output == output, table.shadow.is_(False)
    )
    return {
        job_id: Sums(counts, Sketch.parse(sketch or {}))
        for job_id, counts, sketch in session.execute(query)
    }


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
    """Every stored statistic of some (seed, repeat) of each job, by (job, seed, repeat); those
    without numbers are left out.
    """
    rest = iter(
        [(job, sorted({seed for seed, _ in pairs})) for job, pairs in chosen.items() if pairs]
    )
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    while own := list(islice(rest, _AT_ONCE)):
        values: dict[str, Any] = {"output": output}
        for place, (job, seeds) in enumerate(own):
            values |= {
                f"job{place}": job,
                **{f"seed{place}_{number}": seed for number, seed in enumerate(seeds)},
            }
        query = _statistics_query(tuple(len(seeds) for _, seeds in own))
        for place, seed, repeat, more, *numbers in session.execute(query, values).all():
            job, _ = own[place]
            if (seed, repeat) in chosen[job]:
                found[job, seed, repeat] = {
                    **(more or {}),
                    **dict(zip(COLUMNS, numbers, strict=True)),
                }
    return found


@lru_cache(maxsize=64)  # to put a statement of a hundred parts together takes longer than to run it
def _statistics_query(sizes: tuple[int, ...]) -> TextualSelect:
    """Of each of so many jobs some rows, by as many seeds."""
    parts = []
    for place, size in enumerate(sizes):
        columns = ", ".join((f"{place} AS place", "seed", "repeat", "statistics", *COLUMNS))
        listed = ", ".join(f":seed{place}_{number}" for number in range(size))
        parts.append(
            f"SELECT {columns} FROM seed_results WHERE job_id = :job{place} AND output = :output AND seed IN ({listed})"
        )
    ids = (bindparam(f"job{place}", type_=IdType) for place in range(len(sizes)))
    return text(" UNION ALL ".join(parts)).bindparams(*ids).columns(statistics=JsonType)


class _Part(NamedTuple):
    """A part of a statement: some rows of one job and output."""

    job: str
    output: str
    where: str
    verdict: str = ""
    most: int = 0


def _read(
    session: Session, parts: Sequence[_Part], metric: str, more: Sequence[str]
) -> list[StripSeed]:
    """The rows of all parts. Each tells its place among the parts and not its job, as to parse
    thousands of ids would take the longest.
    """
    rest = iter(parts)
    found: list[StripSeed] = []
    while own := list(islice(rest, _AT_ONCE)):
        values: dict[str, Any] = {}
        for place, part in enumerate(own):
            values |= {f"job{place}": part.job, f"output{place}": part.output}
            values |= (
                {f"verdict{place}": part.verdict, f"most{place}": part.most} if part.verdict else {}
            )
        rows = session.execute(
            _query(tuple(part.where for part in own), metric, tuple(more)), values
        ).all()  # at once: twice as fast
        for place, seed, repeat, verdict, explanation, value, *others in rows:
            found.append(
                StripSeed(own[place].job, seed, repeat, verdict, explanation, value, tuple(others))
            )
    return found


@lru_cache(maxsize=64)
def _query(wheres: tuple[str, ...], metric: str, more: tuple[str, ...]) -> TextClause:
    statement = " UNION ALL ".join(
        _spelt(place, where, metric, more) for place, where in enumerate(wheres)
    )
    return text(statement).bindparams(
        *(bindparam(f"job{place}", type_=IdType) for place in range(len(wheres)))
    )


def _spelt(place: int, where: str, metric: str, more: Sequence[str]) -> str:
    where = where.replace(":verdict", f":verdict{place}").replace(":most", f":most{place}")
    named = [f"{each} AS more{number}" for number, each in enumerate(more)]
    columns = ", ".join(
        [f"{place} AS place, seed, repeat, verdict, explanation, {metric} AS value", *named]
    )
    of_job = f"job_id = :job{place} AND output = :output{place}"
    return f"SELECT * FROM (SELECT {columns} FROM seed_results WHERE {of_job} AND {where}) AS part{place}"


def _known(metric: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"no strip of {metric!r}; there are {', '.join(METRICS)}")
    return metric
