"""Epsilon is tried on a part of an output whose inputs have a bounded number of elements."""

from __future__ import annotations

import numpy as np
import pytest

from gonogo.judging.limits import epsilon
from gonogo.judging.limits.epsilon import Sight, sight
from gonogo.kernels.normalization.forward import NormalizedRows, RowStatistic
from gonogo.kernels.normalization.moments import Rows
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
    assert sight(graph, output, graph.forms[0], "fp32", graph) is Sight.seen
    assert set(tried) == {8}
