"""Ties: output values between two neighbors, which a small common factor would round alike.

Where all values are stored, a sum often lies halfway between two values of the output's format. A
kernel that rounds them all away from zero may round ties so, or it may round to even and be off by
a factor that shows nowhere else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.limits.epsilon import MIN_CAUSE
from gonogo.numerics.formats import half_ulp, round_to
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program

FACTOR = "a common factor"
"""The fault, as a term."""


def hides_factor(
    graph: Graph, output: NDArray[np.floating], program: Program, form: str, unseen: float
) -> bool:
    """Return whether a factor explains how an output rounds ties, as well as ties to even do not.

    Ties to even are what nearly all hardware does, and leave some values above and others below.
    The factor counts where it changes the largest value by a quarter of its rounding; a smaller one
    is never why an output is red.

    Args:
        graph: the output's formula with the kernel's inputs.
        output: (rows, N).
        program: a program that explains the output.
        form: the output's format.
        unseen: the largest f for which a factor 1 + f would not be seen.
    """
    # what isn't stored has noise, and decides a tie by chance
    if not program.stored or program.output_rounding != "even" or not unseen:
        return False
    largest = np.abs(output).max(keepdims=True)
    if unseen * largest < MIN_CAUSE * half_ulp(largest, form):
        return False
    values = graph.replay(program).values
    even, away, toward = (round_to(values, form, mode) for mode in ("even", "away", "zero"))
    is_tie = np.abs(values - toward) == np.abs(away - values)
    is_tie &= away != toward
    tied = output[is_tie]
    if np.array_equal(tied, even[is_tie]):
        return False
    return np.array_equal(tied, away[is_tie]) or np.array_equal(tied, toward[is_tie])
