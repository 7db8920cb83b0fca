"""Which executors there are: our own, and the plug-ins that GONOGO_EXECUTORS names; and how to load one for local use."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gonogo.problems import FieldError
from settings import load as load_settings

if TYPE_CHECKING:
    from workers.executors.local import LocalRunner

EMULATOR = "emulator"
GTEST = "gtest"
CHILD = str(Path(__file__).resolve().parent / "child")
"""The modules of executors that run in a build's own interpreter, which may know nothing of gonogo."""

_ENTRY = re.compile(
    r"(?P<name>[a-z][a-z0-9_-]*)=(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<factory>[A-Za-z_]\w*)(?:@(?P<python>.+))?", re.ASCII
)


@dataclass(frozen=True)
class ExecutorSpec:
    """How the child process of an executor is started: the interpreter, the module it imports and the factory it calls.

    `python` None is our own interpreter; `paths` are put before the child's sys.path (only our own executors need that: a plug-in
    is found on PYTHONPATH, which is passed on unchanged).
    """

    name: str
    module: str
    factory: str
    python: str | None = None
    paths: tuple[str, ...] = ()

    @property
    def interpreter(self) -> str:
        """The program to start."""
        return self.python or sys.executable


def emulator() -> ExecutorSpec:
    """The emulated Wormhole: our own code in our own interpreter, whether installed or run from a checkout."""
    root = str(Path(__file__).resolve().parents[2])
    return ExecutorSpec(EMULATOR, "workers.executors.emulator_executor", "EmulatorExecutor", paths=(root,))


def gtest() -> ExecutorSpec:
    """GoogleTest programs; the builds file names the program of each build."""
    return ExecutorSpec(GTEST, "gtest_executor", "GtestExecutor", paths=(CHILD,))


def parse(text: str) -> dict[str, ExecutorSpec]:
    """The plug-ins of a GONOGO_EXECUTORS value by name. Raises FieldError for an entry that can't be read, or a name used twice."""
    specs: dict[str, ExecutorSpec] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise FieldError("GONOGO_EXECUTORS", entry, "can't be read", limit="name=package.module:Factory@/path/to/python")
        spec = ExecutorSpec(match["name"], match["module"], match["factory"], match["python"])
        if spec.name in specs or spec.name in OWN:
            raise FieldError("GONOGO_EXECUTORS", spec.name, "this executor is there already")
        specs[spec.name] = spec
    return specs


OWN = {EMULATOR: emulator, GTEST: gtest}
"""Our own executors; no plug-in may take one of their names."""


def known(text: str | None = None) -> Mapping[str, ExecutorSpec]:
    """Every executor of this host by name; `text` replaces GONOGO_EXECUTORS."""
    return {name: make() for name, make in OWN.items()} | parse(load_settings().executors if text is None else text)


def find(name: str, text: str | None = None) -> ExecutorSpec:
    """The executor of that name. Raises FieldError naming those that there are."""
    specs = known(text)
    if name not in specs:
        raise FieldError("executor", name, "unknown executor", limit="one of " + ", ".join(specs))
    return specs[name]


def load(executor: str, build: str, *, deadline_s: float | None = None, isolated: bool | None = None) -> LocalRunner:
    """A runner of `build` for local use (`gonogo check`): `with load(...) as runner: outputs = runner.run(test, given, seed=seed)`.

    The emulator runs in this process, except for its builds that hang or crash; plug-ins run in a kernel host. Raises FieldError for an
    unknown executor or build, KernelError when a plug-in's factory raises for another reason, HostUnavailable when it can't be started.
    """
    from workers.executors import local

    return local.runner(executor, build, deadline_s=deadline_s, isolated=isolated)
