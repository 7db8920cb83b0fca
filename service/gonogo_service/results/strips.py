"""The data of a test's strip plot: one output's seeds over many jobs as marks, and sums.

The caller chooses the jobs (gonogo_service.tests.variants.jobs_of), newest first. If there are
few seeds, all are read. Otherwise only the worst of each verdict are read, by an index, so that no
more is read than shown. The other seeds are only in the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from sqlalchemy import (
    CompoundSelect,
    Integer,
    Select,
    SmallInteger,
    bindparam,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.orm import Session

from gonogo.flakiness import sketches
from gonogo.flakiness.sketches import Sketch
from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.database.each import Ask, Given, of_each
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.rollups.tallies import WHOLE
from gonogo_service.results.rows import JobTallyRow, SeedResultRow
from gonogo_service.results.seed_rows import slots, unpacking
from gonogo_service.results.seed_rows.unpacking import Names

METRICS = ("tolerance_ratio", "rounding_ratio")
"""The statistics that may be the axis: they have a column and a sketch."""
_NUMBERED: Mapping[str, int] = {"tolerance_ratio": slots.GATED, "rounding_ratio": slots.UNGATED}
"""The class of a slot's rank where the statistic is the axis."""
_SILENT: Mapping[str, Sequence[int]] = {
    "tolerance_ratio": (slots.UNGATED, slots.SILENT),
    "rounding_ratio": (slots.SILENT,),
}
"""The classes of outputs without a number on that axis."""
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}
_LOST = (Verdict.error, Verdict.crash, Verdict.hang)
"""The verdicts of seeds without numbers; their row has no output."""
_NONFINITE = "nonfinite"
_FEW_SILENT = 8
"""At most one in this many marks of a column has no number, so that hangs don't hide the others."""
_MAX_PARTS = 100
"""Number of parts of one statement; SQLite allows 500."""
_JOB = (("job", IdType),)
_PART = (*_JOB, ("rank", SmallInteger()), ("most", Integer()))


class StripSeed(NamedTuple):
    """One (seed, repeat) of a job for an output; `value` is None without a number (hang, NaN)."""

    job: str
    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    value: float | None
    statistics: Mapping[str, Any] = MappingProxyType({})
    """The requested statistics; empty without the output."""
    output: str = WHOLE
    """The output; WHOLE for a seed without outputs."""


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
    session: Session, jobs: Sequence[Counted], output: str, metric: str, more: Names = frozenset()
) -> list[StripSeed]:
    """Return every (seed, repeat) of the jobs for an output, including those without numbers.

    more: further statistics to read; None: all. Raises ValueError for an unknown metric.
    """
    seeds: list[StripSeed] = []
    for batch in batched([job.id for job in jobs], _MAX_PARTS):
        rows = of_each(session, _rows, _JOB, [(job,) for job in batch])
        seeds += _seeds(session, rows, batch, output, _known(metric), more)
    return seeds


def worst(
    session: Session,
    columns: Sequence[Sequence[Counted]],
    output: str,
    metric: str,
    limit: int,
    totals: Mapping[str, Sums],
    more: Names = frozenset(),
) -> list[StripSeed]:
    """Return the worst seeds of each column (jobs of a build), about `limit` over all columns.

    Each verdict gets a share of the column's marks, and its largest values are taken first.
    `totals` are the jobs' sums (see `sums`); jobs without sums are searched for every verdict.
    `more` is as in `marks`. Outputs without a slot are read as a whole.
    """
    rooms = shares([sum(job.done for job in jobs) for jobs in columns], limit)
    place = {job.id: number for number, jobs in enumerate(columns) for job in jobs}
    slots_of = slots.of_jobs(session, list(place))
    parts: list[_Part] = []
    unindexed: list[Counted] = []
    for jobs, room in zip(columns, rooms, strict=True):
        for job in jobs:
            slot = slots_of.get(job.id, {}).get(output)
            if slot is None:
                unindexed.append(job)
            else:
                parts += _worst_of(job, slot, _known(metric), room, totals.get(job.id))
    candidates: list[list[StripSeed]] = [[] for _ in columns]
    marked = [*_worst(session, parts, output, metric, more)]
    if unindexed:
        marked += marks(session, unindexed, output, metric, more)
    for seed in marked:
        candidates[place[seed.job]].append(seed)
    return [
        seed for seeds, room in zip(candidates, rooms, strict=True) for seed in _shown(seeds, room)
    ]


def _worst_of(
    job: Counted, slot: int, metric: str, room: int, sums: Sums | None
) -> Iterator[_Part]:
    """Yield the parts of a job's query: for each verdict as many rows as could be shown."""
    counts = dict.fromkeys(_RANK, job.done) if sums is None else sums.counts
    for verdict, number in counts.items():
        if number and verdict not in _LOST:
            numbered = slots.rank(verdict, _NUMBERED[metric])
            yield _Part(job.id, slot, numbered, min(number, room))
            if sums is None or _unnumbered(sums.sketch):
                for class_ in _SILENT[metric]:
                    yield _Part(job.id, slot, slots.rank(verdict, class_), _few(room))
    for verdict in _LOST:
        if job.counts.get(verdict):
            yield _Part(job.id, 0, slots.rank(verdict, slots.EMPTY), _few(room))


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
    by_seed: dict[tuple[str, int, int], dict[str, Any]] = {}
    for batch in batched([job for job, pairs in chosen.items() if pairs], _MAX_PARTS):
        values: dict[str, Any] = {f"job{place}": job for place, job in enumerate(batch)}
        for place, job in enumerate(batch):
            values[f"seeds{place}"] = sorted({seed for seed, _ in chosen[job]})
        rows = session.execute(_some_query(len(batch)), values).all()
        for row in _seeds(session, rows, batch, output, METRICS[0], None):
            if row.statistics and (row.seed, row.repeat) in chosen[row.job]:
                by_seed[row.job, row.seed, row.repeat] = dict(row.statistics)
    return by_seed


class _Part(NamedTuple):
    """A part of a statement: the rows of a job with a rank, the largest first."""

    job: str
    slot: int
    rank: int
    most: int


def _worst(
    session: Session, parts: Sequence[_Part], output: str, metric: str, more: Names
) -> Iterator[StripSeed]:
    by_slot: dict[int, list[_Part]] = {}
    for part in parts:
        by_slot.setdefault(part.slot, []).append(part)
    for slot, of_slot in by_slot.items():
        for batch in batched(of_slot, _MAX_PARTS):
            values = [(part.job, part.rank, part.most) for part in batch]
            rows = of_each(session, _largest(slot), _PART, values)
            yield from _seeds(session, rows, [part.job for part in batch], output, metric, more)


@cache
def _largest(slot: int) -> Ask:
    """Return what makes the query of a part with this slot."""

    def ask(given: Given) -> Select[Any]:
        of_rank = slots.rank_column(slot) == given("rank")
        largest = _rows(given).where(of_rank).order_by(slots.axis_column(slot).desc())
        return largest.limit(given("most"))

    return ask


@lru_cache(maxsize=64)
def _some_query(jobs: int) -> CompoundSelect[Any]:
    seed = SeedResultRow.__table__.c.seed
    parts = []
    for number in range(jobs):
        place: Any = literal_column(str(number)).label("place")
        job = bindparam(f"job{number}", type_=IdType)
        chosen = seed.in_(bindparam(f"seeds{number}", expanding=True))
        parts.append(select(place, *_rows({"job": job}.__getitem__).where(chosen).subquery().c))
    return union_all(*parts)


def _rows(given: Given) -> Select[Any]:
    """Return the query of a job's seeds.

    A row has no job's id, because parsing thousands of ids would take longest.
    """
    table = SeedResultRow.__table__.c
    names = ("seed", "repeat", "verdict", "explanation", "layout", "numbers", "rest")
    return select(*(table[name] for name in names)).where(table.job_id == given("job"))


def _seeds(
    session: Session,
    rows: Sequence[Any],
    jobs: Sequence[str],
    output: str,
    metric: str,
    more: Names,
) -> Iterator[StripSeed]:
    """Yield the rows that have the output, and those without any; `jobs` are those of the parts."""
    unpacking.load(session, {row.layout for row in rows})
    names = None if more is None else frozenset({metric, _NONFINITE, *more})
    for place, seed, repeat, verdict, explanation, layout, numbers, rest in rows:
        if layout is None and rest is None:
            yield StripSeed(jobs[place], seed, repeat, verdict, explanation, None)
            continue
        judged = unpacking.unpack_output(layout, numbers, rest, output, names)
        if judged is not None:
            judgment = judged.pop("verdict"), judged.pop("explanation")
            # Statistics of an output with NaN or Inf describe its finite elements only.
            number = None if judged.get(_NONFINITE) else judged.get(metric)
            yield StripSeed(jobs[place], seed, repeat, *judgment, number, judged, output)


def _known(metric: str) -> str:
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}; allowed: {', '.join(METRICS)}")
    return metric
