"""Rejudgements: the verdicts of stored seeds under another tolerance or policy.

The verdicts of jobs are never changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from gonogo.judging.rejudging import rejudge
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import POLICY, Policy, Verdict, worst
from gonogo_storage.catalogue import test_specs
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.ids import is_id, new_id
from gonogo_storage.db.paging import BadCursor, Page
from gonogo_storage.db.states import JobKind, JobState
from gonogo_storage.seeds import results
from gonogo_storage.tables import JobRow, RejudgementRow

MAX_SEEDS = 50_000
"""The (seed, repeat) that one report reads, newest jobs first: about ten seconds.

The report counts what was left out.
"""
ENDED = (JobState.finished, JobState.cancelled)


def report(
    session: Session,
    declared: TestSpec,
    proposed: TestSpec,
    *,
    build: str | None = None,
    policy: Policy = POLICY,
) -> dict[str, Any]:
    """Judge every stored seed of a test's jobs again.

    proposed: the same test with another tolerance, or with the same one for another policy.

    Returns {"test_key", "new_test_key", "tolerance": {"old", "new"}, "policy": {"stored",
    "applied"}, "build", "builds": [...], "jobs": [...], "seeds", "changed", "undecided", "reasons",
    "jobs_left_out"}. Builds and jobs have old and new counts by verdict.
    """
    wheres: list[ColumnElement[bool]] = [
        JobRow.test_key == declared.key,
        JobRow.kind == JobKind.seeds,
        JobRow.state.in_(ENDED),
    ]
    if build is not None:
        wheres.append(JobRow.build == build)
    query = select(
        JobRow.id,
        JobRow.build,
        JobRow.branch,
        JobRow.build_sequence,
        JobRow.verdict,
        JobRow.done,
    ).where(*wheres)
    jobs: list[dict[str, Any]] = []
    builds: dict[str, dict[str, Any]] = {}
    policies: set[str] = set()
    reasons: Counter[str] = Counter()
    seeds = 0
    for row in session.execute(query.order_by(JobRow.id.desc())):
        if jobs and seeds + row.done > MAX_SEEDS:
            break
        job = _job(session, row.id, declared, proposed, policy, policies, reasons)
        seeds += job["seeds"]
        jobs.append({"job": row.id, "build": row.build, "old_verdict": row.verdict, **job})
        group = builds.setdefault(row.build, _empty(row.build, row.branch, row.build_sequence))
        group["jobs"] += 1
        for name in ("seeds", "changed", "undecided"):
            group[name] += job[name]
        for name in ("old", "new"):
            group[name].update(job[name])
    for entry in (*jobs, *builds.values()):
        entry["old"], entry["new"] = _ordered(entry["old"]), _ordered(entry["new"])
    job_total = session.scalar(select(func.count()).select_from(JobRow).where(*wheres)) or 0
    return {
        "test_key": declared.key,
        "new_test_key": proposed.key,
        "tolerance": {
            "old": declared.canonical().get("tolerance", {}),
            "new": proposed.canonical().get("tolerance", {}),
        },
        "policy": {"stored": sorted(policies), "applied": policy.version},
        "build": build,
        "builds": sorted(
            builds.values(), key=lambda entry: (entry["branch"], entry["sequence"], entry["build"])
        ),
        "jobs": jobs,
        "seeds": seeds,
        "changed": sum(job["changed"] for job in jobs),
        "undecided": sum(job["undecided"] for job in jobs),
        "reasons": dict(reasons),
        "jobs_left_out": job_total - len(jobs),
    }


def _empty(build: str, branch: str, sequence: int) -> dict[str, Any]:
    numbers = dict.fromkeys(("jobs", "seeds", "changed", "undecided"), 0)
    return {
        "build": build,
        "branch": branch,
        "sequence": sequence,
        **numbers,
        "old": Counter(),
        "new": Counter(),
    }


def _job(
    session: Session,
    job_id: str,
    declared: TestSpec,
    proposed: TestSpec,
    policy: Policy,
    policies: set[str],
    reasons: Counter[str],
) -> dict[str, Any]:
    old: Counter[str] = Counter()
    new: Counter[str] = Counter()
    changed = undecided = 0
    for row in results.stream(session, job_id):
        old[row["verdict"]] += 1
        if row["policy"] is not None:
            policies.add(row["policy"])
        rejudged = rejudge(row, proposed, declared, policy)
        if rejudged.verdict is None:
            undecided += 1
            reasons[str(rejudged.reason)] += 1
            continue
        new[rejudged.verdict.value] += 1
        changed += rejudged.verdict.value != row["verdict"]
    verdict = None if undecided or not new else worst(new).value
    return {
        "seeds": old.total(),
        "old": old,
        "new": new,
        "new_verdict": verdict,
        "changed": changed,
        "undecided": undecided,
    }


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    return {
        verdict.value: counts[verdict.value] for verdict in Verdict if counts.get(verdict.value)
    }


def add(
    session: Session,
    report: dict[str, Any],
    proposed: TestSpec,
    *,
    owner: str,
    reason: str | None,
    now: datetime,
) -> dict[str, Any]:
    """Store a report, and the test with the new tolerance, so that jobs and pages can name it."""
    test_specs.ensure(
        session,
        key=proposed.key,
        workload_key=proposed.workload_key,
        kernel=proposed.kernel,
        canonical=proposed.canonical(),
        now=now,
    )
    row = RejudgementRow(
        id=new_id(),
        test_key=report["test_key"],
        new_test_key=report["new_test_key"],
        policy=report["policy"]["applied"],
        build=report["build"],
        owner=owner,
        reason=reason,
        report=report,
        created_at=now,
    )
    session.add(row)
    session.flush()
    return _with_report(row)


def get(session: Session, rejudgement_id: str) -> dict[str, Any] | None:
    """Return a stored rejudgement, or None."""
    row = session.get(RejudgementRow, rejudgement_id) if is_id(rejudgement_id) else None
    return None if row is None else _with_report(row)


def list_(
    session: Session, *, test: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[dict[str, Any]]:
    """Return stored rejudgements, newest first, without their jobs. Raises BadCursor."""
    query = select(RejudgementRow).order_by(RejudgementRow.id.desc()).limit(limit + 1)
    if test is not None:
        query = query.where(RejudgementRow.test_key == test)
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(RejudgementRow.id < cursor)
    return Page.cut(
        [_with_report(row) | {"jobs": []} for row in session.scalars(query)],
        limit,
        lambda item: str(item["id"]),
    )


def _with_report(row: RejudgementRow) -> dict[str, Any]:
    stored = {
        "id": row.id,
        "owner": row.owner,
        "reason": row.reason,
        "created_at": timestamp(row.created_at),
    }
    return {**row.report, **stored}
