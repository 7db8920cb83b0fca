"""Rejudgements: the verdicts of stored seeds under another tolerance. Nothing runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.judging.rejudging import rejudge
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Verdict, by_verdict, worst
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.states import JobKind
from gonogo_service.results import seeds as results
from gonogo_service.tests.model import RejudgedBuild, RejudgedJob, RejudgementRow, Tolerances
from gonogo_service.tests.variants import OVER

MAX_SEEDS = 50_000
"""The (seed, repeat) that one report reads, newest jobs first: about ten seconds.

The report counts what was left out.
"""


def report(
    session: Session, declared: TestSpec, proposed: TestSpec, *, build: str | None = None
) -> RejudgementRow:
    """Judge every stored seed of a test's jobs again; the report is not stored.

    proposed: the same test, with another tolerance or with its own.
    """
    table = JobRow
    wheres: list[ColumnElement[bool]] = [
        table.test_key == declared.key,
        table.kind == JobKind.seeds,
        OVER,
        table.done > 0,
    ]
    wheres += [] if build is None else [table.build == build]
    removed = select(func.count(), func.max(table.seeds_removed_at)).where(
        *wheres, table.seeds_removed_at.is_not(None)
    )
    jobs_removed, removed_at = session.execute(removed).one()
    columns = table.id, table.build, table.branch, table.build_sequence, table.verdict, table.done
    query = select(*columns).where(*wheres, table.seeds_removed_at.is_(None))
    rows = session.execute(query.order_by(table.id.desc())).all()
    jobs: list[RejudgedJob] = []
    builds: dict[tuple[int, str, str], list[RejudgedJob]] = {}
    reasons: Counter[str] = Counter()
    seeds = 0
    for row in rows:
        if jobs and seeds + row.done > MAX_SEEDS:
            break
        jobs.append(_job(session, row, declared, proposed, reasons))
        seeds += jobs[-1].seeds
        builds.setdefault((row.build_sequence, row.branch, row.build), []).append(jobs[-1])
    if jobs_removed and not jobs:
        raise FieldError(
            "test" if build is None else "build",
            declared.key if build is None else build,
            f"can't be judged again: the results per seed of its {jobs_removed} jobs were removed, "
            f"the last ones on {removed_at:%Y-%m-%d}, as the server's retention says",
            limit="a test and a build with results per seed; run it again",
        )
    old, new = (spec.canonical().get("tolerance", {}) for spec in (declared, proposed))
    return RejudgementRow(
        test_key=declared.key,
        new_test_key=proposed.key,
        tolerance=Tolerances(old, new),
        build=build,
        builds=[
            RejudgedBuild(**_sums(of_build), branch=branch, sequence=sequence, jobs=len(of_build))
            for (sequence, branch, _), of_build in sorted(builds.items())
        ],
        jobs=jobs,
        seeds=seeds,
        changed=sum(job.changed for job in jobs),
        undecided=sum(job.undecided for job in jobs),
        reasons=dict(reasons),
        jobs_left_out=len(rows) - len(jobs),
        jobs_removed=jobs_removed,
    )


def _sums(jobs: Sequence[RejudgedJob]) -> dict[str, Any]:
    return {
        "build": jobs[0].build,
        "seeds": sum(job.seeds for job in jobs),
        "changed": sum(job.changed for job in jobs),
        "undecided": sum(job.undecided for job in jobs),
        "old": by_verdict(sum((Counter(job.old) for job in jobs), Counter())),
        "new": by_verdict(sum((Counter(job.new) for job in jobs), Counter())),
    }


def _job(
    session: Session, row: Any, declared: TestSpec, proposed: TestSpec, reasons: Counter[str]
) -> RejudgedJob:
    """Judge the seeds of a job again; count in `reasons` why some are undecided."""
    old: Counter[str] = Counter()
    new: Counter[str] = Counter()
    changed = 0
    for seed in results.stream(session, row.id):
        old[seed["verdict"]] += 1
        rejudged = rejudge(seed, proposed, declared)
        if rejudged.verdict is None:
            reasons[str(rejudged.reason)] += 1
        else:
            new[rejudged.verdict.value] += 1
            changed += rejudged.verdict.value != seed["verdict"]
    undecided = old.total() - new.total()
    return RejudgedJob(
        build=row.build,
        seeds=old.total(),
        changed=changed,
        undecided=undecided,
        old=by_verdict(old),
        new=by_verdict(new),
        job=row.id,
        old_verdict=None if row.verdict is None else Verdict(row.verdict),
        new_verdict=None if undecided or not new else worst(new),
    )
