"""The variance of each element of a row, from the parts that LayerNorm's rows have."""

from __future__ import annotations

from typing import Any

from gonogo.numerics.jit import jit


@jit
def add_variance(
    ref: Any,
    noise: Any,
    keyed_noise: Any,
    w0: Any,
    w1: Any,
    shared: Any,
    n: int,
    variance: Any,
) -> None:
    """Compute the s^2 of a row: `noise`, keyed errors, and errors along w0, w1 and ref."""
    variance0, variance1, variance2 = shared[0], shared[1], shared[2]
    for j in range(n):
        variance[j] = (
            noise[j]
            + keyed_noise[j]
            + variance0 * w0[j] * w0[j]
            + variance1 * w1[j] * w1[j]
            + variance2 * ref[j] * ref[j]
        )
