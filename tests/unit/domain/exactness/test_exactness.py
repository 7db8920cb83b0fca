"""Exact inputs: right norms in float32 are never flagged on them, wrong ones always."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.arithmetic import Evaluation, exact, value_of
from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.values import source_value
from gonogo.exactness import NORMS, exact_elements, exact_inputs, judge_exact
from gonogo.exactness.inputs import EPSILON
from gonogo.faults.table import faults
from gonogo.graph import Graph, Node, trace
from gonogo.kernels.registry import kernel_of
from gonogo.spec.verdicts import Explanation

Array = NDArray[Any]
F = np.float32
FORMATS = ("fp32", "bf16", "fp16")
SHAPES: dict[str, tuple[int, ...]] = {"groupnorm_fw": (3, 8, 4, 16), "batchnorm_fw": (8, 5, 32)}
WIDE_SQUARES = "rmsnorm_fw"
"""Its rows have integers of eight bits, whose squares no 16-bit format holds."""


def is_exact(*of_output: Any) -> bool:
    """Return whether all elements of an output are exact; the arguments of exact_elements."""
    return bool(exact_elements(*of_output)[1].all())


def case(kernel: str, form: str, **options: Any) -> tuple[list[Graph], dict[str, Array]]:
    """Return the graphs of a norm's reference and ways, and its exact inputs."""
    groups = {"num_groups": 2} if kernel == "groupnorm_fw" else {}
    options = {"shape": SHAPES.get(kernel, (9, 256)), "seed": 3} | groups | options
    inputs, parameters = exact_inputs(kernel, form=form, **options)
    functions = (kernel_of(kernel).reference, *kernel_of(kernel).ways)
    return [trace(function, inputs, **parameters) for function in functions], inputs


def summed(node: Node, terms: Array, blocks: int, *, is_welford: bool) -> Array:
    """Return a sum, mean or variance in float32, in a random order, by as many totals as blocks."""
    axes = node.attributes["axes"]
    rows = np.moveaxis(terms, axes, range(-len(axes), 0))
    rows = rows.reshape(*rows.shape[: -len(axes)], -1)
    count = rows.shape[-1]
    rows = rows[..., np.random.default_rng(blocks).permutation(count)]
    if node.operation == "var" or (node.operation == "mean" and is_welford):
        mean = square = np.zeros(rows.shape[:-1], F)
        for at in range(count):
            before = rows[..., at] - mean
            mean = mean + before * F(1 / (at + 1))
            square = square + before * (rows[..., at] - mean)
        return np.expand_dims(square / F(count) if node.operation == "var" else mean, axes)
    parts = [part.cumsum(-1, F)[..., -1] for part in np.array_split(rows, min(blocks, count), -1)]
    total = np.stack(parts, -1).cumsum(-1, F)[..., -1]
    return np.expand_dims(total / F(count) if node.operation == "mean" else total, axes)


def computed(
    graph: Graph, inputs: Mapping[str, Array], form: str, blocks: int, is_welford: bool = False
) -> dict[str, Array]:
    """Return the outputs of a kernel that computes in float32, in a format."""
    values: dict[int, Array] = {}
    for node in graph.needed():
        args = [values[arg.id] for arg in node.args]
        if not args:
            value = source_value(node, inputs)
        elif "axes" in node.attributes:
            value = summed(node, args[0], blocks, is_welford=is_welford)
        else:
            value = value_of(node, args)
        values[node.id] = np.asarray(value, F if node.kind == "float" else None)
    return {name: round_to(values[node.id], form) for name, node in graph.outputs.items()}


@pytest.mark.parametrize("kernel", NORMS)
def test_every_way_and_order_gives_the_exact_bits(kernel: str) -> None:
    for form in FORMATS:
        graphs, inputs = case(kernel, form)
        for name, values in inputs.items():
            assert np.array_equal(round_to(values, form), values), (form, name)
        for name in graphs[0].outputs if kernel != WIDE_SQUARES else ():
            assert is_exact(graphs[0], inputs, name, form), (form, name)
        for at, graph in enumerate(graphs):
            assert all(is_exact(graph, inputs, name) for name in graph.outputs), (form, at)
            for blocks in (1, 7):
                outputs = computed(graph, inputs, form, blocks)
                answers = judge_exact(graphs, inputs, outputs, dict.fromkeys(outputs, form))
                for answer in answers.values():
                    assert answer.explanation is Explanation.explained, (form, at, answer.message)
                    is_updated = any(node.operation == "var" for node in graph.nodes)
                    assert is_updated or not answer.unequal, (form, at)


@pytest.mark.parametrize("form", FORMATS)
def test_updated_means_are_right_in_other_bits(form: str) -> None:
    graphs, inputs = case("layernorm_fw", form, shape=(6, 1000))
    y = computed(graphs[0], inputs, form, 1, is_welford=True)["y"]
    answer = judge_exact(graphs, inputs, {"y": y}, {"y": form})["y"]
    assert answer.explanation is Explanation.explained
    assert form != "fp32" or "differ in last bits, as right kernels may" in answer.message


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 31, 8462])
@pytest.mark.parametrize("kernel", ["layernorm_fw", "rmsnorm_fw", "layernorm_bw_own"])
def test_rows_of_any_length_are_exact_where_such_integers_exist(kernel: str, count: int) -> None:
    if count in (1, 3) and kernel.startswith("layernorm"):
        with pytest.raises(ValueError, match=f"^{count} values around a mean have no exact inputs"):
            case(kernel, "bf16", shape=(5, count))
        return
    graphs, inputs = case(kernel, "bf16", shape=(5, count))
    assert all(is_exact(graphs[0], inputs, name) for name in graphs[0].outputs)


def test_an_epsilon_without_an_exact_root_leaves_three_rows_of_four() -> None:
    graphs, inputs = case("layernorm_fw", "fp16", shape=(16, 256), epsilon=1e-5)
    is_small = np.arange(16) % 4 == 1
    assert np.array_equal(exact_elements(graphs[0], inputs, "y")[1].all(axis=1), ~is_small)
    for epsilon, count in ((1e-5, 0), (1e-4, 4)):  # the others are judged by rounding
        y = round_to(layernorm(**inputs, epsilon=epsilon)["y"], "fp16")
        answer = judge_exact(graphs, inputs, {"y": y}, {"y": "fp16"})["y"]
        rows = answer.diagnosis.places.rows if answer.diagnosis else ()
        assert len(rows) == count, answer.message
    graphs, inputs = case("layernorm_bw_own", "fp16", epsilon=1e-5)
    assert all(is_exact(graphs[0], inputs, name) for name in graphs[0].outputs)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("kernel", "fault"), [("layernorm_fw", "variance"), ("rmsnorm_fw", "mean_square")]
)
def test_long_rows_show_a_divisor_of_one_less(kernel: str, fault: str, form: str) -> None:
    (graph, *_), inputs = case(kernel, form, shape=(1, 20000))
    edits = next(one for one in faults(graph, "y") if one.id == f"unbiased:{fault}").edits
    wrong, right = (exact(graph, inputs, changes)[graph.outputs["y"].id] for changes in (edits, {}))
    assert (round_to(wrong, form) != round_to(right, form)).any()


def test_a_seed_fixes_the_inputs_and_what_has_none_is_refused() -> None:
    first, again, other = (case("layernorm_bw", "bf16", seed=seed)[1] for seed in (2**40, 2**40, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["x"], other["x"])
    for kernel, form in (("softmax", "bf16"), ("layernorm_fw", "fp8_e4m3")):
        with pytest.raises(ValueError, match=f"no exact inputs of '{kernel}' in '{form}'"):
            exact_inputs(kernel, (8, 64), form, 0)


def scores(a: Any, b: Any) -> dict[str, Any]:
    product = a @ b
    total = np.sum(np.where(product > 0, product, 0.0), axis=-1)
    return {"product": product, "total": total, "exp": np.exp(product * 0.0)}


@pytest.mark.parametrize(
    ("size", "form", "totals", "exact"),
    [
        (1.0, "fp32", "fp32", {"product", "total", "exp"}),
        (1.0, "fp32", "bf16", {"product", "exp"}),  # 16 terms of 33 units of 2
        (3.0, "bf16", "fp32", {"product", "exp"}),  # 594 has nine digits
        (1 + 2.0**-13, "fp32", "fp32", {"exp"}),  # products of 27 digits
    ],
)
def test_inputs_of_any_kernel_can_be_checked(
    size: float, form: str, totals: str, exact: set[str]
) -> None:
    inputs = {"a": np.full((4, 64), size), "b": np.full((64, 16), size)}
    inputs["b"][0] *= 3
    graph = trace(scores, inputs)
    assert {name for name in graph.outputs if is_exact(graph, inputs, name, form, totals)} == exact


@pytest.mark.parametrize("kernel", NORMS)
def test_every_fault_of_logic_changes_16_bit_outputs(kernel: str) -> None:
    """Left out: faults of formats, small factors, and those that change nothing on usual inputs."""
    graphs, inputs = case(kernel, "bf16", seed=5)
    graph, random = graphs[0], np.random.default_rng(0)
    usual = {name: random.normal(1, 1, array.shape) for name, array in inputs.items()}
    usual |= {"mean": usual["x"].mean(-1, keepdims=True)} if "mean" in usual else {}
    right, usual_right = Evaluation(graph, inputs).run(), Evaluation(graph, usual).run()
    missed = []
    outputs = [node.id for node in graph.outputs.values()]
    right_bits = {id: round_to(right.values[id], "bf16") for id in outputs}
    table = {fault.id: fault for name in graph.outputs for fault in faults(graph, name)}
    for fault in table.values():
        wrong = Evaluation(graph, inputs, edits=fault.edits, base=right).run().values
        pairs = [(round_to(wrong[id], "bf16"), right_bits[id]) for id in outputs]
        if (
            fault.is_fitted
            or fault.id.startswith("stored")
            or any((a != b).any() for a, b in pairs)
        ):
            continue
        changed = exact(graph, usual, fault.edits)
        if not all(np.allclose(changed[id], usual_right.values[id], 1e-9, 0) for id in outputs):
            missed.append(fault.id)
    assert missed == []


ALL = slice(None)


def layernorm(x, gamma, beta, mean=ALL, variance=ALL, count=256, epsilon=EPSILON, by_rows=0):
    """Return y; wrong by the columns of a sum, the divisor, epsilon, or the rows of rstd."""
    centered = x - x[:, mean].sum(-1, keepdims=True) / F(256)
    square = (centered * centered)[:, variance].sum(-1, keepdims=True) / F(count)
    rstd = np.roll(1 / np.sqrt(square + F(epsilon)), by_rows, axis=0)
    return {"y": centered * rstd * gamma + beta}


def layernorm_backward(x, gamma, mean, rstd, dy, s1=1, s2=1, rows=ALL):
    """Return gradients; wrong by factors of s1 and s2, or by the rows of dgamma."""
    xhat, product = (x - mean) * rstd, dy * gamma
    projection = F(s1) * product.mean(-1, keepdims=True)
    share = F(s2) * xhat * (product * xhat).mean(-1, keepdims=True)
    return {"dx": rstd * (product - projection - share), "dgamma": (dy * xhat)[rows].sum(0)}


@pytest.mark.parametrize(
    ("kernel", "form", "options", "output", "fault"),
    [
        *((layernorm, form, {"count": 255}, "y", "unbiased:variance") for form in FORMATS),
        (layernorm, "fp16", {"epsilon": 0.0}, "y", "missing:epsilon@shifted"),
        (layernorm, "bf16", {"epsilon": 1e-6}, "y", "is-1e-06:epsilon"),
        (layernorm, "bf16", {"mean": slice(-1)}, "y", "without-last:mean"),
        (layernorm, "fp32", {"variance": slice(-32)}, "y", "without-tile-7:variance"),
        (layernorm, "bf16", {"by_rows": 1}, "y", "before:rstd"),
        (layernorm_backward, "bf16", {"s1": 0.0}, "dx", "missing:s1@P_centered"),
        (layernorm_backward, "fp32", {"s2": -1.0}, "dx", "sign:share@inner"),
        *((layernorm_backward, form, {"s2": 256 / 255}, "dx", "unbiased:s2") for form in FORMATS),
        (layernorm_backward, "fp16", {"rows": slice(-1)}, "dgamma", "without-last:dgamma"),
    ],
)
def test_a_wrong_kernel_is_named(
    kernel: Any, form: str, options: dict[str, Any], output: str, fault: str
) -> None:
    graphs, inputs = case("layernorm_fw" if kernel is layernorm else "layernorm_bw", form)
    wrong = kernel(**{name: array.astype(F) for name, array in inputs.items()}, **options)
    outputs = {name: round_to(values, form) for name, values in wrong.items()}
    answers = judge_exact(graphs, inputs, outputs, dict.fromkeys(outputs, form))
    assert [name for name, answer in answers.items() if answer.wrong] == [output]
    assert answers[output].explanation is Explanation.unexplained
    diagnosis = answers[output].diagnosis
    assert diagnosis is not None
    assert diagnosis.fault is not None, diagnosis.message
    assert fnmatch(diagnosis.fault.id, fault), diagnosis.message


def test_values_without_a_fault_are_said_by_their_places() -> None:
    graphs, inputs = case("layernorm_fw", "bf16")
    y = computed(graphs[0], inputs, "bf16", 1)["y"]
    y[3:5, 40:72] = 0.0
    answer = judge_exact(graphs, inputs, {"y": y}, {"y": "bf16"})["y"]
    assert answer.wrong == answer.unequal == 64
    assert answer.message.endswith("rows 3 to 4, columns 40 to 71 (counted from 0); they are 0.")
    words = r"output y has shape \(9, 128\), its reference \(9, 256\)"
    with pytest.raises(ValueError, match=words):
        judge_exact(graphs, inputs, {"y": y[:, ::2]}, {"y": "bf16"})
