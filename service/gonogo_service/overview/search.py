"""The search over tests, the names that suites give them, builds, commits, suites, and ids.

All reads are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.bisections.model import BisectionRow
from gonogo_service.builds.model import BuildRow
from gonogo_service.flags.model import FlagRow
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests import matrices, test_list
from gonogo_service.tests.matrices import BuildRecord
from gonogo_service.tests.test_list import TestFilter, TestHead

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


@dataclass(frozen=True)
class BuildHit:
    """A build whose name or commit has the text."""

    name: str
    branch: str
    commit: str | None


@dataclass(frozen=True)
class JobHit:
    """A job whose commit begins with the text."""

    id: str
    build: str
    sha: str


@dataclass(frozen=True)
class EntryHit:
    """A test that a suite's run calls by a name with the text."""

    name: str
    suite: str
    test_key: str


@dataclass(frozen=True)
class Hits:
    """The results by kind; each kind is limited."""

    tests: tuple[TestHead, ...]
    entries: tuple[EntryHit, ...]
    """Tests by the names of suites."""
    jobs: tuple[JobHit, ...]
    """Jobs by their commits."""
    builds: tuple[BuildHit, ...]
    suites: tuple[str, ...]
    ids: tuple[tuple[str, str], ...]
    """(kind, id): "job", "run", "flag", "gauge" or "bisection"."""


def find(session: Session, text: str, *, limit: int) -> Hits:
    """Return what has the text; nothing for an empty one."""
    query_text = text.strip().lower()
    if not query_text:
        return Hits((), (), (), (), (), ())
    return Hits(
        tuple(test_list.heads(session, TestFilter(search=query_text), limit)),
        tuple(_entries(session, query_text, limit)),
        tuple(_by_commit(session, query_text, limit)),
        tuple(_builds(session, query_text, limit)),
        tuple(name for name in matrices.suites(session) if query_text in name.lower())[:limit],
        tuple(_by_id(session, query_text, limit)),
    )


def _entries(session: Session, text: str, limit: int) -> Sequence[EntryHit]:
    """Return the tests of the newest runs by the names that their suites give them."""
    query = (
        select(RunJobRow.name, RunRow.name.label("suite"), JobRow.test_key)
        .join(RunRow, RunRow.id == RunJobRow.run_id)
        .join(JobRow, JobRow.id == RunJobRow.job_id)
        .order_by(RunJobRow.run_id.desc(), RunJobRow.number)
        .limit(MAX_JOBS)
    )
    hits = dict.fromkeys(
        EntryHit(*row) for row in session.execute(query) if text in row.name.lower()
    )
    return list(hits)[:limit]


def _by_commit(session: Session, text: str, limit: int) -> Sequence[JobHit]:
    """Return the newest jobs whose commit begins with the text."""
    if not re.fullmatch(f"[0-9a-f]{{{MIN_ID_DIGITS},{_SHA_DIGITS}}}", text):
        return []
    query = (
        select(JobRow.id, JobRow.build, JobRow.commit["sha"].as_string())
        .order_by(JobRow.id.desc())
        .limit(MAX_JOBS)
    )
    hits = (
        JobHit(job, build, sha)
        for job, build, sha in session.execute(query)
        if sha and sha.lower().startswith(text)
    )
    return list(islice(hits, limit))


def _builds(session: Session, text: str, limit: int) -> Sequence[BuildHit]:
    ran: list[BuildRecord] = sorted(
        matrices.builds(session), key=lambda build: build.newest_job, reverse=True
    )
    registered = select(BuildRow.name, BuildRow.branch, BuildRow.commit)
    rows = session.execute(registered.order_by(BuildRow.created_at.desc()).limit(MAX_BUILDS)).all()
    commits = {row.name: row.commit for row in rows}
    known = [BuildHit(build.name, build.branch, commits.get(build.name)) for build in ran]
    known += [BuildHit(*row) for row in rows if row.name not in {build.name for build in ran}]
    return [
        build
        for build in known
        if text in build.name.lower() or (build.commit or "").lower().startswith(text)
    ][:limit]


def _by_id(session: Session, text: str, limit: int) -> Sequence[tuple[str, str]]:
    """Return the things whose id begins with the text, by a range of each table's key."""
    digits = text.replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{{MIN_ID_DIGITS},{_ID_DIGITS}}}", digits):
        return []
    low, high = (_id(digits.ljust(_ID_DIGITS, digit)) for digit in "0f")
    hits = []
    for kind, table in _IDS.items():
        query = select(table.id).where(table.id.between(low, high)).order_by(table.id).limit(limit)
        hits += [(kind, identity) for identity in session.scalars(query)]
    return hits[:limit]


def _id(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
