"""The data of the build matrix: the last builds of a branch, their tests and the results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.spec.executors import EMULATOR
from gonogo_service.bisections.model import ProbeRow
from gonogo_service.builds.model import BuildRow
from gonogo_service.jobs.model import JobLabelRow, JobRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.ids import made_at
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.states import JobKind
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests import recent_builds, standings, test_list
from gonogo_service.tests.model import AssessmentRow, TestSpecRow
from gonogo_service.tests.recent_builds import JOBS, BuildResult
from gonogo_service.tests.standings import Kind, Standings
from gonogo_service.tests.variants import ENDED, MAIN, Variant

HOLLOW = "hollow"
GRADES = (*(grade.value for grade in (*Stability, *Sharpness)), HOLLOW)
"""The grades to filter tests by: a value of either axis, or HOLLOW, as tests stand."""


@dataclass(frozen=True, order=True)
class BuildRecord:
    """A build that jobs were submitted for, with the place that its newest job gives it."""

    branch: str
    sequence: int
    name: str
    newest_job: str
    began_at: datetime | None
    """When the first of its jobs ended that counts; None: none has."""
    commit: str | None
    author: str | None
    """The author of its commit, as the build was registered."""
    owner: str
    """Who submitted the newest job."""

    @property
    def at(self) -> datetime:
        """Return when the newest job was submitted."""
        return made_at(self.newest_job)

    @property
    def by(self) -> str:
        """Return the author, else who submitted the newest job."""
        return self.author or f"submitted by {self.owner}"


class Place(NamedTuple):
    """The columns of a matrix: builds of a branch, on one kind of board if it is given."""

    builds: Sequence[str]
    branch: str
    arch: str | None = None
    board: str | None = None

    def of(self, table: Any) -> list[ColumnElement[bool]]:
        """Return the conditions on a table with these columns, but for the builds."""
        named = (("arch", self.arch), ("board", self.board))
        given = [getattr(table, name) == value for name, value in named if value is not None]
        return [table.branch == self.branch, *given]

    def standings(self, session: Session, now: datetime) -> Standings:
        """Return how the tests stand here."""
        read = standings.read(session, since=now - standings.WINDOW, branch=self.branch)
        return {
            variant: one
            for variant, one in read.items()
            if self.arch in (None, variant.arch) and self.board in (None, variant.board)
        }


def builds(session: Session) -> list[BuildRecord]:
    """Return every build that jobs were submitted for, by branch, sequence and name.

    A bisection's jobs don't count. It takes two index lookups per build.
    """
    return sorted(BuildRecord(*row) for row in session.execute(_builds()))


@cache  # building the statement takes longer than running it
def _builds() -> Select[*tuple[Any, ...]]:
    jobs, after, shown = aliased(JobRow), aliased(JobRow), aliased(JobRow)
    ran = select(func.min(JobRow.build).label("name")).cte("ran", recursive=True)
    step = select(func.min(jobs.build)).where(jobs.build > ran.c.name).scalar_subquery()
    ran = ran.union_all(select(step).where(ran.c.name.is_not(None)))
    # a build that only a bisection ran is none to compare with
    probe = select(ProbeRow.job_id).where(ProbeRow.job_id == after.id).exists()
    of_build = after.build == ran.c.name, after.kind == JobKind.seeds, ~probe
    newest = select(after.id).where(*of_build).order_by(after.id.desc()).limit(1)
    first = select(JobRow.finished_at).where(JobRow.build == ran.c.name, ENDED)
    began = first.order_by(JobRow.id).limit(1).correlate(ran).scalar_subquery()
    commit = func.coalesce(BuildRow.commit, shown.commit["sha"].as_string())
    place = shown.branch, shown.build_sequence, shown.build, shown.id, began
    query = select(*place, commit, BuildRow.author, shown.owner).select_from(ran)
    query = query.join(shown, shown.id == newest.scalar_subquery())
    return query.outerjoin(BuildRow, BuildRow.name == shown.build)


def main_branch(known: Collection[BuildRecord]) -> str | None:
    """Return the branch called main, else the one that ran last.

    The emulator's builds, which are no series, come last of all.
    """

    def order(one: BuildRecord) -> tuple[bool, bool, str]:
        return one.branch in MAIN, one.branch != EMULATOR, one.newest_job

    return max(known, key=order).branch if known else None


def suites(session: Session, limit: int = 100) -> list[str]:
    """Return the names of suites that runs were submitted for, in order."""
    query = select(RunRow.name).distinct().order_by(RunRow.name).limit(limit)
    return list(session.scalars(query))


def rows(
    session: Session,
    place: Place,
    now: datetime,
    *,
    kernel: str | None = None,
    verdict: str | None = None,
    label: str | None = None,
    suite: str | None = None,
    grade: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[TestSpecRow]:
    """Return the tests that have a seed on any of the builds: first those that need attention.

    Tests of the same grade come by the time of their first submission, the last first.
    verdict: only tests with such a seed. cursor: a test's key. label: "name" or "name=value", of a
    job of the test on one of the builds. suite: such a job was submitted with it. grade: one of
    GRADES. Raises BadCursor.
    """
    table, graded, known = TestSpecRow, AssessmentRow, place.standings(session, now)
    of_test = [
        JobRow.test_key == table.key,
        JobRow.build.in_(list(place.builds)),
        *place.of(JobRow),
    ]
    ran = select(JobRow.id).where(*of_test, ENDED)
    if verdict is not None:
        ran = ran.where(JobRow.counts[verdict].as_integer() > 0)
    conditions: list[ColumnElement[bool]] = [ran.exists()]
    if kernel is not None:
        conditions.append(table.kernel == kernel)
    if label is not None:
        name, equals, value = label.partition("=")
        labeled = [JobLabelRow.job_id == JobRow.id, JobLabelRow.name == name]
        labeled += [JobLabelRow.value == value] if equals else []
        conditions.append(exists().where(*of_test, *labeled))
    if suite is not None:
        of_run = RunJobRow.job_id == JobRow.id, RunRow.id == RunJobRow.run_id, RunRow.name == suite
        conditions.append(exists().where(*of_test, *of_run))
    if grade is not None:
        is_axis = or_(graded.stability == grade, graded.sharpness == grade)
        of_axis = exists().where(graded.test_key == table.key, *place.of(graded), is_axis)
        hollow = among(session, table.key, standings.of_kind(known, Kind.hollow))
        conditions.append(hollow if grade == HOLLOW else of_axis)
    order = test_list.attention(session, known, *place.of(graded)), table.created_at, table.key
    return test_list.ordered(session, order, conditions, limit, cursor)


def cells(
    session: Session, test_keys: Collection[str], place: Place
) -> dict[tuple[Variant, str], BuildResult]:
    """Return the results of each test by kind of board and build, over all devices and contexts."""
    of_tests = JobRow.test_key.in_(list(test_keys)), JobRow.build.in_(list(place.builds))
    jobs = select(*JOBS).where(ENDED, *of_tests, *place.of(JobRow))
    read = map(recent_builds.result, session.execute(recent_builds.per_build(jobs.subquery())))
    return {(variant, one.build): one for variant, one in read}
