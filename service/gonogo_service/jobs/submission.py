"""Checks of a job's body that need the domain, the settings or the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.fields import choice, did_you_mean
from gonogo.settings import Settings
from gonogo.spec.builds import (
    EMULATOR,
    Build,
    known_build,
    own_builds,
)
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.regimes import check_exact_executor
from gonogo.spec.selections import (
    AnyTest,
    Selection,
    SelectionTest,
    check_executor,
)
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import check_build
from gonogo_service.builds import store as builds
from gonogo_service.jobs import queue_estimate
from gonogo_service.jobs import store as stored
from gonogo_service.jobs.bodies import JobIn, Prepared, SequentialSeeds
from gonogo_service.jobs.job import Job, NewJob
from gonogo_service.jobs.targets import check_kind
from gonogo_service.kit.database.records import from_object


@dataclass(frozen=True)
class Submission:
    """A body whose fields are checked, except for the checks that need the database."""

    body: JobIn
    test: AnyTest
    seeds: Sequence[int]
    context: str | dict[str, Any]


def check(body: JobIn, settings: Settings) -> Submission:
    """Run the checks that need no database. Raises FieldError."""
    test = body.test.selection if isinstance(body.test, SelectionTest) else body.test
    if isinstance(test, TestSpec):
        check_size(test, settings, "test")
    check_executor(test, body.target.executor)
    context: str | dict[str, Any] = "isolated"
    if isinstance(body.context, Prepared):
        for number, warm_up in enumerate(body.context.before):
            check_size(warm_up, settings, f"context.before.{number}")
        before = [warm_up.canonical() for warm_up in body.context.before]
        context = {"name": body.context.name, "before": before}
    return Submission(body, test, _seeds(body, settings.max_seeds), context)


def submit(
    session: Session,
    submission: Submission,
    settings: Settings,
    owner: str,
    *,
    now: datetime | None = None,
) -> Job:
    """Store a job with its work in the caller's transaction. Raises FieldError."""
    return stored.create(session, resolve(session, submission, settings, owner), now=now)


def resolve(session: Session, submission: Submission, settings: Settings, owner: str) -> NewJob:
    """Return the job to create; its build and executor must be known and match.

    Raises FieldError.
    """
    body, test = submission.body, submission.test
    build = build_of(session, body.build, body.target.executor, settings, "build")
    check_kind(session, body.target, settings)
    if isinstance(test, TestSpec):
        check_build(build, test, "build")
        check_exact_executor(test.inputs, build.executor, test.kernel, test.features, "test")
    reference = (
        None
        if body.reference is None or isinstance(test, Selection)
        else _reference(session, body, build, test, settings)
    )
    request = body.model_dump(mode="json", exclude={"test", "context"})
    return from_object(
        NewJob,
        body,
        test_key=test.key,
        workload_key=test.workload_key,
        kernel=test.kernel,
        canonical=test.canonical(),
        elements=test.elements,
        build=build.name,
        branch=build.branch,
        build_sequence=build.sequence,
        executor=body.target.executor,
        arch=body.target.arch,
        board=body.target.board,
        seeds=submission.seeds,
        context=submission.context,
        commit=None if body.commit is None else body.commit.model_dump(),
        owner=owner,
        request=request,
        chunk_seconds=settings.chunk_seconds,
        resubmit_of=None,
        reference=reference,
        stop_on_finding=body.seeds.stop_on_finding
        if isinstance(body.seeds, SequentialSeeds)
        else None,
    )


def _reference(
    session: Session, body: JobIn, build: Build, test: TestSpec, settings: Settings
) -> str:
    """Return the name of the build to compare with.

    It must be known, be of the target's executor, belong to the kernel, and have an output in
    common. Raises FieldError.
    """
    assert body.reference is not None
    field = "reference.build"
    other = build_of(session, body.reference.build, body.target.executor, settings, field)
    check_build(other, test, field)
    if not any(build.produces(output) and other.produces(output) for output in test.outputs):
        shared = ", ".join(output for output in test.outputs if build.produces(output))
        limit = f"a build with one of {shared}"
        raise FieldError(
            field,
            other.name,
            f"has no output of {test.kernel} in common with {build.name!r}",
            limit=limit,
        )
    return other.name


def plugins(settings: Settings) -> set[str]:
    """Return the names of the executor plug-ins in GONOGO_EXECUTORS."""
    entries = (entry.partition("@")[0] for entry in settings.executors.split(","))
    return {name for entry in entries if (name := entry.partition("=")[0].strip())}


def check_executor_known(
    session: Session, executor: str, settings: Settings, field: str, *, otherwise: str = ""
) -> None:
    """Raise FieldError for an executor that no setting, build or worker has named so far.

    `otherwise` says what else is allowed.
    """
    built, served = queue_estimate.executors(session)
    known = set(EXECUTORS) | plugins(settings) | built | served
    otherwise = otherwise or "; GONOGO_EXECUTORS of the server, or of a worker, adds a plug-in"
    choice(executor, sorted(known), field, "unknown executor", more=otherwise)


def check_size(test: TestSpec, settings: Settings, path: str) -> None:
    """Raise FieldError for a test with more elements than the service accepts."""
    test.check_elements(settings.max_elements, path, "GONOGO_MAX_ELEMENTS")


def _seeds(body: JobIn, limit: int) -> Sequence[int]:
    seeds = body.seeds
    if isinstance(seeds, list):
        field, count = "seeds", len(seeds)
    elif isinstance(seeds, SequentialSeeds):
        field, count = "seeds.max", seeds.max
    else:
        field, count = "seeds.count", seeds.count
    # before the range is expanded: a count of 10**15 must not use memory
    if count * body.repeats > limit:
        reason = f"{count} seeds x {body.repeats} repeats are too many results"
        raise FieldError(field, count, reason, limit=f"{limit} (GONOGO_MAX_SEEDS)")
    return tuple(seeds) if isinstance(seeds, list) else range(seeds.start, seeds.start + count)


def build_of(session: Session, name: str, executor: str, settings: Settings, field: str) -> Build:
    """Return the build with a name on an executor. Raises FieldError.

    Registered builds come first, so that a name always means the same build.
    """
    registered = builds.get(session, name)
    known = known_build(name) or known_build(name, executor)
    if registered is not None:
        known = registered.build
    if known is not None:
        if known.executor == executor:
            return known
        if executor in EXECUTORS or registered is not None:
            wrong_field = ("target.executor", executor) if field == "build" else (field, name)
            raise FieldError(
                *wrong_field,
                f"build {name!r} belongs to another executor",
                limit=known.executor if field == "build" else executor,
            )
    check_executor_known(session, executor, settings, "target.executor")
    _, served = queue_estimate.executors(session)
    if executor in (plugins(settings) | served) - set(EXECUTORS):
        return Build(name=name, executor=executor, branch=executor)
    if executor == EMULATOR:
        choice(name, own_builds(executor), field, "unknown build")
    choices = [
        *own_builds(executor),
        f"a build registered for {executor} (GET /api/v1/builds?executor={executor})",
    ]
    reason = "unknown build" + did_you_mean(name, own_builds(executor))
    raise FieldError(field, name, reason, limit=", ".join(choices))
