"""What a build's name means on this host: interpreter, environment, budget profile and outputs, from the host's own builds file only.

Nothing in a job's JSON becomes a command, a path or a variable: a message carries the name, and this file gives it a meaning:

    [builds."tt-metal-main"]
    executor = "ttnn"
    python = "/opt/tt-metal/venv/bin/python"        # optional
    environment = { TT_METAL_HOME = "/opt/tt-metal" }  # optional
    profile = "tt-train"                              # optional
    outputs = ["dx"]                                  # optional: those that it produces

A build that isn't in the file is run by the executor as GONOGO_EXECUTORS defines it, and judged by the test's own numerics.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gonogo import fields
from gonogo.builds import Build, emulator_builds
from gonogo.problems import FieldError
from workers.executors.registry import EMULATOR, ExecutorSpec

_HERE_ONLY = ("executor", "python", "environment")


@dataclass(frozen=True)
class Meaning:
    """A build on this host: the executor to start, with which environment, and how to judge what it gives."""

    executor: ExecutorSpec
    environment: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    produced: tuple[str, ...] | None = None


def read(path: str | None) -> Mapping[str, Mapping[str, Any]]:
    """The entries of the builds file (none without a file). Raises FieldError where it can't be read or says something unknown."""
    if path is None:
        return {}
    try:
        data = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise FieldError("GONOGO_BUILDS_FILE", path, f"can't be read: {problem}") from problem
    fields.known(data, ("builds",), "builds file")
    entries = {name: fields.mapping(entry, f"builds.{name}") for name, entry in fields.mapping(data.get("builds", {}), "builds").items()}
    for name, entry in entries.items():
        fields.known(entry, (*_HERE_ONLY, "profile", "outputs"), f"builds.{name}")
        if not isinstance(entry.get("python", ""), str):
            raise FieldError(f"builds.{name}.python", entry["python"], "must be the path of an interpreter")
        for variable, value in fields.mapping(entry.get("environment", {}), f"builds.{name}.environment").items():
            if not isinstance(value, str):
                raise FieldError(f"builds.{name}.environment.{variable}", value, "must be text")
        _build(name, entry)
    return entries


def meaning(
    executor: ExecutorSpec,
    build: str,
    entries: Mapping[str, Mapping[str, Any]],
    *,
    profile: str | None = None,
    produced: tuple[str, ...] | None = None,
) -> Meaning:
    """What `build` means for `executor` here; `profile` and `produced` are what the service knows of it, unless the host says otherwise."""
    entry = entries.get(build)
    if entry is None or entry["executor"] != executor.name:
        if executor.name == EMULATOR:
            known = emulator_builds().get(build)
            return Meaning(executor, {}, known.profile if known else profile, known.outputs if known else produced)
        return Meaning(executor, {}, profile, produced)
    declared = _build(build, entry)
    return Meaning(
        replace(executor, python=entry.get("python", executor.python)),
        dict(entry.get("environment", {})),
        declared.profile or profile,
        declared.outputs or produced,
    )


def _build(name: str, entry: Mapping[str, Any]) -> Build:
    data = {key: value for key, value in entry.items() if key in ("executor", "profile", "outputs")}
    return Build.parse({"name": name, **data}, f"builds.{name}")
