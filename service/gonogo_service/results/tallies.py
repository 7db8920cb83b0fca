"""The two aggregates as readers see them: sums by output, by build and by day."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.model import WHOLE, DailyRow, JobBlockRow
from gonogo_service.results.sums import LOGARITHMIC, MAXIMA, SUMS
from gonogo_service.tests.variants import Variant

_AT_ONCE = 200
_ADDED = tuple(name for name in SUMS if name not in MAXIMA)


class Figure(NamedTuple):
    """A statistic over many seeds."""

    known: int
    """Seeds with a finite value."""
    largest: float | None
    middle: float | None
    """The geometric mean."""


@dataclass(frozen=True)
class Tally:
    """Sums over (seed, repeat), of one output or of whole seeds."""

    seeds: int = 0
    empty: int = 0
    """Seeds without any output: hangs, crashes, errors."""
    passed: int = 0
    failed: int = 0
    duration_ms: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    """Seeds by verdict."""
    explanations: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Figures of tolerance_ratio, rounding_ratio and, for an output, rms."""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """The largest tolerance_ratio, rounding_ratio and max_abs of an output, its mean rms and
    pcc_deficit."""
    seed_ms: float | None = None
    """The mean duration of seeds with outputs."""

    def figure(self, name: str) -> Figure:
        """Return the figure of a statistic."""
        return self.figures.get(name, Figure(0, None, None))


def of_job(session: Session, job_id: str) -> dict[str, Tally]:
    """Return a job's sums by output, WHOLE for whole seeds; empty where there is no such job."""
    return of_jobs(session, [job_id]).get(job_id, {}) if is_id(job_id) else {}


def of_jobs(
    session: Session, job_ids: Collection[str], *conditions: ColumnElement[bool]
) -> dict[str, dict[str, Tally]]:
    """Return the sums of jobs by job and output; conditions: on JobBlockRow."""
    table = JobBlockRow
    jobs: dict[str, dict[str, Tally]] = {}
    where = among(session, table.job_id, job_ids), *conditions
    for (job, output), tally in sums(session, table, (table.job_id, table.output), *where).items():
        jobs.setdefault(job, {})[output] = tally
    return jobs


def verdicts_by_day(session: Session, since: date) -> dict[date, Counter[str]]:
    """Return the number of seeds of all tests by UTC day and verdict."""
    table = DailyRow
    query = select(table.day, table.verdict, func.sum(table.n)).where(
        table.day >= since, table.output == WHOLE
    )
    totals: dict[date, Counter[str]] = {}
    for day, verdict, seeds in session.execute(query.group_by(table.day, table.verdict)):
        totals.setdefault(day, Counter())[verdict] = int(seeds)
    return totals


def with_numbers(session: Session, job_ids: Collection[str]) -> set[str]:
    """Return the jobs that have outputs with numbers; most selections have none."""
    table = JobBlockRow
    where = among(session, table.job_id, job_ids), table.output > WHOLE
    return set(session.scalars(select(table.job_id).where(*where).distinct()))


def devices(session: Session, job_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the devices that jobs have results of, by job, in order."""
    table, of_job = JobBlockRow, dict[str, tuple[str, ...]]()
    ran = among(session, table.job_id, job_ids), table.output == WHOLE, table.device != ""
    query = select(table.job_id, table.device).where(*ran).distinct().order_by(table.device)
    for job, device in session.execute(query):
        of_job[job] = (*of_job.get(job, ()), device)
    return of_job


def sums(
    session: Session, table: type[JobBlockRow | DailyRow], by: Sequence[Any], *where: Any
) -> dict[Any, Tally]:
    """Return the sums of an aggregate's rows by the values of some columns, in their order."""
    columns: list[Any] = [func.sum(getattr(table, name)) for name in _ADDED]
    columns += [func.max(getattr(table, name)) for name in MAXIMA]
    groups = (*by, table.verdict, table.explanation)
    query = select(*groups, *columns).where(*where).group_by(*groups)
    rows_of: dict[Any, list[Any]] = {}
    for row in session.execute(query.order_by(*by)):
        rows_of.setdefault(tuple(row[: len(by)]), []).append(row[len(by) :])
    return {place: _tally(rows) for place, rows in rows_of.items()}


def _tally(rows: Iterable[Any]) -> Tally:
    counts, explanations = Counter[str](), Counter[str]()
    added = dict.fromkeys(_ADDED, 0.0)
    largest: dict[str, float | None] = dict.fromkeys(MAXIMA)
    for verdict, explanation, *values in rows:
        of_row = dict(zip((*_ADDED, *MAXIMA), values, strict=True))
        counts[verdict] += int(of_row["n"])
        if explanation:
            explanations[explanation] += int(of_row["n"])
        for name in _ADDED:
            added[name] += float(of_row[name])
        for name in MAXIMA:
            known = (value for value in (largest[name], of_row[name]) if value is not None)
            largest[name] = max(known, default=None)
    means = {"rms": "rms_n", "pcc_deficit": "pcc_deficit_n"}
    metrics = {**{name: largest[name] for name in MAXIMA}, "pcc_deficit": None}
    metrics |= {n: added[f"{n}_sum"] / added[of] if added[of] else None for n, of in means.items()}
    figures = {
        name: Figure(int(number), largest[name], math.exp(added[f"{name}_log"] / number))
        for name in LOGARITHMIC
        if (number := added[f"{name}_n"])
    }
    return Tally(
        seeds=int(added["n"]),
        empty=int(added["empty"]),
        passed=int(added["passed"]),
        failed=int(added["failed"]),
        duration_ms=added["duration_ms"],
        counts=dict(sorted(counts.items())),
        explanations=dict(sorted(explanations.items())),
        figures=figures,
        metrics=metrics,
        seed_ms=added["timed_ms"] / added["timed"] if added["timed"] else None,
    )


def middle_errors(
    session: Session, builds: Mapping[Variant, tuple[str, ...]]
) -> dict[tuple[Variant, str], dict[str, float]]:
    """Return (variant, build) -> output -> the geometric mean of its rms error over its seeds.

    Outputs without a number are left out.
    """
    table = DailyRow
    names = sorted({build for of_variant in builds.values() for build in of_variant})
    by = (table.test_key, table.branch, table.arch, table.board, table.build, table.output)
    errors: dict[tuple[Variant, str], dict[str, float]] = {}
    for keys in batched(sorted({variant.test_key for variant in builds}), _AT_ONCE):
        where = table.test_key.in_(keys), table.build.in_(names), table.output != WHOLE
        query = select(*by, func.sum(table.rms_log), func.sum(table.rms_n)).where(*where)
        for *place, build, output, logs, known in session.execute(query.group_by(*by)):
            variant = Variant(*place)
            if known and build in builds.get(variant, ()):
                middle = math.exp(float(logs) / int(known))
                errors.setdefault((variant, build), {})[output] = middle
    return errors
