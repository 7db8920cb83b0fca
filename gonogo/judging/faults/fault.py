"""A fault, and the fits of faults whose size the output itself must tell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array

LISTED = 3
"""Rows or columns that words name one by one."""
SMALL = 1e-300


@dataclass(frozen=True)
class Fault:
    """A fault and its effect.

    Attributes:
        words: the fault in words, such as "gamma is missing".
        effect: what it adds to the output (rows, N).
        fitted: how many numbers of the effect are fitted to the output's error.
        is_coherent: False for rows with factors of their own, which a stored rstd makes, too.
    """

    words: str
    effect: Array
    fitted: int = 0
    is_coherent: bool = True


def per_row(error: Array, pattern: Array) -> Array:
    """Return the factor of a pattern that fits each row's error best, (rows, 1)."""
    norm = (pattern**2).sum(axis=1, keepdims=True)
    return np.asarray((error * pattern).sum(axis=1, keepdims=True) / np.maximum(norm, SMALL))


def two_per_row(error: Array, first: Array, second: Array) -> Array:
    """Return the effect (rows, N) of both patterns with the factors that fit each row best."""
    a, b, c = ((u * v).sum(axis=1) for u, v in ((first, first), (first, second), (second, second)))
    p, q = (error * first).sum(axis=1), (error * second).sum(axis=1)
    determinant = a * c - b * b
    usable = determinant > 1e-12 * a * c
    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.where(usable, (c * p - b * q) / determinant, p / np.maximum(a, SMALL))
        v = np.where(usable, (a * q - b * p) / determinant, 0.0)
    return np.asarray(u[:, None] * first + v[:, None] * second)


def per_label(error: Array, pattern: Array, labels: NDArray[np.intp]) -> Array:
    """Return the factor of a pattern that fits the elements of each label best, one per element.

    labels: (rows, N), from 0 on.
    """
    full = np.broadcast_to(labels, error.shape).ravel()
    norm = np.bincount(full, np.broadcast_to(pattern**2, error.shape).ravel())
    along = np.bincount(full, (error * pattern).ravel())
    return np.asarray((along / np.maximum(norm, SMALL))[full].reshape(error.shape))


def places(noun: str, values: Array) -> str:
    """Return where the values matter, such as "column 5", "columns 32 to 63", "all columns"."""
    size = np.abs(values.ravel())
    matter = np.flatnonzero(size > 0.1 * size.max(initial=0.0))
    if len(matter) == 0 or 2 * len(matter) > len(size):
        return f"most {noun}s" if len(size) > 1 else f"{noun} 0"
    if len(matter) == 1:
        return f"{noun} {matter[0]}"
    if len(matter) <= LISTED:
        return f"{noun}s {', '.join(map(str, matter))}"
    return f"{len(matter)} {noun}s from {matter[0]} to {matter[-1]}"
