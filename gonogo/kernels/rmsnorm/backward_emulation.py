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
from gonogo.kernels.normalization.emulation.builds import Build, faults, shared_builds
from gonogo.kernels.normalization.emulation.forward import flat, moments, stored_moments
from gonogo.kernels.normalization.emulation.logic import TILE, Logic
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.kernels.normalization.emulation.spoil import hang_or_crash
from gonogo.kernels.normalization.emulation.steps import Exact
from gonogo.numerics.expectation import Array
from gonogo.numerics.tensix import arithmetic as wh
from gonogo.spec.kernels.rmsnorm import BACKWARD_BUILDS

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

BOTH, DX, DGAMMA = ("dx", "dgamma"), ("dx",), ("dgamma",)
RIGHT = Logic(mean=False)
BUILDS: Mapping[str, Build] = {
    **shared_builds(RIGHT, BOTH, DX, "s2"),
    "drop-s2": ("x^ s2 is not subtracted at all.", DX, replace(RIGHT, s2_times=0.0)),
    "s2-sign": ("x^ s2 is added instead of subtracted.", DX, replace(RIGHT, s2_times=-1.0)),
    "last-block-only": (
        "s2 keeps only its last block of three tiles.",
        DX,
        replace(RIGHT, square_tiles="last-block"),
    ),
    "mean-subtracted": (
        "x^ is (x - mean) rstd, as in LayerNorm.",
        BOTH,
        replace(RIGHT, change="mean"),
    ),
    "dgamma-last-row-tile-missing": (
        "dgamma leaves out the last tile of rows.",
        DGAMMA,
        replace(RIGHT, change="dgamma-rows"),
    ),
}
FAULTS = faults(BUILDS, BACKWARD_BUILDS)


def run(
    test: TestSpec, given: Mapping[str, Floats], build: str, *, seed: int = 0, position: int = 0
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
