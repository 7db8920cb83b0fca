"""Rows that take a statistic from another row: a stale register, or a race for shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gonogo.judging.faults.fault import Fault, Residual
from gonogo.numerics.expectation import Array

WORST = 4
"""Rows with the largest errors, whose statistics are compared with those of all others."""
MAX_LEFT, MAX_SHARE = 4.0, 1e-9
"""The most that another row's statistic may leave of a row's error, of what rounding adds to it,
and of the error itself: the roundings of an output that is far too large are as well. Among many
rows one always has a value that is nearly right."""
AT_ONCE = 2**20
"""The elements that are computed at a time, to save memory."""

Compute = Callable[[int, Array, Array], Array]
"""From a row, means and rstds (k, 1) to the output of that row with each of them (k, N)."""


def statistics(
    compute: Compute, mean: Array, rstd: Array, exact: Array, residual: Residual
) -> Iterator[Fault]:
    """Yield the rows that have the rstd or the mean of another row; exact: (rows, N)."""
    count, features = exact.shape
    if not 1 < count <= AT_ONCE // features:
        return
    mean = np.broadcast_to(mean, rstd.shape)
    size = (residual.weight * residual.error**2).sum(axis=1)
    of_right = (residual.weight * residual.variance).sum(axis=1)
    for row in np.argsort(size)[::-1][:WORST].tolist():
        unchanged = np.full((2, *rstd.shape), np.stack([mean[row], rstd[row]])[:, None])
        choices: Mapping[str, tuple[Array, Array]] = {
            "rstd": (unchanged[0], rstd),
            "mean": (mean, unchanged[1]),
        }
        for name, (means, rstds) in choices.items():
            if not np.ptp(means) and not np.ptp(rstds):
                continue
            effects = compute(row, means, rstds) - exact[row]
            left = (residual.weight[row] * (residual.error[row] - effects) ** 2).sum(axis=1)
            left[row] = np.inf
            other = int(np.argmin(left))
            if left[other] <= MAX_LEFT * of_right[row] + MAX_SHARE * size[row]:
                effect = np.zeros_like(exact)
                effect[row] = effects[other]
                yield Fault(f"row {row} has the {name} of row {other}", effect)
