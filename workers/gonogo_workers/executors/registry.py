"""The executors of this host: the built-in ones, and the plug-ins that GONOGO_EXECUTORS names.

A plug-in is named by its module and factory, or by the entry point of an installed package. A
package's metadata are read here; only the executor's own process imports it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from gonogo.errors import FieldError
from gonogo.fields import did_you_mean
from gonogo.settings import load as load_settings
from gonogo.spec.executors import EMULATOR as EMULATOR
from gonogo.spec.executors import EXECUTORS, ON_WORMHOLE

SETTING = "GONOGO_EXECUTORS"
NEEDS = {
    row.name: row.package
    for row in EXECUTORS.values()
    if row.package is not None and row.runs == "kernels"
}
"""The package by which our interpreter can serve a built-in executor."""
CHILD = str(Path(__file__).resolve().parent / "child")
"""The folder of the executors that run in a build's interpreter, which may lack gonogo."""

EMULATOR_PACKAGES = ("gonogo", "gonogo_workers")
"""The packages of this project that the emulator's child imports."""

GROUP = "gonogo.executors"
"""The group of entry points by which a package offers executors."""
ENTRY = "name=package.module:Factory@/path/to/python"
_ENTRY = re.compile(
    r"(?P<name>[a-z][a-z0-9_-]*)"
    r"(?:=(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<factory>[A-Za-z_]\w*))?"
    r"(?:@(?P<python>.+))?",
    re.ASCII,
)


@dataclass(frozen=True)
class ExecutorSpec:
    """The start of an executor's child: the interpreter, the module and the factory.

    `python` None is our interpreter. `paths` come first in the child's sys.path; only built-in
    executors need them, because a plug-in is found on PYTHONPATH, which is passed on unchanged.
    """

    name: str
    module: str
    factory: str
    python: str | None = None
    paths: tuple[str, ...] = ()
    memory_bytes: int | None = None
    """The memory that each process of the executor may allocate; None: no limit."""

    @property
    def on_wormhole(self) -> bool:
        """Whether its kernels run on a Wormhole, emulated and simulated ones included."""
        return self.name in ON_WORMHOLE

    @property
    def interpreter(self) -> str:
        """The program to start."""
        return self.python or sys.executable


def built_in(name: str) -> ExecutorSpec:
    """Return the start of a built-in executor, in the interpreter that the builds file names.

    Without one it is our interpreter, which then needs the executor's package. The emulator is our
    code in our interpreter, installed or from a checkout.
    """
    module, factory = f"{name}_executor", f"{name.capitalize()}Executor"
    if name == EMULATOR:
        module, paths = f"gonogo_workers.executors.{module}", _folders_of(*EMULATOR_PACKAGES)
        return ExecutorSpec(name, module, factory, paths=paths)
    return ExecutorSpec(name, module, factory, paths=(CHILD,))


def _folders_of(*packages: str) -> tuple[str, ...]:
    """Return the folders from which these packages are imported.

    There is one in an installation, and several in a checkout.
    """
    specs = [find_spec(name) for name in packages]
    return tuple(
        dict.fromkeys(
            str(Path(spec.origin).resolve().parents[1])
            for spec in specs
            if spec is not None and spec.origin is not None
        )
    )


def parse(text: str) -> dict[str, ExecutorSpec]:
    """Return the plug-ins of a GONOGO_EXECUTORS value by name.

    Raises FieldError for an entry that can't be read, or a name used twice.
    """
    specs: dict[str, ExecutorSpec] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            limit = f"{ENTRY}, or the name of an entry point"
            raise FieldError(SETTING, entry, "can't be read", limit=limit)
        if match["module"] is None:
            spec = _offered(match["name"], match["python"])
        else:
            spec = ExecutorSpec(match["name"], match["module"], match["factory"], match["python"])
        if spec is None:
            raise FieldError(SETTING, entry, "no installed package offers it", limit=_offers(ENTRY))
        if spec.name in specs or spec.name in EXECUTORS:
            raise FieldError(SETTING, spec.name, "an executor of this name exists already")
        specs[spec.name] = spec
    return specs


def offers() -> tuple[str, ...]:
    """Return the names of the executors that installed packages offer; nothing is imported."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def _offers(*others: str) -> str:
    return ", ".join((*others, *offers()))


def _offered(name: str, python: str | None = None) -> ExecutorSpec | None:
    """Return the executor that an installed package offers by this name; None if none does.

    Raises FieldError where two packages offer the name, or where the entry point names no factory.
    """
    points = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not points:
        return None
    point = next(iter(points.values()))
    if len(points) > 1 or not point.attr.isidentifier():
        reason = f"is offered as {' and '.join(points)}"
        raise FieldError("executor", name, reason, limit="one package.module:Factory")
    return ExecutorSpec(name, point.module, point.attr, python)


def known(text: str | None = None) -> Mapping[str, ExecutorSpec]:
    """Return every executor of this host by name; `text` replaces GONOGO_EXECUTORS."""
    return _limited(
        {name: built_in(name) for name in EXECUTORS}
        | parse(load_settings().executors if text is None else text)
    )


def _limited(specs: Mapping[str, ExecutorSpec]) -> Mapping[str, ExecutorSpec]:
    """Return the executors with the limit GONOGO_CHILD_MEMORY_BYTES."""
    most = load_settings().child_memory_bytes
    return (
        specs
        if most is None
        else {name: replace(spec, memory_bytes=most) for name, spec in specs.items()}
    )


def ready(specs: Iterable[str], named: Iterable[str]) -> list[str]:
    """Return the executors that a worker of "all" serves.

    All plug-ins, and of the built-in ones: the emulator, those that the builds file names
    (`named`), and those whose package our interpreter has.
    """
    in_builds_file = set(named)
    return [
        name
        for name in specs
        if name == EMULATOR
        or name not in EXECUTORS
        or name in in_builds_file
        or (name in NEEDS and find_spec(NEEDS[name]) is not None)
    ]


def find(name: str, text: str | None = None) -> ExecutorSpec:
    """Return the executor of that name; that of an installed package needs no setting.

    For a name that this host's own user gives. Raises FieldError, which lists the known ones.
    """
    specs = known(text)
    if name not in specs:
        spec = _offered(name)
        if spec is None:
            reason = "unknown executor" + did_you_mean(name, (*specs, *offers()))
            limit = f"{_offers(*specs)}; or a plug-in that GONOGO_EXECUTORS names"
            raise FieldError("executor", name, reason, limit=limit)
        specs = _limited({name: spec})
    return specs[name]
