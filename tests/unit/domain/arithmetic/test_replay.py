"""Replays: right fp32 kernels lie within the noise, stores are replayed to the bit, and errors that
elements share are what a change of their source does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gonogo import workloads
from gonogo.arithmetic import Evaluation, Program, Quantity, Replay
from gonogo.arithmetic.formats import beyond_cell, round_to
from gonogo.graph import Graph, quantize, trace
from gonogo.judging.inputs import generate, quantise
from gonogo.kernels.registry import KERNELS as SHIPPED
from gonogo.spec.test_spec import TestSpec

Array = NDArray[Any]
Outputs = dict[str, Array]
Kernel = Callable[..., Outputs]
F = np.float32


def norm(x: Array) -> Outputs:
    return {"y": x / np.sqrt(np.sum(x * x))}


ROWS: list[str | int] = ["R", "N"]
CHANNELS: list[str | int] = ["R", 4, "N"]
KERNELS: Mapping[str, tuple[list[str | int], dict[str, Any]]] = {
    "layernorm_fw": (ROWS, {}),
    "updated": (ROWS, {}),
    "layernorm_bw": (ROWS, {}),
    "rmsnorm_fw": (ROWS, {}),
    "softmax": (ROWS, {}),
    "attention": ([1, 2, "R", 8], {"keys": "N"}),
    "groupnorm_fw": (CHANNELS, {"num_groups": 2}),
    "batchnorm_fw": (CHANNELS, {}),
    "gelu": (ROWS, {}),
    "norm": (ROWS, {}),
}
"""The first input's shape, and the parameters, of kernels that we ship; "updated" is a way of
LayerNorm, and "norm" is here."""
SHAPES = ((1, 1), (1, 2), (3, 3), (1, 64), (64, 1), (17, 33), (64, 1000))


def drawn(
    kernel: str, rows: int, count: int, offset: float = 0.0, form: str = "fp32"
) -> tuple[Graph, dict[str, Array], Kernel]:
    """Return a kernel as a graph, its inputs, and as a function of float32 arrays."""
    shape, parameters = KERNELS[kernel]
    sizes: Mapping[str | int, Any] = {"R": rows, "N": count}
    name = {"updated": "layernorm_fw", "norm": "softmax"}.get(kernel, kernel)
    moved = {"regime": "normal", "mean": offset, "std": 1}
    regimes = {"regime": "normal", "v" if kernel == "attention" else "x": moved}
    fields = {"inputs": regimes, "epsilon": 1e-5, "numerics": {"input": form}}
    fields |= {"parameters": {at: sizes.get(value, value) for at, value in parameters.items()}}
    test = TestSpec.parse({"kernel": name, "shape": [sizes.get(n, n) for n in shape], **fields})
    raw = generate(test, rows * 1000 + count)
    inputs = workloads.shaped(test, quantise(test, raw))
    function = norm if kernel == "norm" else SHIPPED[name].reference
    if kernel == "updated":
        function = next(way for way in SHIPPED[name].ways if "updated" in str(way))
    arguments = {} if kernel == "norm" else workloads.parameters_of(test)
    single = {at: F(a) if isinstance(a, float) else a for at, a in arguments.items()}
    return trace(function, inputs, **arguments), inputs, partial(function, **single)


def in_fp32(kernel: Kernel, inputs: Mapping[str, Array]) -> Outputs:
    """Run a kernel on float32 arrays: NumPy's own order of sums."""
    with np.errstate(all="ignore"):
        outputs = kernel(**inputs)
    return {
        name: value.astype(F) if value.dtype == np.float64 else value
        for name, value in outputs.items()
    }


def deviations(y: Array, replay: Quantity) -> Array:
    """Return how far each output lies from its replay, in deviations, the cell and slack apart."""
    gap = np.maximum(beyond_cell(y, replay.values, "fp32") - replay.slack, 0)
    floor = 2.0**-46 * np.abs(replay.values)
    return np.divide(gap, np.sqrt(replay.variance) + floor, out=np.zeros_like(gap), where=gap > 0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_right_kernels_lie_within_the_noise_that_is_as_large_as_their_errors(
    kernel: str, form: str
) -> None:
    for rows, count in SHAPES:
        for offset in (0.0, 3.0, 100.0):
            graph, inputs, function = drawn(kernel, rows, count, offset, form)
            replay = Replay(graph, inputs)
            for name, y in in_fp32(function, inputs).items():
                q = replay.run(name)
                assert q.values.shape == y.shape
                assert deviations(y, q).max() <= 8, (rows, count, offset, name)
                error = np.sqrt(np.mean(np.square(y - q.values)))
                # NumPy's order is exacter than that of 4 lanes, the longer the sum the more
                is_of_sums = name in ("mean", "dbeta") or kernel in ("batchnorm_fw", "norm")
                most = 60 if is_of_sums or offset == 100 else 8
                if rows * count > 500 and form == "fp32":
                    deviation = np.sqrt(np.mean(np.broadcast_to(q.variance, y.shape)))
                    assert deviation <= most * error, (rows, count, offset, name)


def added_in_order(
    function: Kernel, inputs: Mapping[str, Array], patch: pytest.MonkeyPatch
) -> Outputs:
    """Run a kernel on float32 arrays with running sums."""

    def running(x: Array, axis: Any, keepdims: bool = False) -> Array:
        axis = axis[0] if isinstance(axis, tuple) else axis
        total = np.add.accumulate(x, axis=axis).take([-1], axis)
        return total if keepdims else total.squeeze(axis)

    def mean(x: Array, axis: int, keepdims: bool = False) -> Array:
        result: Array = running(x, axis, keepdims) / F(x.shape[axis])
        return result

    with patch.context() as patched:
        patched.setattr(np, "sum", running)
        patched.setattr(np, "mean", mean)
        return in_fp32(function, inputs)


@pytest.mark.parametrize("kernel", ["layernorm_fw", "layernorm_bw", "rmsnorm_fw", "softmax"])
def test_running_sums_are_replayed_by_their_program(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in (0.0, 100.0):
        graph, inputs, function = drawn(kernel, 40, 3000, offset)
        replay = Replay(graph, inputs, Program(order="running"))
        for name, y in added_in_order(function, inputs, monkeypatch).items():
            assert deviations(y, replay.run(name)).max() <= 8, (offset, name)


def gathered(x: Array, index: Array) -> Outputs:
    unit = x / np.sqrt(np.sum(x * x, axis=1, keepdims=True))
    return {"y": unit[index] * 2.5}


def windows(x: Array, weight: Array) -> Outputs:
    mean = np.mean(x, axis=-1, keepdims=True)
    window = sliding_window_view(x * mean, 3, axis=-1)
    return {"y": np.einsum("rok,k->ro", window, weight)}


def rotary(x: Array) -> Outputs:
    scaled = x * np.mean(x, axis=-1, keepdims=True)
    a, b = scaled[:, :2], scaled[:, 2:]
    return {"y": np.concatenate([a - 2.0 * b, b + 3.0 * a], axis=-1)}


def ordered(x: Array) -> Outputs:
    scaled = x * np.sum(x, axis=-1, keepdims=True)
    return {"y": np.sort(scaled, axis=-1), "c": np.cumsum(scaled, axis=-1)}


def masked(x: Array, keep: Array) -> Outputs:
    scaled = x * np.sum(x, axis=0, keepdims=True)
    return {"y": np.tril(np.where(keep, scaled, 2.0 * scaled[:, ::-1]))}


VIEWS: Mapping[Kernel, Mapping[str, Array]] = {
    gathered: {"index": np.array([0, 2, 2, 1, 0])},
    windows: {"weight": np.array([0.3, 2.0, -1.0])},
    rotary: {},
    ordered: {},
    masked: {"keep": np.arange(16).reshape(4, 4) % 3 > 0},
}


@pytest.mark.parametrize("kernel", [*KERNELS, *VIEWS])
def test_a_shared_error_is_what_a_change_of_its_source_does(kernel: str | Kernel) -> None:
    if not isinstance(kernel, str):
        inputs = {"x": np.random.default_rng(1).normal(size=(4, 4)) + 1, **VIEWS[kernel]}
        graph = trace(kernel, inputs)
    else:
        graph, inputs, _ = drawn(kernel, 4, 6, 3.0)
    replay, right = Replay(graph, inputs), Evaluation(graph, inputs).run()
    base = right.values

    def changed(source: int, change: Array, output: str) -> Array:
        edits = {source: lambda *_: base[source] + change}
        return Evaluation(graph, inputs, edits=edits, base=right).run(output).output(output)

    shown = 0
    for name in graph.outputs:
        for source, part in replay.run(name).shared.items():
            noise = np.broadcast_to(replay.quantities[source].noise, base[source].shape)
            for place in np.ndindex(base[source].shape):
                change = np.zeros(base[source].shape)
                change[place] = 2.0**10 * np.sqrt(noise[place])
                effect = (changed(source, change, name) - changed(source, -change, name)) / 2**11
                label = np.ravel_multi_index(place, base[source].shape)
                error = np.where(part.labels == label, part.error, 0.0 * effect)
                np.testing.assert_allclose(error, effect, atol=1e-5 * np.abs(part.error).max())
                shown += 1
    assert shown or kernel in ("gelu", windows)


def test_terms_of_one_error_add_and_those_of_others_are_random() -> None:
    def kernel(x: Array) -> Outputs:
        scaled = np.reshape(np.reshape(x, (3, 2, 4)) * np.sum(x), (3, 8))
        parts = np.reshape(x, (3, 2, 4))
        per_group = np.reshape(parts * np.mean(parts, axis=-1, keepdims=True), (3, 8))
        return {"one": np.sum(scaled, axis=1), "groups": np.sum(per_group, axis=1)}

    x = np.random.default_rng(2).normal(size=(3, 8)) + 1
    replay = Replay(trace(kernel, {"x": x}), {"x": x})
    one, groups = replay.run("one"), replay.run("groups")
    ((source, part),) = one.shared.items()
    total = np.sqrt(replay.quantities[source].noise).item()
    np.testing.assert_allclose(part.error, x.sum(axis=1) * total, rtol=1e-6)
    assert not groups.shared
    mean = next(node for node in replay.graph.nodes if node.operation == "mean")
    noise = np.sqrt(replay.quantities[mean.id].noise).reshape(3, 2)
    shared = np.square(x.reshape(3, 2, 4).sum(axis=2) * noise).sum(axis=1)
    assert (groups.noise > shared).all()
    assert (groups.noise < 3 * shared).all()


def test_a_value_minus_itself_has_no_error() -> None:
    def kernel(x: Array) -> Outputs:
        e = np.exp(x)
        return {"zero": e - e, "square": e * e, "order": e >= np.max(e, axis=-1, keepdims=True)}

    x = np.random.default_rng(3).normal(size=(4, 9))
    replay = Replay(trace(kernel, {"x": x}), {"x": x})
    assert not replay.run("zero").variance.any()
    e = next(node for node in replay.graph.nodes if node.operation == "exp")
    twice = 4 * replay.quantities[e.id].noise * np.exp(2 * x)
    square = replay.run("square").noise
    assert ((square > twice) & (square < 1.5 * twice)).all()
    assert (replay.run("order").slack.sum(axis=-1) == 0).all()


def test_stored_values_are_replayed_to_the_bit() -> None:
    graph, inputs, _ = drawn("layernorm_bw", 24, 64, form="bf16")
    inputs = {name: round_to(value, "bf16") for name, value in inputs.items()}
    names = [node.key for node in graph.needed("dx") if node.args]
    stored = dict.fromkeys(names, "bf16/away")
    q = Replay(graph, inputs, Program(stored=stored)).run("dx")

    def bf16(value: Array) -> Array:
        return round_to(np.asarray(value, F), "bf16", "away").astype(F)

    x, gamma, mean, rstd, dy = (value.astype(F) for value in inputs.values())
    xhat = bf16(bf16(x - mean) * rstd)
    P = bf16(dy * gamma)
    s1 = bf16(np.mean(P, axis=-1, keepdims=True))
    s2 = bf16(np.mean(bf16(P * xhat), axis=-1, keepdims=True))
    dx = bf16(bf16(bf16(P - s1) - bf16(xhat * s2)) * rstd)
    is_known = q.slack == 0
    assert is_known.mean() > 0.99
    np.testing.assert_array_equal(dx[is_known], q.values[is_known])
    assert (np.abs(dx - q.values) <= q.slack).all()
    assert not q.variance.any()


def test_parameters_and_divisors_are_stored() -> None:
    def kernel(x: Array, epsilon: float) -> Outputs:
        mean = np.mean(x, axis=-1, keepdims=True)
        return {"y": mean + epsilon}

    x = np.full((1, 8462), 2.0)
    stored = {"epsilon": "bf16/zero", "mean.divisor": "bf16/zero", "y": "fp16"}
    q = Replay(trace(kernel, {"x": x}, epsilon=1e-2), {"x": x}, Program(stored=stored)).run("y")
    mean = 2 * 8462 * round_to(1 / 8462, "bf16", "zero")
    assert q.values == round_to(mean + round_to(1e-2, "bf16", "zero"), "fp16")
    assert abs(mean - 2) > 6e-3


def edges(x: Array, w: Array) -> Outputs:
    scaled = x / 3.0
    near = scaled * 3.0
    top = np.max(near, axis=-1, keepdims=True)
    order = np.argsort(near, axis=-1)
    return {
        "rounded": np.rint(near * 2.0) * w,
        "floored": np.floor(near),
        "sign": np.sign(near - 1.0),
        "chosen": np.where(near >= 1.0, w, -w),
        "both": np.where(np.logical_and(near > 0.5, near < 2.0), w, 0.0),
        "relu": np.maximum(near - 1.0, 0.0),
        "clipped": np.clip(near, 0.5, 1.5),
        "size": np.abs(near - 1.0),
        "top": top,
        "place": np.argmax(near, axis=-1),
        "order": order,
        "sorted": np.take_along_axis(w, order, axis=-1),
        "whole": near.astype(np.int64),
        "any": np.any(near > 1.9, axis=-1),
        "sqrt": np.sqrt(np.maximum(near - 1.0, 0.0)),
        "fp8": quantize(near * 1.0625, "fp8_e4m3"),
        "rest": np.remainder(near, 0.5),
        "counted": np.sum(near > 1.0, axis=-1),
    }


NOT_EDGED = ("relu", "top", "clipped", "size", "order", "sorted", "place", "any", "counted")


def test_edges_that_errors_reach_are_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    x = (random.integers(0, 33, (400, 9)) / 16).astype(F)  # multiples of every edge below
    w = random.normal(size=x.shape).astype(F)
    inputs = {"x": x, "w": w}
    replay = Replay(trace(edges, inputs), inputs)
    monkeypatch.setitem(globals(), "quantize", round_to)  # of arrays
    monkeypatch.setattr(np, "argsort", partial(np.argsort, kind="stable"))
    for name, y in in_fp32(edges, inputs).items():
        q = replay.run(name)
        allowed = q.slack + 8 * np.sqrt(q.variance) + 1e-7 * abs(y)
        assert (np.abs(y - q.values.astype(float)) <= allowed).all(), name
        if name not in NOT_EDGED:
            assert 0 < np.mean(q.slack > 0) < 0.6, name


def test_unknown_orders_of_16_bit_operations() -> None:
    graph, inputs, _ = drawn("softmax", 30, 100, form="bf16")

    def bf16(value: Array) -> Array:
        return round_to(value, "bf16")

    x = inputs["x"]
    e = bf16(np.exp(bf16(x - x.max(axis=-1, keepdims=True))))
    total = np.zeros((30, 1))
    for at in range(100):
        total = bf16(total + e[:, at : at + 1])
    for sums, y in (
        (False, bf16(e / bf16(e.sum(axis=-1, keepdims=True)))),
        (True, bf16(e / total)),
    ):
        q = Replay(graph, inputs, Program(narrow="bf16", narrow_sums=sums)).run("y")
        z = np.abs(y - q.values) / np.sqrt(q.variance)
        assert z.max() < 8
        assert np.sqrt(np.mean(z**2)) > 0.2
    assert (Replay(graph, inputs, Program(narrow="bf16")).run("y").variance < q.variance).any()


def test_subnormal_numbers() -> None:
    def kernel(x: Array, y: Array) -> Outputs:
        return {"product": x * y}

    x, y = np.array([2.0**-70, 1.0, 2.0**-100]), np.array([2.0**-70, 2.0**-130, 0.3])
    graph = trace(kernel, {"x": x, "y": y})
    q = Replay(graph, {"x": x, "y": y}).run("product")
    np.testing.assert_array_equal(q.values, x * y)
    least = 2.0**-150 / np.sqrt(3)
    assert np.sqrt(q.noise)[[0, 1]].tolist() == [pytest.approx(least), 0]
    q = Replay(graph, {"x": x, "y": y}, Program(flush=True)).run("product")
    assert q.values.tolist() == [0, 0, 0.3 * 2.0**-100]
    near = {"x": np.ones(3), "y": np.array([2.0**-126, 2.0**-126 * (1 - 2.0**-24), 0.0])}
    assert Replay(graph, near, Program(flush=True)).run("product").slack.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("kernel", "name", "factor"),
    [("layernorm_bw", "dy", 1), ("norm", "x", 0), ("attention", "v", 1)],
)
@pytest.mark.parametrize("power", [-20, 3])
def test_scaling_by_a_power_of_two_scales_all(
    kernel: str, name: str, factor: int, power: int
) -> None:
    graph, inputs, _ = drawn(kernel, 5, 40)
    other = {**inputs, name: inputs[name] * F(2.0**power)}
    program = Program(stored={"s1": "bf16", "xhat": "bf16"})
    output = next(iter(graph.outputs))
    one, two = (Replay(graph, given, program).run(output) for given in (inputs, other))
    scale = 2.0 ** (power * factor)
    np.testing.assert_array_equal(two.values, one.values * scale)
    np.testing.assert_array_equal(two.slack, one.slack * scale)
    np.testing.assert_allclose(two.variance, one.variance * scale**2, rtol=1e-12)


@pytest.mark.parametrize("program", [Program(), Program(order="running"), Program(narrow="bf16")])
@pytest.mark.parametrize("kernel", ["layernorm_fw", "updated", "rmsnorm_fw", "softmax"])
def test_rows_are_by_themselves(kernel: str, program: Program) -> None:
    _, inputs, function = drawn(kernel, 12, 30)
    permutation = np.random.default_rng(6).permutation(12)
    whole = Replay(trace(function, inputs), inputs, program).run("y")
    for chosen in (permutation, permutation[:5], permutation[:1]):
        part = {name: a[chosen] if a.ndim == 2 else a for name, a in inputs.items()}
        block = Replay(trace(function, part), part, program).run("y")
        np.testing.assert_array_equal(block.values, whole.values[chosen])
        np.testing.assert_allclose(block.variance, whole.variance[chosen], rtol=1e-12)


def test_a_base_saves_what_two_programs_compute_alike() -> None:
    graph, inputs, _ = drawn("layernorm_fw", 8, 40)
    base = Replay(graph, inputs)
    base.run("y")
    program = Program(stored={"xhat": "bf16"})
    replay = Replay(graph, inputs, program, base)
    fresh = Replay(graph, inputs, program)
    one, two = replay.run("y"), fresh.run("y")
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(one.variance, two.variance)
    names = {node.id: node.key for node in graph.nodes}
    reused = {names[at] for at, q in replay.quantities.items() if q is base.quantities.get(at)}
    assert {"mean", "centered", "variance", "rstd"} <= reused
    assert not {"xhat", "y"} & reused
    assert Replay(graph, inputs, Program(order="running"), base).run("y") is not None


def test_an_input_of_another_shape_is_refused() -> None:
    graph, inputs, _ = drawn("softmax", 4, 5)
    with pytest.raises(ValueError, match=r"input x has shape \(2, 5\), its graph \(4, 5\)"):
        Replay(graph, {"x": inputs["x"][:2]}).run("y")
