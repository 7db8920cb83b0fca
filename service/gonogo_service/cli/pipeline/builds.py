"""The builds of a pipeline: the commit's, which it registers, and the base's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gonogo.ci.rules import build_name, problem_of
from gonogo.cli.kit.client import Client, Refused
from gonogo.errors import FieldError
from gonogo.spec.builds import EMULATOR, known_build
from gonogo_service.cli.pipeline.origin import Origin

NEWEST_RUNS = 500
"""Runs of the suite among which the base's is looked for."""


def named(template: str, commit: str, origin: Origin) -> str:
    """Return the name of a commit's build. Raises FieldError for a template that can't be one."""
    problem = problem_of(template)
    if problem is not None:
        raise FieldError("--build", template, problem, limit="such as kernels-{short}")
    return build_name(template, commit, origin)


def executor_of(content: Mapping[str, Any], given: str | None) -> str:
    """Return the executor that a suite's tests name, unless an option does.

    Raises FieldError for a suite with several.
    """
    if given is not None:
        return given
    defaults = (content.get("defaults") or {}).get("target") or {}
    names = {
        ({**defaults, **(entry.get("target") or {})}).get("executor", EMULATOR)
        for entry in content.get("entries") or ()
        if isinstance(entry, Mapping)
    }
    if len(names) != 1:
        raise FieldError(
            "--executor",
            None,
            "is needed: the suite's tests name several executors",
            limit="one of " + ", ".join(sorted(map(str, names))),
        )
    return str(names.pop())


def register(client: Client, name: str, executor: str, origin: Origin) -> bool:
    """Register the commit's build, unless it is known; return whether it was registered.

    A commit that comes to a branch by fast-forward keeps the build of its pull request.
    """
    if known_build(name) is not None or is_known(client, name):
        return False
    body = {
        "name": name,
        "executor": executor,
        "branch": origin.series,
        "commit": origin.commit,
    }
    client.call("POST", "/builds", body=body)
    return True


def has_run(client: Client, suite: str, build: str) -> bool:
    """Return whether a run of the suite has this build and wasn't canceled."""
    runs = client.some("/runs", limit=NEWEST_RUNS, suite=suite)["items"]
    return any(build in run["builds"] and run["state"] in ("finished", "running") for run in runs)


def is_known(client: Client, build: str) -> bool:
    """Return whether the server knows the build, so that it can run it."""
    try:
        client.call("GET", f"/builds/{build}")
    except Refused as problem:
        if problem.document.get("status") == 404:
            return False
        raise
    return True
