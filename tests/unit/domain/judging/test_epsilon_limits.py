"""Epsilon is tried on a part of an output whose inputs have a bounded number of elements."""

from __future__ import annotations

import numpy as np
import pytest

import gonogo
from gonogo.judging.limits import epsilon
from gonogo.judging.limits.epsilon import Sight, sight
from gonogo.judging.limits.rungs import Others
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.replay.cells import cells
from gonogo.numerics.replay.graph import Graph

ROWS = Rows(np.random.default_rng(2).standard_normal((64, 100)), None, None, 1e-3)


@pytest.mark.parametrize("graph", [NormalizedRows(ROWS), RowStatistic(ROWS, rstd=True)])
def test_a_statistic_of_long_rows_is_tried_on_as_few_of_them_as_y(
    graph: NormalizedRows | RowStatistic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epsilon, "MAX_ELEMENTS", 800)
    tried = []
    part = type(graph).some

    def some(self: Graph, chosen: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Graph:
        tried.append(len(chosen))
        return part(self, chosen)  # type: ignore[arg-type]  # the class under test is either

    monkeypatch.setattr(type(graph), "some", some)
    output = graph.replay(graph.forms[0]).values.astype(np.float32)
    program = graph.forms[0]
    assert sight(graph, output, program, "fp32", Others(graph, program)) is Sight.seen
    assert set(tried) == {8}


@pytest.mark.parametrize("graph", [NormalizedRows(ROWS), RowStatistic(ROWS, rstd=True)])
def test_other_rungs_answer_a_second_output_as_the_first(
    graph: NormalizedRows | RowStatistic,
) -> None:
    program = graph.forms[0]
    replay = graph.replay(program)
    others = Others(graph, program)
    for factor, is_explained in ((1.01, False), (1.0, True), (1.001, False), (1.0, True)):
        output = (replay.values * factor).astype(np.float32)
        distance = cells(output, replay, "fp32").distance
        assert others.explain(output, "fp32", distance) is is_explained
        assert Others(graph, program).explain(output, "fp32", distance) is is_explained


@pytest.mark.parametrize("is_outside", [True, False])
def test_an_epsilon_outside_of_the_root_may_stand_for_welford_s_updates(is_outside: bool) -> None:
    """Beside an offset both change rstd by as much; a right red output is a false alarm as ever."""
    x = (100 + np.random.default_rng(0).standard_normal((32, 100))).astype(np.float32)
    added = np.float32(1e-5)
    mean = x.mean(axis=1, keepdims=True)
    variance = np.square(x - mean).mean(axis=1, keepdims=True)
    rstd = 1 / (np.sqrt(variance) + added) if is_outside else 1 / np.sqrt(variance + added)

    judgment = gonogo.judge(
        kernel="layernorm_fw",
        inputs={"x": x, "gamma": np.full(100, 1.5, np.float32), "beta": np.zeros(100, np.float32)},
        outputs={"y": (x - mean) * rstd * np.float32(1.5), "rstd": rstd[:, 0]},
        epsilon=1e-5,
        tolerance={"rtol": 0.0, "atol": 1e-8},
    )

    unseen = ["epsilon"] if is_outside else []
    assert judgment.outputs["y"]["unseen_terms"] == unseen
    assert judgment.verdict == ("inconclusive" if is_outside else "fail_by_tolerance")
