"""The steps of the forward dataflow in two arithmetics: a Wormhole's, and float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import Floats
from gonogo.kernels.normalization.emulation.logic import TILE
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.kernels.normalization.emulation.rows import lane_sums, normalized, row_mean
from gonogo.numerics.expectation import Array
from gonogo.numerics.tensix import arithmetic as wh

Values = NDArray[Any]


class Steps(Protocol):
    """The steps of the dataflow in one arithmetic. Rows are (rows, N), columns (rows,)."""

    def total(self, terms: Values, tiles: NDArray[np.bool_], stale: Values, divisor: int) -> Values:
        """Return the sum of each row over the selected tiles, divided by `divisor`."""
        ...

    def column(self, values: Values) -> Values:
        """Return a column after storing it and reading it back."""
        ...

    def operand(self, values: Values) -> Values:
        """Return such a column as ELWSUB sees it."""
        ...

    def centred(self, x: Values, mean: Values) -> Values:
        """Return x - mean as the squares use it."""
        ...

    def square(self, values: Values) -> Values:
        """Return the squares."""
        ...

    def root(self, values: Values, epsilon: float) -> Values:
        """Return 1/sqrt(values + epsilon)."""
        ...

    def times(self, column: Values, factor: float) -> Values:
        """Return a column times a constant."""
        ...

    def normal(self, x: Values, mean: Values | None, scale: Values) -> Values:
        """Return (x - mean) scale, stored and read back."""
        ...

    def affine(self, xhat: Values, gamma: Values, beta: Values | None) -> Values:
        """Return gamma x^ + beta as it is written out."""
        ...

    def out(self, column: Values) -> Values:
        """Return a column as it is written out."""
        ...


def packed(column: Floats, fmt: str) -> Floats:
    """Pack (rows,) values of a column: no two of them share a block's exponent."""
    return wh.pack(column[:, None], fmt)[:, 0]


@dataclass(frozen=True)
class Wormhole:
    """The arithmetic of a Tensix core.

    columns_in_srcb: stored columns are read through SrcB by the squares and the scale, too, not
    only by ELWSUB.
    """

    machine: Machine
    columns_in_srcb: bool = False

    def _vector(self, a: Floats) -> Floats:
        return wh.store_vector_bf16(a) if self.machine.narrow else a

    def total(self, terms: Floats, tiles: NDArray[np.bool_], stale: Floats, divisor: int) -> Floats:
        m = self.machine
        partial = wh.pack(lane_sums(terms, tiles, stale, m.narrow_sums), m.buffers)
        return row_mean(
            partial,
            wh.scaler(1.0 / divisor),
            m.fidelity,
            m.reads_bf16("buffers", "scaler"),
            m.narrow,
        )

    def column(self, values: Floats) -> Floats:
        columns = wh.read_source(packed(values, self.machine.buffers))
        return self.operand(columns) if self.columns_in_srcb else columns

    def operand(self, values: Floats) -> Floats:
        return wh.read_source(values, self.machine.reads_bf16("buffers", "x"))

    def centred(self, x: Floats, mean: Floats) -> Floats:
        return self._vector(wh.vector_subtract(x, mean[:, None]))

    def square(self, values: Floats) -> Floats:
        return self._vector(wh.vector_multiply(values, values))

    def root(self, values: Floats, epsilon: float) -> Floats:
        return wh.reciprocal_root(
            self._vector(wh.vector_add(values, wh.scaler(epsilon))), self.machine.narrow
        )

    def times(self, column: Floats, factor: float) -> Floats:
        return wh.vector_multiply(column, np.float32(factor))

    def normal(self, x: Floats, mean: Floats | None, scale: Floats) -> Floats:
        if mean is not None:
            return normalized(x, mean, scale, self.machine)
        return wh.read_source(
            wh.pack(self._vector(wh.vector_multiply(x, scale[:, None])), self.machine.buffers)
        )

    def affine(self, xhat: Floats, gamma: Floats, beta: Floats | None) -> Floats:
        m = self.machine
        y = wh.product(xhat, np.broadcast_to(gamma, xhat.shape), m.fidelity)
        if m.narrow:
            y = wh.round_dst_bf16(y)
        if beta is not None:
            y = wh.align_add(
                wh.read_source(wh.pack(y, m.buffers)), np.broadcast_to(beta, xhat.shape)
            )
            y = wh.round_dst_bf16(y) if m.narrow else y
        return wh.pack(y, m.output)

    def out(self, column: Floats) -> Floats:
        return packed(column, self.machine.output)


class Exact:
    """The same steps without rounding, in float64."""

    def total(self, terms: Array, tiles: NDArray[np.bool_], stale: Array, divisor: int) -> Array:
        summed = np.repeat(tiles, TILE)[: terms.shape[1]]
        return np.asarray((terms[:, summed].sum(axis=1) + stale.sum()) / divisor)

    def column(self, values: Array) -> Array:
        return values

    def operand(self, values: Array) -> Array:
        return values

    def centred(self, x: Array, mean: Array) -> Array:
        return x - mean[:, None]

    def square(self, values: Array) -> Array:
        return values**2

    def root(self, values: Array, epsilon: float) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / np.sqrt(values + epsilon))

    def times(self, column: Array, factor: float) -> Array:
        return column * factor

    def normal(self, x: Array, mean: Array | None, scale: Array) -> Array:
        return (x if mean is None else x - mean[:, None]) * scale[:, None]

    def affine(self, xhat: Array, gamma: Array, beta: Array | None) -> Array:
        return gamma * xhat + (0.0 if beta is None else beta)

    def out(self, column: Array) -> Array:
        return column
