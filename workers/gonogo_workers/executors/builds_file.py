"""Resolves a build's name on this host, from the host's builds file.

A build has an interpreter, an environment, a command, an arithmetic model and outputs. Nothing in a
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec import fields
from gonogo.spec.builds import Build, DeclaredBuild, default_arithmetic, known_build
from gonogo.spec.fields import Problems
from gonogo_workers.executors.registry import ExecutorSpec

VARIABLE = "GONOGO_BUILD"
"""The child's variable with {"name", "command", "options", "suites"} of its build.

It is set where the builds file has any of these.
"""
MAX_TABLE_BYTES = 100_000
"""Linux refuses an environment variable of 128 KiB (MAX_ARG_STRLEN), and then starts no child."""

_EXECUTOR_FIELDS = ("python", "environment", "options", "canary")
_FILLED = ("python", "environment", "command")
"""Fields of a pattern's entry in which {match} is replaced."""
_BUILD_FIELDS = (
    "executor",
    "python",
    "environment",
    "command",
    "arithmetic",
    "outputs",
    "options",
    "suites",
)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

STAR, MATCH = "*", "{match}"
_MATCHED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
"""The text that may stand in place of a pattern's star, such as a commit.

It can't lead out of a folder, begin an option or end a word.
"""

Table = Mapping[str, Any]


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
    data = tomllib.loads(content.decode("utf-8"))
    problems = Problems()
    _check_names(data, ("executors", "builds"), "", problems)
    tables: dict[str, dict[str, Table]] = {"executors": {}, "builds": {}}
    for kind, names in (("executors", _EXECUTOR_FIELDS), ("builds", _BUILD_FIELDS)):
        with problems.collecting():
            for name, given in fields.mapping(data.get(kind, {}), kind).items():
                place = f"{kind}.{name}"
                with problems.collecting():
                    table = fields.mapping(given, place)
                    _check_names(table, names, place, problems)
                    _check(table, place, problems)
                    tables[kind][name] = table
    for name, table in tables["builds"].items():
        with problems.collecting():
            if name.count(STAR) > 1:
                raise FieldError(
                    f"builds.{name}", name, "has more than one star", limit="one * in a pattern"
                )
            _build(name, table)
    problems.check()
    builds = BuildsFile(**tables)
    for name, table in builds.builds.items():
        with problems.collecting():
            _child_table(name, builds.executors.get(table["executor"], {}), table)
    problems.check()
    return builds


def resolve_build(
    executor: ExecutorSpec,
    build: str,
    file: BuildsFile,
    *,
    arithmetic: str | None = None,
    produced: tuple[str, ...] | None = None,
    on_chip: bool = False,
) -> ResolvedBuild:
    """Return the build that a name stands for on this host.

    `arithmetic` and `produced` are what the service knows of it, unless the host overrides them.
    `on_chip`: it runs on a Tenstorrent chip, whose arithmetic it has by default.
    """
    known = known_build(build, executor.name)
    if known is not None:
        arithmetic, produced = known.arithmetic, known.outputs
    defaults = file.executors.get(executor.name, {})
    entry = file.entry(executor.name, build)
    if entry:
        declared = _build(build, entry)
        arithmetic, produced = declared.arithmetic or arithmetic, declared.outputs or produced
    table = _child_table(build, defaults, entry)
    environment = {**defaults.get("environment", {}), **entry.get("environment", {})}
    # Only where needed: a build with a private environment can't use the common spare child
    if table["command"] or table["options"] or table["suites"]:
        environment[VARIABLE] = json.dumps(table)
    return ResolvedBuild(
        replace(executor, python=entry.get("python") or defaults.get("python") or executor.python),
        environment,
        arithmetic or default_arithmetic(executor.name, on_chip=on_chip),
        produced,
        tuple(table["command"]),
        table["options"],
        table["suites"],
    )


def interpreters(specs: Mapping[str, ExecutorSpec], file: BuildsFile) -> tuple[str, ...]:
    """Return every interpreter that this host names, without duplicates.

    Those of the builds file come first.
    """
    named = [table.get("python") for table in (*file.executors.values(), *file.builds.values())]
    # A pattern's interpreters are known only when a build is named
    named = [python for python in named if python is None or MATCH not in python]
    return tuple(
        dict.fromkeys(filter(None, (*named, *(spec.interpreter for spec in specs.values()))))
    )


def _filled(value: Any, matched: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _filled(item, matched) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, matched) for item in value]
    return value.replace(MATCH, matched) if isinstance(value, str) else value


def _build(name: str, entry: Table) -> Build:
    data = {
        key: value for key, value in entry.items() if key in ("executor", "arithmetic", "outputs")
    }
    return DeclaredBuild.parse(data, f"builds.{name}").named(name)


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
        raise FieldError(
            f"builds.{name}",
            size,
            "command, options and suites are too large",
            limit=f"{MAX_TABLE_BYTES} bytes of JSON",
        )
    return table


def _check_names(table: Table, names: Sequence[str], place: str, problems: Problems) -> None:
    for name, value in table.items():
        with problems.collecting():
            fields.known({name: value}, names, place)


def _check(table: Table, place: str, problems: Problems) -> None:
    """Check the fields of one table that no domain type checks."""
    with problems.collecting():
        if "python" in table:
            _argument(table["python"], f"{place}.python", "the path of an interpreter")
    with problems.collecting():
        if "canary" in table:
            what = "the name of a build that is known to be right"
            _argument(table["canary"], f"{place}.canary", what)
    with problems.collecting():
        environment = fields.mapping(table.get("environment", {}), f"{place}.environment")
        for variable, value in environment.items():
            with problems.collecting():
                _check_variable(variable, value, f"{place}.environment.{variable}")
    with problems.collecting():
        command = table.get("command", [])
        if not isinstance(command, list) or ("command" in table and not command):
            raise FieldError(
                f"{place}.command",
                command,
                "must be a list of texts",
                limit='["/path/to/program", "argument", ...]',
            )
        for index, argument in enumerate(command):
            with problems.collecting():
                _argument(argument, f"{place}.command.{index}", "a program or an argument")
    with problems.collecting():
        _plain(fields.mapping(table.get("options", {}), f"{place}.options"), f"{place}.options")
    with problems.collecting():
        for name, suite in fields.mapping(table.get("suites", {}), f"{place}.suites").items():
            with problems.collecting():
                _plain(fields.mapping(suite, f"{place}.suites.{name}"), f"{place}.suites.{name}")


def _check_variable(variable: str, value: object, where: str) -> None:
    if not _VARIABLE_NAME.fullmatch(variable) or variable == VARIABLE:
        raise FieldError(
            where,
            variable,
            "is not the name of a variable",
            limit=f"letters, digits and _; not {VARIABLE}",
        )
    if not isinstance(value, str) or "\0" in value:
        raise FieldError(where, value, "must be text", limit="without NUL")


def _argument(value: object, path: str, what: str) -> None:
    if not isinstance(value, str) or not value or "\0" in value:
        raise FieldError(path, value, f"must be {what}", limit="text, not empty, without NUL")


def _plain(value: object, path: str) -> None:
    """Check that a value is plain JSON: TOML has dates and infinity, JSON doesn't."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            _plain(item, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _plain(item, f"{path}.{index}")
    elif isinstance(value, float):
        fields.number(value, path)
    elif not isinstance(value, str | bool | int):
        raise FieldError(
            path,
            str(value),
            f"is a {type(value).__name__}",
            limit="text, number, true, false, list or table",
        )
