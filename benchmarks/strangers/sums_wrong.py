"""Wrong sums: terms left out, counted twice, not masked; a wrong count; a narrow accumulator."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.strangers import sums
from benchmarks.strangers.arithmetic import Alteration
from benchmarks.strangers.faults import (
    TILE,
    Fault,
    columns,
    constant,
    every,
    garbage,
    neighbour,
    plus,
    rows,
    tail_again,
    times,
)
from benchmarks.strangers.roundings import Rounding

WHOLE = slice(None)

ALONG: dict[str, Alteration] = {
    "first-tile-dropped": columns(slice(0, TILE)),
    "last-tile-dropped": lambda value, work: columns(
        slice((value.shape[1] - 1) // TILE * TILE, None)
    )(value, work),
    "middle-tile-dropped": lambda value, work: columns(
        slice(value.shape[1] // 64 * TILE, value.shape[1] // 64 * TILE + TILE)
    )(value, work),
    "odd-tiles-dropped": every(TILE, 1),
    "even-faces-dropped": every(16, 0),
    "first-column-dropped": columns(slice(0, 1)),
    "last-column-dropped": columns(slice(-1, None)),
    "only-last-tile": lambda value, work: columns(slice(0, (value.shape[1] - 1) // TILE * TILE))(
        value, work
    ),
    "first-half-only": lambda value, work: columns(slice(value.shape[1] // 2, None))(value, work),
    "first-tile-twice": columns(slice(0, TILE), 2),
    "last-face-twice": columns(slice(-16, None), 2),
    "tail-repeated": tail_again,
    "tail-of-ones": garbage(1.0),
    "stale-row": neighbour(1),
    "row-of-tile-before": neighbour(TILE),
    "one-percent-off": times(1.01),
    "four-per-mille-off": times(1.004),
    "sign": times(-1),
    "twice": times(2),
    "one-tile-sign": columns(slice(0, TILE), -1),
    "nine-tenths-of-a-tile": columns(slice(0, TILE), 0.9),
}

STAGES = {"layernorm_fw": ("mean terms", "squares"), "layernorm_bw": ("s1 terms", "s2 terms")}

DOWN: dict[str, Alteration] = {
    "last-row-tile-dropped": lambda value, work: rows(
        slice((value.shape[0] - 1) // TILE * TILE, None)
    )(value, work),
    "first-row-dropped": rows(slice(0, 1)),
    "last-row-dropped": rows(slice(-1, None)),
    "odd-rows-dropped": rows(slice(1, None, 2)),
    "last-row-twice": rows(slice(-1, None), 2),
    "half-the-rows-twice": lambda value, work: rows(slice(0, value.shape[0] // 2), 2)(value, work),
    "rows-of-second-core-dropped": lambda value, work: rows(slice(value.shape[0] // 2, None))(
        value, work
    ),
    "first-tile-of-columns-never-added": columns(slice(0, TILE)),
    "columns-shifted": neighbour(1, 1),
    "tile-shifted": neighbour(TILE, 1),
    "mean-not-sum": lambda value, work: value / np.float32(value.shape[0]),
    "one-percent-off": times(1.01),
    "sign": times(-1),
    "padding-row-counted": lambda value, work: (
        np.concatenate([value, value[:1]]) if value.shape[0] % TILE else value
    ),
}


def _along() -> Iterable[Fault]:
    for kernel, stages in STAGES.items():
        for stage in stages:
            for name, alteration in ALONG.items():
                yield Fault(f"{stage.replace(' ', '-')}-{name}", kernel, {stage: alteration})


def _down() -> Iterable[Fault]:
    for stage in ("dgamma terms", "dbeta terms"):
        for name, alteration in DOWN.items():
            yield Fault(
                f"{stage.removesuffix(' terms')}-{name}", "layernorm_bw", {stage: alteration}
            )


def _counts() -> Iterable[Fault]:
    changes: dict[str, Alteration] = {
        "one-less": plus(-1),
        "one-more": plus(1),
        "padded": lambda value, work: np.ceil(value / TILE) * TILE,
        "padded-to-128": lambda value, work: np.ceil(value / 128) * 128,
        "doubled": times(2),
        "of-a-tile": constant(TILE),
        "rounded-to-a-power-of-two": lambda value, work: np.exp2(np.round(np.log2(value))),
        "floor-of-tiles": lambda value, work: (
            np.maximum(np.floor(value / TILE), np.float32(1)) * TILE
        ),
        "squared": lambda value, work: value * value,
    }
    for kernel in STAGES:
        for name, alteration in changes.items():
            yield Fault(f"count-{name}", kernel, {"count": alteration})
            if kernel == "layernorm_fw":
                yield Fault(f"variance-count-{name}", kernel, {"variance count": alteration})


def _narrow() -> Iterable[Fault]:
    """bf16 and fp16 accumulators: every partial sum is stored."""
    orders = {
        "bf16-each-term": sums.running(Rounding("bf16"), 1),
        "bf16-each-face": sums.running(Rounding("bf16"), 16),
        "bf16-each-tile": sums.running(Rounding("bf16"), TILE),
        "bf16-cut-each-face": sums.running(Rounding("bf16", "zero"), 16),
        "fp16-each-term": sums.running(Rounding("fp16"), 1),
    }
    for kernel in STAGES:
        for name, order in orders.items():
            yield Fault(f"accumulator-{name}", kernel, order=order)


FAULTS = (*_along(), *_down(), *_counts(), *_narrow())
