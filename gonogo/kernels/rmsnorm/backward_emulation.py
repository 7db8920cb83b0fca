"""The emulated builds of rmsnorm_bw: the right kernel and mutants.

The dataflow is in gonogo.kernels.normalization.emulation.backward. Where the kernel computes rstd
itself, it does so as rmsnorm_fw does, and stores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gonogo.kernels.kind import Arrays, Floats
from gonogo.kernels.normalization.emulation.backward import (
    Gradients,
    WormholeBackward,
    emulate,
    exact,
)
from gonogo.kernels.normalization.emulation.forward import (
    faults,
    flat,
    moments,
    stored_moments,
)
from gonogo.kernels.normalization.emulation.logic import TILE, Logic
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.kernels.normalization.emulation.spoil import hang_or_crash
from gonogo.kernels.normalization.emulation.steps import Exact
from gonogo.numerics.expectation import Array
from gonogo.numerics.tensix import arithmetic as wh

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

BOTH, DX, DGAMMA = ("dx", "dgamma"), ("dx",), ("dgamma",)
RIGHT = Logic(mean=False)

BUILDS: Mapping[str, tuple[str, tuple[str, ...], Logic]] = {
    "correct": ("The right kernel.", (), RIGHT),
    "drop-s2": ("x^ s2 is not subtracted at all.", DX, replace(RIGHT, s2_times=0.0)),
    "s2-sign": (
        "x^ s2 is added instead of subtracted.",
        DX,
        replace(RIGHT, s2_times=-1.0),
    ),
    "last-block-only": (
        "s2 keeps only its last block of three tiles.",
        DX,
        replace(RIGHT, square_tiles="last-block"),
    ),
    "bf16-accumulate": (
        "The sums over the tiles of a row run in a 16-bit Dst: a loss of precision, not of logic.",
        BOTH,
        replace(RIGHT, narrow_sums=True),
    ),
    "wrong-epsilon": (
        "epsilon is a thousand times too large where the kernel makes its own rstd.",
        BOTH,
        replace(RIGHT, epsilon_factor=1000.0),
    ),
    "mean-subtracted": (
        "x^ is (x - mean) rstd, as in LayerNorm.",
        BOTH,
        replace(RIGHT, change="mean"),
    ),
    "padded-count": (
        "s2 is divided by N with its padding to whole tiles.",
        DX,
        replace(RIGHT, divisor="padded"),
    ),
    "last-tile-only": ("s2 sums only the last tile.", DX, replace(RIGHT, square_tiles="last")),
    "last-tile-missing": (
        "s2 leaves out the last tile.",
        DX,
        replace(RIGHT, square_tiles="not-last"),
    ),
    "tile-missing": (
        "s2 leaves out the row's middle tile.",
        DX,
        replace(RIGHT, square_tiles="not-middle"),
    ),
    "mask-missing": (
        "The last tile isn't masked: its padding, which holds the row's first values again, "
        "enters s2.",
        DX,
        replace(RIGHT, mask=False),
    ),
    "stale-partial": (
        "Every 8th row has the s2 of the row before it.",
        DX,
        replace(RIGHT, stale_rows=True),
    ),
    "stale-register": (
        "s2 starts from what the previous run in the same process left in the register: "
        "right when run first.",
        DX,
        replace(RIGHT, stale=True),
    ),
    "rstd-off-1e-3": (
        "rstd is 1.001 times too large where it scales the result.",
        DX,
        replace(RIGHT, rstd_factor=1.001),
    ),
    "gamma-shifted-tile": (
        "gamma is read one tile (32 columns) too early.",
        DX,
        replace(RIGHT, change="gamma-tile"),
    ),
    "gamma-neighbour": (
        "gamma is that of the next column.",
        DX,
        replace(RIGHT, change="gamma-next"),
    ),
    "gamma-missing": ("gamma is left out.", DX, replace(RIGHT, change="gamma-ones")),
    "dgamma-last-row-tile-missing": (
        "dgamma leaves out the last tile of rows.",
        DGAMMA,
        replace(RIGHT, change="dgamma-rows"),
    ),
    "power-of-two-outliers": (
        "A few isolated values are twice too large.",
        DX,
        replace(RIGHT, outliers=True),
    ),
    "nan-tile": ("One 32x32 tile is NaN.", DX, replace(RIGHT, nan_tile=True)),
    "hang": ("The kernel never returns.", BOTH, replace(RIGHT, fate="hang")),
    "crash": ("The process dies of a segmentation fault.", BOTH, replace(RIGHT, fate="crash")),
}
FAULTS = faults(BUILDS)


def run(
    test: TestSpec, given: Mapping[str, Floats], build: str, *, position: int = 0
) -> dict[str, Floats]:
    """Return dx (rows, N) and dgamma (N,) of the build; KeyError for an unknown one.

    Doesn't return from a build that hangs or crashes.
    """
    logic = BUILDS[build][2]
    if logic.fate is not None:
        hang_or_crash(logic.fate)
    rows, machine = flat(given, test), Machine.of(test, logic.narrow_sums)
    stored = WormholeBackward(machine, columns_in_srcb=True)

    def column(place: int, of: Logic) -> Floats:
        """Return a mean (0) or rstd (1) that the kernel computes itself, read back."""
        return stored.column(stored_moments(rows["x"], test.epsilon, of, machine)[place])

    gradients = Gradients(
        rows["x"],
        rows["dy"],
        wh.read_source(logic.gamma(rows["gamma"]), machine.reads_bf16("gamma", "dy")),
        column(0, Logic()) if logic.change == "mean" else None,
        wh.read_source(rows["rstd"], machine.narrow)
        if "rstd" in rows
        else column(1, logic.statistics_only()),
    )
    outputs = emulate(machine, gradients, logic, position)
    return {name: outputs[name] for name in BOTH}


def ideal(test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
    """Return dx and dgamma by the float64 function of the build's logic."""
    logic = BUILDS[build][2]
    rows = {name: np.asarray(a, np.float64) for name, a in flat(given, test).items()}
    statistics = moments(Exact(), rows["x"], test.epsilon, logic.statistics_only(), np.zeros(TILE))
    mean = rows["x"].mean(axis=1) if logic.change == "mean" else None
    gradients = Gradients(
        rows["x"], rows["dy"], logic.gamma(rows["gamma"]), mean, rows.get("rstd", statistics[2])
    )
    outputs = exact(gradients, logic)
    return {name: outputs[name] for name in BOTH}
