from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.graph import Graph, Spec, TraceError, trace
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


def check_cuts(graph, inputs, whole):
    """Check that each cut's parts, of one group and of several, give the whole together."""
    for cut in cuts(graph):
        ends = sorted({0, 1, cut.groups // 2, cut.groups})
        parts = []
        for start, stop in pairwise(ends):
            given_ = {n: cut.part(a, cut.inputs[n], start, stop) for n, a in inputs.items()}
            parts.append(evaluate(cut.part_graph(graph, np.arange(start, stop)), given_))
        for name, axis in cut.outputs.items():
            joined = np.concatenate([part[name] for part in parts], axis)
            np.testing.assert_allclose(joined, whole[name], rtol=1e-10, atol=1e-12, err_msg=name)
        for name, how in cut.totals.items():
            sizes = np.diff(ends)
            weights = sizes / sizes.sum() if how == "mean" else np.ones(len(sizes))
            total = sum(weight * part[name] for weight, part in zip(weights, parts, strict=True))
            np.testing.assert_allclose(total, whole[name], rtol=1e-9, atol=1e-11, err_msg=name)


@cases
def test_blocks_give_what_the_whole_gives(kernel, inputs):
    graph = trace(kernel, inputs)
    check_cuts(graph, inputs, evaluate(graph, inputs))


STEPS = [
    lambda x: x * np.float64(1.5),
    lambda x: x - x.mean(-1, keepdims=True),
    lambda x: x / (1 + np.sum(x * x, axis=0)),
    lambda x: x.reshape(-1, x.shape[-1]),
    lambda x: x.reshape(*x.shape[:-1], 2, -1),
    lambda x: x.reshape(-1),
    lambda x: x.T,
    lambda x: np.moveaxis(x, 0, -1),
    lambda x: x[None] + x[:, None],
    lambda x: x @ x.T if x.ndim == 2 else x,
    lambda x: np.einsum("...i,...i->...", x, x),
    lambda x: np.einsum("i...,i...->i...", x, x),
    lambda x: x[..., ::-1],
    lambda x: x[:2],
    lambda x: np.concatenate([x, 2 * x], axis=-1),
    lambda x: np.stack([x, x + 1], axis=1),
    lambda x: np.pad(x, [(1, 0)] + [(0, 0)] * (x.ndim - 1)),
    lambda x: np.cumsum(x, axis=0),
    lambda x: np.sort(x, axis=-1),
    lambda x: np.take_along_axis(x, np.argsort(x, axis=0), axis=0),
    lambda x: x[np.argmax(x, axis=0).reshape(-1)[:3]],
    lambda x: x[[0, 1, 1], :, [0, 0, 1]] if x.ndim > 2 and x.shape[2] > 1 else x,
    lambda x: np.broadcast_to(x[:, None], (x.shape[0], 2, *x.shape[1:])),
    lambda x: x + np.arange(float(x.shape[0])).reshape(-1, *[1] * (x.ndim - 1)),
    lambda x: np.tril(x) if x.ndim > 1 else x,
    lambda x: np.repeat(x, 2, axis=0),
    lambda x: x.max(0),
    lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=0) if x.shape[0] > 1 else x,
]


@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5))
def test_every_cut_gives_what_the_whole_gives(steps):
    inputs = {"x": np.random.default_rng(0).normal(size=(4, 6))}

    def kernel(x):
        for step in steps:
            x = step(x) if x.ndim and x.size < 5_000 else x
        y = x * 1.0
        return {"y": y, "sum": np.sum(y, axis=0) if y.ndim else y + 1, "mean": y.mean()}

    try:
        graph = trace(kernel, inputs)
    except TraceError:  # a reshape into halves of an odd size, as in NumPy
        with pytest.raises(ValueError, match="reshape"):
            kernel(**inputs)
        return
    whole = evaluate(graph, inputs)
    np.testing.assert_allclose(whole["y"], kernel(**inputs)["y"], rtol=1e-12, atol=1e-14)
    check_cuts(graph, inputs, whole)


def test_apart_index_arrays_put_their_axis_first_and_cuts_follow():
    graph = trace(lambda x: {"y": x[:, [0, 2], :, [1, 0]]}, {"x": Spec((5, 3, 7, 2))})
    assert graph.outputs["y"].shape == (2, 5, 7)
    # the last are the index arrays themselves
    every = [(7, {"y": 2}), (5, {"y": 1}), (2, {"y": 0})]
    assert [(cut.groups, cut.outputs) for cut in cuts(graph)] == every


CUTS = {
    "layernorm": [(4, {"y": 0, "mean": 0, "rstd": 0}, {}), (6, {}, {"mean": "mean"})],
    "layernorm_backward": [
        (4, {"dx": 0}, {"dgamma": "sum", "dbeta": "sum"}),
        (6, {"dgamma": 0, "dbeta": 1}, {}),
    ],
    "rmsnorm": [(4, {"y": 1, "rstd": 1}, {}), (2, {"y": 0, "rstd": 0}, {})],
    "group_norm": [(4, {"y": 0}, {}), (2, {"y": 1}, {})],
    "batch_norm": [(6, {"y": 1, "mean": 0}, {}), *((n, {}, {"mean": "mean"}) for n in (5, 4))],
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
