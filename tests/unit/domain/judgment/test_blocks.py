"""Judge large outputs in blocks: they are judged as the whole, in little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gonogo.arithmetic import Program
from gonogo.arithmetic.formats import round_to
from gonogo.graph import trace
from gonogo.judgment import OutputJudgment, blocks, judge
from gonogo.judgment.blocks import blocks_of
from gonogo.kernels.layernorm import layernorm, layernorm_backward
from tests.unit.domain.judgment.kernels import Array, stored

F, PLAIN = np.float32, Program()
Tensors = dict[str, Array]
STORED = (
    "centered", "xhat", "P", "s1", "P_xhat", "s2", "P_centered", "share", "inner", "dx", "term",
)  # fmt: skip


def forward(given: Tensors, q: Callable[[Any], Array]) -> Tensors:
    x, gamma, beta = given.values()
    centered = x - x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt((centered * centered).mean(-1, keepdims=True) + F(1e-5))
    return {"y": q(centered * rstd * gamma + beta)}


def backward(given: Tensors, q: Callable[[Any], Array]) -> Tensors:
    """Return the gradients, each value stored by q."""
    x, gamma, mean, rstd, dy = given.values()
    xhat = q(q(x - mean) * rstd)
    P = q(dy * gamma)
    s1, s2 = (q(a.mean(-1, keepdims=True)) for a in (P, q(P * xhat)))
    dx = q(q(q(P - s1) - q(xhat * s2)) * rstd)
    sums = (np.ascontiguousarray(a.T).sum(-1) for a in (q(dy * xhat), dy))
    return {"dx": dx, **dict(zip(("dgamma", "dbeta"), map(q, sums), strict=True))}


def scaled(x: Array, gamma: Array) -> dict[str, Array]:
    """Return x (1 + gamma): all rows share the rounding of 1 + gamma."""
    y = x * (1.0 + gamma)
    return {"y": y}


def _forward_inputs(shape: tuple[int, int]) -> Tensors:
    random = np.random.default_rng(0)
    x, gamma, beta = (random.normal(size=size) for size in (shape, shape[1:], shape[1:]))
    return {"x": x.astype(F), "gamma": gamma.astype(F), "beta": beta.astype(F)}


def _backward_inputs(shape: tuple[int, int]) -> Tensors:
    given = _forward_inputs(shape)
    x, mean = given["x"], given["x"].mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + F(1e-5))
    dy = np.random.default_rng(1).normal(size=shape).astype(F)
    return {"x": x, "gamma": given["gamma"], "mean": mean, "rstd": rstd, "dy": dy}


def _row(outputs: Tensors) -> None:
    first = next(iter(outputs.values()))
    first[5] *= F(1.01)


def _factor(outputs: Tensors) -> None:
    for name in outputs:
        outputs[name] = outputs[name] * F(1 + 2e-6)


@dataclass(frozen=True)
class Case:
    reference: Callable[..., Mapping[str, Array]]
    inputs: Callable[[tuple[int, int]], Tensors]
    kernel: Callable[[Tensors, Callable[[Any], Array]], Tensors]
    form: str = "fp32"
    program: Program = PLAIN
    damage: Callable[[Tensors], None] = lambda outputs: None
    parameters: Mapping[str, float] = field(default_factory=dict)
    stores: bool = False
    """Whether all values are stored in the output's format, or the output alone."""

    def judged(self, shape: tuple[int, int], programs: Sequence[Program]) -> Mapping[str, Any]:
        given = self.inputs(shape)
        given = {name: stored(values, self.form) for name, values in given.items()}
        graph = trace(self.reference, given, **self.parameters)
        outputs = self.kernel(given, lambda a: stored(a, self.form if self.stores else "fp32"))
        self.damage(outputs)
        outputs = {name: round_to(values, self.form) for name, values in outputs.items()}
        formats = dict.fromkeys(outputs, self.form)
        return judge([graph], given, outputs, formats, programs=programs).outputs


EPSILON = {"epsilon": 1e-5}
BACKWARD = (layernorm_backward, _backward_inputs, backward)
ALL_STORED = Program(stored=dict.fromkeys((*STORED, "dgamma", "dbeta"), "bf16"))
CASES = {
    "forward": Case(layernorm, _forward_inputs, forward, parameters=EPSILON),
    "forward in 16 bits": Case(layernorm, _forward_inputs, forward, "bf16", parameters=EPSILON),
    "backward": Case(*BACKWARD),
    "a wrong row": Case(*BACKWARD, damage=_row),
    "a factor of all rows": Case(*BACKWARD, damage=_factor),
    "a factor in 16 bits": Case(
        layernorm, _forward_inputs, forward, "bf16", damage=_factor, parameters=EPSILON
    ),
    "all stored": Case(*BACKWARD, "bf16", ALL_STORED, stores=True),
    "all stored, a wrong row": Case(*BACKWARD, "bf16", ALL_STORED, _row, stores=True),
}


def as_numbers(judgments: Mapping[str, OutputJudgment]) -> dict[str, list[float]]:
    """Return the numbers of judgments."""
    return {
        name: [one.rounding_ratio, one.distance, one.shared, one.misfit]
        + [n for pair in one.common if pair.deviation < 1 for n in (pair.estimate, pair.deviation)]
        for name, one in judgments.items()
    }


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "nothing named"])
@pytest.mark.parametrize("name", CASES)
def test_blocks_are_judged_as_the_whole(
    name: str, declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, shape = CASES[name], (67, 96)
    programs = [case.program] if declared else []
    whole = case.judged(shape, programs)
    monkeypatch.setattr(blocks, "LARGE", 2**10)
    monkeypatch.setattr(blocks, "ELEMENTS", 2**10)
    cut = case.judged(shape, programs)
    for key, one in whole.items():
        assert (cut[key].explanation, cut[key].fault) == (one.explanation, one.fault)
        assert cut[key].message == one.message
    numbers = as_numbers(whole)
    for key, many in as_numbers(cut).items():
        np.testing.assert_allclose(many, numbers[key], rtol=1e-6, atol=1e-13)


def test_blocks_are_rows_or_columns_and_none_is_a_single_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = trace(layernorm_backward, _backward_inputs((67, 97)))
    assert blocks_of(graph, "dx") is None
    monkeypatch.setattr(blocks, "LARGE", 2**10)
    monkeypatch.setattr(blocks, "ELEMENTS", 2**9)
    sizes = {
        name: [stop - start for start, stop in output_blocks.ranges]
        for name in ("dx", "dgamma")
        if (output_blocks := blocks_of(graph, name))
    }
    assert sizes == {"dx": [4] * 16 + [3], "dgamma": [16] * 5 + [17]}


def test_what_blocks_share_is_judged_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: values for name, values in _forward_inputs((64, 40)).items() if name != "beta"}
    y = {"y": given["x"] * (F(1) + given["gamma"])}
    graph, formats = trace(scaled, given), {"y": "fp32"}
    whole = judge([graph], given, y, formats, programs=[Program()]).outputs
    monkeypatch.setattr(blocks, "LARGE", 2**8)
    monkeypatch.setattr(blocks, "ELEMENTS", 2**8)
    cut = judge([graph], given, y, formats, programs=[Program()]).outputs
    assert whole["y"].shared > 0
    assert as_numbers(cut) == as_numbers(whole)


def test_a_large_output_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ELEMENTS", 2**13)
    given = _backward_inputs((410, 2048))
    outputs = backward(given, lambda a: np.asarray(a, F))
    graph = trace(layernorm_backward, given)
    formats = dict.fromkeys(outputs, "fp32")
    tracemalloc.start()
    try:
        judgment = judge([graph], given, outputs, formats, programs=[Program()])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert judgment.explanation == "explained"
    assert peak < 3 * sum(values.nbytes for values in given.values())
