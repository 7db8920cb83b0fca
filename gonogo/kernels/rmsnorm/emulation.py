"""The emulated builds of rmsnorm_fw: the right kernel and mutants.

The dataflow is in gonogo.kernels.normalization.emulation.forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gonogo.kernels.kind import Arrays, Floats
from gonogo.kernels.normalization.emulation.forward import (
    Rows,
    emulate,
    exact,
    faults,
    flat,
)
from gonogo.kernels.normalization.emulation.logic import Logic
from gonogo.kernels.normalization.emulation.steps import Values
from gonogo.numerics.expectation import Array

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

BOTH, Y = ("y", "rstd"), ("y",)
RIGHT = Logic(mean=False)

BUILDS: Mapping[str, tuple[str, tuple[str, ...], Logic]] = {
    "correct": ("The right kernel.", (), RIGHT),
    "bf16-accumulate": (
        "The sum of the squares over the tiles of a row runs in a 16-bit Dst: "
        "a loss of precision, not of logic.",
        BOTH,
        replace(RIGHT, narrow_sums=True),
    ),
    "wrong-epsilon": (
        "epsilon is a thousand times too large.",
        BOTH,
        replace(RIGHT, epsilon_factor=1000.0),
    ),
    "epsilon-dropped": ("epsilon is not added.", BOTH, replace(RIGHT, epsilon_factor=0.0)),
    "mean-subtracted": ("The mean is subtracted first, as in LayerNorm.", BOTH, Logic()),
    "padded-count": (
        "The sum is divided by N with its padding to whole tiles.",
        BOTH,
        replace(RIGHT, divisor="padded"),
    ),
    "last-tile-only": (
        "Only the last tile of a row is summed.",
        BOTH,
        replace(RIGHT, square_tiles="last"),
    ),
    "last-tile-missing": (
        "The last tile of a row is not summed.",
        BOTH,
        replace(RIGHT, square_tiles="not-last"),
    ),
    "tile-missing": (
        "The middle tile of a row is not summed.",
        BOTH,
        replace(RIGHT, square_tiles="not-middle"),
    ),
    "mask-missing": (
        "The last tile isn't masked: its padding, which holds the row's first values again, "
        "enters the sum.",
        BOTH,
        replace(RIGHT, mask=False),
    ),
    "stale-partial": (
        "Every 8th row has the sum of the row before it.",
        BOTH,
        replace(RIGHT, stale_rows=True),
    ),
    "stale-register": (
        "The sum starts from what the previous run in the same process left in the register: "
        "right when run first.",
        BOTH,
        replace(RIGHT, stale=True),
    ),
    "rstd-off-1e-3": ("rstd is 1.001 times too large.", BOTH, replace(RIGHT, rstd_factor=1.001)),
    "gamma-shifted-tile": (
        "gamma is read one tile (32 columns) too early.",
        Y,
        replace(RIGHT, change="gamma-tile"),
    ),
    "gamma-neighbour": (
        "gamma is that of the next column.",
        Y,
        replace(RIGHT, change="gamma-next"),
    ),
    "gamma-missing": ("gamma is left out.", Y, replace(RIGHT, change="gamma-ones")),
    "power-of-two-outliers": (
        "A few isolated values are twice too large.",
        Y,
        replace(RIGHT, outliers=True),
    ),
    "nan-tile": ("One 32x32 tile is NaN.", Y, replace(RIGHT, nan_tile=True)),
    "hang": ("The kernel never returns.", BOTH, replace(RIGHT, fate="hang")),
    "crash": ("The process dies of a segmentation fault.", BOTH, replace(RIGHT, fate="crash")),
}
FAULTS = faults(BUILDS)


def _rows(given: Mapping[str, Values], logic: Logic) -> Rows:
    return Rows(given["x"], given["x"], logic.gamma(given["gamma"])[None, :], None)


def run(
    test: TestSpec,
    given: Mapping[str, Floats],
    build: str,
    *,
    position: int = 0,
    compiled: bool | None = None,
) -> dict[str, Floats]:
    """Return y (rows, N) and rstd (rows,) of the build; KeyError for an unknown one."""
    logic = BUILDS[build][2]
    rows = _rows(flat(given, test), logic)
    y, _, rstd = emulate(test, rows, logic, position, compiled=compiled)
    return {"y": y, "rstd": rstd}


def ideal(test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
    """Return y and rstd by the float64 function of the build's logic."""
    logic = BUILDS[build][2]
    y, _, rstd = exact(test.epsilon, _rows(flat(given, test), logic), logic)
    return {"y": y, "rstd": rstd}
