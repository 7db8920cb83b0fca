"""Facts by which people recognize builds: their commit, who ran them, and when. Reads only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.builds.model import BuildRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import made_at
from gonogo_service.tests.matrices import BuildRecord


@dataclass(frozen=True)
class BuildChoice:
    """A build that ran; `at` and `owner` are those of its newest job."""

    name: str
    branch: str
    at: datetime
    commit: str | None
    owner: str | None


def read(session: Session, builds: Collection[BuildRecord]) -> list[BuildChoice]:
    """Return these builds with their facts, in the same order."""
    names = [build.name for build in builds]
    registered = select(BuildRow.name, BuildRow.commit).where(BuildRow.name.in_(names))
    commits = dict(session.execute(registered).all())
    newest = select(JobRow.id, JobRow.owner, JobRow.commit).where(
        JobRow.id.in_([build.newest_job for build in builds])
    )
    jobs = {row.id: (row.owner, row.commit) for row in session.execute(newest)}
    choices = []
    for build in builds:
        owner, commit = jobs.get(build.newest_job, (None, None))
        sha = commits.get(build.name) or (commit and commit.sha)
        choices.append(BuildChoice(build.name, build.branch, made_at(build.newest_job), sha, owner))
    return choices
