"""Programs that a search fitted to few rows, where a step of a stored statistic may be a fault.

A stored rstd takes one of two neighboring values in nearly every row. Of a few rows, a small fault
may move one by a step, and among the programs that a search tries another one may move the same row
alike. On many rows none does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gonogo.kernels.normalization.forward import is_packed
from gonogo.kernels.normalization.row_moments import NAMES
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.missed import known_programs
from gonogo.numerics.replay.program import Program

STEP = "a step of rstd"
"""The fault, as a detection limit."""
MIN_ROWS = 8
"""Rows with an rstd of their own that tell programs apart, as for missed rows."""


def hides_step(graph: Graph, program: Program, formats: Sequence[str]) -> bool:
    """Return whether a program was fitted to the statistics of few rows.

    It isn't one that libraries are known to have. Rows that are alike, such as those of a ramp,
    count once.

    Args:
        graph: the output's formula with the kernel's inputs.
        program: a program that explains the output.
        formats: the formats in which a kernel may store.
    """
    if not NAMES & set(program.stored):
        return False
    rounding = graph.rstd_rounding(graph.forms[0])
    if rounding is None or len(np.unique(rounding)) >= MIN_ROWS:
        return False
    of_libraries = (known for known in known_programs(graph, formats) if not is_packed(known))
    return program.name not in {known.name for known in of_libraries}
