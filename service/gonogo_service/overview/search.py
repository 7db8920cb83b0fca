"""The search over tests, the names that suites give them, builds, commits, suites, and ids.

All reads are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import null, select
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Verdict
from gonogo_service.bisections.model import BisectionRow
from gonogo_service.builds.model import BuildRow
from gonogo_service.flags.model import FlagRow
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests import matrices, test_list
from gonogo_service.tests.matrices import BuildRecord
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.standings import Standings
from gonogo_service.tests.test_list import TestFilter

MAX_BUILDS = 1000
"""Registered builds that are searched by their commits, the newest first."""
MIN_ID_DIGITS = 4
_ID_DIGITS, _SHA_DIGITS = 32, 64
MAX_JOBS = 2000
"""Jobs whose commits, and jobs of runs whose names are searched, the newest first."""
_IDS: dict[str, Any] = {
    "job": JobRow,
    "run": RunRow,
    "flag": FlagRow,
    "gauge": GaugeRow,
    "bisection": BisectionRow,
}


class Hit(NamedTuple):
    """Something that has the text: a job, run, flag, gauge, bisection, test, build or suite.

    "branch": a build of another branch, whose page compares it with the main branch.
    """

    kind: str
    key: str
    """Its id, its test's key, or its name."""
    label: str
    details: str = ""
    verdict: Verdict | None = None
    """The verdict of a job or a run."""


def tests(session: Session, text: str, standings: Standings, limit: int) -> tuple[TestSpecRow, ...]:
    """Return the tests that have the text, those that need attention first; none for ""."""
    if not text.strip():
        return ()
    return test_list.of_attention(session, TestFilter(search=text, standings=standings), limit)


def others(session: Session, text: str, limit: int) -> list[Hit]:
    """Return what else has the text, at most `limit` of each kind; nothing for an empty one."""
    text = text.strip().lower()
    if not text:
        return []
    known = matrices.builds(session)
    searches = (
        _by_id(session, text),
        _entries(session, text),
        _by_commit(session, text, matrices.main_branch(known)),
        _builds(session, text, known),
        _suites(session, text),
    )
    # a job and its build may both lead to the build's branch
    return list(dict.fromkeys(hit for hits in searches for hit in islice(hits, limit)))


def _entries(session: Session, text: str) -> Iterator[Hit]:
    """Yield the tests of the newest runs by the names that their suites give them."""
    query = (
        select(RunJobRow.name, RunRow.name, JobRow.test_key)
        .join(RunRow, RunRow.id == RunJobRow.run_id)
        .join(JobRow, JobRow.id == RunJobRow.job_id)
        .order_by(RunJobRow.run_id.desc(), RunJobRow.number)
        .limit(MAX_JOBS)
    )
    named = dict.fromkeys(map(tuple, session.execute(query)))
    return (Hit("test", key, name, suite) for name, suite, key in named if text in name.lower())


def _by_commit(session: Session, text: str, main: str | None) -> Iterator[Hit]:
    """Yield the newest jobs whose commit begins with the text, and each build beside `main`."""
    if not re.fullmatch(f"[0-9a-f]{{{MIN_ID_DIGITS},{_SHA_DIGITS}}}", text):
        return
    commit = JobRow.commit["sha"].as_string()
    query = select(JobRow.id, JobRow.build, JobRow.branch, JobRow.verdict, commit)
    shown = set()
    jobs = session.execute(query.order_by(JobRow.id.desc()).limit(MAX_JOBS))
    for job, build, branch, verdict, sha in jobs:
        if sha and sha.lower().startswith(text):
            if build not in shown:
                shown.add(build)
                yield from _beside(build, branch, main, sha)
            yield Hit("job", job, job, f"commit {sha[:12]} · {build}", verdict)


def _beside(build: str, branch: str, main: str | None, commit: str) -> Iterator[Hit]:
    """Yield the page of a build's branch; nothing for a build of the main one."""
    if main not in (None, branch):
        yield Hit("branch", build, f"{build} beside {main}", f"commit {commit[:12]}")


def _builds(session: Session, text: str, known: list[BuildRecord]) -> Iterator[Hit]:
    """Yield the builds whose name or commit has the text; those that ran come first."""
    ran = sorted(known, key=attrgetter("newest_job"), reverse=True)
    query = select(BuildRow.name, BuildRow.branch, BuildRow.commit)
    rows = session.execute(query.order_by(BuildRow.created_at.desc()).limit(MAX_BUILDS)).all()
    commits = {row.name: row.commit for row in rows}
    branches = {build.name: build.branch for build in ran}
    branches |= {row.name: row.branch for row in rows if row.name not in branches}
    for name, branch in branches.items():
        commit = commits.get(name)
        is_commit = (commit or "").lower().startswith(text)
        if commit and is_commit:
            yield from _beside(name, branch, matrices.main_branch(known), commit)
        if text in name.lower() or is_commit:
            yield Hit("build", name, name, f"{branch} · {commit}" if commit else branch)


def _suites(session: Session, text: str) -> Iterator[Hit]:
    return (Hit("suite", name, name) for name in matrices.suites(session) if text in name.lower())


def _by_id(session: Session, text: str) -> Iterator[Hit]:
    """Yield the things whose id begins with the text, by a range of each table's key."""
    digits = text.replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{{MIN_ID_DIGITS},{_ID_DIGITS}}}", digits):
        return
    low, high = (_id(digits.ljust(_ID_DIGITS, digit)) for digit in "0f")
    for kind, table in _IDS.items():
        verdict = table.verdict if kind in ("job", "run") else null()
        query = select(table.id, verdict).where(table.id.between(low, high)).order_by(table.id)
        for identity, result in session.execute(query.limit(MAX_JOBS)):
            yield Hit(kind, identity, identity, verdict=result)


def _id(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
