"""Try this host's builds: interpreter, the executor's module, command, and canary."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import gonogo_settings as all_settings
from gonogo.errors import GonogoError
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.fields import did_you_mean
from gonogo_workers.devices import health, programs
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.base import ExecutorFailure
from gonogo_workers.executors.builds_file import BuildsFile, ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.registry import ExecutorSpec

VERSION_DEADLINE_S = 30.0
PACKAGES: Mapping[str, str] = {
    row.name: row.package for row in EXECUTORS.values() if row.package is not None
}
"""The package that an executor's build must have in its interpreter."""
VERSION = """
import importlib.metadata, sys
try:
    print(sys.argv[1], importlib.metadata.version(sys.argv[1]))
except importlib.metadata.PackageNotFoundError:
    module = __import__(sys.argv[1])
    print(sys.argv[1], getattr(module, "__version__", "without a version"))
"""


@dataclass(frozen=True)
class Trial:
    """How a build fared."""

    build: str
    executor: str
    ok: bool
    words: str


def trials(canary: bool = False) -> Iterator[Trial]:
    """Try every build of the builds file, and every executor that it or GONOGO_EXECUTORS names.

    `canary` also runs the canary's test with each build: it opens a device, takes seconds to
    minutes, and needs the chip to be free. Raises FieldError for a wrong file.
    """
    settings = all_settings.load()
    file = builds_file.read(settings.builds)
    specs = registry.known(settings.executors)
    for name in file.executors:
        if name not in specs:
            yield Trial(
                f"[executors.{name}]",
                name,
                False,
                f"there is no executor {name}{did_you_mean(name, specs)}",
            )
    for name, spec in specs.items():
        if (
            spec.name != registry.EMULATOR
            and not file.of(name)
            and (spec.python is not None or name in file.executors)
        ):
            yield _trial("(any)", spec, file, None)
    for build, entry in file.builds.items():
        executor = specs.get(entry["executor"])
        if executor is None:
            yield Trial(
                build,
                entry["executor"],
                False,
                f"there is no executor {entry['executor']}{did_you_mean(entry['executor'], specs)}",
            )
            continue
        yield _trial(build, executor, file, settings.canary_deadline_s if canary else None)


def _trial(build: str, spec: ExecutorSpec, file: BuildsFile, canary_s: float | None) -> Trial:
    resolved = builds_file.resolve_build(spec, build, file)
    sentences: list[str] = []
    for check in (_interpreter, _command, _module):
        words, ok = check(resolved)
        sentences.append(words)
        if not ok:
            return Trial(build, spec.name, False, words)
    if canary_s is not None:
        try:
            health.canary(resolved, build, deadline_s=canary_s)
            sentences.append("its numbers of a small LayerNorm are explained by rounding")
        except GonogoError as problem:
            return Trial(build, spec.name, False, str(problem))
    return Trial(build, spec.name, True, ", ".join(filter(None, sentences)))


def _interpreter(resolved: ResolvedBuild) -> tuple[str, bool]:
    """It runs, is new enough, and has the executor's package."""
    python, package = resolved.executor.interpreter, PACKAGES.get(resolved.executor.name)
    program = (
        "import sys, numpy; "
        "assert sys.version_info >= (3, 10), 'Python 3.10 or newer is needed'; "
        "print(sys.version.split()[0])"
    )
    done = programs.run(
        [python, "-c", program], VERSION_DEADLINE_S, environment=resolved.environment
    )
    if not done.ok:
        return f"interpreter {python}: {_last(done)}", False
    words = f"Python {_last(done)} at {python}"
    if package is None:
        return words, True
    done = programs.run(
        [python, "-c", VERSION, package], VERSION_DEADLINE_S, environment=resolved.environment
    )
    return (
        (f"{words}, {_last(done)}", True)
        if done.ok
        else (f"{package} is missing in {python}: {_last(done)}", False)
    )


def _command(resolved: ResolvedBuild) -> tuple[str, bool]:
    """A gtest's program is there and may be run; a pytest's command is arguments only."""
    row = EXECUTORS.get(resolved.executor.name)
    if not resolved.command or (row is not None and row.command == "arguments"):
        if row is not None and row.command == "program":
            return "command is missing: the program to run", False
        return "", True
    program = resolved.command[0]
    if shutil.which(program) is not None:
        return f"command {program}", True
    return (
        f"command {program} {'is not executable' if os.path.exists(program) else 'does not exist'}",
        False,
    )


def _module(resolved: ResolvedBuild) -> tuple[str, bool]:
    """The executor's module imports in the build's interpreter, as a worker would start it."""
    host: KernelHost | None = None
    try:
        host = KernelHost(resolved.executor, resolved.environment)
        host.wait_until_loaded()
    except ExecutorFailure as problem:
        return str(problem), False
    finally:
        if host is not None:
            host.close()
    return f"module {resolved.executor.module} imports", True


def _last(done: programs.Done) -> str:
    """The last line that a program printed, else how it ended."""
    lines = done.output.strip().splitlines()
    return lines[-1] if lines else str(done.trouble)
