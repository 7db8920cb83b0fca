"""The search over tests, the names that suites give them, builds, commits, suites, and ids.

All reads are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.bisections.model import BisectionRow
from gonogo_service.builds.model import BuildRow
from gonogo_service.flags.model import FlagRow
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests import matrices, test_list
from gonogo_service.tests.model import TestSpecRow
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


class BuildHit(NamedTuple):
    """A build whose name or commit has the text."""

    name: str
    branch: str
    commit: str | None


class JobHit(NamedTuple):
    """A job whose commit begins with the text."""

    id: str
    build: str
    sha: str


class EntryHit(NamedTuple):
    """A test that a suite's run calls by a name with the text."""

    name: str
    suite: str
    test_key: str


@dataclass(frozen=True)
class Hits:
    """The results by kind; each kind is limited."""

    tests: tuple[TestSpecRow, ...] = ()
    entries: tuple[EntryHit, ...] = ()
    """Tests by the names of suites."""
    jobs: tuple[JobHit, ...] = ()
    """Jobs by their commits."""
    builds: tuple[BuildHit, ...] = ()
    suites: tuple[str, ...] = ()
    ids: tuple[tuple[str, str], ...] = ()
    """(kind, id): "job", "run", "flag", "gauge" or "bisection"."""


def find(session: Session, text: str, *, limit: int) -> Hits:
    """Return what has the text; nothing for an empty one."""
    text = text.strip().lower()
    if not text:
        return Hits()
    return Hits(
        test_list.heads(session, TestFilter(search=text), limit),
        tuple(_entries(session, text)[:limit]),
        tuple(_by_commit(session, text, limit)),
        tuple(_builds(session, text)[:limit]),
        tuple(name for name in matrices.suites(session) if text in name.lower())[:limit],
        tuple(_by_id(session, text, limit)[:limit]),
    )


def _entries(session: Session, text: str) -> list[EntryHit]:
    """Return the tests of the newest runs by the names that their suites give them."""
    query = (
        select(RunJobRow.name, RunRow.name, JobRow.test_key)
        .join(RunRow, RunRow.id == RunJobRow.run_id)
        .join(JobRow, JobRow.id == RunJobRow.job_id)
        .order_by(RunJobRow.run_id.desc(), RunJobRow.number)
        .limit(MAX_JOBS)
    )
    hits = (EntryHit(*row) for row in session.execute(query))
    return list(dict.fromkeys(hit for hit in hits if text in hit.name.lower()))


def _by_commit(session: Session, text: str, limit: int) -> list[JobHit]:
    """Return the newest jobs whose commit begins with the text."""
    if not re.fullmatch(f"[0-9a-f]{{{MIN_ID_DIGITS},{_SHA_DIGITS}}}", text):
        return []
    sha = JobRow.commit["sha"].as_string()
    query = select(JobRow.id, JobRow.build, sha).order_by(JobRow.id.desc()).limit(MAX_JOBS)
    hits = (JobHit(*row) for row in session.execute(query) if row[2])
    return list(islice((hit for hit in hits if hit.sha.lower().startswith(text)), limit))


def _builds(session: Session, text: str) -> list[BuildHit]:
    ran = sorted(matrices.builds(session), key=lambda build: build.newest_job, reverse=True)
    query = select(BuildRow.name, BuildRow.branch, BuildRow.commit)
    rows = session.execute(query.order_by(BuildRow.created_at.desc()).limit(MAX_BUILDS))
    registered = {row.name: BuildHit(*row) for row in rows}
    known: dict[str, BuildHit] = {}  # those that ran come first
    for build in ran:
        commit = registered[build.name].commit if build.name in registered else None
        known[build.name] = BuildHit(build.name, build.branch, commit)
    return [
        build
        for build in (
            known | {name: hit for name, hit in registered.items() if name not in known}
        ).values()
        if text in build.name.lower() or (build.commit or "").lower().startswith(text)
    ]


def _by_id(session: Session, text: str, limit: int) -> list[tuple[str, str]]:
    """Return the things whose id begins with the text, by a range of each table's key."""
    digits = text.replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{{MIN_ID_DIGITS},{_ID_DIGITS}}}", digits):
        return []
    low, high = (_id(digits.ljust(_ID_DIGITS, digit)) for digit in "0f")
    hits = []
    for kind, table in _IDS.items():
        query = select(table.id).where(table.id.between(low, high)).order_by(table.id).limit(limit)
        hits += [(kind, identity) for identity in session.scalars(query)]
    return hits


def _id(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
