"""Products of a Tensix core's matrix unit in Dst, phase by phase, and its sums of tiles.

A tile is four faces of 16 rows and columns. Sums are products with ones or with a factor: an
instruction adds 16 of them to Dst, in two groups of 8. All values are float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as pairs

import numpy as np

from gonogo.arithmetic.datapath import Width, into_dst, pooled
from gonogo.arithmetic.formats import Doubles, binade, round_to

Phase = tuple[Doubles, Doubles]
"""Products, and the powers of two by which they align."""
TILE, FACE = 32, 16
SRC_A, SRC_B = (5, 5), (7, 4)
"""The bits of an operand's two parts. The last bit of SrcA's TF32 is never used."""
PRODUCTS = 1 << 20
"""The number that a matrix product holds at once."""
PHASES = ("lofi", "hifi2", "hifi3", "hifi4")
"""The fidelities, each with one phase more."""


def phases(a: Doubles, b: Doubles, fidelity: str) -> list[Phase]:
    """Return the phases of products of SrcA and SrcB."""
    parts = pairs(_parts(b, *SRC_B), _parts(a, *SRC_A))
    every = [(first * second, one * other) for (second, other), (first, one) in parts]
    return every[: PHASES.index(fidelity) + 1]


def _parts(values: Doubles, high_bits: int, low_bits: int) -> list[Phase]:
    powers = binade(values)
    upper = _cut(values, powers, high_bits - 1)
    lower = _cut(values, powers, high_bits + low_bits - 1) - upper
    return [(upper, powers), (lower, powers * 2.0**-high_bits)]


def _cut(values: Doubles, powers: Doubles, bits: int) -> Doubles:
    grid = np.where(powers == 0, 1.0, powers * 2.0**-bits)
    cut: Doubles = np.trunc(values / grid) * grid
    return cut


def product_in_dst(a: Doubles, b: Doubles, fidelity: str, width: Width) -> Doubles:
    """Return ELWMUL of SrcA and SrcB, added to a cleared Dst phase by phase."""
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape))
    for terms, powers in phases(a, b, fidelity):
        total = into_dst(total, terms[..., None], powers[..., None], width)
    return total


def matrix_product(a: Doubles, b: Doubles, fidelity: str, width: Width) -> Doubles:
    """Return a b, tile by tile: SrcA has b, SrcB has a, and each phase has both faces of 16.

    a: (..., M, K), some rows at a time, since all products of a face are in memory. b: (..., K, N).
    """
    missing = -a.shape[-1] % TILE
    a = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, missing)])
    b = np.swapaxes(np.pad(b, [(0, 0)] * (b.ndim - 2) + [(0, missing), (0, 0)]), -1, -2)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*batch, a.shape[-2], b.shape[-2]))
    rows = max(1, PRODUCTS // (FACE * total[..., 0, :].size))
    for top, left in pairs(range(0, a.shape[-2], rows), range(0, a.shape[-1], TILE)):
        tile = slice(left, left + TILE)
        here = total[..., top : top + rows, :]
        second = a[..., top : top + rows, None, tile]
        for (terms, powers), at in pairs(
            phases(b[..., None, :, tile], second, fidelity), (0, FACE)
        ):
            face = slice(at, at + FACE)
            here[...] = pooled(here, terms[..., face], powers[..., face], width)
    return total


def row_sums(tiles: Doubles, fidelity: str, width: Width, factor: float = 1.0) -> Doubles:
    """Return the sums of rows, (..., tiles, 32), times a factor: each phase has both faces."""
    total = np.zeros(tiles.shape[:-2])
    for tile in np.moveaxis(tiles, -2, 0):
        for (terms, powers), at in pairs(phases(np.full(1, factor), tile, fidelity), (0, FACE)):
            face = slice(at, at + FACE)
            total = pooled(total, terms[..., face], powers[..., face], width)
    return total


def column_sums(tiles: Doubles, fidelity: str, width: Width) -> Doubles:
    """Return the sums of columns, (..., tiles, 32 rows): each face of a tile has all phases."""
    total = np.zeros(tiles.shape[:-2])
    for tile, at in pairs(np.moveaxis(tiles, -2, 0), (0, FACE)):
        for phase in phases(tile[..., at : at + FACE], np.ones(1), fidelity):
            total = pooled(total, *phase, width)
    return total


def group_means(terms: Doubles, count: int, fidelity: str, width: Width, moved: str) -> Doubles:
    """Return the means of groups (N, groups, channels, positions) that are summed as scalars.

    A tile's columns are summed, then what they gave, as `moved` from Dst: "bf16" or "tf32",
    truncated. 1/sqrt(count) multiplies both, in truncated bf16. Channels are where they are in
    tiles of all channels; others are masked.
    """
    factor = round_to(np.sqrt(np.float32(count)) ** -1, "bf16", "zero").reshape(1)
    means = np.zeros((*terms.shape[:2], 1, 1))
    for group in range(terms.shape[1]):
        left = group * terms.shape[2] % TILE
        mean = means[:, group, 0, 0]
        for tile in _tiles(terms[:, group], left):
            sums = np.zeros((len(tile), FACE))
            for down, right in pairs((0, FACE), (0, FACE)):
                face = tile[:, right : right + FACE, down : down + FACE]
                for phase in phases(face, factor, fidelity):
                    sums = pooled(sums, *phase, width)
            for phase in phases(round_to(sums, moved, "zero"), factor, fidelity):
                mean = pooled(mean, *phase, width)
        # a sum over cores follows, which one core's mean passes: SrcA takes 10 bits of TF32
        means[:, group, 0, 0] = _cut(mean, binade(mean), 9) if moved == "tf32" else mean
    return means


def _tiles(terms: Doubles, left: int) -> Sequence[Doubles]:
    """Return the tiles (N, 32 channels, 32 positions), row by row, of (N, channels, positions)."""
    channels, positions = terms.shape[1:]
    padding = ((0, 0), (left, -(left + channels) % TILE), (0, -positions % TILE))
    padded = np.pad(terms, padding)
    starts = pairs(range(0, padded.shape[2], TILE), range(0, padded.shape[1], TILE))
    return [padded[:, at : at + TILE, down : down + TILE] for down, at in starts]
