"""Ways to compute a variance, and to scale by it, which the norms share.

A way is composed from one of each. `epsilon` is added to the variance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from gonogo.kernels.kernel import Array

Axes = int | tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """The values that are normalized, x and x - mean, and the mean, whose axes have size 1."""

    x: Array
    centered: Array
    mean: Array

    @classmethod
    def of(cls, x: Array, axis: Axes) -> Rows:
        """Return x with its mean along axes."""
        mean = np.mean(x, axis=axis, keepdims=True)
        centered = x - mean
        return cls(x, centered, mean)


def two_pass(x: Array, axis: Axes) -> tuple[Rows, Array]:
    """Return the rows, and the mean square of the centered values."""
    rows = Rows.of(x, axis)
    square = rows.centered * rows.centered
    variance = np.mean(square, axis=axis, keepdims=True)
    return rows, variance


def updated(x: Array, axis: Axes) -> tuple[Rows, Array]:
    """Return the rows, and the library's own variance: by Welford's updates, with its own mean."""
    variance = np.var(x, axis=axis, keepdims=True)
    return Rows.of(x, axis), variance


def one_pass(x: Array, axis: Axes) -> tuple[Rows, Array]:
    """Return the rows, and E[x^2] - mean^2, which cancels where the mean is large."""
    rows = Rows.of(x, axis)
    square = rows.x * rows.x
    mean_square = np.mean(square, axis=axis, keepdims=True)
    squared_mean = rows.mean * rows.mean
    variance = mean_square - squared_mean
    return rows, variance


def about_first(x: Array, axis: Axes) -> tuple[Rows, Array]:
    """Return the rows, and the variance by moments about each row's first value."""
    axes = (axis,) if isinstance(axis, int) else axis
    cut = {at % len(x.shape) for at in axes}
    first = x[tuple(slice(0, 1) if at in cut else slice(None) for at in range(len(x.shape)))]
    distance = x - first
    mean_distance = np.mean(distance, axis=axis, keepdims=True)
    square = distance * distance
    mean_square = np.mean(square, axis=axis, keepdims=True)
    squared_mean = mean_distance * mean_distance
    variance = mean_square - squared_mean
    mean = first + mean_distance
    centered = x - mean
    return Rows(x, centered, mean), variance


def scaled(rows: Rows, shifted: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
    """Return (x - mean) rstd gamma + beta, and rstd."""
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    xhat = rows.centered * rstd
    weighted = xhat * gamma
    return weighted + beta, rstd


def divided(rows: Rows, shifted: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
    """Return (x - mean) / root gamma + beta, and rstd."""
    root = np.sqrt(shifted)
    xhat = rows.centered / root
    weighted = xhat * gamma
    return weighted + beta, 1.0 / root


def by_factor(rows: Rows, shifted: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
    """Return (x - mean) (rstd gamma) + beta, and rstd."""
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    factor = rstd * gamma
    weighted = rows.centered * factor
    return weighted + beta, rstd


def shifted_rows(rows: Rows, shifted: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
    """Return (x rstd - mean rstd) gamma + beta, and rstd: ATen's on a CPU."""
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    scaled_x = rows.x * rstd
    shift = rows.mean * rstd
    xhat = scaled_x - shift
    weighted = xhat * gamma
    return weighted + beta, rstd


def linear(rows: Rows, shifted: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
    """Return x (rstd gamma) + (beta - mean rstd gamma), and rstd: tf.nn.batch_normalization."""
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    factor = rstd * gamma
    scaled_x = rows.x * factor
    shift = rows.mean * factor
    offset = beta - shift
    return scaled_x + offset, rstd


VARIANCES: tuple[Callable[..., tuple[Rows, Array]], ...] = (two_pass, updated, one_pass)
PRODUCTS: tuple[Callable[..., tuple[Array, Array]], ...] = (
    scaled,
    shifted_rows,
    linear,
    divided,
    by_factor,
)


def normalized(
    variance_of: Callable[..., tuple[Rows, Array]],
    scale: Callable[..., tuple[Array, Array]],
    x: Array,
    gamma: Array,
    beta: Array,
    epsilon: Array,
    axis: Axes,
) -> Mapping[str, Array]:
    """Return y, mean and rstd of a norm over axes, by one way of each."""
    rows, variance = variance_of(x, axis)
    shifted = variance + epsilon
    y, rstd = scale(rows, shifted, gamma, beta)
    return {"y": y, "mean": rows.mean, "rstd": rstd}


def variance_gradient(weighted: Array, rstd: Array) -> Array:
    """Return the gradient of the squares, as torch derives it from rsqrt: -1/2 d rstd^3 / N.

    weighted: the gradient of x^ times the values that rstd scales.
    """
    count = weighted.shape[-1]
    d_rstd = np.sum(weighted, axis=-1, keepdims=True)
    rstd_squared = rstd * rstd
    rstd_cubed = rstd_squared * rstd
    d_variance = (-0.5 * d_rstd) * rstd_cubed
    return d_variance / count


USUAL = partial(normalized, two_pass, scaled)
"""The norm of the references."""


def other_norms() -> Iterator[partial[Mapping[str, Array]]]:
    """Yield the norm by each variance and product that are usual, but the references' own."""
    for variance, scale in product(VARIANCES, PRODUCTS):
        if (variance, scale) != (two_pass, scaled):
            yield partial(normalized, variance, scale)
    yield partial(normalized, about_first, scaled)
