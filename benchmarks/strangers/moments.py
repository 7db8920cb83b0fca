"""Mean and biased variance of rows, by the methods that kernels use.

All in float32: (rows, N) to two of (rows, 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.strangers.sums import in_blocks

Floats = NDArray[np.float32]
Sum = Callable[[Floats], Floats]
"""(rows, n) to (rows, 1)."""


def one_pass(x: Floats, total: Sum, count: np.float32) -> tuple[Floats, Floats]:
    """E[x^2] - E[x]^2: right where the mean isn't large against the deviation."""
    mean = total(x) / count
    return mean, np.maximum(total(x * x) / count - mean * mean, np.float32(0))


def shifted(x: Floats, total: Sum, count: np.float32) -> tuple[Floats, Floats]:
    """One pass over x minus the row's first value."""
    first = x[:, :1]
    mean, variance = one_pass(x - first, total, count)
    return mean + first, variance


def corrected(x: Floats, total: Sum, count: np.float32) -> tuple[Floats, Floats]:
    """Two passes, and the mean of the deviations (the rounding of the mean) taken off again."""
    mean = total(x) / count
    centred = x - mean
    rest = total(centred) / count
    return mean + rest, total(centred * centred) / count - rest * rest


def welford(x: Floats, total: Sum, count: np.float32) -> tuple[Floats, Floats]:
    """Welford's update over 32 lanes; the lanes are merged by Chan's formula."""
    rows, n = x.shape
    blocks = in_blocks(x, 32)
    live = in_blocks(np.ones((1, n), np.float32), 32)[0]
    mean = np.zeros((rows, 32), np.float32)
    squares = np.zeros((rows, 32), np.float32)
    seen = np.zeros(32, np.float32)
    for step in range(blocks.shape[1]):
        seen = seen + live[step]
        delta = (blocks[:, step] - mean) * live[step]
        mean = mean + delta / np.maximum(seen, np.float32(1))
        squares = squares + delta * (blocks[:, step] - mean) * live[step]
    return _merged(mean, squares, np.broadcast_to(seen, mean.shape))


def chan(x: Floats, total: Sum, count: np.float32) -> tuple[Floats, Floats]:
    """Mean and squares of each tile of 32, merged in a tree."""
    blocks = in_blocks(x, 32)
    live = in_blocks(np.ones((1, x.shape[1]), np.float32), 32)
    size = live.sum(-1, dtype=np.float32)
    mean = blocks.sum(-1, dtype=np.float32) / size
    squares = (((blocks - mean[..., None]) ** 2) * live).sum(-1, dtype=np.float32)
    return _merged(mean, squares, np.broadcast_to(size, mean.shape))


def _merged(mean: Floats, squares: Floats, size: Floats) -> tuple[Floats, Floats]:
    """A tree of Chan's merges over the last axis."""
    while mean.shape[-1] > 1:
        if mean.shape[-1] % 2:
            mean, squares, size = (
                np.pad(array, ((0, 0), (0, 1))) for array in (mean, squares, size)
            )
        a, b = slice(0, None, 2), slice(1, None, 2)
        both = np.maximum(size[:, a] + size[:, b], np.float32(1))
        delta = mean[:, b] - mean[:, a]
        squares = squares[:, a] + squares[:, b] + delta * delta * (size[:, a] * size[:, b] / both)
        mean = mean[:, a] + delta * (size[:, b] / both)
        size = size[:, a] + size[:, b]
    return mean, squares / size


METHODS: dict[str, Callable[[Floats, Sum, np.float32], tuple[Floats, Floats]]] = {
    "one-pass": one_pass,
    "shifted": shifted,
    "corrected": corrected,
    "welford": welford,
    "chan": chan,
}
"""Beside "two-pass", which the kernels spell out themselves so that a fault can reach every step of
it."""


def newton(value: NDArray[Any], steps: int) -> Floats:
    """1/sqrt by the exponent trick (3.4% off) and Newton's steps: 0.18%, 5e-6, then all digits."""
    bits = np.asarray(value, np.float32).view(np.int32)
    guess = (np.int32(0x5F3759DF) - (bits >> 1)).view(np.float32)
    for _ in range(steps):
        guess = guess * (np.float32(1.5) - np.float32(0.5) * value * guess * guess)
    return guess


RSQRTS: dict[str, Callable[[Floats], Floats]] = {
    "divide": lambda value: np.asarray(np.float32(1) / np.sqrt(value), np.float32),
    "newton-2": lambda value: newton(value, 2),
    "newton-3": lambda value: newton(value, 3),
    "sqrt-of-reciprocal": lambda value: np.sqrt(np.float32(1) / value),
    "power": lambda value: np.exp2(np.float32(-0.5) * np.log2(value)).astype(np.float32),
    "double": lambda value: (1 / np.sqrt(value.astype(np.float64))).astype(np.float32),
}
