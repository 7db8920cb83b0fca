"""A build, run or commit, and the last builds of a branch to compare it with. Reads only."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.spec.executors import EMULATOR
from gonogo_service.compare import sides
from gonogo_service.compare.sides import SideResults
from gonogo_service.tests import matrices
from gonogo_service.tests.matrices import BuildRecord

LAST_BUILDS = 3


@dataclass(frozen=True)
class Beside:
    """The requested side beside the last builds of a branch."""

    head: SideResults
    branch: str | None
    """None: no other build ran."""
    branches: tuple[str, ...]
    """The branches to choose from."""
    bases: tuple[SideResults, ...]
    """The builds to compare with, the newest last."""


def read(session: Session, head: str, branch: str | None) -> Beside:
    """Return head and the last builds of a branch before it; branch: None for the main one.

    head: as in `sides.read`. Raises FieldError for a head that is not known or has no job, and for
    a branch without another build.
    """
    side = sides.head(session, head)
    known = matrices.builds(session)
    others = [build for build in known if build.name not in side.builds]
    branches = tuple(dict.fromkeys(build.branch for build in others))
    if branch is not None and branch not in branches:
        reason = "no other build ran on this branch"
        raise FieldError("branch", branch, reason, limit=", ".join(branches[: sides.NAMED]))
    branch = branch or matrices.main_branch(others)
    of_head = [one for one in known if one.name in side.builds and one.branch == branch]
    before = [
        build.name
        for build in others
        if build.branch == branch and all(build.sequence < one.sequence for one in of_head)
    ]
    bases = tuple(sides.read(session, build, "base") for build in before[-LAST_BUILDS:])
    return Beside(side, branch, branches, bases)


def others(session: Session, limit: int) -> list[BuildRecord]:
    """Return the builds that are not on the main branch, the one that ran last first."""
    known = matrices.builds(session)
    main = matrices.main_branch(known)
    others = [build for build in known if build.branch not in (main, EMULATOR)]
    return sorted(others, key=lambda build: build.newest_job, reverse=True)[:limit]
