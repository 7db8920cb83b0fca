"""Bisections: find the build of a series that changed a test, although its runs are noisy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.fields import did_you_mean
from gonogo.flakiness.bisecting import Expect, Signal
from gonogo.spec.builds import Build, fits_kernel, own_builds
from gonogo.spec.selections import TestBody
from gonogo.spec.test_spec import TestSpec
from gonogo_service.bisections import noun, store
from gonogo_service.bisections.model import (
    BisectionLinks,
    BisectionProgress,
    BisectionRow,
    ProbeRow,
)
from gonogo_service.builds import store as builds
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs import submission
from gonogo_service.jobs.api.events import add_stream
from gonogo_service.jobs.bodies import MAX_SEED, Commit, JobIn, JobOptions, Priority
from gonogo_service.jobs.new_job import BACKGROUND_PRIORITY
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import BisectionState
from gonogo_service.kit.resource import Act, Resource
from gonogo_service.kit.strict import MAX_LABELS, Label, Name
from gonogo_service.people import idempotency_keys
from gonogo_service.tests import test_specs

MAX_BUILDS = 1000
MAX_RUNS = 10_000


class BisectionIn(JobOptions):
    """A test, and a series of builds in order: a list, or the builds of a branch."""

    priority: Priority = BACKGROUND_PRIORITY
    test: TestBody = Field(
        description="As in a job: a test of a kernel, or a selection of a gtest or pytest suite"
    )
    builds: list[Name] | None = Field(
        None,
        min_length=2,
        max_length=MAX_BUILDS,
        description="In order; a build may occur several times",
    )
    branch: Name | None = Field(
        None, description="Instead of `builds`: all builds of this branch, by sequence"
    )
    first: Name | None = Field(None, description="The first build of the branch to use")
    last: Name | None = Field(None, description="The last build of the branch to use")
    signal: Signal | None = Field(
        None,
        strict=False,
        description=(
            "What distinguishes builds; null: numbers for a test of a kernel, verdicts for a "
            "selection"
        ),
    )
    expect: Expect = Field(
        Expect.either,
        strict=False,
        description="How the last build differs from the first; if known, it saves runs",
    )
    several: bool = Field(
        False,
        description=(
            "With verdicts: look for more changes after the first one; with numbers always true"
        ),
    )
    max_runs: int = Field(
        500, ge=2, le=MAX_RUNS, description="Without an answer after so many runs it is undecided"
    )
    seed_start: int = Field(
        0,
        ge=0,
        le=MAX_SEED - MAX_RUNS,
        description="The n-th run of every build has this seed plus n",
    )
    labels: dict[Label, Annotated[str, Field(max_length=200)]] = Field(
        {}, max_length=MAX_LABELS - 1
    )
    commit: Commit | None = None

    def _normalize(self) -> None:
        if self.builds is None and self.branch is None:
            limit = f"2 to {MAX_BUILDS} builds"
            raise FieldError("builds", None, "is required if there is no branch", limit=limit)
        for field in ("branch", "first", "last"):
            value = getattr(self, field)
            if self.builds is not None and value is not None:
                reason = "needs a branch, not a list of builds"
                raise FieldError(field, value, reason, limit="null with `builds`")


@dataclass(frozen=True)
class BisectionAccepted:
    """The answer to a new bisection."""

    id: str
    state: BisectionState
    builds: int
    links: BisectionLinks


_TEST = (dict[str, Any], "The test in its canonical form")
LISTED = rows.extended_answer(
    BisectionRow, "ListedBisection", without=("tracks",), test=_TEST, links=BisectionLinks
)
PROBE: Any = rows.extended_answer(
    ProbeRow, "ProbeOut", without=("bisection_id", "job_id"), job=str, build=str
)
SHOWN = rows.extended_answer(
    BisectionRow,
    "BisectionOut",
    test=_TEST,
    probes=list[PROBE],
    links=BisectionLinks,
)


def _details(_context: Any, _session: Session, bisection: BisectionRow) -> dict[str, Any]:
    probes = [rows.values(PROBE, probe) for probe in bisection.probes]
    return rows.values(SHOWN, bisection, probes=probes)


BISECTIONS = Resource(
    noun.BISECTIONS,
    BisectionRow,
    answer=SHOWN,
    line=LISTED,
    audited=("test_key",),
    show=_details,
    where={"test": BisectionRow.test_key},
)
router = BISECTIONS.router


def _accepted(bisection: BisectionRow) -> BisectionAccepted:
    return BisectionAccepted(bisection.id, bisection.state, len(bisection.builds), bisection.links)


@idempotency_keys.submits(BISECTIONS, _accepted)
def submit(act: Act, body: BisectionIn) -> BisectionRow:
    """Run builds of the series until the place of the change is known.

    Each probe runs one seed, on as many devices as are free.
    """
    common = body.model_dump(
        mode="json", include={"test", "labels", "commit", *JobOptions.model_fields}
    )
    series, field = _series(act.session, body)
    first = JobIn.parse({**common, "build": series[0], "seeds": [body.seed_start]})
    now = utcnow()
    for place, name in enumerate(series):
        candidate = first.model_copy(update={"build": name})
        try:
            sample = submission.resolve(act.session, candidate, act.context.settings, act.who.name)
        except FieldError as error:
            is_listed = error.field == "build" and field == "builds"
            raise error.at(f"{field}.{place}" if is_listed else error.field) from None
    about = sample.test_key, sample.workload_key, sample.kernel, sample.canonical
    test_specs.add(act.session, *about, now=now)
    default = Signal.numbers if isinstance(body.test, TestSpec) else Signal.verdicts
    bisection = BisectionRow(
        id=new_id(),
        state=BisectionState.running,
        signal=body.signal or default,
        expect=body.expect,
        several=body.several,
        owner=act.who.name,
        test_key=sample.test_key,
        queue=sample.queue,
        builds=series,
        request=common,
        seed_start=body.seed_start,
        max_runs=body.max_runs,
        runs=0,
        version=1,
        tracks=[],
        findings=[],
        created_at=now,
    )
    act.session.add(bisection)
    act.session.flush()
    return bisection


@BISECTIONS.on_cancel(_accepted)
def cancel(act: Act, bisection: BisectionRow) -> bool:
    """Cancel a bisection and its open runs; its results stay. A finished one does not change."""
    if store.lock(act.session, bisection.id) is None:
        return False
    now, words, state = utcnow(), f"canceled by {act.who.name}", BisectionState.cancelled
    for job_id in store.finish(act.session, bisection, state=state, words=words, now=now):
        jobs.cancel(act.session, job_id, now=now)
    return True


add_stream(
    BISECTIONS,
    lambda context: context.bisections,
    lambda bisection: int(bisection.version),
    BisectionProgress,
    """Stream `progress` events, and at the end a `state` event.

    Each has {"state", "runs", "tracks", "conclusion", "words"}. An event's ID is the bisection's
    version. Slow clients get only the newest event. The stream ends when the bisection is over.
    """,
)


def _series(session: Session, body: BisectionIn) -> tuple[list[str], str]:
    """Return (the builds in order, the field that names them). Raises FieldError.

    Of a branch, builds that don't belong to the test's kernel are left out.
    """
    if body.builds is not None:
        return list(body.builds), "builds"
    assert body.branch is not None  # the body has one of the two
    executor, branch = body.target.executor, body.branch
    kernel = body.test.kernel if isinstance(body.test, TestSpec) else None
    names = [
        build.name
        for build in _branch(session, executor, branch)
        if kernel is None or fits_kernel(build, kernel)
    ]
    for field, name in (("first", body.first), ("last", body.last)):
        if name is not None and name not in names:
            reason = f"is not a build of branch {branch!r}"
            reason += "" if kernel is None else f" that belongs to {kernel}"
            limit = ", ".join(names[:20]) or "a build of the branch"
            raise FieldError(field, name, reason + did_you_mean(name, names), limit=limit)
    low = 0 if body.first is None else names.index(body.first)
    high = len(names) - 1 if body.last is None else names.index(body.last)
    series = names[low : high + 1]
    if not 2 <= len(series) <= MAX_BUILDS:
        reason = f"has {len(series)} builds of {executor} from first to last"
        raise FieldError("branch", branch, reason, limit=f"2 to {MAX_BUILDS} builds")
    return series, "branch"


def _branch(session: Session, executor: str, branch: str) -> list[Build]:
    """Return the built-in and the registered builds of a branch, by sequence."""
    members = [build for build in own_builds(executor).values() if build.branch == branch]
    every = [*members, *builds.of_branch(session, branch, executor)]
    return sorted(every, key=lambda build: build.order)
