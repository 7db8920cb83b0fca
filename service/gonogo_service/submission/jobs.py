"""From the body of a job to what storage creates: the checks that need the domain, the settings or
the database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.spec.builds import EMULATOR, Build, known_build, own_builds
from gonogo.spec.selections import OWN_EXECUTORS, AnyTest, Selection, check_executor, parse_test
from gonogo.spec.test_spec import TestSpec
from gonogo_service.submission.bodies import MAX_SEED, JobIn, Prepared, SequentialSeeds
from gonogo_settings import Settings
from gonogo_storage.catalogue import builds
from gonogo_storage.db.states import IMPORT_EXECUTOR
from gonogo_storage.jobs import queue_estimate
from gonogo_storage.jobs.job import NewJob


@dataclass(frozen=True)
class Submission:
    """A body whose every field is checked, but for what only the database knows."""

    body: JobIn
    test: AnyTest
    seeds: tuple[int, ...]
    context: str | dict[str, Any]


def check(body: JobIn, settings: Settings) -> Submission:
    """Everything that can be said without the database. Raises FieldError."""
    if body.target.executor == IMPORT_EXECUTOR:
        raise FieldError(
            "target.executor",
            body.target.executor,
            "runs nothing: it stands for what was imported",
            limit="another executor",
        )
    test = _test(body.test, settings, "test")
    check_executor(test, body.target.executor)
    if isinstance(test, Selection):
        _check_selection(body, test)
    if isinstance(body.seeds, SequentialSeeds) and body.reference is not None:
        reason = "sequential seeds decide about one build, not about two that are compared"
        raise FieldError(
            "reference.build", body.reference.build, reason, limit="null, or a range of seeds"
        )
    context: str | dict[str, Any] = "isolated"
    if isinstance(body.context, Prepared):
        before = [
            kernel_test(each, settings, f"context.before.{number}").canonical()
            for number, each in enumerate(body.context.before)
        ]
        context = {"name": body.context.name, "before": before}
    return Submission(body, test, _seeds(body, settings.max_seeds), context)


def resolve(session: Session, submission: Submission, settings: Settings, owner: str) -> NewJob:
    """The job to create: its build and executor must be known and fit together. Raises
    FieldError.
    """
    body, test = submission.body, submission.test
    build = build_of(session, body.build, body.target.executor, settings, "build")
    if (
        isinstance(test, TestSpec)
        and build.outputs is not None
        and not any(build.produces(output) for output in test.outputs)
    ):
        reason = f"produces nothing that {test.kernel} has ({', '.join(test.outputs)})"
        raise FieldError(
            "build",
            build.name,
            reason,
            limit="a build with one of them; this one has " + ", ".join(build.outputs),
        )
    reference = (
        None
        if body.reference is None or isinstance(test, Selection)
        else _reference(session, body, build, test, settings)
    )
    request = body.model_dump(mode="json", exclude={"test", "context"})
    return NewJob(
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
        repeats=body.repeats,
        context=submission.context,
        priority=body.priority,
        queue_deadline_s=body.queue_deadline_s,
        labels=body.labels,
        commit=None if body.commit is None else body.commit.model_dump(),
        owner=owner,
        request=request,
        chunk_seconds=settings.chunk_seconds,
        reference=reference,
        stop_on_finding=body.seeds.stop_on_finding
        if isinstance(body.seeds, SequentialSeeds)
        else None,
    )


def _reference(
    session: Session, body: JobIn, build: Build, test: TestSpec, settings: Settings
) -> str:
    """The name of the build to compare with: known, of the target's executor, with an output in
    common. Raises FieldError.
    """
    assert body.reference is not None
    field = "reference.build"
    other = build_of(session, body.reference.build, body.target.executor, settings, field)
    if not any(build.produces(output) and other.produces(output) for output in test.outputs):
        limit = f"a build with one of {', '.join(output for output in test.outputs if build.produces(output))}"
        raise FieldError(
            field,
            other.name,
            f"has no output in common with {build.name!r} that {test.kernel} has",
            limit=limit,
        )
    return other.name


def plugins(settings: Settings) -> set[str]:
    """The names of the executor plug-ins in GONOGO_EXECUTORS."""
    return {
        entry.partition("=")[0].strip() for entry in settings.executors.split(",") if "=" in entry
    }


def kernel_test(data: dict[str, Any], settings: Settings, path: str) -> TestSpec:
    """A test of a kernel: only those run before a kernel."""
    test = _test(data, settings, path)
    if isinstance(test, Selection):
        raise FieldError(
            f"{path}.selection",
            test.inner(),
            "only tests of kernels run before one",
            limit="a test with a kernel",
        )
    return test


def _check_selection(body: JobIn, selection: Selection) -> None:
    """What a job of a selection can't have. Raises FieldError."""
    if isinstance(body.context, Prepared):
        reason = (
            "a selection has no prepared context: what runs before a test is the order of its suite"
        )
        raise FieldError(
            "context",
            body.context.name,
            reason,
            limit='"isolated"; a suite with `order` in the builds file',
        )
    if body.reference is not None:
        reason = "tests that exist already aren't compared with another build's"
        raise FieldError("reference.build", body.reference.build, reason, limit="null")
    if body.repeats > 1 and selection.seed_of(0) is None:
        reason = "an iteration without a controlled seed can't be run again"
        raise FieldError(
            "repeats",
            body.repeats,
            reason,
            limit="1; more iterations are more seeds, a controlled seed is a shuffle",
        )


def _test(data: dict[str, Any], settings: Settings, path: str) -> AnyTest:
    try:
        return parse_test(data, max_elements=settings.max_elements, path=path)
    except FieldError as error:
        if error.limit == f"{settings.max_elements} elements":  # the domain knows no settings
            raise FieldError(
                error.field, error.value, error.reason, limit=f"{error.limit} (GONOGO_MAX_ELEMENTS)"
            ) from None
        raise


def _seeds(body: JobIn, limit: int) -> tuple[int, ...]:
    asked = body.seeds
    if isinstance(asked, list):
        field, start, count = "seeds", None, len(asked)
    elif isinstance(asked, SequentialSeeds):
        field, start, count = "seeds.max", asked.start, asked.max
    else:
        field, start, count = "seeds.count", asked.start, asked.count
    if start is not None:
        check_last_seed(start, count, field.partition(".")[2])
    # before the range is unrolled: a count of 10**15 must not cost memory
    if count * body.repeats > limit:
        reason = f"{count} seeds x {body.repeats} repeats are too many results"
        raise FieldError(field, count, reason, limit=f"{limit} (GONOGO_MAX_SEEDS)")
    if not isinstance(asked, list):
        return tuple(range(asked.start, asked.start + count))
    seen: set[int] = set()
    for number, seed in enumerate(asked):
        if seed in seen:
            raise FieldError(
                f"seeds.{number}",
                seed,
                "is there twice; for the same seed again use repeats",
                limit="distinct seeds",
            )
        seen.add(seed)
    return tuple(asked)


def check_last_seed(start: int, count: int, name: str = "count") -> None:
    """`name`: what the number of consecutive seeds is called. Raises FieldError."""
    if start + count - 1 > MAX_SEED:
        raise FieldError(
            "seeds",
            {"start": start, name: count},
            "the last seed is too large",
            limit=f"<= {MAX_SEED}",
        )


def build_of(session: Session, name: str, executor: str, settings: Settings, field: str) -> Build:
    """The build of that name on that executor. Registered ones first: a name means one thing,
    whoever asks.
    """
    registered = builds.get(session, name)
    known = known_build(name)
    if registered is not None:
        fields = ("name", "executor", "branch", "sequence", "commit", "arithmetic", "outputs")
        known = Build.parse({field: registered[field] for field in fields})
    if known is not None:
        if known.executor == executor:
            return known
        if executor in OWN_EXECUTORS or registered is not None:
            wrong = ("target.executor", executor) if field == "build" else (field, name)
            raise FieldError(
                *wrong,
                f"build {name!r} is of another executor",
                limit=known.executor if field == "build" else executor,
            )
    built, served = queue_estimate.executors(session)
    executors = OWN_EXECUTORS | plugins(settings) | built | served
    if executor not in executors:
        raise FieldError(
            "target.executor",
            executor,
            "unknown executor",
            limit="one of " + ", ".join(sorted(executors)),
        )
    if executor in (plugins(settings) | served) - OWN_EXECUTORS:
        return Build(name=name, executor=executor, branch=executor)
    if executor == EMULATOR:
        raise FieldError(
            field, name, "unknown build", limit="one of " + ", ".join(own_builds(executor))
        )
    choices = [
        *own_builds(executor),
        f"a build registered for {executor} (GET /api/v1/builds?executor={executor})",
    ]
    raise FieldError(field, name, "unknown build", limit=", ".join(choices))
