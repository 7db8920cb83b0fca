"""Builds: names with an order.

They contain nothing executable: the worker hosts define what a name means.
"""

from __future__ import annotations

from typing import Any

from gonogo.spec.builds import EMULATOR, known_build, own_builds
from gonogo_service.builds import noun, store
from gonogo_service.builds.model import BuildRow
from gonogo_service.builds.noun import BuildIn
from gonogo_service.jobs.submission import check_executor_known
from gonogo_service.kit.database.states import IMPORT_EXECUTOR
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.kit.resource import Act, Resource, Same

BROUGHT_LATER = (
    "; one that a device host will serve needs new_executor, `gonogo builds create --new-executor`"
)


def _built_in(name: str) -> BuildRow | None:
    build = known_build(name)
    return None if build is None else BuildRow.of(build)


BUILDS = Resource(
    noun.BUILDS,
    BuildRow,
    find=_built_in,
    more=lambda: map(BuildRow.of, own_builds().values()),
)
router = BUILDS.router


@BUILDS.on_create
def register(act: Act, body: BuildIn) -> BuildRow | Same[BuildRow]:
    """Register a build. Registering the same build again changes nothing (200).

    Another build with an existing name is rejected (409), so that a name's meaning never changes.
    An executor that no setting, build or worker has named is rejected as misspelled, unless
    `new_executor` is true. An admin may register any build. A token with the scope submit may
    append builds whose name and branch fit its patterns.
    """
    _check_bounds(act.who, body)
    if body.executor == EMULATOR:
        reason, limit = "the emulator's builds are part of it", "any other executor"
        raise BadField("executor", body.executor, reason, limit=limit)
    if (built_in := known_build(body.name)) is not None:
        executor = "the emulator" if built_in.executor == EMULATOR else built_in.executor
        raise BadField("name", body.name, f"is a build of {executor}", limit="another name")
    if not body.new_executor and body.executor != IMPORT_EXECUTOR:
        settings = act.context.settings
        check_executor_known(
            act.session, body.executor, settings, "executor", otherwise=BROUGHT_LATER
        )
    store.lock(act.session)
    is_new = store.get(act.session, body.name) is None
    try:
        row = store.add(act.session, **body.model_dump(exclude={"new_executor"}))
    except store.BuildExists:
        reason = "is the name of another build"
        raise BadField("name", body.name, reason, limit="another name", status=409) from None
    return row if is_new else Same(row)


@BUILDS.on_remove
def remove(act: Act, build: BuildRow) -> dict[str, Any]:
    """Remove a registered build, such as one with a wrong name or commit.

    One that a job has is refused (409): its results would be of something unknown. A build can't be
    changed, so that a name's meaning never changes.
    """
    if store.has_jobs(act.session, build.name):
        sentence = (
            f"The build {build.name!r} has jobs, whose results would be of something unknown."
        )
        raise Problem(409, sentence, slug="not-removable")
    act.session.delete(build)
    return {"executor": build.executor, "branch": build.branch}


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
        reason = "can be chosen by an admin only"
        raise BadField("sequence", body.sequence, reason, limit="null", status=403)
