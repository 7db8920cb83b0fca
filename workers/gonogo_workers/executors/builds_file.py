"""Resolves a build's name on this host, from the host's builds file.

A build has an interpreter, an environment, a command, an arithmetic and outputs. Nothing in a
job's JSON becomes a command, a path or a variable: a message carries the name, and the file that
GONOGO_BUILDS names defines it. Everything but a build's `executor` is optional:

    [executors.ttnn]                 # for every build of that executor that doesn't override it
    python = "/opt/ttnn/bin/python"
    environment = { TT_METAL_HOME = "/opt/tt-metal" }
    options = { watcher_environment = { TT_METAL_WATCHER = "5" } }
    canary = "tt-metal-good"         # the build that a device must get right to be trusted
    [builds."tt-metal-main"]
    executor = "ttnn"
    python = "/opt/tt-metal/venv/bin/python"
    environment = { TT_METAL_HOME = "/srv/main" }      # merged over the executor's
    command = ["/srv/main/build/ttml_tests"]           # gtest: the program and fixed arguments;
                                                       # pytest: further arguments
    arithmetic = "tt-train"
    outputs = ["dx"]                                   # the outputs that it produces
    options = { variant = "moreh" }  # for the executor itself; merged over the executor's
    [builds."tt-metal-main".suites.nightly]            # gtest, pytest: a job may select it
    filter = "LayerNorm*"
    [builds."tt-metal-*"]            # every build of such a name: {match} is the text in place of *
    executor = "ttnn"
    python = "/opt/gonogo/python-in-image"
    environment = { IMAGE = "registry.example.org/tt-metal:{match}" }

A build that isn't in the file runs as [executors.<name>] and GONOGO_EXECUTORS define its executor,
and is judged by what the service knows of it. The child process finds its build's command, options
and suites as JSON in the variable GONOGO_BUILD.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.fields import Problems
from gonogo.spec.builds import DeclaredBuild, known_build
from gonogo.spec.validation import Model, Refused, checked, in_words
from gonogo_workers.executors.registry import ExecutorSpec

VARIABLE = "GONOGO_BUILD"
"""The child's variable with {"name", "command", "options", "suites"} of its build.

It is set where the builds file has any of these.
"""
MAX_TABLE_BYTES = 100_000
"""Linux refuses an environment variable of 128 KiB (MAX_ARG_STRLEN), and then starts no child."""

_FILLED = ("python", "environment", "command")
"""Fields of a pattern's entry in which {match} is replaced."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

STAR, MATCH = "*", "{match}"
_MATCHED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
"""The text that may stand in place of a pattern's star, such as a commit.

It can't lead out of a folder, begin an option or end a word.
"""

Table = Mapping[str, Any]


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("has a NUL character")
    return value


def _is_variable(name: str) -> str:
    if not _VARIABLE_NAME.fullmatch(name) or name == VARIABLE:
        limit = f"letters, digits and _; not {VARIABLE}"
        raise Refused(FieldError("", name, "is not the name of a variable", limit=limit))
    return name


def _is_name_or_pattern(name: str) -> str:
    if name.count(STAR) > 1:
        limit = "one * in a pattern"
        raise Refused(FieldError("", name, "has more than one star", limit=limit))
    return name


def _plain(value: Any, path: str = "") -> Any:
    """Return a value that is plain JSON: TOML has dates and infinity, JSON doesn't."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            _plain(item, fields.join(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _plain(item, fields.join(path, index))
    elif isinstance(value, float):
        fields.number(value, path)
    elif not isinstance(value, str | bool | int):
        kind, limit = type(value).__name__, "text, number, true, false, list or table"
        raise FieldError(path, str(value), f"is a {kind}", limit=limit)
    return value


def _argument(what: str) -> Any:
    """Return the limits of a text that becomes an argument, and what they are in words."""
    limit = f"text, not empty, without NUL: {what}"
    return Field(min_length=1, json_schema_extra=in_words(limit))


_NO_NUL = AfterValidator(_without_nul)
_Variables = dict[
    Annotated[str, AfterValidator(_is_variable)],
    Annotated[str, Field(json_schema_extra=in_words("text without NUL")), _NO_NUL],
]
_Plain = Annotated[dict[str, Any], checked(_plain)]


class _Environment(Model):
    """The fields of both tables."""

    python: Annotated[str, _argument("the path of an interpreter"), _NO_NUL] | None = None
    environment: _Variables = Field({})
    options: _Plain = Field({})


class _ExecutorTable(_Environment):
    """A table [executors.NAME]: what holds for every build of that executor."""

    canary: (
        Annotated[str, _argument("the name of a build that is known to be right"), _NO_NUL] | None
    ) = None


class _Executor(Model):
    """The first field of a build: refusals list the fields in the order of the bases."""

    executor: str


class _BuildTable(DeclaredBuild, _Environment, _Executor):
    """A table [builds.NAME]."""

    command: list[Annotated[str, _argument("a program or an argument"), _NO_NUL]] = Field(
        [], min_length=1, json_schema_extra=in_words('["/path/to/program", "argument", ...]')
    )
    suites: dict[str, _Plain] = Field({})


class _File(Model):
    """The whole file."""

    misspelled_first: ClassVar[bool] = True

    executors: dict[str, _ExecutorTable] = Field({})
    builds: dict[Annotated[str, AfterValidator(_is_name_or_pattern)], _BuildTable] = Field({})


@dataclass(frozen=True)
class BuildsFile:
    """The checked tables of a builds file: one per executor, one per build."""

    executors: Mapping[str, Table] = field(default_factory=dict)
    builds: Mapping[str, Table] = field(default_factory=dict)

    def of(self, executor: str) -> dict[str, Table]:
        """Return the builds of this executor by name."""
        return {name: entry for name, entry in self.builds.items() if entry["executor"] == executor}

    def entry(self, executor: str, build: str) -> Table:
        """Return the file's entry for a build.

        It is the entry of its name, else that of the longest pattern that it fits, else empty.
        """
        entries = self.of(executor)
        if build in entries:
            return entries[build]
        for pattern in sorted((name for name in entries if STAR in name), key=len, reverse=True):
            head, _, tail = pattern.partition(STAR)
            matched = build[len(head) : len(build) - len(tail)]
            if build.startswith(head) and build.endswith(tail) and _MATCHED.fullmatch(matched):
                return {
                    name: _filled(value, matched) if name in _FILLED else value
                    for name, value in entries[pattern].items()
                }
        return {}


@dataclass(frozen=True)
class ResolvedBuild:
    """A build on this host: its executor, its environment, and how to judge its outputs."""

    executor: ExecutorSpec
    environment: Mapping[str, str] = field(default_factory=dict)
    """The child's variables on top of the worker's environment, GONOGO_BUILD included."""
    arithmetic: str | None = None
    produced: tuple[str, ...] | None = None
    command: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    suites: Mapping[str, Table] = field(default_factory=dict)


def read(path: str | None) -> BuildsFile:
    """Return the builds file, an empty one without a path.

    Raises FieldError where it can't be read, and FieldErrors for its wrong entries.
    """
    if path is None:
        return BuildsFile()
    try:
        return parse(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        raise FieldError(
            "GONOGO_BUILDS", path, f"can't be read: {problem}", limit="a TOML file"
        ) from problem


def parse(content: bytes) -> BuildsFile:
    """Return the content of a builds file.

    Raises ValueError or RecursionError for what is no TOML, and FieldErrors for wrong entries.
    """
    tables = _File.parse(tomllib.loads(content.decode("utf-8"))).model_dump(exclude_unset=True)
    file = BuildsFile(tables.get("executors", {}), tables.get("builds", {}))
    problems = Problems()
    for name, table in file.builds.items():
        with problems.collecting():
            _child_table(name, file.executors.get(table["executor"], {}), table)
    problems.check()
    return file


def resolve_build(
    executor: ExecutorSpec,
    build: str,
    file: BuildsFile,
    *,
    arithmetic: str | None = None,
    produced: tuple[str, ...] | None = None,
) -> ResolvedBuild:
    """Return the build that a name stands for on this host.

    `arithmetic` and `produced` are what the service knows of it, unless the host overrides them.
    """
    known = known_build(build, executor.name)
    if known is not None:
        arithmetic, produced = known.arithmetic, known.outputs
    defaults = file.executors.get(executor.name, {})
    entry = file.entry(executor.name, build)
    arithmetic = entry.get("arithmetic") or arithmetic
    produced = tuple(entry.get("outputs") or ()) or produced
    table = _child_table(build, defaults, entry)
    environment = {**defaults.get("environment", {}), **entry.get("environment", {})}
    # Only where needed: a build with a private environment can't use the common spare child
    if table["command"] or table["options"] or table["suites"]:
        environment[VARIABLE] = json.dumps(table)
    return ResolvedBuild(
        replace(executor, python=entry.get("python") or defaults.get("python") or executor.python),
        environment,
        arithmetic,
        produced,
        tuple(table["command"]),
        table["options"],
        table["suites"],
    )


def _filled(value: Any, matched: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _filled(item, matched) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, matched) for item in value]
    return value.replace(MATCH, matched) if isinstance(value, str) else value


def _child_table(name: str, defaults: Table, entry: Table) -> dict[str, Any]:
    """Return the description of a build for its child.

    Raises FieldError when it is too large for an environment variable.
    """
    table = {
        "name": name,
        "command": list(entry.get("command", ())),
        "options": {**defaults.get("options", {}), **entry.get("options", {})},
        "suites": dict(entry.get("suites", {})),
    }
    size = len(json.dumps(table).encode())
    if size > MAX_TABLE_BYTES:
        limit = f"{MAX_TABLE_BYTES} bytes of JSON"
        raise FieldError(
            f"builds.{name}", size, "command, options and suites are too large", limit=limit
        )
    return table
