"""The build that a local command runs: the default, or one that this host has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gonogo.errors import FieldError
from gonogo.fields import choice, did_you_mean
from gonogo.spec.executors import EXECUTORS, REPORTERS

if TYPE_CHECKING:
    from gonogo.spec.selections import Selection
    from gonogo_workers.executors.builds_file import BuildsFile


def default_build(executor: str) -> str:
    """Return the build that runs if none is named.

    Raises FieldError for an unknown executor, and for one whose builds are all the host's own.
    """
    from gonogo_workers.executors import registry

    registry.find(executor)
    build = EXECUTORS[executor].default_build if executor in EXECUTORS else None
    if build is not None:
        return build
    names = _builds_file().of(executor)
    limit = "a name that the executor's class knows, such as --build main"
    if executor in REPORTERS:
        limit = "a name of the builds file (GONOGO_BUILDS)"
    if names:
        limit = "one of " + ", ".join(names)
    raise FieldError("build", None, f"is needed for {executor}", limit=limit)


def check_build(executor: str, build: str) -> None:
    """Raise FieldError for a build of gtest or pytest that the builds file doesn't have."""
    if executor not in REPORTERS:
        return
    known = _builds_file()
    if not known.entry(executor, build):
        names = known.of(executor)
        reason = f"unknown build of {executor}{did_you_mean(build, names)}"
        file = "the builds file (GONOGO_BUILDS)"
        limit = f"those of {file}: {', '.join(names)}" if names else f"a build of {file}"
        raise FieldError("build", build, reason, limit=limit)


def check_selection(executor: str, build: str, selection: Selection) -> None:
    """Raise FieldError for a suite or a stage that a build of gtest or pytest doesn't have."""
    if executor not in REPORTERS or selection.suite is None:
        return
    suites = _builds_file().entry(executor, build).get("suites", {})
    _check_name("suite", selection.suite, f"unknown suite of {build}", list(suites))
    stages = suites[selection.suite].get("stages") or ()
    names = [str(stage["name"]) for stage in stages if "name" in stage]
    for stage in selection.stages or ():
        _check_name("stage", stage, f"unknown stage of the suite {selection.suite}", names)


def _check_name(field: str, name: str, reason: str, names: Sequence[str]) -> None:
    if not names:
        raise FieldError(field, name, reason, limit=f"no {field}: it has none")
    choice(name, names, field, reason)


def _builds_file() -> BuildsFile:
    import gonogo.settings
    from gonogo_workers.executors import builds_file

    return builds_file.read(gonogo.settings.load().builds)
