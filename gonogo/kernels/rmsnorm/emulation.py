"""The emulated builds of rmsnorm_fw: the right kernel and mutants.

The dataflow is in gonogo.kernels.normalization.emulation.forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from gonogo.kernels.kind import Arrays, Floats
from gonogo.kernels.normalization.emulation.builds import Build, faults, shared_builds
from gonogo.kernels.normalization.emulation.forward import Rows, emulate, exact, flat
from gonogo.kernels.normalization.emulation.logic import Logic
from gonogo.kernels.normalization.emulation.steps import Values
from gonogo.numerics.expectation import Array
from gonogo.spec.kernels import rmsnorm as names

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

BOTH = ("y", "rstd")
RIGHT = Logic(mean=False)
BUILDS: Mapping[str, Build] = {
    **shared_builds(RIGHT, BOTH, BOTH, "the sum"),
    "epsilon-dropped": ("epsilon is not added.", BOTH, replace(RIGHT, epsilon_factor=0.0)),
    "mean-subtracted": ("The mean is subtracted first, as in LayerNorm.", BOTH, Logic()),
}
FAULTS = faults(BUILDS, names.BUILDS)


def _rows(given: Mapping[str, Values], logic: Logic) -> Rows:
    return Rows(given["x"], given["x"], logic.gamma(given["gamma"])[None, :], None)


def run(
    test: TestSpec,
    given: Mapping[str, Floats],
    build: str,
    *,
    seed: int = 0,
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
