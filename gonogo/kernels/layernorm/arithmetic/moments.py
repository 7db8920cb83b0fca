"""The expected errors of a mean and an rstd that a kernel computes itself.

All forward kernels do so, and backward ones with `statistics: own`.

The dataflow: 32 lane sums over the tiles are stored and multiplied by a stored 1/N; the mean is
stored; x - mean runs on the FPU; its squares are summed in the same way; epsilon is truncated to
bf16; rstd is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gonogo.kernels.layernorm.arithmetic.terms import ForwardTerms
from gonogo.numerics.expectation import Array, Mask, binade, coherence, excess, round_away


def lanes(values: Array) -> Array:
    """Return the sums over tiles for each of the 32 lanes of a row: (rows, N) -> (rows, 32)."""
    rows, n = values.shape
    padded = np.zeros((rows, -(-n // 32) * 32))
    padded[:, :n] = values
    return np.asarray(padded.reshape(rows, -1, 32).sum(axis=1))


Coherent = tuple[float, float]
"""How far two values of each row are rounded alike in all rows; see expectation.coherence."""


def coherence_of(first: Array, second: Array, unit: float) -> Coherent:
    """Return it for two values of each row (rows, 1), in a format of this unit roundoff."""
    return coherence(first[:, 0], unit), coherence(second[:, 0], unit)


@dataclass(frozen=True)
class Moments:
    """Mean and rstd with their errors, per row (rows, 1), of x as the device gets it.

    `mean` and `rstd` are the exact ones. before_*: the bound before storing; bound_*: after it.
    row_variance_*: the variance of the error that each row has independently. trend_*: the error
    that has one sign in all rows. together_*: how much of the rounding of the stored value all rows
    share. A row is informative where the bound of the variance stays below the variance.
    """

    mean: Array
    rstd: Array
    centred: Array  # (rows, N)
    align: Array  # (rows, N): bound of ELWSUB's alignment
    lane: Array  # bound of the mean's lane rounding
    lane_bias: Array  # what the packer's ties add to the mean, signed
    lane_rstd: Array  # bound of rstd's lane rounding
    before_mean: Array
    bound_mean: Array
    row_variance_mean: Array
    trend_mean: Array
    together_mean: Array
    before_rstd: Array
    bound_rstd: Array
    row_variance_rstd: Array
    trend_rstd: Array
    together_rstd: Array
    informative: Mask  # (rows,)

    @property
    def var_mean(self) -> Array:
        """The variance of the mean's whole error.

        It has the row's own part, the trend, what all rows share, and ties beyond chance.
        """
        return (
            self.trend_mean**2
            + self.together_mean**2
            + self.row_variance_mean
            + excess(self.lane_bias**2, self.row_variance_mean)
        )

    @property
    def var_rstd(self) -> Array:
        """The variance of rstd's whole error."""
        return self.trend_rstd**2 + self.together_rstd**2 + self.row_variance_rstd


def moments(x: Array, epsilon: float, t: ForwardTerms, coherent: Coherent | None = None) -> Moments:
    """Return the moments of x (rows, N) in float64.

    coherent: that of mean and rstd; by default that of these rows.
    """
    n = x.shape[1]
    mu = x.mean(axis=1, keepdims=True)
    centred = x - mu
    v = (centred**2).mean(axis=1, keepdims=True)
    r = 1.0 / np.sqrt(v + epsilon)
    size = np.abs(x).mean(axis=1, keepdims=True)
    running = t.additions * t.accumulate

    sums = lanes(x)
    steps = binade(sums) * t.stored
    lane = steps.sum(axis=1, keepdims=True) / n
    before_mean = (
        t.reciprocal * np.abs(mu)
        + lane * (1 + t.reciprocal)
        + t.half_grid * (np.abs(mu) + lane)
        + (running + t.read + t.product) * size
    )
    bound_mean = before_mean + t.stored * binade(np.abs(mu) + before_mean)
    row_variance_mean = (
        (steps**2).sum(axis=1, keepdims=True) / 3 / n**2
        + (t.stored * binade(mu)) ** 2 / 3
        + t.additions * (t.accumulate * size) ** 2
        + (t.read**2 + t.product**2) * (x**2).sum(axis=1, keepdims=True) / 3 / n**2
    )
    if t.running:
        row_variance_mean = row_variance_mean + (n * t.accumulate * size) ** 2 / 12
    lane_bias = (round_away(sums, t.stored) - sums).sum(axis=1, keepdims=True) / n

    # The variance about the kernel's own mean; rstd by the interval, never linearized.
    align = t.align * binade(np.maximum(np.abs(x), np.abs(mu))) + t.read * (np.abs(x) + np.abs(mu))
    steps2 = binade(lanes(centred**2)) * t.stored
    lane2 = steps2.sum(axis=1, keepdims=True) / n
    products = centred**2 * align**2
    squares = (align**2).mean(axis=1, keepdims=True)
    if t.first_order:
        squares = squares + 2 * np.abs(centred * align).mean(axis=1, keepdims=True)
    if t.running:
        squares = squares + 2 * np.abs(centred).mean(axis=1, keepdims=True) * running * size
    bound_variance = (
        t.reciprocal * v
        + lane2
        + bound_mean**2 * (1 + t.reciprocal)
        + (t.half_grid + t.read + t.product + running) * v
        + squares
        + t.epsilon_error
    )
    informative = (bound_variance < v + epsilon)[:, 0]
    usable = np.where(informative[:, None], bound_variance, 0.0)
    before_rstd = np.maximum(
        1.0 / np.sqrt(v + epsilon - usable) - r, r - 1.0 / np.sqrt(v + epsilon + usable)
    )
    # v + epsilon, its root, the reciprocal: one fp32 rounding each
    root = 3 * t.accumulate * r if t.running else np.zeros_like(r)
    before_rstd = before_rstd + root
    cube = r**3 / 2
    row_variance_rstd = (
        root**2 / 3
        + (t.stored * binade(r)) ** 2 / 3
        + cube**2
        * (
            (steps2**2).sum(axis=1, keepdims=True) / 3 / n**2
            + bound_mean**4
            + squares**2
            + t.additions * (t.accumulate * v) ** 2
            + 4 / 3 * products.sum(axis=1, keepdims=True) / n**2
        )
    )
    relative = (v / (v + epsilon)) * (t.reciprocal + t.half_grid + t.product_mean + t.read) / 2
    together_mean, together_rstd = coherent or coherence_of(mu, r, t.stored)
    return Moments(
        mean=mu,
        rstd=r,
        centred=centred,
        align=align,
        lane=lane,
        lane_bias=lane_bias,
        lane_rstd=cube * lane2,
        before_mean=before_mean,
        bound_mean=bound_mean,
        row_variance_mean=row_variance_mean,
        trend_mean=(t.reciprocal + t.half_grid + t.read + t.product_mean) * mu,
        together_mean=together_mean * t.stored * binade(mu),
        before_rstd=before_rstd,
        bound_rstd=before_rstd + t.stored * binade(r + before_rstd),
        row_variance_rstd=row_variance_rstd,
        trend_rstd=relative * r + cube * t.epsilon_error,
        together_rstd=together_rstd * t.stored * binade(r),
        informative=informative,
    )
