"""The commands that reproduce what a comparison reports: each runs the worst seed again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from gonogo.reports.check_line import check_line
from gonogo.spec.verdicts import Verdict
from gonogo_service.compare.compared import Compared
from gonogo_service.compare.sides import Place, SideResults
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.columns import IdType, VerdictType
from gonogo_service.kit.database.each import Columns, Given, of_each
from gonogo_service.kit.database.paging import batched
from gonogo_service.kit.database.states import IMPORT_EXECUTOR
from gonogo_service.results.model import ResultRow
from gonogo_service.results.seeds import SEED

MAX_JOBS = 50
"""Newest jobs of a test in which a seed is looked for."""
MAX_NAMES = 500
"""Tests of a selection that a query names; of more, it reads all."""
_AT_ONCE = 100
_PAIR: Columns = (("job", IdType), ("verdict", VerdictType))
_GOOD = (Verdict.pass_, Verdict.not_run, Verdict.skipped)


def lines(session: Session, head: SideResults, tests: Iterable[Compared]) -> dict[Place, str]:
    """Return a `gonogo check` line for each test of head that isn't good.

    The line runs the worst seed of the verdict, of the newest job that has one. There is none where
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
    worst = _worst(
        session,
        [
            (job, verdict)
            for verdict, candidates in by_verdict.items()
            for test, jobs in candidates
            for job in jobs
            if not test.place.within
        ],
    )
    chosen: dict[str, list[tuple[Compared, int, str]]] = {}
    for verdict, candidates in by_verdict.items():
        inner = {job for test, jobs in candidates for job in jobs if test.place.within}
        names = {test.place.within for test, _ in candidates}
        iterations = _iterations(session, inner, names, verdict)
        for test, jobs in candidates:
            name = test.place.within
            for job in jobs:
                seed = iterations.get((job, name)) if name else worst.get((job, verdict))
                if seed is not None:
                    chosen.setdefault(job, []).append((test, *seed))
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


def _worst(
    session: Session, pairs: Sequence[tuple[str, Verdict]]
) -> dict[tuple[str, Verdict], tuple[int, str]]:
    """Return (job, verdict) -> its worst seed, in the order of the job's page, and its output."""
    table = ResultRow

    def query(given: Given) -> Select[int, str]:
        of_job = table.job_id == given("job"), SEED, table.seed_verdict == given("verdict")
        order = table.minus_size, table.seed, table.repeat
        return select(table.seed, table.output).where(*of_job).order_by(*order).limit(1)

    return {
        part[number]: (seed, output)
        for part in batched(list(dict.fromkeys(pairs)), _AT_ONCE)
        for number, seed, output in of_each(session, query, _PAIR, part)
    }


def _iterations(
    session: Session, job_ids: Collection[str], names: Collection[str], verdict: Verdict
) -> dict[tuple[str, str], tuple[int, str]]:
    """Return (job, test of its selection) -> the first iteration with a verdict, and the test."""
    table = ResultRow
    by = table.job_id, table.output
    query = select(*by, func.min(table.seed)).where(table.verdict == verdict).group_by(*by)
    if verdict is Verdict.not_judged:
        query = query.where(table.outcome == "failed")
    if len(names) <= MAX_NAMES:
        query = query.where(table.output.in_(names))
    return {
        (job, name): (seed, name)
        for ids in batched(sorted(job_ids), _AT_ONCE)
        for job, name, seed in session.execute(query.where(table.job_id.in_(ids)))
    }
