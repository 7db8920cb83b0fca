"""Programs of a Wormhole: those of tt-train's and ttnn's norms, and one for any kernel.

Each is a function of a graph and of what a build is run with. Where a kernel computes a value twice
in different ways, its dataflow is written as a way of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from gonogo.arithmetic.datapath import Width
from gonogo.arithmetic.program import Program
from gonogo.arithmetic.wormhole import SCALER, Fidelity, Rule
from gonogo.graph import OPERATIONS, Graph, Node
from gonogo.kernels.programs import is_reciprocal_root

Array = Any
Outputs = Mapping[str, Array]
NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Options:
    """The options with which a build is run.

    Attributes:
        inputs: the format of each input tensor.
        output: that of the outputs.
        buffers: that of stored intermediates.
        dst: the width of the registers that take results.
        totals: of those that sum the lanes of a row.
        fidelity: the phases of the FPU's products.
        srcb: how SrcB reads an fp32 value beside a narrower one in SrcA: "tf32" or "bf16".
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    output: str = "bf16"
    buffers: str = "bf16"
    dst: Width = "fp32"
    totals: Width = "fp32"
    fidelity: Fidelity = "hifi4"
    srcb: str = "tf32"

    def packed(self, form: str) -> str:
        """Return how a packer stores values in a format."""
        return {"fp32": "fp32", "bfp8_b": "bf16/away+bfp8_b/away"}.get(form, f"{form}/away")

    def read(self, form: str, beside: str = "fp32") -> str:
        """Return how SrcB reads a tensor of a format beside one of another in SrcA."""
        if form != "fp32":
            return "fp32"
        return "bf16/zero" if self.srcb == "bf16" and beside != "fp32" else "tf32/zero"

    def buffered(self, beside: str = "fp32") -> str:
        """Return how a value comes back from a buffer."""
        if self.buffers == "fp32":
            return self.read("fp32", beside)
        return self.packed(self.buffers)


@dataclass(frozen=True)
class Dataflow:
    """How a kernel of a Wormhole computes.

    Attributes:
        program: a function of a graph and options.
        way: the function whose graph that is; None: the kernel's reference.
    """

    program: Callable[[Graph, Options], Program]
    way: Callable[..., Outputs] | None = None


def generic(graph: Graph, o: Options) -> Program:
    """Return the program of a kernel that runs operation by operation, from buffer to buffer."""
    stored, rules = {}, {}
    outputs = {node.id for node in graph.outputs.values()}
    for node in graph.nodes:
        rule = _usual_rule(node, o)
        if rule is not None:
            rules[node.key] = rule
            stored[node.key] = o.packed(o.output) if node.id in outputs else o.buffered()
        elif node.operation == "input" and node.kind == "float":
            stored[node.key] = o.read(o.inputs.get(node.key, "bf16"))
        elif node.operation == "parameter":
            stored[node.key] = SCALER
    for node in graph.nodes:
        if is_reciprocal_root(node):
            rules |= _root(o, node.args[1].key, node.key)
            del stored[node.args[1].key]
    return _program(stored, rules, "a Wormhole, operation by operation")


def _usual_rule(node: Node, o: Options) -> Rule | None:
    operation = OPERATIONS[node.operation]
    if node.operation in ("add", "subtract", "multiply", "matmul"):
        return Rule("fpu", o.dst, o.fidelity)
    if node.operation in ("sum", "mean") and node.kind == "float":
        is_row = len(node.args[0].shape) - 1 in node.attributes["axes"]
        return _lanes(o, o.packed(o.buffers), o.read(o.buffers, "bf16")) if is_row else _columns(o)
    if operation.family == "elementwise" and node.kind == "float" and operation.half_steps:
        return Rule("sfpu", o.dst)
    return None


def _program(stored: Mapping[str, str], rules: Mapping[str, Rule], name: str) -> Program:
    """Return a program without the stores that change nothing."""
    stores = {key: store for key, store in stored.items() if store != "fp32" or "@" in key}
    return Program(stored=stores, rules=rules, flush=True, name=name)


def _lanes(o: Options, partials: str, reads: str) -> Rule:
    return Rule("lanes", o.dst, o.fidelity, o.totals, partials, reads)


def _columns(o: Options) -> Rule:
    return Rule("columns", o.dst)


def _root(o: Options, root: str = "root", rstd: str = "rstd") -> dict[str, Rule]:
    return {root: Rule("exact"), rstd: Rule("rsqrt", o.dst)}


def _statistics(o: Options, *names: str) -> dict[str, Rule]:
    """Return the rules of rstd: sums are made of stored lanes. names: the SFPU's operations."""
    lanes = _lanes(o, o.packed(o.buffers), o.read(o.buffers, "bf16"))
    sfpu = dict.fromkeys((*names, "square", "shifted"), Rule("sfpu", o.dst))
    return {"mean": lanes, "variance": lanes, "mean_square": lanes, **sfpu, **_root(o)}


def layernorm(x: Array, gamma: Array, beta: Array, epsilon: Array) -> Outputs:
    """Return LayerNorm as tt-train's and ttnn's kernels compute it: x - mean twice."""
    mean = np.mean(x, axis=-1, keepdims=True)
    deviation = x - mean
    square = deviation * deviation
    variance = np.mean(square, axis=-1, keepdims=True)
    shifted = variance + epsilon
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    centered = x - mean
    xhat = centered * rstd
    weighted = xhat * gamma
    y = weighted + beta
    return {"y": y, "mean": mean, "rstd": rstd}


def _groupnorm(x: Array, gamma: Array, beta: Array, epsilon: Array, num_groups: int) -> Outputs:
    """Return group norm as the same dataflow: a group's values are a row."""
    count, channels = x.shape[:2]
    per_channel = (1, channels, *(1,) * (len(x.shape) - 2))
    rows = (count * num_groups, -1)
    gamma, beta = (
        np.broadcast_to(a.reshape(per_channel), x.shape).reshape(rows) for a in (gamma, beta)
    )
    outputs = layernorm(x.reshape(rows), gamma, beta, epsilon)
    statistics = {name: outputs[name].reshape(count, num_groups, 1, 1) for name in ("mean", "rstd")}
    return {"y": outputs["y"].reshape(x.shape), **statistics}


def _forward(graph: Graph, o: Options, *, columns_in_srcb: bool = True) -> Program:
    """Return the program of a norm's forward pass.

    x^ is packed, and so is gamma x^. A row's mean and rstd come back from buffers, read by SrcB.
    """
    form = o.inputs.get("x", "bf16")
    column = o.buffered(form if columns_in_srcb else "fp32")
    stored = {
        "x": o.read(form),
        "gamma": o.read(o.inputs.get("gamma", "bf16"), o.buffers),
        "beta": o.read(o.inputs.get("beta", "bf16"), o.buffers),
        "epsilon": SCALER,
        "mean@deviation": column,
        "mean@centered": o.buffered(form),
        "rstd@xhat": column,
        "xhat": o.buffered(),
        "weighted": o.buffered(),
        **dict.fromkeys(graph.outputs, o.packed(o.output)),
    }
    fpu = Rule("fpu", o.dst, o.fidelity)
    rules = {**_statistics(o, "deviation", "xhat"), "centered": fpu, "weighted": fpu, "y": fpu}
    return of_graph(graph, stored, rules, "tt-train's dataflow on a Wormhole")


def of_graph(
    graph: Graph, stored: Mapping[str, str], rules: Mapping[str, Rule], name: str
) -> Program:
    """Return the program of what a graph has."""
    keys = {node.key for node in graph.nodes}
    uses = {f"{arg.key}@{node.key}" for node in graph.nodes for arg in node.args}
    return _program(
        {key: store for key, store in stored.items() if key in keys | uses},
        {key: rule for key, rule in rules.items() if key in keys},
        name,
    )


def _backward(graph: Graph, o: Options, statistics: Mapping[str, str] = NONE) -> Program:
    """Return the program of tt-train's layernorm_bw and rmsnorm_bw.

    x^ and dy x^ are packed; s1 and s2 are stored in fp32 and read back. All else stays in Dst.
    statistics: how those are stored that it computes itself.
    """
    form = o.inputs.get("x", "bf16")
    narrowed = "bf16/zero" if o.dst == "bf16" else "tf32/zero"
    stored = {
        "x": o.read(form),
        "dy": o.read(o.inputs.get("dy", "bf16")),
        "gamma": o.read(o.inputs.get("gamma", "bf16"), o.inputs.get("dy", "bf16")),
        "mean": o.read(o.inputs.get("mean", "bf16"), form),
        "rstd": narrowed,
        "xhat": o.buffered(),
        "s1": narrowed,
        "s2": narrowed,
        "term": o.buffered(),
        **dict.fromkeys(graph.outputs, o.packed(o.output)),
        **statistics,
    }
    lanes = _lanes(o, "", "bf16/zero" if o.srcb == "bf16" else "tf32/zero")
    names = ("xhat", "P_xhat", "P_centered", "share", "inner", "dx", "term")
    fpu = Rule("fpu", o.dst, o.fidelity)
    rules = {
        "centered": fpu,
        "P": fpu,
        **(_statistics(o, "centered") | {"centered[2]": fpu} if statistics else {}),
        "s1": lanes,
        "s2": lanes,
        **dict.fromkeys(names, Rule("sfpu", o.dst)),
        "dgamma": _columns(o),
        "dbeta": _columns(o),
    }
    return of_graph(graph, stored, rules, "tt-train's dataflow on a Wormhole")


def _layernorm_backward_own(graph: Graph, o: Options) -> Program:
    cut = "+bf16/zero" if o.dst == "bf16" else ""
    statistics = {
        "epsilon": SCALER,
        "mean": "fp32",
        "mean@centered": o.buffered(),
        "mean@centered[2]": o.buffered(o.inputs.get("x", "bf16")),
        "rstd": o.buffered() + cut,
    }
    return _backward(graph, o, statistics)


def _rmsnorm_backward_own(graph: Graph, o: Options) -> Program:
    statistics = {"epsilon": SCALER, "rstd": o.buffered(o.inputs.get("x", "bf16"))}
    return _backward(graph, o, statistics)


GENERIC = Dataflow(generic)
LAYERNORM = Dataflow(partial(_forward, columns_in_srcb=False), layernorm)
GROUPNORM = Dataflow(_forward, _groupnorm)
RMSNORM = Dataflow(_forward)
BACKWARD = Dataflow(_backward)
LAYERNORM_BACKWARD_OWN = Dataflow(_layernorm_backward_own)
RMSNORM_BACKWARD_OWN = Dataflow(_rmsnorm_backward_own)
