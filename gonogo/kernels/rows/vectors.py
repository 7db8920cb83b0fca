"""gamma and beta of a kernel that normalizes rows, channel by channel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.forensics import outliers
from gonogo.kernels.layernorm.forensics.forward_sums import Forward
from gonogo.kernels.layernorm.forensics.sums import TILE, Array
from gonogo.kernels.layernorm.forensics.words import place
from gonogo.kernels.rows.model import Fitted, blocks, used_normal
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.diagnosis import Term, numbers

CHANNEL = 12.0
"""A channel's gamma or beta differs when it is off by this many standard errors.

A channel's errors are shared by its elements.
"""
CHANNEL_PART = 2.0**-4
"""A channel's gamma or beta differs when it is off by this part of the vector's size, too."""


def candidates(seed: Forward) -> Iterator[tuple[str, str, Array, Array | None]]:
    """Yield (vector, words, gamma, beta) of the likely mistakes."""
    for name, vector in (("gamma", seed.gamma), ("beta", seed.beta)):
        if vector is None:
            continue
        missing = np.ones_like(vector) if name == "gamma" else np.zeros_like(vector)
        others = {
            f"is that of the next {seed.channel}": np.roll(vector, -1),
            f"is that of the {seed.channel} before": np.roll(vector, 1),
            "is that of the tile after": np.roll(vector, -TILE),
            "is that of the tile before": np.roll(vector, TILE),
            f"is missing ({missing[0]:g} in its place)": missing,
        }
        for words, other in others.items():
            if not np.array_equal(other, vector):
                yield (
                    name,
                    f"{name} {words}",
                    other if name == "gamma" else seed.gamma,
                    other if name == "beta" else seed.beta,
                )


def vectors_of(seed: Forward, fitted_y: Fitted) -> list[Term]:
    """Return the terms of gamma and beta, channel by channel.

    They come from what is left of y after the used statistics.
    """
    assert seed.y is not None
    y_of = seed.y
    gamma, beta = fitted_y.gamma, fitted_y.beta
    channels = len(gamma)

    def block(start: int, stop: int) -> Array:
        with np.errstate(all="ignore"):
            z = used_normal(seed, fitted_y.fit, start, stop)
            rest = y_of[start:stop].astype(np.float64) - seed.spread(gamma, start, stop) * z
            if beta is not None:
                rest -= seed.spread(beta, start, stop)
            keep = outliers.counted(rest, seed.outliers, start)
            ones = np.ones_like(z)
            if keep is not None:
                rest, z, ones = (np.where(keep, values, 0.0) for values in (rest, z, ones))
            total = np.zeros((6, seed.groups, channels // seed.groups))
            for k, values in enumerate((ones, z, z * z, rest, rest * z, rest * rest)):
                sums = values.reshape(stop - start, -1, seed.width).sum(axis=2)
                np.add.at(total[k], np.arange(start, stop) % seed.groups, sums)
            return total.reshape(6, -1)

    n, z, zz, e, ez, ee = np.sum(over_rows(block, *blocks(seed)), axis=0)
    terms = []
    with np.errstate(all="ignore"):
        apart = zz - z * z / n
        measurable = (n >= 8) & (apart > 0.05 * zz) if beta is not None else (n >= 4) & (zz > 0)
        slope = (ez - z * e / n) / apart if beta is not None else ez / zz
        left = np.maximum(ee - slope * ez, 0.0)
        sigma = np.sqrt(
            np.maximum(left, seed.precision.rounding**2 * gamma**2 * zz) / np.maximum(n - 2, 1.0)
        )
        error = sigma / np.sqrt(np.where(beta is not None, apart, zz))
        terms.append(_vector(seed, "gamma", gamma, slope, error, measurable))
        if beta is not None:
            terms.append(
                _vector(seed, "beta", beta, (e - slope * z) / n, sigma / np.sqrt(n), measurable)
            )
    return terms


def _vector(
    seed: Forward, name: str, used: Array, off: Array, error: Array, measurable: NDArray[np.bool_]
) -> Term:
    """Return the term of a vector: whether some channels are off by more than their errors."""
    measurable = measurable & np.isfinite(off) & np.isfinite(error)
    if not measurable.any():
        return Term(
            "y",
            name,
            1,
            (None,),
            (None,),
            f"cannot tell {name}: too few elements of each {seed.channel}",
            can_tell=False,
        )
    size = float(np.abs(used).max()) or 1.0
    # One factor, or one shift, that all channels share belongs to the scale's and the mean's terms.
    some = measurable & (used != 0)
    common = float(np.median(off[some] / used[some])) if name == "gamma" and some.any() else 0.0
    apart = np.abs(off - common * used)
    wrong = measurable & (apart > CHANNEL * error) & (apart > CHANNEL_PART * size)
    words = (
        f"{name} differs in {place(np.flatnonzero(wrong).tolist(), len(used), seed.channel)}"
        if wrong.any()
        else ""
    )
    return Term(
        "y",
        name,
        1,
        numbers([1.0 + common]),
        numbers([float(np.median(error[measurable])) / size]),
        words,
        wrong=bool(words),
    )
