"""The commands that run what a comparison found again: for each test the worst seed of its newest
job. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.classes import Classification, Ran
from gonogo.spec.verdicts import Verdict
from gonogo_storage.comparison.comparison_side import Place, Told
from gonogo_storage.db.states import IMPORT_EXECUTOR
from gonogo_storage.flags.evidence import check_line
from gonogo_storage.rollups.variants import JobFacts
from gonogo_storage.tables import JobRow, SeedResultRow

_MOST_JOBS = 500
_GOOD = (Verdict.pass_, Verdict.not_run, Verdict.skipped)


@dataclass(frozen=True)
class Wanted:
    """A test of head that may have to be run again, and what is said of it."""

    place: Place
    canonical: Mapping[str, Any]
    ran: Ran | None
    said: Classification


def lines(session: Session, head: Told, tests: Iterable[Wanted]) -> dict[Place, str]:
    """`gonogo check` of a seed that shows the verdict, for each test that isn't good; none where no
    seed shows it, and for what was imported, which can't be run from here.

    Of kernels the counters of jobs say which job has such a seed, and one statement for each
    verdict finds the seeds; of selections each test is looked up by itself.
    """
    found: dict[Place, str] = {}
    together: dict[Verdict, list[tuple[Wanted, JobFacts]]] = {}
    apart: list[Wanted] = []
    for test in tests:
        if test.ran is None or not test.ran.jobs or test.said.verdict in _GOOD:
            continue
        if (facts := head.facts.get(test.place)) is None:
            apart.append(test)
        elif job := _newest(facts, test):
            together.setdefault(test.said.verdict, []).append((test, job))
    for verdict, pairs in together.items():
        seeds = _seeds(session, [job.id for _, job in pairs], verdict)
        for test, job in pairs:
            if (
                job.id not in seeds
            ):  # its counters said so, and its rows don't: an older job may have one
                apart.append(test)
            elif job.executor != IMPORT_EXECUTOR:
                seed, output = seeds[job.id]
                found[test.place] = check_line(
                    test.canonical,
                    build=job.build,
                    executor=job.executor,
                    seed=seed,
                    output=output,
                    context=job.context_asked,
                )
    return found | {
        test.place: line for test in apart if (line := _line(session, test)) is not None
    }


def _newest(facts: Sequence[JobFacts], test: Wanted) -> JobFacts | None:
    """The newest job that has a seed of the verdict."""
    jobs = frozenset(test.ran.jobs[:_MOST_JOBS]) if test.ran else ()
    return next(
        (job for job in facts if job.id in jobs and job.counts.get(test.said.verdict)), None
    )


def _seeds(
    session: Session, job_ids: Sequence[str], verdict: Verdict
) -> dict[str, tuple[int, str]]:
    """Job -> the first seed of a verdict, and its first output that has it."""
    table = SeedResultRow
    shows = table.job_id == JobRow.id, table.seed_verdict == verdict, table.verdict == verdict
    # two steps into the rows of each job; joined, SQLite reads all rows of them
    firsts = (
        select(each).where(*shows).order_by(table.seed, table.output).limit(1)
        for each in (table.seed, table.output)
    )
    found = session.execute(
        select(JobRow.id, *(each.scalar_subquery() for each in firsts)).where(
            JobRow.id.in_(job_ids)
        )
    )
    return {job_id: (seed, output) for job_id, seed, output in found if seed is not None}


def _line(session: Session, test: Wanted) -> str | None:
    ran, said, place = test.ran, test.said, test.place
    assert ran is not None
    table = SeedResultRow
    query = select(table.seed, table.output, JobRow.build, JobRow.executor, JobRow.context).join(
        JobRow, JobRow.id == table.job_id
    )
    query = query.where(table.job_id.in_(ran.jobs[:_MOST_JOBS]))
    if place.within:
        query = query.where(table.output == place.within, table.verdict == said.verdict)
        query = (
            query.where(table.outcome == "failed") if said.verdict is Verdict.not_judged else query
        )
    else:
        query = query.where(table.seed_verdict == said.verdict, table.verdict == said.verdict)
    row = session.execute(
        query.order_by(table.job_id.desc(), table.seed, table.output).limit(1)
    ).first()
    if row is None or row.executor == IMPORT_EXECUTOR:
        return None
    return check_line(
        test.canonical,
        build=row.build,
        executor=row.executor,
        seed=row.seed,
        output=row.output,
        context=row.context,
    )
