"""Programs as data, and exact values with faults."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.arithmetic import Evaluation, Program, exact
from gonogo.arithmetic.wormhole import Rule
from gonogo.graph import trace

PROGRAMS = [
    (Program(), "blocked sums"),
    (
        Program(stored={"xhat": "bf16/away", "s1": "bf16/away", "e": "fp16"}, order="running"),
        "xhat, s1 in bf16, ties away from zero; e in fp16; running sums",
    ),
    (Program(narrow="bf16"), "bf16 operations in an unknown order"),
    (Program(narrow="fp16", narrow_sums=True), "fp16 operations and sums in an unknown order"),
    (
        Program(rules={"P": Rule("exact")}, flush=True),
        "blocked sums; 1 operations known to the bit; subnormal numbers flushed to 0",
    ),
]


@pytest.mark.parametrize(("program", "label"), PROGRAMS)
def test_a_program_is_data(program: Program, label: str) -> None:
    assert program.label == label
    again = Program.from_data(json.loads(json.dumps(program.to_data())))
    assert again == program
    assert hash(again) == hash(program)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"stored": {"x": "bf15"}}, "format 'bf15' is not one of"),
        ({"stored": {"x": "bf16/up"}}, "rounding 'up' of bf16/up is not one of even, away, zero"),
        ({"order": "any"}, "order 'any' is not one of blocked, running, updated"),
        ({"rules": {"P": {"unit": "odd"}}}, "unit 'odd' of a rule is not one of exact, rounded"),
        ({"narrow_sums": True}, "narrow_sums needs the format"),
        ({"narrow": "bf8"}, "format 'bf8' is not one of"),
        ({"kept": {}}, "the data is no program"),
        ({"stored": 3}, "the data is no program"),
    ],
)
def test_what_is_no_program_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Program.from_data(data)


def test_exact_values_with_edits_and_from_a_base() -> None:
    def kernel(x: NDArray[Any], epsilon: float) -> dict[str, NDArray[Any]]:
        total = np.sum(x, axis=-1, keepdims=True)
        y = x / (total + epsilon)
        return {"y": y, "other": np.exp(x)}

    x = np.random.default_rng(1).normal(size=(3, 4)) + 5
    graph = trace(kernel, {"x": x}, epsilon=0.5)
    nodes = {node.key: node.id for node in graph.nodes}
    base = Evaluation(graph, {"x": x}).run()
    np.testing.assert_allclose(base.output("y"), x / (x.sum(axis=1, keepdims=True) + 0.5))
    edits = {nodes["total"]: lambda x: x[:, :-1].sum(axis=1, keepdims=True)}
    expected = x / (x[:, :-1].sum(axis=1, keepdims=True) + 0.5)
    for given in (None, base):
        values = Evaluation(graph, {"x": x}, edits=edits, base=given).run().values
        np.testing.assert_allclose(values[nodes["y"]], expected)
    assert values[nodes["other"]] is base.output("other")
    assert nodes["other"] not in exact(graph, {"x": x}, outputs=["y"])
    edits = {nodes["epsilon"]: lambda epsilon: 0 * epsilon}
    y = exact(graph, {"x": x}, edits)[nodes["y"]]
    np.testing.assert_allclose(y, x / x.sum(axis=1, keepdims=True))
