"""The emulated Wormhole as an executor.

A build is a named fault of the test's kernel; a device is a share of this host's processor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from gonogo import emulator
from gonogo.kernels import registry as kernels
from gonogo.spec.builds import emulator_build
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors.base import FloatArray


@lru_cache(maxsize=16)
def _spec(text: str) -> TestSpec:
    return TestSpec.parse(json.loads(text), max_elements=2**62)


class EmulatorExecutor:
    """Runs the emulated kernels.

    It receives its position, because one defect depends on what ran before.
    """

    placed: ClassVar[bool] = True
    kernel_s: ClassVar[None] = None  # the seconds of an emulator are no kernel's

    def __init__(self, build: str) -> None:
        """Raise FieldError with the known builds for any other build.

        A process of its own first loads the kernels that the one which started it has loaded. They
        are read from its environment: the settings would double the time of its start.
        """
        names = os.environ.get(kernels.SETTING, "").split(",")
        kernels.load(name.strip() for name in names if name.strip())
        self.build = emulator_build(build).name

    def run(
        self, test: Mapping[str, Any], inputs: dict[str, FloatArray]
    ) -> Mapping[str, FloatArray]:
        """Run as `Executor.run` does, as the first kernel of its process."""
        return self.run_placed(test, inputs, seed=0, position=0)

    def run_placed(
        self, test: Mapping[str, Any], inputs: dict[str, FloatArray], *, seed: int, position: int
    ) -> Mapping[str, FloatArray]:
        """Run as `Executor.run` does, after `position` other kernels of this child process."""
        spec = _spec(json.dumps(test, sort_keys=True))
        # A test of the job's context may be of another kernel, where the fault changes nothing. For
        # the test itself gonogo.workloads.check_build has refused the build.
        build = self.build if emulator.has_build(spec, self.build) else "correct"
        flat = {name: array.reshape(spec.flat_shape_of(name)) for name, array in inputs.items()}
        outputs = emulator.run(spec, flat, build, position=position)
        return {
            name: np.asarray(array, dtype=np.float32, order="C").reshape(spec.shape_of(name))
            for name, array in outputs.items()
        }
