"""Right kernels that store more than libraries do, or cut off the bits of their output."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.program import Program


def layer_norm(offset: float, shape: tuple[int, int]) -> NormalizedRows:
    draw = np.random.default_rng(0).standard_normal
    row = (1, shape[1])
    x, gamma, beta = offset + draw(shape), 1.0 + 0.3 * draw(row), draw(row)
    x, gamma, beta = (round_to(a, "bf16").astype(np.float64) for a in (x, gamma, beta))
    return NormalizedRows(Rows(x, gamma, beta, 1e-5))


def finding_of(graph: NormalizedRows, output: NDArray[np.floating]) -> ladder.Finding:
    return ladder.climb(graph, output, "bf16", ["bf16"], ())


@pytest.mark.parametrize("stored", [("rstd", "x^", "gamma x^"), ("rstd", "x^")])
def test_packed_operations_beside_fp32_statistics_are_an_arithmetic(
    stored: tuple[str, ...],
) -> None:
    # the mean is rounded by up to .25, but the variance is taken about the unrounded one: steps on
    # which a search of one value after the other gets lost
    graph = layer_norm(100.0, (16, 768))
    program = Program("x", stored=dict.fromkeys(("mean", "x - mean", *stored), "bf16"))
    finding = finding_of(graph, round_to(graph.replay(program).values, "bf16"))
    assert finding.explained
    assert finding.program.variance == "x"


STORED = [("x^",), ("rstd",), ("mean", "rstd"), ("x - mean",), ("x^", "gamma x^")]


@pytest.mark.parametrize("stored", STORED)
def test_an_output_that_is_cut_off_after_rounded_stored_values_is_an_arithmetic(
    stored: tuple[str, ...],
) -> None:
    graph = layer_norm(3.0, (24, 160))
    program = Program(stored=dict.fromkeys(stored, "bf16"))
    values = graph.replay(program).values
    finding = finding_of(graph, round_to(values, "bf16", "zero"))
    assert finding.explained
    assert finding.program.output_rounding == "zero"
    assert finding.program.rounding == "even"
    # half a step besides is none
    assert not finding_of(graph, round_to(0.998 * values, "bf16", "zero")).explained
    assert not finding_of(graph, round_to(0.998 * values, "bf16")).explained
