from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from gonogo.graph import Graph, trace
from gonogo.graph.axes import cuts
from traced_kernels import KERNELS, evaluate

cases = pytest.mark.parametrize(
    ("kernel", "inputs"), KERNELS, ids=[kernel.__name__ for kernel, _ in KERNELS]
)


@cases
def test_a_graph_evaluated_node_by_node_gives_what_the_function_gives(kernel, inputs):
    want = kernel(**inputs)
    got = evaluate(trace(kernel, inputs), inputs)
    assert list(got) == list(want)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-14, atol=1e-15, err_msg=name)


@cases
def test_a_graph_survives_json(kernel, inputs):
    graph = trace(kernel, inputs)
    again = Graph.from_json(graph.to_json())
    assert again.digest == graph.digest
    assert [node.label for node in again.nodes] == [node.label for node in graph.nodes]
    for name, value in evaluate(graph, inputs).items():
        np.testing.assert_array_equal(evaluate(again, inputs)[name], value)


@cases
def test_blocks_give_what_the_whole_gives(kernel, inputs):
    graph = trace(kernel, inputs)
    whole = evaluate(graph, inputs)
    for cut in cuts(graph):
        ends = sorted({0, 1, cut.groups // 2, cut.groups})
        sizes = np.diff(ends)
        parts = []
        for start, stop in pairwise(ends):
            given = {n: cut.part(a, cut.inputs[n], start, stop) for n, a in inputs.items()}
            parts.append(evaluate(cut.part_graph(graph, np.arange(start, stop)), given))
        for name, axis in cut.outputs.items():
            joined = np.concatenate([part[name] for part in parts], axis)
            np.testing.assert_allclose(joined, whole[name], rtol=1e-13, err_msg=f"{cut} {name}")
        for name, how in cut.totals.items():
            weights = sizes / sizes.sum() if how == "mean" else np.ones(len(sizes))
            total = sum(weight * part[name] for weight, part in zip(weights, parts, strict=True))
            np.testing.assert_allclose(total, whole[name], rtol=1e-12, err_msg=f"{cut} {name}")


CUTS = {
    "layernorm": [(4, {"y": 0, "mean": 0, "rstd": 0}, {}), (6, {}, {"mean": "mean"})],
    "layernorm_backward": [
        (4, {"dx": 0}, {"dgamma": "sum", "dbeta": "sum"}),
        (6, {"dgamma": 0, "dbeta": 1}, {}),
    ],
    "rmsnorm": [(4, {"y": 1, "rstd": 1}, {}), (2, {"y": 0, "rstd": 0}, {})],
    "group_norm": [(4, {"y": 0}, {}), (2, {"y": 1}, {})],
    "batch_norm": [
        (6, {"y": 1, "mean": 0}, {}),
        (5, {}, {"mean": "mean"}),
        (4, {}, {"mean": "mean"}),
    ],
    "attention": [(6, {"y": 1}, {}), (4, {"y": 2}, {}), (2, {"y": 0}, {})],
    "cross_entropy": [(6, {"losses": 0, "gradient": 0}, {"loss": "mean"})],
    "embedding": [(4, {"y": 2}, {}), (3, {"y": 1}, {}), (2, {"y": 0}, {})],
    "gram": [(6, {}, {"product": "sum", "sum": "sum"}), (4, {}, {"columns": "sum", "sum": "sum"})],
}
"""All cuts of some kernels: groups, the outputs' axes, totals."""


@pytest.mark.parametrize("name", CUTS)
def test_what_nothing_mixes_can_be_cut(name):
    kernel, inputs = next(case for case in KERNELS if case[0].__name__ == name)
    every = [(cut.groups, cut.outputs, cut.totals) for cut in cuts(trace(kernel, inputs))]
    assert every == CUTS[name]
