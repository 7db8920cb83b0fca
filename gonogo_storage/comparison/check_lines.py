"""The commands that reproduce what a comparison reports.

For each test they run the worst seed of its newest job. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, union_all
from sqlalchemy.orm import Session

from gonogo.flakiness.classes import Classification, RunSummary
from gonogo.spec.verdicts import Verdict
from gonogo_storage.comparison.comparison_side import Place, SideResults
from gonogo_storage.db.paging import batched
from gonogo_storage.db.states import IMPORT_EXECUTOR
from gonogo_storage.flags.evidence import check_line
from gonogo_storage.rollups.variants import JobFacts
from gonogo_storage.seed_rows import stored
from gonogo_storage.seed_rows.stored import StoredSeed
from gonogo_storage.tables import JobRow, SeedResultRow

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
    verdict finds the seeds. For selections each test is looked up singly.
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
    return lines_by_place | {
        test.place: line for test in singly if (line := _line(session, test)) is not None
    }


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
    table = SeedResultRow
    first = select(table.seed).where(table.job_id == JobRow.id, table.verdict == verdict)
    # An index lookup per job; with a join SQLite would read all rows of the jobs.
    seed = first.order_by(table.seed, table.repeat).limit(1).scalar_subquery()
    firsts = select(JobRow.id, seed).where(JobRow.id.in_(job_ids))
    found: dict[str, tuple[int, str]] = {}
    known = [(job, seed) for job, seed in session.execute(firsts) if seed is not None]
    for batch in batched(known, _AT_ONCE):
        of_seeds = (
            stored.query(table.job_id == job, table.seed == seed, table.verdict == verdict)
            for job, seed in batch
        )
        for result in stored.read(session, union_all(*of_seeds), "digest"):
            if (output := _first_output(result, verdict)) is not None:
                found.setdefault(result.job, (result.seed, output))
    return found


def _first_output(result: StoredSeed, verdict: Verdict) -> str | None:
    """Return the first output with the verdict; None without one, '' for a seed without outputs."""
    if not result.outputs:
        return ""
    return next((n for n, row in result.outputs.items() if row["verdict"] == verdict), None)


def _line(session: Session, test: RerunCandidate) -> str | None:
    ran, classification, place = test.ran, test.classification, test.place
    assert ran is not None
    table = SeedResultRow
    columns = (JobRow.id, JobRow.build, JobRow.executor, JobRow.context)
    rows = select(*columns).where(JobRow.id.in_(ran.jobs[:_MAX_JOBS])).order_by(JobRow.id.desc())
    for job in session.execute(rows).all():
        query = stored.query(table.job_id == job.id).order_by(table.seed, table.repeat)
        if not place.within:
            query = query.where(table.verdict == classification.verdict)
        for result in stored.read(session, query, "outcome"):
            output = _shown_output(result, place.within, classification.verdict)
            if output is not None:
                if job.executor == IMPORT_EXECUTOR:
                    return None
                return check_line(
                    test.canonical,
                    build=job.build,
                    executor=job.executor,
                    seed=result.seed,
                    output=output,
                    context=job.context,
                )
    return None


def _shown_output(result: StoredSeed, within: str | None, verdict: Verdict) -> str | None:
    """Return the output that shows the verdict; None if the seed doesn't."""
    if not within:
        return _first_output(result, verdict)
    output = result.outputs.get(within)
    if output is None or output["verdict"] != verdict:
        return None
    if verdict is Verdict.not_judged and output.get("outcome") != "failed":
        return None
    return within
