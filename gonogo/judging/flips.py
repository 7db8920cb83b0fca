"""Count flips: elements that differ between two builds on equal inputs, by direction and row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gonogo.spec.compared_outputs import FlipCounts


def count(output: NDArray[np.float32], reference: NDArray[np.float32]) -> FlipCounts:
    """Return the flips of one output of one seed (docs/pairs.md).

    output, reference: the values of the two builds. Matrices (rows, N); or one row (1, N) of values
    that are rows of their own, such as those of mean, rstd, dgamma and dbeta.
    """
    if output.shape[0] == 1:
        output, reference = output.T, reference.T
    finite = np.isfinite(output) & np.isfinite(reference)
    differing = finite & (output != reference)
    outward = (output > reference) == (reference > 0)  # a zero has no direction
    away = (differing & outward & (reference != 0)).sum(axis=1)
    toward = (differing & ~outward & (reference != 0)).sum(axis=1)
    return FlipCounts(
        elements=int(finite.sum()),
        differing=int(differing.sum()),
        rows=len(output),
        away=int(away.sum()),
        toward=int(toward.sum()),
        rows_away=int((away > toward).sum()),
        rows_toward=int((toward > away).sum()),
    )
