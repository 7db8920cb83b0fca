"""Sums along a row that count the padding: their divisor, or the squares of its zeros, too.

A kernel may pad rows to whole vectors, tiles or powers of two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gonogo.judging.faults.fault import Fault
from gonogo.judging.faults.statistics import Statistics, of_padded
from gonogo.numerics.expectation import Array

MULTIPLES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The lengths of vectors, warps, tiles and blocks of threads, to a multiple of which rows grow."""


def padded(features: int) -> list[int]:
    """Return the lengths to which rows may be padded: multiples, one more tile, a power of two."""
    lengths = {-(-features // multiple) * multiple for multiple in MULTIPLES}
    lengths |= {features + multiple for multiple in MULTIPLES if features % multiple == 0}
    lengths.add(1 << (features - 1).bit_length())
    return sorted(lengths - {features})


def of_statistics(x: Array, epsilon: float, *, centered: bool) -> Iterator[Statistics]:
    """Yield the statistics of x (rows, N) whose sums count the padding."""
    features = x.shape[1]
    mean = x.mean(axis=1, keepdims=True)
    squares = np.square(x - mean if centered else x).mean(axis=1, keepdims=True)
    noun = "variance" if centered else "mean square"
    none = 0.0 * mean
    for length in padded(features):
        less = features / length
        by = f"by {length}, not by {features}"
        yield of_padded(
            f"the {noun} divides {by}", mean if centered else none, less * squares, epsilon
        )
        if centered:
            short = less * mean
            zeros = squares + (length / features - 1.0) * np.square(mean)
            words = f"the variance counts {length - features} zeros after the row"
            yield of_padded(words, mean, zeros, epsilon)
            about = np.square(x - short).mean(axis=1, keepdims=True)
            yield of_padded(f"the mean divides {by}", short, about, epsilon)
            yield of_padded(f"the mean and the variance divide {by}", short, less * about, epsilon)


def of_gradient(s1: Array | None, s2: Array, rstd: Array, normalized: Array) -> Iterator[Fault]:
    """Yield the faults of dx whose sums s1 and s2 (rows, 1) are divided by a padded length.

    s1: None where no mean is subtracted.
    """
    features = normalized.shape[1]
    parts = {"s2": rstd * s2 * normalized}
    if s1 is not None:
        of_s1 = np.broadcast_to(rstd * s1, normalized.shape)
        parts = {"s1": of_s1, **parts, "s1 and s2": of_s1 + parts["s2"]}
    for length in padded(features):
        for name, part in parts.items():
            verb = "divide" if "and" in name else "divides"
            effect = (1.0 - features / length) * part
            yield Fault(f"{name} {verb} by {length}, not by {features}", effect)
