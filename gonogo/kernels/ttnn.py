"""Programs of ttnn's own kernels on a Wormhole, read in their sources, which ttnn's wheel has.

With an fp32 Dst their buffers are fp32, else bf16; group norm's have the format of x. An operation
whose first operand is bf16 reads the second one as bf16, too, truncated. A row's sum has the tile
of ones as its first operand. Operations of single elements stay in a Dst of their format's width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from gonogo.arithmetic.program import Program
from gonogo.arithmetic.wormhole import SCALER, Rule
from gonogo.graph import Graph, Node, erfc
from gonogo.kernels.kernel import Array, Outputs
from gonogo.kernels.wormhole import Dataflow, Options, layernorm, of_graph

CUT, PACKED = "bf16/zero", "bf16/away"
"""How an fp32 value is read as bf16, and how it is packed."""
NAME = "ttnn's dataflow on a Wormhole"


def _softmax(x: Array) -> Outputs:
    """Return softmax with the reciprocal of the sum."""
    largest = np.max(x, axis=-1, keepdims=True)
    shifted = x - largest
    e = np.exp(shifted)
    return _divided(e)


def _plain_softmax(x: Array) -> Outputs:
    """Return softmax without the subtraction of the maximum: numeric_stable=False."""
    e = np.exp(x)
    return _divided(e)


def _divided(e: Array) -> Outputs:
    total = np.sum(e, axis=-1, keepdims=True)
    reciprocal = 1.0 / total
    y = e * reciprocal
    return {"y": y}


def _groupnorm(x: Array, gamma: Array, beta: Array, epsilon: Array, num_groups: int) -> Outputs:
    """Return group norm of x (N, C, ...), whose groups are (channels, positions)."""
    groups = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, -1)
    weights, offsets = (a.reshape(1, num_groups, -1, 1) for a in (gamma, beta))
    mean = np.mean(groups, axis=(2, 3), keepdims=True)
    centered = groups - mean
    square = centered * centered
    variance = np.mean(square, axis=(2, 3), keepdims=True)
    shifted = variance + epsilon
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    xhat = centered * rstd
    weighted = xhat * weights
    y = weighted + offsets
    return {"y": y.reshape(x.shape)}


def _gelu(x: Array) -> Outputs:
    """Return GELU by erfc, which doesn't cancel left of 0."""
    turned = x * -math.sqrt(0.5)
    twice_cdf = erfc(turned)
    half = 0.5 * x
    y = half * twice_cdf
    return {"y": y}


def _attention(q: Array, k: Array, v: Array, causal: bool, share: int) -> Outputs:
    """Return attention in one block of keys: scores are scaled late, y is divided last."""
    k, v = (np.repeat(a, share, axis=1) if share > 1 else a for a in (k, v))
    product = q @ np.swapaxes(k, -1, -2)
    visible = np.tril(np.ones(product.shape[-2:], bool), k.shape[-2] - q.shape[-2])
    seen = np.where(visible, product, -np.inf) if causal else product
    largest = np.max(seen, axis=-1, keepdims=True)
    shifted = product - largest
    scaled = shifted * (1 / math.sqrt(q.shape[-1]))
    e = np.exp(np.where(visible, scaled, -np.inf) if causal else scaled)
    total = np.sum(e, axis=-1, keepdims=True)
    weighted = e @ v
    reciprocal = 1.0 / total
    y = weighted * reciprocal
    return {"y": y}


def _moreh_backward(x: Array, gamma: Array, mean: Array, rstd: Array, dy: Array) -> Outputs:
    """Return dx as ((N P - sum P) - x^ sum(P x^)) (rstd / N), dgamma and dbeta."""
    count = float(x.shape[-1])
    centered = x - mean
    xhat = centered * rstd
    P = dy * gamma
    s1 = np.sum(P, axis=-1, keepdims=True)
    P_xhat = xhat * P
    s2 = np.sum(P_xhat, axis=-1, keepdims=True)
    scaled_P = count * P
    P_centered = scaled_P - s1
    share = xhat * s2
    inner = P_centered - share
    step = (1.0 / count) * rstd
    dx = inner * step
    term = xhat * dy
    rows = tuple(range(len(dy.shape) - 1))
    return {"dx": dx, "dgamma": np.sum(term, axis=rows), "dbeta": np.sum(dy, axis=rows)}


def _program(
    graph: Graph, o: Options, names: str, rules: Mapping[str, Rule], **more: str
) -> Program:
    """Return a program of a graph.

    Args:
        graph: the kernel's.
        o: what it is run with.
        names: the values that the FPU computes, without its sums.
        rules: how all others are computed.
        more: `in_dst`: the values that no buffer holds; `mixed`: the uses of an fp32 value beside a
            bf16 x, as "mean@centered"; `buffer`: how a value comes back from a buffer.
    """
    is_wide = o.dst == "fp32"
    fp32 = "tf32/zero" if is_wide else CUT
    stored = dict.fromkeys(
        (*names.split(), *rules), more.get("buffer", fp32 if is_wide else PACKED)
    )
    stored |= {name: fp32 for name, form in o.inputs.items() if form == "fp32"}
    if is_wide and "x" not in stored:
        stored |= dict.fromkeys(more.get("mixed", "").split(), CUT)
    for node in graph.nodes:
        if node.operation in ("constant", "parameter"):
            stored[node.key] = SCALER
    stored |= dict.fromkeys(("y", "dx", "dgamma", "dbeta"), o.packed(o.output))
    for key in (*more.get("in_dst", "").split(), "root"):
        stored.pop(key, None)
    every = {**dict.fromkeys(names.split(), Rule("phased", o.dst, o.fidelity)), **rules}
    return of_graph(graph, stored, every, NAME)


def _root(o: Options) -> dict[str, Rule]:
    return {"root": Rule("exact"), "rstd": Rule("library", o.dst)}


def _layernorm(graph: Graph, o: Options) -> Program:
    rows = Rule("rows", o.dst, o.fidelity, reads=CUT)
    rules = {"mean": rows, "variance": rows, **_root(o)}
    names = "centered square shifted xhat weighted y"
    return _program(graph, o, names, rules, in_dst="shifted", mixed="mean@centered")


def _rmsnorm(graph: Graph, o: Options) -> Program:
    rules = {"mean_square": Rule("rows", o.dst, o.fidelity, reads=CUT), **_root(o)}
    return _program(graph, o, "square shifted xhat y", rules, in_dst="shifted", mixed="rstd@xhat")


def _large_layernorm(graph: Graph, o: Options) -> Program:
    """Return LayerNorm's program of rows that don't fit into a core: x - mean twice."""
    program = _squared_by_sfpu(_layernorm(graph, o), o)
    read = program.stored.get("mean@centered", program.stored["mean"])
    rules = {**program.rules, "deviation": program.rules["centered"]}
    return replace(program, stored={**program.stored, "mean@deviation": read}, rules=rules)


def _large_rmsnorm(graph: Graph, o: Options) -> Program:
    """Return RMSNorm's program of rows that don't fit: x comes from a buffer, wide as rstd's."""
    program = _squared_by_sfpu(_rmsnorm(graph, o), o)
    stored = {key: store for key, store in program.stored.items() if key != "rstd@xhat"}
    return replace(program, stored=stored)


def _squared_by_sfpu(program: Program, o: Options) -> Program:
    square = {} if o.dst == "fp32" else {"square": "bf16"}
    rules = {**program.rules, "square": Rule("sfpu")}
    return replace(program, stored={**program.stored, **square}, rules=rules)


def _groupnorm_program(graph: Graph, o: Options) -> Program:
    """Return the program of group norm on one core; its buffers have the format of x."""
    is_fp32 = o.inputs.get("x") == "fp32"
    groups = Rule("groups", o.dst, o.fidelity, reads="tf32/zero" if is_fp32 else CUT)
    rules = {"mean": groups, "variance": groups, **_root(o)}
    names, buffer = "centered square shifted xhat weighted y", "tf32/zero" if is_fp32 else PACKED
    return _program(graph, o, names, rules, in_dst="shifted", buffer=buffer)


def _softmax_program(graph: Graph, o: Options) -> Program:
    library = Rule("library", o.dst)
    rules = {"e": library, "total": Rule("rows", o.dst, o.fidelity), "reciprocal": library}
    return _program(graph, o, "shifted y", rules, in_dst="shifted total")


def _large_softmax(graph: Graph, o: Options) -> Program:
    """Return softmax's program of rows that don't fit: 80 tiles are summed at a time."""
    program = _softmax_program(graph, o)
    total = replace(program.rules["total"], block=80)
    stored = {**program.stored, **({"total": "tf32/zero"} if o.dst == "fp32" else {})}
    return replace(program, stored=stored, rules={**program.rules, "total": total})


def _moreh_program(graph: Graph, o: Options) -> Program:
    """Return the program of moreh's backward pass, which adds tiles from buffer to buffer."""
    partials = "fp32" if o.dst == "fp32" else PACKED
    rows = Rule("rows", o.dst, o.fidelity, partials=partials, reads=CUT)
    down = Rule("down", o.dst, o.fidelity, partials=partials)
    names = "centered xhat P P_xhat scaled_P P_centered share inner step dx term"
    rules = {"s1": rows, "s2": rows, "dgamma": down, "dbeta": down}
    return _program(graph, o, names, rules, mixed="P@scaled_P")


def _moreh_layernorm(graph: Graph, o: Options) -> Program:
    """Return the program of moreh's LayerNorm: the tile that it reduces with has truncated 1/N."""
    partials = "fp32" if o.dst == "fp32" else PACKED
    rows = Rule("rows", o.dst, o.fidelity, partials=partials, reads=CUT, scaler=SCALER)
    rules = {"mean": rows, "variance": rows, **_root(o)}
    names = "centered square shifted xhat weighted y"
    return _program(graph, o, names, rules, in_dst="shifted", mixed="mean@centered")


def _generic_backward(graph: Graph, o: Options) -> Program:
    """Return the program of our kernel for ttnn.generic_op, whose buffers are bf16."""
    rows = Rule("rows", o.dst, o.fidelity)
    names = "centered xhat P P_xhat P_centered share inner dx"
    return _program(graph, o, names, {"s1": rows, "s2": rows}, buffer=PACKED)


def _single_elements(graph: Graph, o: Options) -> Program:
    """Return the program of an operation of single elements: the SFPU's, but for sums in bf16.

    A product of two bf16 tensors is rounded by the SFPU, ties to even; all else by the packer.
    """
    is_wide = "fp32" in o.inputs.values()
    rules, y = {}, graph.outputs["y"]
    for node in graph.nodes:
        if node.operation in ("exp", "erfc", "divide"):
            rules[node.key] = Rule("library" if is_wide else "inner")
        elif node.operation in ("add", "subtract", "multiply"):
            is_sum = node.operation != "multiply" and all(map(_is_input, node.args))
            rules[node.key] = Rule("fpu" if is_sum and not is_wide else "sfpu")
    for node in graph.nodes:
        if node.operation == "erfc":
            rules[node.args[0].key] = Rule("exact")
    is_product = y.operation == "multiply" and all(map(_is_input, y.args))
    form = "bf16" if is_product and o.output == "bf16" else o.packed(o.output)
    return of_graph(graph, {y.key: form}, rules, NAME)


def _is_input(node: Node) -> bool:
    return node.operation == "input"


def _sums_of_products(graph: Graph, o: Options) -> Program:
    """Return the program of a matrix product, with a bias or without, and of sums of rows."""
    share = "tf32/zero" if o.inputs.get("x") == "fp32" else SCALER
    sums = {"sum": Rule("rows", o.dst, o.fidelity)}
    sums["mean"] = replace(sums["sum"], scaler=share)
    rules = {node.key: sums[node.operation] for node in graph.nodes if node.operation in sums}
    names = [node.key for node in graph.nodes if node.operation in ("matmul", "add")]
    return _program(graph, o, " ".join(names), rules)


def _attention_program(graph: Graph, o: Options) -> Program:
    """Return the program of attention in an fp32 Dst; the tiles of e add up in a buffer."""
    library = Rule("library", o.dst)
    total = Rule("rows", o.dst, o.fidelity, partials="fp32", reads=CUT, is_packed=True)
    rules = {"scaled": Rule("sfpu"), "e": library, "total": total, "reciprocal": library}
    scale = next(node.args[1].key for node in graph.nodes if node.key == "scaled")
    in_dst = f"shifted scaled {scale}"
    program = _program(graph, o, "product shifted weighted y", rules, in_dst=in_dst)
    stored = {"largest": PACKED, "weighted": PACKED, "e@total": "fp32", "e@weighted": CUT}
    return replace(program, stored={**program.stored, **stored, "reciprocal@y": CUT})


def _without_rules(graph: Graph, o: Options) -> Program:
    """Return the program of rows that are moved, or summed by the SFPU in an unknown order."""
    return Program(name=NAME)


SUMS = {
    "ttnn.sum": Dataflow(_sums_of_products),
    "ttnn.sum, accurate": Dataflow(_without_rules),
}
DATAFLOWS: Mapping[str, Mapping[str, Dataflow]] = MappingProxyType(
    {
        "layernorm_fw": {
            "ttnn.layer_norm": Dataflow(_layernorm),
            "ttnn.layer_norm, large": Dataflow(_large_layernorm, layernorm),
            "moreh.layer_norm": Dataflow(_moreh_layernorm),
        },
        "layernorm_bw": {
            "moreh.layer_norm_backward": Dataflow(_moreh_program, _moreh_backward),
            "ttnn.generic_op": Dataflow(_generic_backward),
        },
        "rmsnorm_fw": {
            "ttnn.rms_norm": Dataflow(_rmsnorm),
            "ttnn.rms_norm, large": Dataflow(_large_rmsnorm),
        },
        "groupnorm_fw": {"ttnn.group_norm": Dataflow(_groupnorm_program, _groupnorm)},
        "softmax": {
            "ttnn.softmax": Dataflow(_softmax_program, _softmax),
            "ttnn.softmax, large": Dataflow(_large_softmax, _softmax),
            "ttnn.softmax, not stable": Dataflow(_softmax_program, _plain_softmax),
        },
        "gelu": {"ttnn.gelu": Dataflow(_single_elements, _gelu)},
        "silu": {"ttnn.silu": Dataflow(_single_elements)},
        "add": {"ttnn.add": Dataflow(_single_elements)},
        "mul": {"ttnn.multiply": Dataflow(_single_elements)},
        "matmul": {"ttnn.matmul": Dataflow(_sums_of_products)},
        "linear": {"ttnn.linear": Dataflow(_sums_of_products)},
        "sum": SUMS,
        "mean": SUMS,
        "attention": {"ttnn.attention": Dataflow(_attention_program, _attention)},
        "embedding": {"ttnn.embedding": Dataflow(_without_rules)},
    }
)
"""ttnn's operations by the kernels that they run; rows that don't fit a core have a large one."""
