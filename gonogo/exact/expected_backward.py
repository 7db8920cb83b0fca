"""The exact gradients, and how far a right kernel may lie from the cells of its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import scales
from gonogo.exact.expected import OPERATIONS, STORED, WELFORD, Arrays, Expected, absorbed
from gonogo.exact.vernier import UNIT
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay.narrow_sums import bounds
from gonogo.numerics.replay.program import ColumnOrder

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

MAX_TERMS = 1024
"""A sum of n terms in fp32 is off by at most min(n, 1024) u sum|term|: longer ones are blocked."""


@dataclass(frozen=True)
class Backward:
    """The parts of dx in some rows; matrices are (rows, N), columns (rows,)."""

    xhat: Doubles
    product: Doubles
    """P = dy gamma."""
    dy: Doubles
    gamma: Doubles
    """(N,)."""
    mean: Doubles
    """0 for RMSNorm, as is s1."""
    rstd: Doubles
    s1: Doubles
    s2: Doubles
    dx: Expected
    is_centered: bool
    """False for RMSNorm."""


def backward(
    test: TestSpec, inputs: Arrays, rows: NDArray[np.intp], epsilon: float | None = None
) -> Backward:
    """Return the exact dx in `rows`, from what the kernel gets: its statistics, or x alone.

    epsilon: another one than the test's, for a kernel that computes its own statistics.
    """
    shape = (test.rows, test.features)
    x = np.asarray(inputs["x"]).reshape(shape)[rows].astype(np.float64)
    dy = np.asarray(inputs["dy"]).reshape(shape)[rows].astype(np.float64)
    gamma = np.asarray(inputs["gamma"], np.float64).reshape(-1)
    kind = scales.layout(test).kind[rows]
    centered = scales.is_centered(test)
    mean = x.mean(axis=1) if centered else np.zeros(len(x))
    if "rstd" in inputs:
        if centered:
            mean = np.asarray(inputs["mean"], np.float64).reshape(-1)[rows]
        rstd = np.asarray(inputs["rstd"], np.float64).reshape(-1)[rows]
    else:
        variance = ((x - mean[:, None]) ** 2).mean(axis=1)
        rstd = 1.0 / np.sqrt(variance + (test.epsilon if epsilon is None else epsilon))
        if epsilon is None:
            rstd = absorbed(rstd, kind)
    xhat = (x - mean[:, None]) * rstd[:, None]
    product = dy * gamma
    s1, s2 = product.mean(axis=1) * centered, (product * xhat).mean(axis=1)
    r = rstd[:, None]
    dx = r * (product - s1[:, None] - xhat * s2[:, None])
    size = np.abs(product) + np.abs(s1)[:, None] + np.abs(xhat * s2[:, None])
    rough = np.isin(kind, (scales.ROUGH, scales.EPSILON))
    # The form b x + c has terms as large as s2 |mean| r.
    sums = np.abs(s1) + np.abs(s2) * (1 + np.abs(mean) * rstd)
    room = r * (OPERATIONS * size + WELFORD * sums[:, None] * (test.features > 1))
    # Where P x^ is stored in 16 bits, a vernier row's s2 isn't quite 0.
    terms = product * xhat
    lost = np.abs(terms - round_to(terms, stored_format(test))).mean(axis=1)
    room += r * np.abs(xhat) * np.where(rough, 0.0, lost)[:, None]
    room += np.where(rough, STORED, 0.0)[:, None] * r * size
    strict = np.broadcast_to(~rough[:, None], x.shape)
    expectation = Expected(dx, room, strict)
    return Backward(xhat, product, dy, gamma, mean, rstd, s1, s2, expectation, centered)


def gradient(parts: Backward, product: Doubles) -> Doubles:
    """Return the exact dx, (rows, N), with another P."""
    s1 = product.mean(axis=1, keepdims=True) * parts.is_centered
    s2 = (product * parts.xhat).mean(axis=1, keepdims=True)
    result: Doubles = parts.rstd[:, None] * (product - s1 - parts.xhat * s2)
    return result


def stored_format(test: TestSpec) -> str:
    """Return the format in which a right kernel may store products."""
    numerics = test.numerics
    return numerics.output if numerics.output != "fp32" else numerics.buffers


def columns(test: TestSpec, inputs: Arrays, name: str) -> tuple[Doubles, Expected]:
    """Return the terms of dgamma or dbeta, (rows, N), and the expectation of the sums, (1, N).

    Terms that a kernel stores in 16 bits (dy x^) are rounded there, which the allowance includes.
    """
    parts = backward(test, inputs, np.arange(test.rows))
    terms = parts.dy * parts.xhat if name == "dgamma" else parts.dy
    size = np.abs(terms).sum(axis=0)
    room = min(test.rows, MAX_TERMS) * UNIT * size
    fmt = stored_format(test)
    kind = scales.layout(test).kind
    rough = np.isin(kind, (scales.ROUGH, scales.EPSILON))
    if name == "dgamma":
        room += np.abs(terms - round_to(terms, fmt))[~rough].sum(axis=0)
        room += STORED * np.abs(terms[rough]).sum(axis=0)
    exact = terms.sum(axis=0)[None]
    return terms, Expected(exact, room[None], np.ones(exact.shape, dtype=bool))


PARTIAL_SUMS = "partial sums of which 10 bits are read, as Wormhole's are"

IN_HALVES = "x^ s2 subtracted in two halves, as a gradient of x * x is added up in 16 bits"

NARROW = "a 16-bit accumulator"

NARROW_ORDERS = (
    ColumnOrder.rows,
    ColumnOrder.windows,
    ColumnOrder.folded,
    ColumnOrder.lanes,
    ColumnOrder.halves,
    ColumnOrder.quarters,
)
"""The known orders of column sums whose total is stored in 16 bits after each addition."""


def in_halves(parts: Backward, fmt: str) -> Floats:
    """Return dx (rows, N) of a kernel that adds the two gradients of x * x one after the other.

    Automatic differentiation of x rsqrt(mean(x * x) + epsilon) does so, and rounds to `fmt`.
    """
    r, half = parts.rstd[:, None], (parts.s2 * parts.rstd / 2)[:, None]
    share = round_to(half * parts.xhat, fmt).astype(np.float64)
    first = round_to(round_to(r * parts.product, fmt) - share, fmt)
    return round_to(first - share, fmt)


def narrow_order(test: TestSpec, terms: Doubles, output: Floats) -> ColumnOrder | None:
    """Return the order in which a 16-bit accumulator gives exactly this column sum, or None.

    terms: (rows, N). output: (1, N). Where rows about epsilon enter a column, its terms are known
    to STORED only; then the others must have the bits, and without others, all.
    """
    rough = np.isin(scales.layout(test).kind, (scales.ROUGH, scales.EPSILON))
    reach = STORED * np.abs(terms) * rough[:, None]
    if (reach > 0).any(axis=0).all():
        reach = np.zeros_like(terms)
    fmt = test.numerics.output
    stored = round_to(terms, fmt).astype(np.float64)
    value = output[0].astype(np.float64)
    for order in NARROW_ORDERS:
        least, _, most = np.moveaxis(bounds(stored, reach, fmt, order), -1, 0)
        if ((least <= value) & (value <= most)).all():
            return order
    return None
