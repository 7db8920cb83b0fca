"""Cases of ttnn's operations: their inputs, for what runs them, and their programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic import Evaluation, Program
from gonogo.arithmetic.datapath import Width
from gonogo.arithmetic.formats import round_to
from gonogo.graph import Graph, Spec, trace
from gonogo.judgment import Judgment, judge
from gonogo.kernels.registry import KERNELS
from gonogo.kernels.ttnn import DATAFLOWS
from gonogo.kernels.wormhole import Options

Array = NDArray[np.float32]
REFERENCES = {
    "ttnn.layer_norm": "layernorm_fw",
    "ttnn.rms_norm": "rmsnorm_fw",
    "ttnn.generic_op": "layernorm_bw",
}
"""The kernels of operations without a way of their own."""
TENSORS = {"ttnn.layer_norm": "x gamma beta", "ttnn.rms_norm": "x gamma", "ttnn.softmax": "x"}
TENSORS |= {"ttnn.group_norm": "x gamma beta"}
PARAMETERS = {"ttnn.layer_norm": {"epsilon": 1e-6}, "ttnn.rms_norm": {"epsilon": 1e-6}}
PARAMETERS |= {"ttnn.group_norm": {"epsilon": 1e-5, "num_groups": 2}}


@dataclass(frozen=True)
class Case:
    """An operation with a width of Dst, and what its build is run with otherwise."""

    operation: str
    dst: Width
    shape: tuple[int, ...] = (33, 50)
    wrong: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """The case in words."""
        wrong = "".join(f", {name} {value}" for name, value in self.wrong.items())
        return f"{self.operation}, {self.dst} Dst{wrong}"

    def request(self) -> dict[str, Any]:
        """Return the case for the program that runs it."""
        return asdict(self) | {"parameters": PARAMETERS.get(self.operation, {}) | self.wrong}

    def inputs(self) -> dict[str, Array]:
        """Return bf16 tensors; mean and rstd are x's own."""
        random = np.random.default_rng(7)
        channels = self.shape[1]
        x, dy = (_bf16(random.uniform(-0.5, 1.5, self.shape)) for _ in range(2))
        gamma, beta = (_bf16(random.uniform(0.5, 1.5, channels)) for _ in range(2))
        mean = _bf16(x.mean(axis=-1, keepdims=True))
        rstd = _bf16(1 / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6))
        every = {"x": x, "gamma": gamma, "beta": beta, "mean": mean, "rstd": rstd, "dy": dy}
        names = TENSORS.get(self.operation, "x gamma mean rstd dy").split()
        return {name: every[name] for name in names}

    def question(self) -> tuple[Graph, Program]:
        """Return the graph of the right kernel and its program."""
        flow = next(flows[self.operation] for flows in DATAFLOWS.values() if self.operation in flows)
        function = flow.way or KERNELS[REFERENCES[self.operation]].reference
        specs = {name: Spec(array.shape) for name, array in self.inputs().items()}
        graph = trace(function, specs, **PARAMETERS.get(self.operation, {}))
        return graph, flow.program(graph, replace(Options(), dst=self.dst, totals=self.dst))

    def replayed(self, *outputs: str) -> dict[str, Array]:
        """Return what the program gives for outputs."""
        graph, program = self.question()
        evaluation = Evaluation(graph, self.inputs(), program).run(*outputs)
        return {name: evaluation.output(name) for name in outputs}

    def judged(self, outputs: dict[str, Array]) -> Judgment:
        """Return the judgment of outputs in bf16."""
        graph, program = self.question()
        formats = dict.fromkeys(outputs, "bf16")
        return judge([graph], self.inputs(), outputs, formats, programs=[program])


def _bf16(values: Any) -> Array:
    return round_to(values, "bf16").astype(np.float32)


GROUPS = (1, 64, 40)
"""A shape of group norm, which ttnn takes in tiles of channels."""
RIGHT = [
    Case(operation, dst, GROUPS if operation == "ttnn.group_norm" else (33, 50))
    for operation in (*TENSORS, "moreh.layer_norm_backward", "ttnn.generic_op")
    for dst in ("fp32", "bf16")
]
