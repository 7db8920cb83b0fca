"""ttnn on the simulated Wormhole, for tests: its builds file, one child for many checks, and which
of its servers still run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from gonogo.spec.builds import own_builds
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.base import output_shapes
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.slots import Slot

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
        self.slots = 0

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
        self.slots += 1
        shapes = {name: array.shape for name, array in inputs.items()}
        slot = Slot(
            self.host.folder,
            f"{self.slots}",
            shapes,
            output_shapes(test, own_builds("ttnn")[build].outputs),
        )
        slot.write(inputs)
        self.host.submit({"test": test.canonical(), "seed": 0, **slot.request()})
        self.host.receive(time.monotonic() + deadline_s)
        outputs = {name: array.copy() for name, array in slot.read().items()}
        slot.delete()
        return outputs


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
