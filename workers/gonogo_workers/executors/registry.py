"""Which executors there are: our own, and the plug-ins that GONOGO_EXECUTORS names."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from gonogo.errors import FieldError
from gonogo_settings import load as load_settings

EMULATOR = "emulator"
GTEST = "gtest"
PYTEST = "pytest"
TORCH = "torch"
TTNN = "ttnn"
NEEDS = {TORCH: "torch", TTNN: "ttnn"}
"""The package that the interpreter of an executor of ours must have."""
CHILD = str(Path(__file__).resolve().parent / "child")
"""The modules of executors that run in a build's own interpreter, which may know nothing of
gonogo."""

OWN_PACKAGES = ("gonogo", "gonogo_workers", "gonogo_settings")
"""What the emulator's child imports of this project."""

_ENTRY = re.compile(
    r"(?P<name>[a-z][a-z0-9_-]*)=(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<factory>[A-Za-z_]\w*)(?:@(?P<python>.+))?",
    re.ASCII,
)


@dataclass(frozen=True)
class ExecutorSpec:
    """How the child process of an executor is started: the interpreter, the module it imports and
    the factory it calls.

    `python` None is our own interpreter; `paths` are put before the child's sys.path (only our own
    executors need that: a plug-in is found on PYTHONPATH, which is passed on unchanged).
    """

    name: str
    module: str
    factory: str
    python: str | None = None
    paths: tuple[str, ...] = ()
    memory_bytes: int | None = None
    """What each process of the executor may allocate; None: no limit of ours."""

    @property
    def interpreter(self) -> str:
        """The program to start."""
        return self.python or sys.executable


def emulator() -> ExecutorSpec:
    """The emulated Wormhole: our own code in our own interpreter, whether installed or run from a
    checkout.
    """
    return ExecutorSpec(
        EMULATOR,
        "gonogo_workers.executors.emulator_executor",
        "EmulatorExecutor",
        paths=_folders_of(*OWN_PACKAGES),
    )


def _folders_of(*packages: str) -> tuple[str, ...]:
    """The folders from which these packages are imported: one in an installation, several in a
    checkout.
    """
    specs = [find_spec(name) for name in packages]
    return tuple(
        dict.fromkeys(
            str(Path(spec.origin).resolve().parents[1])
            for spec in specs
            if spec is not None and spec.origin is not None
        )
    )


def gtest() -> ExecutorSpec:
    """GoogleTest programs; the builds file names the program of each build."""
    return ExecutorSpec(GTEST, "gtest_executor", "GtestExecutor", paths=(CHILD,))


def pytest() -> ExecutorSpec:
    """Pytest suites, in the interpreter that the builds file names."""
    return ExecutorSpec(PYTEST, "pytest_executor", "PytestExecutor", paths=(CHILD,))


def torch() -> ExecutorSpec:
    """PyTorch: in the interpreter that the builds file names, else in our own, which then needs
    torch.
    """
    return ExecutorSpec(TORCH, "torch_executor", "TorchExecutor", paths=(CHILD,))


def ttnn() -> ExecutorSpec:
    """LayerNorm by ttnn: in the interpreter that the builds file names, else in our own, which then
    needs ttnn.
    """
    return ExecutorSpec(TTNN, "ttnn_executor", "TtnnExecutor", paths=(CHILD,))


def parse(text: str) -> dict[str, ExecutorSpec]:
    """The plug-ins of a GONOGO_EXECUTORS value by name. Raises FieldError for an entry that can't
    be read, or a name used twice.
    """
    specs: dict[str, ExecutorSpec] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise FieldError(
                "GONOGO_EXECUTORS",
                entry,
                "can't be read",
                limit="name=package.module:Factory@/path/to/python",
            )
        spec = ExecutorSpec(match["name"], match["module"], match["factory"], match["python"])
        if spec.name in specs or spec.name in OWN:
            raise FieldError("GONOGO_EXECUTORS", spec.name, "this executor is there already")
        specs[spec.name] = spec
    return specs


OWN = {EMULATOR: emulator, TORCH: torch, TTNN: ttnn, GTEST: gtest, PYTEST: pytest}
"""Our own executors; no plug-in may take one of their names."""


def known(text: str | None = None) -> Mapping[str, ExecutorSpec]:
    """Every executor of this host by name; `text` replaces GONOGO_EXECUTORS."""
    return _limited(
        {name: make() for name, make in OWN.items()}
        | parse(load_settings().executors if text is None else text)
    )


def _limited(specs: Mapping[str, ExecutorSpec]) -> Mapping[str, ExecutorSpec]:
    """The executors with GONOGO_CHILD_MEMORY_BYTES."""
    most = load_settings().child_memory_bytes
    return (
        specs
        if most is None
        else {name: replace(spec, memory_bytes=most) for name, spec in specs.items()}
    )


def ready(specs: Iterable[str], named: Iterable[str]) -> list[str]:
    """Those of the executors that a worker of "all" serves: of ours the emulator, those that the
    builds file speaks of (`named`: the executors that it names), and those whose package our own
    interpreter has.
    """
    spoken_of = set(named)
    return [
        name
        for name in specs
        if name == EMULATOR
        or name not in OWN
        or name in spoken_of
        or (name in NEEDS and find_spec(NEEDS[name]) is not None)
    ]


def find(name: str, text: str | None = None) -> ExecutorSpec:
    """The executor of that name. Raises FieldError naming those that there are."""
    specs = known(text)
    if name not in specs:
        raise FieldError("executor", name, "unknown executor", limit="one of " + ", ".join(specs))
    return specs[name]
