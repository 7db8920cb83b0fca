"""Rejudgements: the verdicts of stored seeds under another tolerance.

The verdicts of jobs are never changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.judging.rejudging import rejudge
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import AnyTolerance
from gonogo.spec.verdicts import Verdict, by_verdict, worst
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import Documented, from_json
from gonogo_service.kit.database.states import JobKind
from gonogo_service.results import seeds as results
from gonogo_service.tests import test_specs
from gonogo_service.tests.model import RejudgementRow
from gonogo_service.tests.variants import OVER

MAX_SEEDS = 50_000
"""The (seed, repeat) that one report reads, newest jobs first: about ten seconds.

The report counts what was left out.
"""


@dataclass(frozen=True)
class Rejudged:
    """Old and new verdicts of seeds; the stored numbers can't decide the `undecided` ones."""

    seeds: int
    changed: int
    undecided: int
    old: dict[str, int]
    """By verdict"""
    new: dict[str, int]


@dataclass(frozen=True)
class RejudgedBuild(Rejudged):
    """The verdicts of all jobs of a build."""

    build: str
    branch: str
    sequence: int
    jobs: int


@dataclass(frozen=True)
class RejudgedJob(Rejudged):
    """The verdicts of a job; `new_verdict` is null if a seed is undecided."""

    job: str
    build: str
    old_verdict: Verdict | None
    new_verdict: Verdict | None


@dataclass(frozen=True)
class Tolerances:
    """The declared tolerance, and the one that the seeds are judged with."""

    old: Annotated[dict[str, Any], Documented(AnyTolerance)]
    new: Annotated[dict[str, Any], Documented(AnyTolerance)]


@dataclass(frozen=True)
class Rejudgement:
    """The report; id, owner and created_at are null unless stored. In lists `jobs` is empty."""

    test_key: str
    new_test_key: str
    tolerance: Tolerances
    build: str | None
    builds: list[RejudgedBuild]
    jobs: list[RejudgedJob]
    seeds: int
    changed: int
    undecided: int
    reasons: dict[str, int]
    """Why the stored numbers don't decide -> seeds"""
    jobs_left_out: int
    jobs_removed: int = 0
    """Jobs whose results per seed retention has removed"""
    id: str | None = None
    owner: str | None = None
    reason: str | None = None
    created_at: datetime | None = None


_OF_ROW = ("id", "owner", "reason", "created_at")


def report(
    session: Session,
    declared: TestSpec,
    proposed: TestSpec,
    *,
    build: str | None = None,
) -> Rejudgement:
    """Judge every stored seed of a test's jobs again.

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
    builds: dict[str, tuple[str, int]] = {}
    reasons: Counter[str] = Counter()
    seeds = 0
    for row in rows:
        if jobs and seeds + row.done > MAX_SEEDS:
            break
        jobs.append(_job(session, row, declared, proposed, reasons))
        seeds += jobs[-1].seeds
        builds.setdefault(row.build, (row.branch, row.build_sequence))
    if jobs_removed and not jobs:
        raise FieldError(
            "test" if build is None else "build",
            declared.key if build is None else build,
            f"can't be judged again: the results per seed of its {jobs_removed} jobs were removed, "
            f"the last ones on {removed_at:%Y-%m-%d}, as the server's retention says",
            limit="a test and a build with results per seed; run it again",
        )
    old, new = (spec.canonical().get("tolerance", {}) for spec in (declared, proposed))
    return Rejudgement(
        test_key=declared.key,
        new_test_key=proposed.key,
        tolerance=Tolerances(old, new),
        build=build,
        builds=[
            _build(name, *place, [job for job in jobs if job.build == name])
            for name, place in sorted(builds.items(), key=lambda item: (*item[1], item[0]))
        ],
        jobs=jobs,
        seeds=seeds,
        changed=sum(job.changed for job in jobs),
        undecided=sum(job.undecided for job in jobs),
        reasons=dict(reasons),
        jobs_left_out=len(rows) - len(jobs),
        jobs_removed=jobs_removed,
    )


def _build(name: str, branch: str, sequence: int, jobs: Sequence[RejudgedJob]) -> RejudgedBuild:
    return RejudgedBuild(
        seeds=sum(job.seeds for job in jobs),
        changed=sum(job.changed for job in jobs),
        undecided=sum(job.undecided for job in jobs),
        old=by_verdict(sum((Counter(job.old) for job in jobs), Counter())),
        new=by_verdict(sum((Counter(job.new) for job in jobs), Counter())),
        build=name,
        branch=branch,
        sequence=sequence,
        jobs=len(jobs),
    )


def _job(
    session: Session, row: Any, declared: TestSpec, proposed: TestSpec, reasons: Counter[str]
) -> RejudgedJob:
    """Judge the seeds of a job again; count in `reasons` why some are undecided."""
    old: Counter[str] = Counter()
    new: Counter[str] = Counter()
    changed = undecided = 0
    for seed in results.stream(session, row.id):
        old[seed["verdict"]] += 1
        rejudged = rejudge(seed, proposed, declared)
        if rejudged.verdict is None:
            undecided += 1
            reasons[str(rejudged.reason)] += 1
        else:
            new[rejudged.verdict.value] += 1
            changed += rejudged.verdict.value != seed["verdict"]
    return RejudgedJob(
        seeds=old.total(),
        changed=changed,
        undecided=undecided,
        old=by_verdict(old),
        new=by_verdict(new),
        job=row.id,
        build=row.build,
        old_verdict=None if row.verdict is None else Verdict(row.verdict),
        new_verdict=None if undecided or not new else worst(new),
    )


def add(
    session: Session,
    report: Rejudgement,
    proposed: TestSpec,
    *,
    owner: str,
    reason: str | None,
    now: datetime,
) -> Rejudgement:
    """Store a report, and the test with the new tolerance, so that jobs and pages can name it."""
    workload, canonical = proposed.workload_key, proposed.canonical()
    test_specs.add(session, proposed.key, workload, proposed.kernel, canonical, now=now)
    row = RejudgementRow(
        id=new_id(),
        test_key=report.test_key,
        new_test_key=report.new_test_key,
        build=report.build,
        owner=owner,
        reason=reason,
        report={name: value for name, value in asdict(report).items() if name not in _OF_ROW},
        created_at=now,
    )
    session.add(row)
    session.flush()
    return _with_report(row)


def get(session: Session, rejudgement_id: str) -> Rejudgement | None:
    """Return a stored rejudgement, or None."""
    row = session.get(RejudgementRow, rejudgement_id) if is_id(rejudgement_id) else None
    return None if row is None else _with_report(row)


def list_(
    session: Session, *, test: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[Rejudgement]:
    """Return stored rejudgements, newest first, without their jobs. Raises BadCursor."""
    table = RejudgementRow
    return newest_first(
        session,
        select(table),
        table.id,
        lambda row: replace(_with_report(row), jobs=[]),
        limit=limit,
        cursor=cursor,
        filters={table.test_key: test},
    )


def _with_report(row: RejudgementRow) -> Rejudgement:
    return from_json(Rejudgement, row.report | {name: getattr(row, name) for name in _OF_ROW})
