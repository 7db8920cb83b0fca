"""Builds: names with an order.

They contain nothing executable: the worker hosts define what a name means.
"""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from gonogo.spec.builds import EMULATOR, DeclaredBuild, known_build, own_builds
from gonogo_service.builds import store as stored
from gonogo_service.builds.store import ListedBuild
from gonogo_service.jobs.bodies import NAME
from gonogo_service.jobs.submission import check_executor_known
from gonogo_service.kit import audit
from gonogo_service.kit.answers import Cursor, Filter, Limit, make_router, missing
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import IMPORT_EXECUTOR
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Admin, Ctx, Reader, Submitter

router = make_router("builds")
BROUGHT_LATER = (
    "; one that a device host will serve needs new_executor, `gonogo builds create --new-executor`"
)
MAX_NAMES = 2000
"""Builds among which a misspelled one is looked for."""


class BuildIn(DeclaredBuild, Strict):
    """A build to register."""

    name: str = Field(pattern=NAME, max_length=200)
    branch: str = Field("default", pattern=NAME, max_length=200)
    sequence: int | None = Field(
        None, ge=0, le=2**53, description="Its place in the branch; null: after all others"
    )
    commit: str | None = Field(None, pattern=NAME, max_length=200)
    new_executor: bool = Field(
        False,
        description="True: accept an executor that no setting, build or worker has named so far",
    )


@router.get("/builds", summary="List builds")
def list_builds(
    context: Ctx,
    _who: Reader,
    executor: Filter = None,
    branch: Filter = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[ListedBuild]:
    """List built-in builds (of the emulator and torch) and registered ones, by name."""
    with context.reading() as session:
        registered = stored.list_(
            session, executor=executor, branch=branch, limit=limit + 1, cursor=cursor
        ).items
    built_in = [
        from_object(ListedBuild, build, created_at=None)
        for name, build in own_builds().items()
        if executor in {None, build.executor}
        and branch in {None, build.branch}
        and (cursor is None or name > cursor)
    ]
    both = sorted([*registered, *built_in], key=lambda build: build.name)
    return Page.cut(both, limit, lambda build: build.name)


@router.get("/builds/{build:path}", summary="Show a build")
def look(context: Ctx, who: Reader, build: str) -> ListedBuild:
    """Show a built-in build or a registered one."""
    built_in = known_build(build)
    if built_in is not None:
        return from_object(ListedBuild, built_in, created_at=None)
    with context.reading() as session:
        registered = stored.get(session, build)
        if registered is None:
            # a limited token may look builds up, but not learn their names
            others = () if who.bounded else stored.list_(session, limit=MAX_NAMES).items
            raise missing("build", build, [*own_builds(), *(other.name for other in others)])
    return registered


@router.post("/builds", status_code=201, summary="Register a build")
def register(context: Ctx, who: Submitter, body: BuildIn) -> ListedBuild:
    """Register a build. Registering the same build again is no error.

    Another build with an existing name is rejected (409), so that a name's meaning never changes.
    So an executor that no setting, build or worker has named is rejected as misspelled, unless
    `new_executor` is true.
    An admin may register any build. A token with the scope submit may append builds whose name and
    branch fit its patterns.
    """
    build = body.named(
        body.name, branch=body.branch, sequence=body.sequence or 0, commit=body.commit
    )
    _check_bounds(who, body)
    if build.executor == EMULATOR:
        raise BadField(
            "executor",
            build.executor,
            "the emulator's builds are part of it",
            limit="any other executor",
        )
    if (built_in := known_build(build.name)) is not None:
        executor = "the emulator" if built_in.executor == EMULATOR else built_in.executor
        raise BadField("name", build.name, f"is a build of {executor}", limit="another name")
    with context.session() as session:
        existing = stored.get(session, build.name)
        if not body.new_executor and build.executor != IMPORT_EXECUTOR:
            check_executor_known(
                session, build.executor, context.settings, "executor", otherwise=BROUGHT_LATER
            )
        try:
            registered = stored.add(session, **{**asdict(build), "sequence": body.sequence})
        except stored.BuildExists:
            raise BadField(
                "name", build.name, "is the name of another build", limit="another name", status=409
            ) from None
        if existing is None:
            audit.record(
                session,
                actor=who.actor,
                action="build.registered",
                subject=build.name,
                detail={**asdict(build), "sequence": registered.sequence},
            )
    return registered


@router.delete("/builds/{build:path}", summary="Remove a build that no job has")
def remove(context: Ctx, who: Admin, build: str) -> ListedBuild:
    """Remove a registered build, such as one with a wrong name or commit.

    One that a job has is refused (409): its results would be of something unknown. A build can't be
    changed, so that a name's meaning never changes.
    """
    with context.session() as session:
        try:
            removed = stored.remove(session, build)
        except stored.BuildInUse:
            sentence = f"The build {build!r} has jobs, whose results would be of something unknown."
            raise Problem(409, sentence, slug="not-removable") from None
        if removed is None:
            if known_build(build) is not None:
                raise BadField("build", build, "is built in", limit="a registered build")
            names = (other.name for other in stored.list_(session, limit=MAX_NAMES).items)
            raise missing("build", build, names)
        audit.record(
            session,
            actor=who.actor,
            action="build.removed",
            subject=build,
            detail={"executor": removed.executor, "branch": removed.branch},
        )
    return removed


def _check_bounds(who: Principal, body: BuildIn) -> None:
    """Raise Problem 403 for a build that the token may not register."""
    if who.may("admin"):
        return
    if not who.may_register(body.name, body.branch):
        names = ", ".join(who.builds) or "none"
        branches = ", ".join(who.branches) or "any"
        raise Problem(
            403,
            f"The token {who.name!r} may not register the build {body.name!r} of the branch "
            f"{body.branch!r} (allowed: names {names}; branches {branches}). An admin makes a "
            "token that may: gonogo tokens create --scope submit --build PATTERN.",
            slug="scope",
        )
    if body.sequence is not None:
        raise BadField(
            "sequence", body.sequence, "can be chosen by an admin only", limit="null", status=403
        )
