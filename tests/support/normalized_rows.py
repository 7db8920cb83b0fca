"""Rows of a LayerNorm forward pass, and outputs of programs that store some of their statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.normalization.forward import NormalizedRows
from gonogo.kernels.normalization.moments import Rows
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay.program import Program

EPSILON = 1e-5
Floats = NDArray[np.float64]


def graph_of(rows: int, width: int = 64) -> NormalizedRows:
    """Return a forward pass, without gamma and beta, over normal values in bf16."""
    x = np.random.default_rng(3).standard_normal((rows, width))
    return NormalizedRows(Rows(round_to(x, "bf16").astype(np.float64), None, None, EPSILON, True))


def output_of(graph: NormalizedRows, program: Program, form: str = "bf16") -> Floats:
    """Return the output (rows, width) that a program computes, in a format."""
    return round_to(graph.replay(program).values, form).astype(np.float64)


PLAIN = graph_of(1).forms[0]
STORING = replace(PLAIN, stored={"mean": "bf16", "rstd": "bf16"})
OTHER = replace(PLAIN, stored={"variance": "bf16"})
