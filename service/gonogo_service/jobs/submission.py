"""Checks of a job's body that need the domain, the settings or the database."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from gonogo.devices.boards import ARCHES, BOARDS, arch_of
from gonogo.errors import FieldError
from gonogo.fields import choice, did_you_mean
from gonogo.settings import Settings
from gonogo.spec.builds import EMULATOR, Build, known_build, own_builds
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.regimes import check_exact_executor
from gonogo.spec.selections import AnyTest, SelectionTest, check_executor
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import check_build, check_emulated
from gonogo_service.builds import store as builds
from gonogo_service.jobs import queue_estimate, store
from gonogo_service.jobs.bodies import JobIn, Prepared, SequentialSeeds, Target
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.kit.database.records import from_object

_REMEDY = "; another name is known once a worker with it has run"


def check(body: JobIn, settings: Settings) -> AnyTest:
    """Run the checks that need no database, and return the test. Raises FieldError."""
    test = body.test.selection if isinstance(body.test, SelectionTest) else body.test
    if isinstance(test, TestSpec):
        check_size(test, settings, "test")
    check_executor(test, body.target.executor)
    if isinstance(body.context, Prepared):
        for number, warm_up in enumerate(body.context.before):
            check_size(warm_up, settings, f"context.before.{number}")
    field, count = body.seed_count
    # before the range is expanded: a count of 10**15 must not use memory
    if count * body.repeats > settings.max_seeds:
        reason = f"{count} seeds x {body.repeats} repeats are too many results"
        raise FieldError(field, count, reason, limit=f"{settings.max_seeds} (GONOGO_MAX_SEEDS)")
    return test


def submit(
    session: Session, body: JobIn, settings: Settings, owner: str, *, now: datetime | None = None
) -> JobRow:
    """Store a job with its work in the caller's transaction. Raises FieldError."""
    return store.create(session, resolve(session, body, settings, owner), now=now)


def resolve(session: Session, body: JobIn, settings: Settings, owner: str) -> NewJob:
    """Return the job to create; its build and executor must be known and match.

    Raises FieldError.
    """
    test = check(body, settings)
    build = build_of(session, body.build, test, body.target.executor, settings, "build")
    check_kind(session, body.target, settings)
    reference = None
    if isinstance(test, TestSpec):
        check_exact_executor(test.inputs, build.executor, test.kernel, test.features, "test")
        if body.reference is not None:
            reference = _reference(session, body, build, test, settings)
    stop = body.seeds.stop_on_finding if isinstance(body.seeds, SequentialSeeds) else None
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
        **dict(body.target),
        seeds=body.each_seed,
        context=body.context.canonical() if isinstance(body.context, Prepared) else body.context,
        commit=None if body.commit is None else body.commit.model_dump(),
        owner=owner,
        request=body.model_dump(mode="json", exclude={"test", "context"}),
        chunk_seconds=settings.chunk_seconds,
        resubmit_of=None,
        reference=reference,
        stop_on_finding=stop,
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
    other = build_of(session, body.reference.build, test, body.target.executor, settings, field)
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


def build_of(
    session: Session, name: str, test: AnyTest, executor: str, settings: Settings, field: str
) -> Build:
    """Return the build with a name on an executor, of which the test says something.

    Registered builds come first, so that a name always means the same build. Raises FieldError.
    """
    build = _known_build(session, name, test, executor, settings, field)
    if isinstance(test, TestSpec):
        check_build(build, test, field)
    return build


def _known_build(
    session: Session, name: str, test: AnyTest, executor: str, settings: Settings, field: str
) -> Build:
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
    if executor == EMULATOR and isinstance(test, TestSpec):
        check_emulated(name, test, field)
    choices = [
        *own_builds(executor),
        f"a build registered for {executor} (GET /api/v1/builds?executor={executor})",
    ]
    reason = "unknown build" + did_you_mean(name, own_builds(executor))
    raise FieldError(field, name, reason, limit=", ".join(choices))


def check_kind(session: Session, target: Target, settings: Settings) -> None:
    """Raise FieldError for an architecture or a board that no device can have.

    Those that are sold are known, so that jobs may wait for a host that comes later, and those of
    every device, worker and setting so far.
    """
    seen = queue_estimate.kinds(session) | {(settings.arch, settings.board)}
    if (target.arch, target.board) in seen:
        return
    arches = sorted({*ARCHES, *(arch for arch, _ in seen)})
    boards = sorted({*BOARDS, *(board for _, board in seen)})
    choice(target.arch, arches, "target.arch", "unknown architecture", more=_REMEDY)
    made_for = arch_of(target.board)
    if made_for is None:
        choice(target.board, boards, "target.board", "unknown board", more=_REMEDY)
    if made_for is not None and made_for != target.arch:
        raise FieldError(
            "target.board",
            target.board,
            f"is a board with chips of {made_for}, not of {target.arch}",
            limit=f"target.arch {made_for}, or another board",
        )
