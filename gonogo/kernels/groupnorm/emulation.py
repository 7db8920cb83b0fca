"""The emulated builds of groupnorm_fw: the right kernel and mutants.

A group is a row of the dataflow of gonogo.kernels.normalization.emulation.forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gonogo.kernels.groupnorm import budget
from gonogo.kernels.kind import Arrays, Floats
from gonogo.kernels.normalization.emulation.builds import Build, faults
from gonogo.kernels.normalization.emulation.forward import Rows, emulate, exact, flat
from gonogo.kernels.normalization.emulation.logic import Logic
from gonogo.kernels.normalization.emulation.steps import Values
from gonogo.numerics.expectation import Array

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

ALL, Y = ("y", "mean", "rstd"), ("y",)

BUILDS: Mapping[str, Build] = {
    "correct": ("The right kernel.", (), Logic()),
    "bf16-accumulate": (
        "The sums over the tiles of a group run in a 16-bit Dst: "
        "a loss of precision, not of logic.",
        ALL,
        Logic(narrow_sums=True),
    ),
    "wrong-epsilon": (
        "epsilon is a thousand times too large.",
        ("y", "rstd"),
        Logic(epsilon_factor=1000.0),
    ),
    "epsilon-dropped": ("epsilon is not added.", ("y", "rstd"), Logic(epsilon_factor=0.0)),
    "unbiased-variance": (
        "The variance divides by one less than a group has elements.",
        ("y", "rstd"),
        Logic(divisor="unbiased"),
    ),
    "mean-square": (
        "The variance is the mean square: the mean isn't subtracted from it.",
        ("y", "rstd"),
        Logic(about=False),
    ),
    "mean-not-subtracted": (
        "x^ is x rstd: the mean is not subtracted.",
        Y,
        Logic(subtracted="nothing"),
    ),
    "padded-count": (
        "The sums are divided by a group's elements with their padding to whole tiles.",
        ALL,
        Logic(divisor="padded"),
    ),
    "last-tile-only": (
        "Only the last tile of a group is summed.",
        ALL,
        Logic(first_tiles="last", square_tiles="last"),
    ),
    "last-tile-missing": (
        "The mean leaves out the group's last tile.",
        ALL,
        Logic(first_tiles="not-last"),
    ),
    "tile-missing": (
        "The mean leaves out the group's middle tile.",
        ALL,
        Logic(first_tiles="not-middle"),
    ),
    "mask-missing": (
        "The last tile isn't masked: its padding, which holds the group's first values again, "
        "enters the sums.",
        ALL,
        Logic(mask=False),
    ),
    "stale-partial": (
        "Every 8th group has the sum of squares of the group before it.",
        ("y", "rstd"),
        Logic(stale_rows=True),
    ),
    "stale-register": (
        "The mean starts from what the previous run in the same process left in the register: "
        "right when run first.",
        ALL,
        Logic(stale=True),
    ),
    "rstd-off-1e-3": ("rstd is 1.001 times too large.", ("y", "rstd"), Logic(rstd_factor=1.001)),
    "group-boundaries": (
        "The statistics of a group are those of channels one further on.",
        ALL,
        Logic(change="boundaries"),
    ),
    "half-groups": (
        "There are twice as many groups of half the channels.",
        ALL,
        Logic(change="half"),
    ),
    "gamma-neighbour": ("gamma is that of the next channel.", Y, Logic(change="gamma-next")),
    "beta-neighbour": ("beta is that of the next channel.", Y, Logic(change="beta-next")),
    "beta-missing": ("beta is left out.", Y, Logic(change="beta-zeros")),
    "power-of-two-outliers": (
        "A few isolated values are twice too large.",
        Y,
        Logic(outliers=True),
    ),
    "nan-tile": ("32 elements of each of 32 groups are NaN.", Y, Logic(nan_tile=True)),
    "hang": ("The kernel never returns.", ALL, Logic(fate="hang")),
    "crash": ("The process dies of a segmentation fault.", ALL, Logic(fate="crash")),
}
FAULTS = faults(BUILDS)


def _rows(test: TestSpec, given: Mapping[str, Values], logic: Logic) -> Rows:
    x, gamma, beta = given["x"], given["gamma"], given["beta"]
    source = x
    match logic.change:
        case "boundaries":
            spatial = test.elements // (test.shape[0] * test.shape[1])
            source = np.roll(x.reshape(test.shape[0], -1), -spatial, axis=1).reshape(x.shape)
        case "gamma-next":
            gamma = np.roll(gamma, -1)
        case "beta-next":
            beta = np.roll(beta, -1)
        case "beta-zeros":
            beta = np.zeros_like(beta)
    return Rows(x, source, budget.spread(test, gamma), budget.spread(test, beta))


def _halved(test: TestSpec, rows: Rows, logic: Logic) -> Rows | None:
    """Return the rows as half groups, or None where a group can't be halved."""
    channels = test.shape[1] // test.parameter("num_groups")
    if logic.change != "half" or channels % 2:
        return None
    assert rows.beta is not None
    return Rows(*(a.reshape(2 * len(a), -1) for a in (rows.x, rows.source, rows.gamma, rows.beta)))


def run(
    test: TestSpec,
    given: Mapping[str, Floats],
    build: str,
    *,
    seed: int = 0,
    position: int = 0,
    compiled: bool | None = None,
) -> dict[str, Floats]:
    """Return y (groups, elements), and mean and rstd (groups,) of the build.

    Raises KeyError for an unknown build.
    """
    logic = BUILDS[build][2]
    rows = _rows(test, flat(given, test), logic)
    halved = _halved(test, rows, logic)
    return _outputs(rows, emulate(test, halved or rows, logic, position, compiled=compiled))


def ideal(test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
    """Return the outputs by the float64 function of the build's logic."""
    logic = BUILDS[build][2]
    rows = _rows(test, flat(given, test), logic)
    return _outputs(rows, exact(test.epsilon, _halved(test, rows, logic) or rows, logic))


def _outputs(rows: Rows, values: tuple[Values, Values, Values]) -> dict[str, Values]:
    """Return the outputs by name. Of half groups, take the statistics of every first half."""
    y, mean, rstd = values
    step = len(mean) // len(rows.x)
    return {"y": y.reshape(rows.x.shape), "mean": mean[::step].copy(), "rstd": rstd[::step].copy()}
