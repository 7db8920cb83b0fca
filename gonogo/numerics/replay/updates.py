"""Updated means and variances of rows, as `gonogo.numerics.replay.orders` defines them, to the bit.

NumPy takes a step of all rows at a time: thousands of calls for a few long rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit


@jit
def update_means(terms: Any, means: Any) -> None:
    """Put the running mean of each row of `terms` (rows, N) into `means` (rows,), all float32."""
    for i in range(terms.shape[0]):
        mean = means[i]
        for j in range(terms.shape[1]):
            mean += (terms[i, j] - mean) / np.float32(j + 1)
        means[i] = mean


@jit
def update_squares(x: Any, means: Any, squares: Any) -> None:
    """Put means and sums of squares of the lanes of each row of x (rows, N), all float32.

    means, squares: (rows, lanes), zeros. Terms after the last full step are left out.
    """
    lanes = means.shape[1]
    for i in range(x.shape[0]):
        for step in range(x.shape[1] // lanes):
            count = np.float32(step + 1)
            for lane in range(lanes):
                term = x[i, step * lanes + lane]
                off = term - means[i, lane]
                means[i, lane] += off / count
                squares[i, lane] += off * (term - means[i, lane])
