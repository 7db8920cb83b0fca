"""Wrong stores: tiles swapped, stale or not written; lanes, bits and races; a narrow range."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from benchmarks.strangers.arithmetic import Alteration, Work
from benchmarks.strangers.faults import (
    FACE,
    TILE,
    Fault,
    accumulated,
    block,
    neighbour,
    sometimes,
    stale,
    stuck,
    swapped,
    times,
)
from benchmarks.strangers.roundings import Rounding

Floats = NDArray[np.float32]
FIRST, ALL = slice(0, TILE), slice(None)


def _transposed(value: Floats, work: Work) -> Floats:
    changed = np.array(value)
    size = min(TILE, *value.shape)
    changed[:size, :size] = value[:size, :size].T
    return changed


def _random_tile(value: Floats, work: Work) -> Floats:
    changed = np.array(value)
    start = int(work.chance.integers(0, -(-value.shape[1] // TILE))) * TILE
    changed[:, start : start + TILE] = 0
    return changed


def _random_element(value: Floats, work: Work) -> Floats:
    changed = np.array(value)
    changed[
        int(work.chance.integers(0, value.shape[0])), int(work.chance.integers(0, value.shape[1]))
    ] *= 2
    return changed


def _last_tile_of_rows(value: Floats, work: Work) -> Floats:
    return block(slice((value.shape[0] - 1) // TILE * TILE, None), ALL)(value, work)


def _beyond_whole_tiles(value: Floats, work: Work) -> Floats:
    return block(slice(value.shape[0] // TILE * TILE, None), ALL, factor=1.01)(value, work)


def _faces(value: Floats, work: Work) -> Floats:
    changed = swapped(slice(0, FACE), slice(FACE, TILE), 1)(value[:FACE], work)
    return np.concatenate([changed, value[FACE:]])


def _quadrants(value: Floats, work: Work) -> Floats:
    """The upper right and the lower left face of the first tile in each other's place."""
    changed = np.array(value)
    if value.shape[0] >= TILE:
        changed[:FACE, FACE:TILE], changed[FACE:TILE, :FACE] = (
            value[FACE:TILE, :FACE],
            value[:FACE, FACE:TILE],
        )
    return changed


MATRIX: dict[str, Alteration] = {
    "tiles-swapped": swapped(FIRST, slice(TILE, 2 * TILE), 1),
    "cores-swapped": swapped(slice(0, 2), slice(2, 4), 0),
    "faces-swapped": _faces,
    "quadrants-swapped": _quadrants,
    "tile-transposed": _transposed,
    "tile-not-written": block(slice(0, TILE), FIRST),
    "tile-of-ones": block(slice(0, TILE), FIRST, 1.0),
    "last-tile-not-written": lambda value, work: block(
        ALL, slice((value.shape[1] - 1) // TILE * TILE, None)
    )(value, work),
    "last-column-not-written": block(ALL, slice(-1, None)),
    "last-row-not-written": block(slice(-1, None), ALL),
    "one-element-not-written": block(slice(3, 4), slice(7, 8)),
    "last-rows-not-written": _last_tile_of_rows,
    "rows-beyond-whole-tiles-off": _beyond_whole_tiles,
    "shifted-by-a-column": neighbour(1, 1),
    "shifted-by-a-row": neighbour(1, 0),
    "stale-tile": stale("tile", (slice(0, TILE), FIRST)),
    "stale": stale("whole"),
    "stale-last-row": stale("row", (slice(-1, None),)),
    "accumulated": accumulated("sum"),
    "nan-in-a-lane": block(slice(2, 3), slice(5, 6), float("nan")),
    "nan-in-one-run-of-four": sometimes(block(slice(2, 3), slice(5, 6), float("nan"))),
    "inf-in-a-lane": block(slice(2, 3), slice(5, 6), float("inf")),
    "lane-sign": block(ALL, slice(5, None, TILE), factor=-1),
    "lane-doubled": block(ALL, slice(9, 10), factor=2),
    "lane-one-percent-off": block(ALL, slice(5, None, TILE), factor=1.01),
    "tile-two-percent-off": block(slice(0, TILE), FIRST, factor=1.02),
    "one-row-two-percent-off": block(slice(1, 2), ALL, factor=1.02),
    "all-one-percent-off": times(1.01),
    "all-two-percent-off": times(1.02),
    "stuck-high-bit": stuck(22, slice(3, 4)),
    "stuck-middle-bit": stuck(19, slice(3, 4)),
    "stuck-low-bits-everywhere": stuck(18, ALL),
    "saturated": lambda value, work: np.clip(value, -0.75, 0.75),
    "negatives-zero": lambda value, work: np.maximum(value, 0),
    "small-are-zero": lambda value, work: np.where(np.abs(value) < 2.0**-4, np.float32(0), value),
    "three-bits": lambda value, work: (
        np.array(value).view(np.uint32) & np.uint32(0xFFF00000)
    ).view(np.float32),
    "race-drops-a-tile": sometimes(_random_tile),
    "race-doubles-an-element": sometimes(_random_element),
    "noise": lambda value, work: (
        value * (1 + np.float32(0.02) * work.chance.standard_normal(value.shape, np.float32))
    ),
    "sixteenths": lambda value, work: np.round(value * 16) / 16,
}

VECTOR: dict[str, Alteration] = {
    "first-tile-zero": lambda value, work: np.concatenate(
        [np.zeros_like(value[:TILE]), value[TILE:]]
    ),
    "last-zero": lambda value, work: np.append(value[:-1], np.float32(0)),
    "shifted": neighbour(1),
    "reversed": lambda value, work: value[::-1],
    "faces-swapped": lambda value, work: np.concatenate(
        [value[FACE:TILE], value[:FACE], value[TILE:]]
    ),
    "stale": stale("vector"),
    "accumulated": accumulated("vector"),
    "doubled": times(2),
    "one-percent-off": times(1.01),
    "fp16-overflow": lambda value, work: (
        Rounding("fp16")(value * 16384, work.chance) / np.float32(16384)
    ),
    "race-drops-the-last": sometimes(lambda value, work: np.append(value[:-1], np.float32(0))),
}


def _stores() -> Iterable[Fault]:
    for kernel, output in (("layernorm_fw", "y"), ("layernorm_bw", "dx")):
        for name, alteration in MATRIX.items():
            yield Fault(f"{output}-{name}", kernel, {f"{output} out": alteration})
    for output in ("dgamma", "dbeta"):
        for name, alteration in VECTOR.items():
            yield Fault(f"{output}-out-{name}", "layernorm_bw", {f"{output} out": alteration})
    for output in ("mean", "rstd"):
        for name, alteration in VECTOR.items():
            yield Fault(
                f"{output}-out-{name}",
                "layernorm_fw",
                {f"{output} of rows out": _of_a_column(alteration)},
            )


def _of_a_column(alteration: Alteration) -> Alteration:
    return lambda value, work: np.asarray(alteration(value[:, 0], work), np.float32)[:, None]


FAULTS = tuple(_stores())
