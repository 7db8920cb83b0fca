"""Judge large outputs in blocks: they are judged as the whole, in little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gonogo.arithmetic import Program
from gonogo.graph import trace
from gonogo.judgment import blocks, judge
from gonogo.judgment.blocks import blocks_of
from gonogo.kernels.layernorm import layernorm_backward
from tests.unit.domain.judgment.kernels import Array, F, small_kernel
from tests.unit.domain.judgment.test_answers import CASES, approx, known


@pytest.mark.parametrize(
    "name",
    [
        "right",
        "right in bf16",
        "a right dx",
        "a right dgamma",
        "a right dbeta in bf16",
        "rstd by a factor",
        "dx by a small factor",
        "a row unwritten",
        "a block of NaN",
        "rstd stored, declared",
        "declared and not stored",
        "most stored",
    ],
)
def test_blocks_are_judged_as_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LARGE", 2**10)
    monkeypatch.setattr(blocks, "ELEMENTS", 2**10)
    assert CASES[name].answer() == approx(known()["answers"][name])


def test_blocks_are_rows_or_columns_and_none_is_a_single_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (graph, *_), _ = small_kernel("backward")  # 64 x 200
    assert blocks_of(graph, "dx") is None
    monkeypatch.setattr(blocks, "LARGE", 2**10)
    monkeypatch.setattr(blocks, "ELEMENTS", 2**9)
    sizes = {
        name: [stop - start for start, stop in output_blocks.ranges]
        for name in ("dx", "dgamma")
        if (output_blocks := blocks_of(graph, name))
    }
    assert sizes == {"dx": [2] * 32, "dgamma": [16] * 12 + [8]}


def test_what_blocks_share_is_judged_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows share the rounding of 1 + gamma."""
    random = np.random.default_rng(0)
    given = {"x": random.normal(size=(64, 40)), "gamma": random.normal(size=40)}
    given = {name: values.astype(F) for name, values in given.items()}
    graph = trace(lambda x, gamma: {"y": x * (1.0 + gamma)}, given)
    arguments = [graph], given, {"y": given["x"] * (F(1) + given["gamma"])}, {"y": "fp32"}
    whole = judge(*arguments, programs=[Program()]).outputs["y"]
    monkeypatch.setattr(blocks, "LARGE", 2**8)
    monkeypatch.setattr(blocks, "ELEMENTS", 2**8)
    cut = judge(*arguments, programs=[Program()]).outputs["y"]
    assert whole.shared > 0
    assert cut.entry() == whole.entry()


def test_a_large_output_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ELEMENTS", 2**13)
    random = np.random.default_rng(0)
    x, dy = random.normal(size=(2, 410, 2048)).astype(F)
    gamma, mean = random.normal(size=2048).astype(F), x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(-1, keepdims=True) + F(1e-5))
    given = {"x": x, "gamma": gamma, "mean": mean, "rstd": rstd, "dy": dy}
    outputs: dict[str, Array] = dict(layernorm_backward(**given))
    graph, formats = trace(layernorm_backward, given), dict.fromkeys(outputs, "fp32")
    tracemalloc.start()
    try:
        judgment = judge([graph], given, outputs, formats, programs=[Program()])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert judgment.explanation == "explained"
    assert peak < 3 * sum(values.nbytes for values in given.values())
