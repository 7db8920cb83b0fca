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
    """A build that ran; `at` and `owner`, who submitted it, are those of its newest job."""

    name: str
    branch: str
    at: datetime
    commit: str | None
    owner: str | None
    author: str | None
    """The author of its commit."""

    @property
    def by(self) -> str:
        """Return the author, else who submitted its newest job; "–" for nobody."""
        return self.author or (f"submitted by {self.owner}" if self.owner else "–")


def read(session: Session, builds: Collection[BuildRecord]) -> list[BuildChoice]:
    """Return these builds with their facts, in the same order."""
    newest = [build.newest_job for build in builds]
    registered = BuildRow.commit.label("registered"), BuildRow.author
    query = select(JobRow.id, JobRow.owner, JobRow.commit, *registered)
    query = query.outerjoin(BuildRow, BuildRow.name == JobRow.build).where(JobRow.id.in_(newest))
    jobs = {job.id: job for job in session.execute(query)}
    choices = []
    for build in builds:
        job, at = jobs.get(build.newest_job), made_at(build.newest_job)
        owner, author = (None, None) if job is None else (job.owner, job.author)
        commit = None if job is None else job.registered or (job.commit and job.commit.sha)
        choices.append(BuildChoice(build.name, build.branch, at, commit, owner, author))
    return choices
