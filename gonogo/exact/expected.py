"""The exact outputs, and how far a right kernel may lie from the cells of its outputs.

No arithmetic is assumed. The allowance is for what no input makes exact: 1/N as a factor, merged
Welford statistics, a reciprocal root of 2 ulp. It is far below the vernier's distances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.wormhole import aligned_sum, stored
from gonogo.exact import scales
from gonogo.exact.vernier import UNIT
from gonogo.numerics.formats import round_to

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]

WELFORD = 16 * UNIT
"""Merged Welford leaves 16 u (|mean| + S) r |gamma| where x^ = 0. Measured on merges of 4 to 64
chunks; 1/N as a factor leaves 2 u of it."""

OPERATIONS = 8 * UNIT
"""Rounding of fp32 operations on an element: rsqrt within 2 ulp (4 u), and four operations."""

STORED = 2.0**-6
"""The relative room of rows about epsilon, whose rstd is not exact. Variance, epsilon, rstd, x^ and
gamma x^ stored in bf16 make 2^-9 (.5 + 1 + 1 + 1 + 1) = .0088; in fp16, where the variance and
epsilon are subnormal, .0072."""

ALIGNED = "an addition that aligns the smaller operand, as Wormhole's ELWADD does"


@dataclass(frozen=True)
class Expected:
    """The expectation of one output, as a matrix (rows, columns)."""

    exact: Doubles
    allowance: Doubles
    """How far `exact` may lie outside of an output's cell; inf: not judged here."""
    strict: NDArray[np.bool_]
    """Elements of exact rows: where another arithmetic must be matched to the bit."""


def channels(test: TestSpec) -> NDArray[np.intp]:
    """Return the index of each element's gamma: (rows, N) or (1, N)."""
    if test.kernel != "groupnorm_fw":
        return np.arange(test.features)[None, :]
    groups = test.parameter("num_groups")
    (count,) = test.flat_shape_of("gamma")
    per_group = count // groups
    inside = np.arange(test.features) // (test.features // per_group)
    first = (np.arange(test.rows) % groups) * per_group
    index: NDArray[np.intp] = first[:, None] + inside[None, :]
    return index


def absorbed(rstd: Doubles, kind: NDArray[np.int64]) -> Doubles:
    """Return rstd with the power of two of exact rows: fp32 absorbs their epsilon."""
    exact = np.isin(kind, scales.EXACT_STATISTICS)
    return np.where(exact, rstd.astype(np.float32).astype(np.float64), rstd)


@dataclass(frozen=True)
class Forward:
    """The parts of a forward kernel's exact result in some rows; matrices are (rows, N)."""

    x: Doubles
    xhat: Doubles
    gamma: Doubles
    beta: Doubles
    mean: Doubles
    """(rows,); 0 for RMSNorm."""
    rstd: Doubles
    """(rows,)."""
    y: Expected
    moments: Mapping[str, Expected]
    """The outputs `mean` and `rstd`, (1, rows)."""

    def aligned(self, fmt: str) -> Floats:
        """Return y of a right kernel whose last addition is ALIGNED, packed with ties away."""
        terms = (self.gamma * self.xhat, self.beta)
        read = (stored(term.astype(np.float32), "tf32/zero") for term in terms)
        return round_to(aligned_sum(*read), fmt, "away")


def forward(test: TestSpec, inputs: Arrays, rows: NDArray[np.intp]) -> Forward:
    """Return the exact result of a forward kernel in `rows`, from what the kernel gets."""
    x = np.asarray(inputs["x"]).reshape(test.rows, test.features)[rows].astype(np.float64)
    index = channels(test)
    index = index[rows] if len(index) > 1 else index
    gamma = np.broadcast_to(np.asarray(inputs["gamma"], np.float64).reshape(-1)[index], x.shape)
    beta = np.zeros(x.shape)
    if "beta" in inputs:
        beta = np.broadcast_to(np.asarray(inputs["beta"], np.float64).reshape(-1)[index], x.shape)
    rms = not scales.is_centered(test)
    mean = np.zeros(len(x)) if rms else x.mean(axis=1)
    centered = x - mean[:, None]
    variance = (centered**2).mean(axis=1)
    kind = scales.layout(test).kind[rows]
    rstd = absorbed(1.0 / np.sqrt(variance + test.epsilon), kind)
    xhat = centered * rstd[:, None]
    product = gamma * xhat
    relative = np.where(np.isin(kind, (scales.ROUGH, scales.EPSILON)), STORED, 0.0)
    spread = (np.abs(mean) + np.sqrt(variance)) * (0.0 if rms else 1.0)
    room = WELFORD * (spread * rstd)[:, None] * np.abs(gamma)
    room += OPERATIONS * (np.abs(product) + np.abs(beta)) + relative[:, None] * np.abs(product)
    hidden = kind == scales.ALL_BITS
    room[hidden] = np.inf
    exact = kind == scales.EXACT
    strict = np.broadcast_to(exact[:, None], x.shape)
    rstd_room = np.where(hidden, np.inf, (OPERATIONS + relative) * rstd)
    moments = {"rstd": Expected(rstd[None], rstd_room[None], exact[None])}
    if not rms:
        mean_room = np.where(hidden, np.inf, WELFORD * spread)
        moments["mean"] = Expected(mean[None], mean_room[None], exact[None])
    y = Expected(product + beta, room, strict)
    return Forward(x, xhat, gamma, beta, mean, rstd, y, moments)
