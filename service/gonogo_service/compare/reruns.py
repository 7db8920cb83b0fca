"""The commands that reproduce what a comparison reports: each runs a seed that shows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from gonogo.reports.check_line import check_line
from gonogo.spec.verdicts import Verdict
from gonogo_service.compare.compared import Compared
from gonogo_service.compare.sides import Place, SideResults
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.paging import batched
from gonogo_service.kit.database.states import IMPORT_EXECUTOR
from gonogo_service.results.model import ResultRow

MAX_JOBS = 50
"""Newest jobs of a test in which a seed is looked for."""
MAX_NAMES = 500
"""Tests of a selection that a query names; of more, it reads all."""
_AT_ONCE = 100
_GOOD = (Verdict.pass_, Verdict.not_run, Verdict.skipped)


def lines(session: Session, head: SideResults, tests: Iterable[Compared]) -> dict[Place, str]:
    """Return a `gonogo check` line for each test of head that isn't good.

    The line runs a seed that shows the verdict, of the newest job that has one. There is none where
    no seed shows it, and none for imported runs, which can't run from here.
    """
    by_verdict: dict[Verdict, list[tuple[Compared, list[str]]]] = {}
    for test in tests:
        verdict = test.classification.verdict
        if test.head is not None and verdict not in _GOOD:
            facts = head.facts.get(test.place)
            counted = [job.id for job in facts or () if job.counts.get(verdict)]
            jobs = list(test.head.jobs) if facts is None else counted
            by_verdict.setdefault(verdict, []).append((test, jobs[:MAX_JOBS]))
    chosen: dict[str, list[tuple[Compared, int, str]]] = {}
    for verdict, candidates in by_verdict.items():
        whole = {job for test, jobs in candidates for job in jobs if not test.place.within}
        inner = {job for test, jobs in candidates for job in jobs if test.place.within}
        seeds = _seeds(session, whole, verdict)
        names = {test.place.within for test, _ in candidates}
        iterations = _iterations(session, inner, names, verdict)
        for test, jobs in candidates:
            name = test.place.within
            for job in jobs:
                seed = (iterations.get((job, name)), name) if name else seeds.get(job)
                if seed is not None and seed[0] is not None:
                    chosen.setdefault(job, []).append((test, seed[0], seed[1]))
                    break
    columns = JobRow.id, JobRow.build, JobRow.executor, JobRow.context
    query = select(*columns).where(JobRow.executor != IMPORT_EXECUTOR)
    return {
        test.place: check_line(
            test.canonical,
            build=job.build,
            executor=job.executor,
            seed=seed,
            output=output,
            context=job.context,
        )
        for ids in batched(list(chosen), _AT_ONCE)
        for job in session.execute(query.where(JobRow.id.in_(ids)))
        for test, seed, output in chosen[job.id]
    }


def _seeds(
    session: Session, job_ids: Collection[str], verdict: Verdict
) -> dict[str, tuple[int, str]]:
    """Return job -> (the first seed of a verdict, its first output with that verdict)."""
    table, other = ResultRow, aliased(ResultRow)
    first = select(other.seed).where(other.job_id == JobRow.id, other.seed_verdict == verdict)
    # An index lookup per job; for a minimum by job SQLite would read all rows of the jobs.
    seed = first.order_by(other.seed, other.repeat).limit(1).correlate(JobRow).scalar_subquery()
    query = select(table.job_id, table.seed, func.min(table.output))
    query = query.join(JobRow, (table.job_id == JobRow.id) & (table.seed == seed))
    query = query.where(table.verdict == verdict).group_by(table.job_id, table.seed)
    return {
        job: (number, output)
        for ids in batched(sorted(job_ids), _AT_ONCE)
        for job, number, output in session.execute(query.where(JobRow.id.in_(ids)))
    }


def _iterations(
    session: Session, job_ids: Collection[str], names: Collection[str], verdict: Verdict
) -> dict[tuple[str, str], int]:
    """Return (job, test of its selection) -> the first iteration with a verdict."""
    table = ResultRow
    by = table.job_id, table.output
    query = select(*by, func.min(table.seed)).where(table.verdict == verdict).group_by(*by)
    if verdict is Verdict.not_judged:
        query = query.where(table.outcome == "failed")
    if len(names) <= MAX_NAMES:
        query = query.where(table.output.in_(names))
    return {
        (job, name): seed
        for ids in batched(sorted(job_ids), _AT_ONCE)
        for job, name, seed in session.execute(query.where(table.job_id.in_(ids)))
    }
