"""The commands that reproduce what a comparison reports.

For each test they run the worst seed of its newest job. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from gonogo.flakiness.classes import Classification, RunSummary
from gonogo.reports.check_line import check_line
from gonogo.spec.verdicts import Verdict
from gonogo_service.compare.comparison_side import Place, SideResults
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.paging import batched
from gonogo_service.kit.database.states import IMPORT_EXECUTOR
from gonogo_service.results.model import ResultRow
from gonogo_service.tests.variants import JobFacts

_MAX_JOBS = 500
_AT_ONCE = 100
_GOOD = (Verdict.pass_, Verdict.not_run, Verdict.skipped)


@dataclass(frozen=True)
class RerunCandidate:
    """A test of head that may have to run again, with its classification."""

    place: Place
    canonical: Mapping[str, Any]
    ran: RunSummary | None
    classification: Classification


def lines(session: Session, head: SideResults, tests: Iterable[RerunCandidate]) -> dict[Place, str]:
    """Return a `gonogo check` line for each test that isn't good.

    The line runs a seed that shows the verdict. There is none where no seed shows it, and none for
    imported runs, which can't run from here.

    For kernels, the counters of jobs say which job has such a seed, and one statement for each
    verdict finds the seeds. Of selections each job is read once.
    """
    lines_by_place: dict[Place, str] = {}
    by_verdict: dict[Verdict, list[tuple[RerunCandidate, JobFacts]]] = {}
    singly: list[RerunCandidate] = []
    for test in tests:
        if test.ran is None or not test.ran.jobs or test.classification.verdict in _GOOD:
            continue
        if (facts := head.facts.get(test.place)) is None:
            singly.append(test)
        elif job := _newest(facts, test):
            by_verdict.setdefault(test.classification.verdict, []).append((test, job))
    for verdict, pairs in by_verdict.items():
        seeds = _seeds(session, [job.id for _, job in pairs], verdict)
        for test, job in pairs:
            # the counters count such a seed but no row has it: an older job may have one
            if job.id not in seeds:
                singly.append(test)
            elif job.executor != IMPORT_EXECUTOR:
                seed, output = seeds[job.id]
                lines_by_place[test.place] = check_line(
                    test.canonical,
                    build=job.build,
                    executor=job.executor,
                    seed=seed,
                    output=output,
                    context=job.requested_context,
                )
    return lines_by_place | _by_reading(session, singly)


def _newest(facts: Sequence[JobFacts], test: RerunCandidate) -> JobFacts | None:
    """Return the newest job that has a seed of the verdict."""
    jobs = frozenset(test.ran.jobs[:_MAX_JOBS]) if test.ran else ()
    return next(
        (job for job in facts if job.id in jobs and job.counts.get(test.classification.verdict)),
        None,
    )


def _seeds(
    session: Session, job_ids: Sequence[str], verdict: Verdict
) -> dict[str, tuple[int, str]]:
    """Return job -> (the first seed of a verdict, its first output with that verdict)."""
    table = ResultRow
    other = aliased(ResultRow)
    first = select(other.seed).where(other.job_id == JobRow.id, other.seed_verdict == verdict)
    # An index lookup per job; for a minimum by job SQLite would read all rows of the jobs.
    seed = first.order_by(other.seed, other.repeat).limit(1).correlate(JobRow).scalar_subquery()
    query = select(table.job_id, table.seed, func.min(table.output))
    query = query.join(JobRow, (table.job_id == JobRow.id) & (table.seed == seed))
    query = query.where(table.verdict == verdict).group_by(table.job_id, table.seed)
    return {
        job: (number, output)
        for batch in batched(job_ids, _AT_ONCE)
        for job, number, output in session.execute(query.where(JobRow.id.in_(batch)))
    }


def _by_reading(session: Session, tests: Sequence[RerunCandidate]) -> dict[Place, str]:
    """Return the lines of tests whose seeds have to be looked for, each job read once.

    Newer jobs come first. Imported ones can't run from here.
    """
    tests_by_job: dict[str, list[RerunCandidate]] = {}
    for test in tests:
        for job_id in test.ran.jobs[:_MAX_JOBS] if test.ran else ():
            tests_by_job.setdefault(job_id, []).append(test)
    lines_by_place: dict[Place, str] = {}
    columns = (JobRow.id, JobRow.build, JobRow.executor, JobRow.context)
    for ids in batched(sorted(tests_by_job, reverse=True), _AT_ONCE):
        query = select(*columns).where(JobRow.id.in_(ids), JobRow.executor != IMPORT_EXECUTOR)
        for job in session.execute(query.order_by(JobRow.id.desc())).all():
            missing = [test for test in tests_by_job[job.id] if test.place not in lines_by_place]
            for test, seed, output in _shown(session, job.id, missing):
                lines_by_place[test.place] = check_line(
                    test.canonical,
                    build=job.build,
                    executor=job.executor,
                    seed=seed,
                    output=output,
                    context=job.context,
                )
    return lines_by_place


def _shown(
    session: Session, job_id: str, tests: Sequence[RerunCandidate]
) -> Iterator[tuple[RerunCandidate, int, str]]:
    """Yield the tests whose verdict a job shows, each with its first seed and output."""
    table = ResultRow
    for test in tests:
        within, verdict = test.place.within, test.classification.verdict
        conditions = [table.job_id == job_id, table.verdict == verdict]
        if not within:
            conditions.append(table.seed_verdict == verdict)
        else:
            conditions.append(table.output == within)
            if verdict is Verdict.not_judged:
                conditions.append(table.outcome == "failed")
        query = select(table.seed, table.output).where(*conditions)
        order = table.seed, table.repeat, table.output
        found = session.execute(query.order_by(*order).limit(1)).one_or_none()
        if found is not None:
            yield test, *found
