"""Expands a suite into the jobs of a run, with every check of a single job.

Errors name the field's place in the suite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo import fields
from gonogo.errors import FieldError, FieldErrors
from gonogo.fields import did_you_mean
from gonogo.settings import Settings
from gonogo.spec.suites import Template, attempt
from gonogo.spec.validation import MAX_ERRORS
from gonogo_service.jobs import submission
from gonogo_service.jobs.bodies import JobIn
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.jobs.values import JobCommit
from gonogo_service.kit import audit
from gonogo_service.schedules.model import ScheduleRow
from gonogo_service.suites import runs
from gonogo_service.suites.model import RunRow, SuiteRow

MAX_JOBS = 1000
"""Maximum number of jobs of a run: its tests times its builds."""
_ANY_BUILD = "any"
"""The placeholder for the build when a suite is checked before a run names one."""


@dataclass(frozen=True)
class Order:
    """The values that a run adds to a suite."""

    builds: Sequence[str]
    labels: Mapping[str, str]
    commit: Mapping[str, Any] | None = None
    suite_version: int | None = None
    schedule: str | None = None
    due_at: datetime | None = None
    actor: str | None = None
    """Who it is in the audit; default: the owner."""


@dataclass(frozen=True)
class TestOfSuite:
    """A test of a suite, with expanded matrices."""

    __test__ = False  # pytest: not a test case

    name: str
    test_key: str
    workload_key: str
    kernel: str
    test: dict[str, Any]
    seeds: int


def check(
    content: Mapping[str, Any], settings: Settings, path: str = ""
) -> list[tuple[Template, JobIn]]:
    """Run the checks of a suite that need neither the database nor builds.

    Raises FieldErrors with fields such as `entries.3.test.shape`, for all tests at once.
    """
    checked, problems = checked_tests(content, settings, path)
    if problems:
        raise FieldErrors(problems)
    return checked


def checked_tests(
    content: Mapping[str, Any], settings: Settings | None, path: str = ""
) -> tuple[list[tuple[Template, JobIn]], list[FieldError]]:
    """Return the right tests of a suite, and what is wrong with the others.

    settings: the service's limits; None where the suite may have other problems as well.
    """
    templates, problems = attempt(content, path)
    checked: list[tuple[Template, JobIn]] = []
    for template in templates:
        try:
            checked.append((template, _checked(template, {"build": _ANY_BUILD}, settings)))
        except FieldErrors as errors:
            problems.extend(errors.problems)
            if len(problems) >= MAX_ERRORS:
                break
    return checked, _distinct(problems)


def _distinct(problems: Sequence[FieldError]) -> list[FieldError]:
    """Return the problems, each field once: a test of a matrix repeats those of its entry."""
    return list({problem.field: problem for problem in reversed(problems)}.values())[::-1]


def submit(
    session: Session,
    content: Mapping[str, Any],
    order: Order,
    settings: Settings,
    owner: str,
    path: str = "",
) -> RunRow:
    """Create a run in the caller's transaction, with one job per test and build.

    The builds are the order's, else the suite's. Raises FieldError before anything is written.
    """
    builds, new_jobs = _resolve(session, content, order, settings, owner, path)
    run = runs.create(
        session,
        new_jobs,
        name=str(content["name"]),
        owner=owner,
        suite_version=order.suite_version,
        builds=builds,
        labels=dict(order.labels),
        commit=order.commit and JobCommit(**order.commit),
        schedule=order.schedule,
        due_at=order.due_at,
    )
    audit.record(
        session,
        actor=order.actor or f"owner:{owner}",
        action="run.submitted",
        subject=run.id,
        detail={"suite": str(content["name"]), "builds": builds, "jobs": len(new_jobs)},
    )
    return run


def check_order(
    session: Session, name: str, builds: Sequence[str], settings: Settings, owner: str
) -> None:
    """Run the checks of a later run of a stored suite, and create nothing. Raises FieldError."""
    _resolve(session, usable(session, name).content, Order(builds, {}), settings, owner)


def _resolve(
    session: Session,
    content: Mapping[str, Any],
    order: Order,
    settings: Settings,
    owner: str,
    path: str = "",
) -> tuple[list[str], list[tuple[str, NewJob]]]:
    """Return the builds of a run, and its jobs with their names. Raises FieldError."""
    templates = [template for template, _ in check(content, settings, path)]
    uses_suite_builds = not order.builds
    builds = list(order.builds) or list(content.get("builds") or ())
    if not builds:
        raise FieldError(
            "builds",
            None,
            "is required, because the suite names no builds",
            limit="at least one build",
        )
    if len(templates) * len(builds) > MAX_JOBS:
        reason = f"{len(templates)} tests x {len(builds)} builds are too many jobs"
        raise FieldError("builds", len(builds), reason, limit=f"{MAX_JOBS} jobs")
    supplied: dict[str, Any] = {
        "labels": dict(order.labels),
        "commit": None if order.commit is None else dict(order.commit),
    }
    new_jobs: list[tuple[str, NewJob]] = []
    for template in templates:
        for number, build in enumerate(builds):
            checked = _checked(template, {**supplied, "build": build}, settings)
            try:
                new_job = submission.resolve(session, checked, settings, owner)
                new_jobs.append((template.name, new_job))
            except FieldError as error:
                if error.field == "build":
                    parent = fields.join(path, "builds") if uses_suite_builds else "builds"
                    field = f"{parent}.{number}"
                else:
                    field = template.where(error.field)
                raise error.at(field) from None
    return builds, new_jobs


def submit_stored(
    session: Session, name: str, order: Order, settings: Settings, owner: str
) -> RunRow:
    """Create a run of the stored suite with this name, as `submit` does. Raises FieldError."""
    suite = usable(session, name)
    order = replace(order, suite_version=suite.version)
    return submit(session, suite.content, order, settings, owner)


def names(session: Session) -> list[str]:
    """Return the names of the suites that can run."""
    return list(session.scalars(select(SuiteRow.name).where(SuiteRow.archived_at.is_(None))))


def usable(session: Session, name: str) -> SuiteRow:
    """Return the stored suite with this name. Raises FieldError if it is missing or archived."""
    suite = session.get(SuiteRow, name)
    if suite is None or suite.archived_at is not None:
        reason = "was archived"
        if suite is None:
            reason = "there is no suite with this name"
            reason += did_you_mean(name, names(session))
        raise FieldError("suite", name, reason, limit="a stored suite (GET /api/v1/suites)")
    return suite


def order_of(schedule: ScheduleRow, due_at: datetime | None = None) -> Order:
    """Return the values that a schedule's run adds to its suite."""
    actor = f"schedule:{schedule.id}"
    return Order(schedule.builds, schedule.labels, schedule=schedule.id, due_at=due_at, actor=actor)


def described(content: Mapping[str, Any], settings: Settings) -> list[TestOfSuite]:
    """Return the tests of a stored suite with its matrices expanded."""
    return [
        TestOfSuite(
            name=template.name,
            test_key=test.key,
            workload_key=test.workload_key,
            kernel=test.kernel,
            test=test.canonical(),
            seeds=body.seed_count[1],
        )
        for template, body in check(content, settings)
        for test in (submission.check(body, settings),)
    ]


def _checked(template: Template, supplied: Mapping[str, Any], settings: Settings | None) -> JobIn:
    try:
        body = JobIn.parse({**template.body, **supplied})
        if settings is not None:
            submission.check(body, settings)
        return body
    except FieldError as error:
        raise _placed(template, error) from None


def _placed(template: Template, error: FieldError) -> FieldErrors:
    """Return the errors of a test with their places in the suite."""
    problems = error.problems if isinstance(error, FieldErrors) else (error,)
    return FieldErrors([problem.at(template.where(problem.field)) for problem in problems])
