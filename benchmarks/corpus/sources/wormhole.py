"""Real ttnn kernels on the simulated Wormhole of `make wormhole-sim`, where there is one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np

from benchmarks.corpus.run import LOOSE, Arrays, Label, Question, Run
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.builds import own_builds
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.base import ExecutorFailure, output_shapes, shaped_inputs
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.slots import Slot
from tests.wormhole import place

OPERATIONS: Final = {
    ("ttnn", "layernorm_fw"): "ttnn.layer_norm",
    ("ttnn", "layernorm_bw"): "moreh.layer_norm_backward",
    ("ttnn-generic-bw", "layernorm_bw"): "ttnn.generic_op",
}
"""Operations of gonogo.kernels.ttnn by build and kernel."""
SHAPES: Final = ("33x50", "64x96", "32x64", "64x256", "96x40")
DEADLINE_S: Final = 300.0


class Simulated:
    """ttnn's LayerNorm forward and backward, with the program that its build declares."""

    _host: KernelHost

    def runs(self, left_out: list[str]) -> Iterator[Run]:
        """Yield all runs; none without the simulator."""
        try:
            place.find()
        except place.Unavailable as problem:
            left_out.append(f"simulated Wormhole: {problem}")
            return
        for shape in SHAPES:
            for kernel, kind in OPERATIONS:
                for seed in range(2):
                    yield Run("wormhole", kernel, f"{kind}-{shape}-uniform-bf16", seed)

    def prepare(self, chosen: Sequence[Run], left_out: list[str]) -> Iterator[Run]:
        """Yield them by kernel: a child runs all those of one."""
        for kernel, runs in groupby(sorted(chosen, key=lambda run: run.kernel), kernel_of):
            resolved = builds_file.resolve_build(
                registry.built_in("ttnn"), kernel, builds_file.read(str(place.find()))
            )
            self._host = KernelHost(resolved.executor, resolved.environment)
            try:
                yield from runs
            finally:
                self._host.close()

    def question(self, run: Run) -> Question:
        """Return the question with the operation's program."""
        test = test_of(run)
        given = quantise(test, generate(test, run.seed))
        arithmetic = OPERATIONS[run.kernel, run.kind]
        numerics = {"input": "bf16", "output": "bf16"}
        parameters = {"epsilon": test.epsilon}
        return Question(test.kernel, given, numerics, parameters, LOOSE, arithmetic)

    def make(self, run: Run) -> tuple[Arrays, Label]:
        """Run the kernel in a child; raise ValueError where it gives nothing."""
        test = test_of(run)
        inputs = shaped_inputs(test, self.question(run).inputs)
        shapes = {name: array.shape for name, array in inputs.items()}
        produced = own_builds("ttnn")[run.kernel].outputs
        try:
            if self._host.build is None:
                self._host.open(run.kernel)
            # a name for each run: a child keeps the files of a slot that it has seen
            name = f"{run.case}-{run.seed}"
            slot = Slot(self._host.folder, name, shapes, output_shapes(test, produced))
            try:
                slot.write(inputs)
                self._host.submit({"test": test.canonical(), "seed": 0, **slot.request()})
                self._host.receive(time.monotonic() + DEADLINE_S)
                outputs = {name: np.array(values) for name, values in slot.read().items()}
            finally:
                slot.delete()
        except ExecutorFailure as problem:
            raise ValueError(f"{run.case}: {problem}") from problem
        return outputs, Label("right")


def kernel_of(run: Run) -> str:
    """Return the kernel of a run."""
    return run.kernel


def test_of(run: Run) -> TestSpec:
    """Return the test of a run."""
    kind, shape, _, _ = run.case.split("-")
    fields: dict[str, Any] = {"kernel": kind, "shape": [int(n) for n in shape.split("x")]}
    return TestSpec.parse(fields)
