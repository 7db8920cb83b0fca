"""Cases of ttnn's operations: tests, the builds that run them, and the programs that they have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic import Evaluation, Program
from gonogo.graph import Graph
from gonogo.judging.inputs import generate, quantise
from gonogo.judgment import Judgment, judge
from gonogo.kernels.ttnn import DATAFLOWS
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import on_wormhole, shaped
from gonogo_workers.executors.base import shaped_inputs

Array = NDArray[Any]
FP32 = {"input": "fp32", "output": "fp32"}
NARROW = {"accumulate": "bf16"}
GROUPS = {"num_groups": 2}


@dataclass(frozen=True)
class Case:
    """A test of a kernel that an operation of ttnn runs.

    Attributes:
        operation: its name in gonogo.kernels.ttnn.
        kernel: the test's.
        shape: the test's.
        numerics: the test's.
        parameters: the test's.
        build: the build that runs it.
    """

    operation: str
    kernel: str
    shape: tuple[int, ...] = (33, 50)
    numerics: dict[str, str] | None = None
    parameters: dict[str, int] | None = None
    build: str = "ttnn"

    @property
    def name(self) -> str:
        numerics = "".join(f", {name} {value}" for name, value in (self.numerics or {}).items())
        causal = ", causal" if (self.parameters or {}).get("causal") else ""
        return f"{self.operation}: {self.kernel} {'x'.join(map(str, self.shape))}{numerics}{causal}"

    @cached_property
    def test(self) -> TestSpec:
        fields = {"kernel": self.kernel, "shape": list(self.shape)}
        fields |= {"numerics": self.numerics or {}, "parameters": self.parameters or {}}
        return TestSpec.parse(fields)

    @cached_property
    def raw(self) -> dict[str, Array]:
        return dict(generate(self.test, 0))

    @cached_property
    def quantized(self) -> dict[str, Array]:
        return dict(quantise(self.test, self.raw))

    @cached_property
    def given(self) -> dict[str, Array]:
        """The inputs, as a device is given them."""
        return shaped_inputs(self.test, self.quantized)

    @property
    def first_output(self) -> str:
        """The first output that the operation has."""
        return "dx" if self.kernel == "layernorm_bw" else "y"

    def question(self) -> tuple[Graph, Program]:
        """Return the graph of the right kernel and its program."""
        return on_wormhole(self.test, DATAFLOWS[self.kernel][self.operation])

    def replayed(self, *outputs: str) -> dict[str, Array]:
        """Return what the program gives for outputs, in the contract's shapes."""
        graph, program = self.question()
        evaluation = Evaluation(graph, shaped(self.test, self.given), program).run(*outputs)
        return {
            name: np.asarray(evaluation.output(name), np.float32).reshape(self.test.shape_of(name))
            for name in outputs
        }

    def judged(self, outputs: dict[str, Array], program: Program | None = None) -> Judgment:
        """Return the judgment of outputs by the program, or by another one of the same graph."""
        graph, declared = self.question()
        inputs = shaped(self.test, self.given)
        given = {name: array.reshape(graph.outputs[name].shape) for name, array in outputs.items()}
        formats = dict.fromkeys(outputs, self.test.numerics.output)
        return judge([graph], inputs, given, formats, programs=[program or declared])


CASES = (
    Case("ttnn.layer_norm", "layernorm_fw"),
    Case("ttnn.layer_norm", "layernorm_fw", numerics=NARROW),
    Case("ttnn.layer_norm", "layernorm_fw", (1, 1, 32, 64), FP32),
    Case("ttnn.layer_norm", "layernorm_fw", numerics={"fidelity": "lofi"}),
    Case("ttnn.rms_norm", "rmsnorm_fw"),
    Case("ttnn.rms_norm", "rmsnorm_fw", (1, 1, 32, 64), FP32),
    Case("ttnn.group_norm", "groupnorm_fw", (1, 64, 40), parameters=GROUPS),
    Case("ttnn.group_norm", "groupnorm_fw", (1, 64, 40), NARROW, GROUPS),
    Case("ttnn.softmax", "softmax"),
    Case("ttnn.softmax", "softmax", (2, 32, 64), FP32),
    Case("ttnn.gelu", "gelu"),
    Case("ttnn.gelu", "gelu", (2, 32, 64), FP32),
    Case("ttnn.silu", "silu"),
    Case("ttnn.silu", "silu", (2, 32, 64), FP32),
    Case("ttnn.add", "add"),
    Case("ttnn.add", "add", (2, 32, 64), FP32),
    Case("ttnn.multiply", "mul"),
    Case("ttnn.multiply", "mul", (2, 32, 64), FP32),
    Case("ttnn.matmul", "matmul", (40, 100), parameters={"columns": 70}),
    Case("ttnn.matmul", "matmul", (2, 32, 64), {"fidelity": "lofi"}),
    Case("ttnn.matmul", "matmul", (64, 64), FP32),
    Case("ttnn.linear", "linear", (40, 100), parameters={"features": 70}),
    Case("ttnn.linear", "linear", (64, 64), {**FP32, "fidelity": "hifi2"}),
    Case("ttnn.sum", "sum", (33, 100)),
    Case("ttnn.sum", "sum", (2, 32, 64), NARROW),
    Case("ttnn.sum", "sum", (33, 100), FP32, build="ttnn-fast"),
    Case("ttnn.sum", "mean", (33, 100)),
    Case("ttnn.sum", "mean", (33, 100), FP32, build="ttnn-fast"),
    Case("ttnn.embedding", "embedding", (2, 32), parameters={"rows": 50, "width": 64}),
    Case("ttnn.attention", "attention", (1, 1, 32, 32)),
    Case("ttnn.attention", "attention", (1, 2, 32, 64), parameters={"keys": 64}),
    Case("ttnn.attention", "attention", (1, 1, 32, 32), parameters={"causal": True}),
    Case("moreh.layer_norm_backward", "layernorm_bw"),
    Case("moreh.layer_norm_backward", "layernorm_bw", (1, 1, 32, 64), NARROW),
    Case("ttnn.generic_op", "layernorm_bw", build="ttnn-generic-bw"),
    Case("ttnn.generic_op", "layernorm_bw", (3, 70, 50), NARROW, build="ttnn-generic-bw"),
)
"""Every operation in its formats, widths of Dst and fidelities; some shapes aren't whole tiles."""
