"""Exact inputs of LayerNorm's backward kernel: x, gamma (powers of two) and dy = P / gamma.

With dx = r (P - s1 - x^ s2), s1 = mean(P) and s2 = mean(P x^), there are two kinds of rows:

- *zero sensors*: P = s1 + s2 c / 2 + q, with small integers s1, s2 = 2 or 4, and q that cancels in
  pairs of equal c. Then s1 and s2 are exact, and dx = r q is exactly 0 where q = 0: there, any
  error of s1 or s2 shows by itself.
- *vernier rows* (s2 = 0): four columns of equal c hold P = G, -G, 2 s1, 2 s1, and the others s1,
  where s1 is half a unit in the last place of G less a distance, as in `vernier`. So G - s1 is
  rounded once, and a factor on dx or a wrong s1 flips it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import draws, integers, scales, vernier

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

_S1 = (3, -2, 1, -3, 2, -1)
_S2 = (2, -4, 4, -2, 4)
_LARGEST_Q = 7
_BUSY = 3
"""One pair of columns in three has q other than 0."""


def gradients(test: TestSpec, seed: int) -> dict[str, Doubles]:
    """Return x, gamma and dy."""
    rows = scales.layout(test)
    features = test.features
    c = integers.patterns(seed, test.rows, features)
    signs = 1 - 2 * draws.choices(seed, "gamma signs", (features,), 2)
    gamma = signs * 2.0 ** (draws.choices(seed, "powers", (features,), 3) - 1)
    half = scales.is_half(test)
    product = np.empty((test.rows, features))
    lots = draws.words(seed, "products", (len(c), features))
    for row in range(test.rows):
        line = row % len(c)
        groups = _groups(c[line], lots[line])
        if rows.kind[row] == scales.WIDE:
            product[row] = _vernier_row(row, lots[line], groups, test.numerics.output)
        else:
            product[row] = _zero_sensors(row, c[line], lots[line], groups)
    if half:  # dx = r P stays above the subnormals of fp16
        product *= 2.0 * rows.scale[:, None]
    x = rows.scale[:, None] * (c[np.arange(test.rows) % len(c)] + rows.mean[:, None])
    return {"x": x, "gamma": gamma, "dy": product / gamma}


def _groups(c: Integers, lots: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return columns in groups of four of equal c, (groups, 4), in random order."""
    order = np.lexsort((lots, c))
    some: list[NDArray[np.intp]] = []
    for value in np.unique(c):
        same = order[c[order] == value]
        some.append(same[: same.size // 4 * 4].reshape(-1, 4))
    return np.concatenate(some)


def _zero_sensors(
    row: int, c: Integers, lots: NDArray[np.uint64], groups: NDArray[np.intp]
) -> Doubles:
    """Return P of a row with integer s1 and s2: q is k, -k in two pairs of some groups."""
    product = _S1[row % len(_S1)] + _S2[row % len(_S2)] * c / 2
    first = lots[groups[:, 0]] >> np.uint64(32)
    busy = first % np.uint64(_BUSY) == 0
    size = (1 + (lots[groups[:, 1]] >> np.uint64(32)) % np.uint64(_LARGEST_Q)).astype(np.float64)
    for pair in (0, 2):
        product[groups[busy, pair]] += size[busy]
        product[groups[busy, pair + 1]] -= size[busy]
    return product


def _vernier_row(row: int, lots: NDArray[np.uint64], groups: NDArray[np.intp], fmt: str) -> Doubles:
    """Return P of a row with a fine s1 and s2 = 0."""
    pairs, _ = vernier.candidates(vernier.precision(fmt), 0)
    small = np.unique(pairs[pairs[:, 1] < 2.0 ** -vernier.precision(fmt)][:, 1])[::-1]
    s1 = float(small[(row // 4) % min(len(small), 4)]) * (1 if row % 8 < 4 else -1)
    product = np.full(lots.size, s1)
    least, count = 50, 14
    numerator = least + (lots[groups[:, 2]] >> np.uint64(32)) % np.uint64(count)
    signal = numerator.astype(np.float64) / 32
    product[groups[:, 0]], product[groups[:, 1]] = signal, -signal
    product[groups[:, 2:]] = 2 * s1
    return product
