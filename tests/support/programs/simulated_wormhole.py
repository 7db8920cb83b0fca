"""ttnn on the simulated Wormhole, for tests: its builds file, one child for many checks, and which
of its servers still run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.spec.builds import own_builds
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.kernel_host import KernelHost

SERVER = "framework.sim"
"""Part of the command line of the simulator's server process."""
DEADLINE_S = 300.0
"""A kernel that is compiled for the first time takes 20 s here, more on a busy machine."""

Array = NDArray[np.float32]


class Child:
    """One child process with its device open, for any number of builds and runs."""

    def __init__(self, builds: Path, build: str = "ttnn") -> None:
        self.resolved = builds_file.resolve_build(
            registry.built_in("ttnn"), build, builds_file.read(str(builds))
        )
        self.host = KernelHost(self.resolved.executor, self.resolved.environment)

    def executor(self, build: str) -> Hosted:
        """Call the executor's factory in the child. Raises KernelError where it raises."""
        self.host.open(build)
        return Hosted(self, build)

    def run(
        self,
        build: str,
        test: TestSpec,
        inputs: Mapping[str, Array],
        deadline_s: float = DEADLINE_S,
    ) -> dict[str, Array]:
        """One run. Raises KernelError, KernelHang or KernelCrash."""
        if self.host.build != build:
            self.host.open(build)
        return self.host.run(test, inputs, 0, own_builds("ttnn")[build].outputs, deadline_s)

    def judged(self, build: str, test: TestSpec) -> SeedJudgement:
        """Run a test's first seed, and judge it."""
        raw = generate(test, 0)
        given = quantise(test, raw)
        outputs = self.run(build, test, given)
        produced = own_builds("ttnn")[build].outputs
        options: Any = {"arithmetic": None, "produced": produced, "on_wormhole": True}
        return judge(test, raw, given, outputs, **options)


class Hosted:
    """The executor in the child, as the conformance suite expects one."""

    def __init__(self, child: Child, build: str) -> None:
        self.child, self.build = child, build

    def run(self, test: Mapping[str, Any], inputs: dict[str, Array]) -> dict[str, Array]:
        return self.child.run(self.build, TestSpec.parse(dict(test)), inputs)


def servers(variable: str = "", value: str = "") -> list[psutil.Process]:
    """The simulator's servers that run, or those in whose environment a variable has this value."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            matches = not variable or process.environ().get(variable) == value
            if (
                matches
                and process.status() != psutil.STATUS_ZOMBIE
                and SERVER in " ".join(process.cmdline())
            ):
                processes.append(process)
    return processes
