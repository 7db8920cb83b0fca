"""Exact inputs of the backward kernels: x, gamma (powers of two) and dy = P / gamma.

With dx = r (P - s1 - x^ s2), s1 = mean(P) and s2 = mean(P x^), there are two kinds of rows:

- *zero sensors*: P = s1 + s2 c / 2 + q, with small integers s1, s2 = 2 or 4, and q that cancels in
  pairs of equal c. Then s1 and s2 are exact, and dx = r q is exactly 0 where q = 0: there, any
  error of s1 or s2 shows by itself.
- *vernier rows*: four columns of equal c hold P = G, -G, 2 t, 2 t, and the others t, where t is
  half a unit in the last place of G less a distance, as in `vernier`. LayerNorm has t = s1 and
  s2 = 0. So G - t is rounded once, and a factor on dx or a wrong sum flips it.

RMSNorm has no s1: the zero sensors are without it, and the vernier is in s2. Its vernier rows have
c = 2 or -2 everywhere, so x^ is 1 or -1, and t = s2 x^.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import draws, integers, scales, vernier

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Sums = Callable[[int, Integers], tuple[Integers, Doubles]]

_S1 = (3, -2, 1, -3, 2, -1)
_S2 = (2, -4, 4, -2, 4)
_S2_WITHOUT_MEAN = (2, -4, 2, 4, -4)
"""Their sum is 0: dgamma sums dy x^, which has the sign of s2, so that it would grow with the rows.
A period of 5 meets every kind and scale of row."""
_LARGEST_Q = 7
_BUSY = 3
"""One pair of columns in three has q other than 0."""


def normalized(test: TestSpec, seed: int) -> dict[str, Doubles]:
    """Return x, gamma and dy of LayerNorm: x = S (c + M)."""
    rows = scales.layout(test)

    def sums(row: int, c: Integers) -> tuple[Integers, Doubles]:
        if rows.kind[row] == scales.WIDE:
            return c, np.full(c.size, _fine(row, test.numerics.output, _finest))
        return c, _S1[row % len(_S1)] + _S2[row % len(_S2)] * c / 2

    c = integers.patterns(seed, test.rows, test.features)
    return _tensors(test, seed, c, sums)


def root_mean_square(test: TestSpec, seed: int) -> dict[str, Doubles]:
    """Return x, gamma and dy of RMSNorm: x = S c.

    In epsilon rows dy is 0 in half of the columns: dgamma sums these rows, too, and their allowance
    would hide a factor of .1 % on it everywhere.
    """
    rows = scales.layout(test)

    def sums(row: int, c: Integers) -> tuple[Integers, Doubles]:
        if rows.kind[row] == scales.WIDE:
            flat = np.where(c < 0, -2, 2)
            return flat, _fine(row, test.numerics.output, _spread) * flat / 2
        return c, _S2_WITHOUT_MEAN[row % len(_S2_WITHOUT_MEAN)] * c / 2

    c = integers.uncentered(seed, test.rows, test.features)
    drawn = _tensors(test, seed, c, sums)
    silent = draws.choices(seed, "epsilon", (test.features,), 2) == 0
    drawn["dy"][np.ix_(rows.kind == scales.EPSILON, silent)] = 0.0
    return drawn


def _tensors(test: TestSpec, seed: int, patterns: Integers, sums: Sums) -> dict[str, Doubles]:
    """Return x = S (c + M), gamma, and dy = P / gamma.

    patterns: the c of some rows, which the others repeat. sums: from a row's index and its pattern
    to its c and to s1 + s2 x^, both (N,).
    """
    rows = scales.layout(test)
    features = test.features
    signs = 1 - 2 * draws.choices(seed, "gamma signs", (features,), 2)
    gamma = signs * 2.0 ** (draws.choices(seed, "powers", (features,), 3) - 1)
    lots = draws.words(seed, "products", (len(patterns), features))
    x, product = np.empty((test.rows, features)), np.empty((test.rows, features))
    for row in range(test.rows):
        line = row % len(patterns)
        c, exact = sums(row, patterns[line])
        x[row] = rows.scale[row] * (c + rows.mean[row])
        kind = _vernier_row if rows.kind[row] == scales.WIDE else _zero_sensors
        product[row] = kind(exact, lots[line], _groups(c, lots[line]))
    if scales.is_half(test):  # dx = r P stays above the subnormals of fp16
        product *= 2.0 * rows.scale[:, None]
    return {"x": x, "gamma": gamma, "dy": product / gamma}


def _groups(c: Integers, lots: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return columns in groups of four of equal c, (groups, 4), in random order."""
    order = np.lexsort((lots, c))
    some: list[NDArray[np.intp]] = []
    for value in np.unique(c):
        same = order[c[order] == value]
        some.append(same[: same.size // 4 * 4].reshape(-1, 4))
    return np.concatenate(some)


def _zero_sensors(exact: Doubles, lots: NDArray[np.uint64], groups: NDArray[np.intp]) -> Doubles:
    """Return P of a row: `exact`, which is s1 + s2 x^, plus k, -k in two pairs of some groups."""
    product = exact.copy()
    first = lots[groups[:, 0]] >> np.uint64(32)
    busy = first % np.uint64(_BUSY) == 0
    size = (1 + (lots[groups[:, 1]] >> np.uint64(32)) % np.uint64(_LARGEST_Q)).astype(np.float64)
    for pair in (0, 2):
        product[groups[busy, pair]] += size[busy]
        product[groups[busy, pair + 1]] -= size[busy]
    return product


def _fine(row: int, fmt: str, choice: Callable[[int, int], int]) -> float:
    """Return the s1 or s2 of a vernier row: half a unit in the last place of G, less a distance.

    choice: from the index of the vernier row and the number of distances to the distance.
    """
    half = 2.0 ** -vernier.precision(fmt)
    small = [half - step * vernier.DISTANCE for step in vernier.STEPS]
    small = [value for value in small if value > vernier.LEAST_SHARE * half]
    return small[choice(row // 4, len(small))] * (1 if row % 8 < 4 else -1)


def _finest(index: int, count: int) -> int:
    """Return one of the four smallest distances."""
    return index % min(count, 4)


def _spread(index: int, count: int) -> int:
    """Return every distance in turn, the smallest first, so that a few rows bracket a factor."""
    return 5 * index % count


def _vernier_row(fine: Doubles, lots: NDArray[np.uint64], groups: NDArray[np.intp]) -> Doubles:
    """Return P of a row whose sums make `fine` of it, (N,): s1, or s2 x^."""
    product = fine.copy()
    least, count = 50, 14
    numerator = least + (lots[groups[:, 2]] >> np.uint64(32)) % np.uint64(count)
    signal = numerator.astype(np.float64) / 32
    product[groups[:, 0]], product[groups[:, 1]] = signal, -signal
    product[groups[:, 2:]] = 2 * fine[groups[:, 2:]]
    return product
