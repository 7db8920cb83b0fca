"""Quantities of a replay: values with the noise of what the kernel computes but doesn't store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import jit
from gonogo.numerics.expectation import Array, binade
from gonogo.numerics.formats import Mode, round_to
from gonogo.numerics.replay import narrow_sums, operations, orders
from gonogo.numerics.replay.narrow_sums import UNIT, Place
from gonogo.numerics.replay.program import ColumnOrder, Program

TIE = 8.0
"""Standard deviations within which a stored value may round to either side of a tie."""
RECIPROCAL = "1/N"
"""The factor of means that a kernel may store, as MLX does."""
NOTHING = np.zeros((1, 1))
SMALL = 2**14
"""The largest quantity, in elements, of which NumPy's calls cost more than its memory.

It is rounded together with its two neighbors, and its sums are rounded by compiled loops.
"""


@dataclass(frozen=True)
class Quantity:
    """Values of a replay, (rows, N) or (rows, 1), float64.

    Attributes:
        values: what the program computes, rounded where it stores.
        noise: the variance of each element's own error.
        shared: errors that a row's elements share, by their source: one standard deviation of the
            source's error as it shows in each element, signed.
        slack: how far an element may be off since a stored value was near a tie.
    """

    values: Array
    noise: Array = field(default_factory=lambda: NOTHING)
    shared: Mapping[str, Array] = field(default_factory=dict)
    slack: Array = field(default_factory=lambda: NOTHING)

    def __post_init__(self) -> None:
        """Widen the values of inputs that are given as float32."""
        if self.values.dtype != np.float64:
            object.__setattr__(self, "values", np.asarray(self.values, np.float64))

    @staticmethod
    def joined(parts: Sequence[Quantity], axis: int = 0) -> Quantity:
        """Return the quantity of several blocks of rows (axis 0) or of columns (axis 1)."""
        if len(parts) == 1:
            return parts[0]

        def together(arrays: Sequence[Array]) -> Array:
            shapes = [part.values.shape for part in parts]
            full = [np.broadcast_to(a, s) for a, s in zip(arrays, shapes, strict=True)]
            return np.concatenate(full, axis=axis)

        sources = sorted({source for part in parts for source in part.shared})
        return Quantity(
            np.concatenate([part.values for part in parts], axis=axis),
            together([part.noise for part in parts]),
            {
                source: together([part.shared.get(source, NOTHING) for part in parts])
                for source in sources
            },
            together([part.slack for part in parts]),
        )

    @property
    def variance(self) -> Array:
        """Return the variance of each element."""
        total = self.noise
        for error in self.shared.values():
            total = total + error**2
        return total

    def per_row(self, source: str) -> Quantity:
        """Return a value per row (rows, 1) whose own roundings are an error that the row shares."""
        error = np.sqrt(self.noise + self.shared.get(source, NOTHING) ** 2)
        return Quantity(self.values, NOTHING, {**self.shared, source: error}, self.slack)

    def columns(self, chosen: slice | NDArray[np.intp]) -> Quantity:
        """Return some of the columns; a value per row stays."""

        def cut(a: Array) -> Array:
            return a[:, chosen] if a.shape[1] > 1 else a

        shared = {source: cut(error) for source, error in self.shared.items()}
        return Quantity(cut(self.values), cut(self.noise), shared, cut(self.slack))


class Machine:
    """Evaluate a program's operations in float64, with the noise that fp32 would add."""

    def __init__(
        self, program: Program, *, quick: bool = False, place: Place | None = None
    ) -> None:
        """Evaluate `program`.

        quick: take the noise of sums from their size, not from orders. place: where the rows are
        in the whole tensor, where these aren't all; some orders of sums depend on it.
        """
        self.program = program
        self.quick = quick
        self.place = place

    def add(self, a: Quantity, b: Quantity, sign: float = 1.0) -> Quantity:
        """Return a + b, or a - b with sign -1."""
        if sign == 1.0:
            shared, values = _joined(a.shared, b.shared), a.values + b.values
        else:
            minus = {source: sign * error for source, error in b.shared.items()}
            shared, values = _joined(a.shared, minus), a.values + sign * b.values
        return _rounded(values, a.noise + b.noise, shared, a.slack + b.slack)

    def subtract(self, a: Quantity, b: Quantity) -> Quantity:
        """Return a - b."""
        return self.add(a, b, -1.0)

    def multiply(self, a: Quantity, b: Quantity) -> Quantity:
        """Return a b."""
        shared = _joined(
            {source: error * b.values for source, error in a.shared.items()},
            {source: error * a.values for source, error in b.shared.items()},
        )
        values = a.values * b.values
        if jit.is_loaded():
            parts = (a.values, a.noise, a.slack, b.values, b.noise, b.slack)
            if _spans(values, parts):
                noise, slack = np.empty(values.shape), np.empty(values.shape)
                operations.multiply(
                    jit.plain(values),
                    jit.plain(a.values),
                    jit.plain(a.noise),
                    jit.plain(a.slack),
                    jit.plain(b.values),
                    jit.plain(b.noise),
                    jit.plain(b.slack),
                    UNIT,
                    not shared,
                    noise,
                    slack,
                )
                if not values.flags.c_contiguous and not _is_by_rows(
                    (a.values, b.slack), (b.values, a.slack), (a.slack, b.slack)
                ):
                    slack = np.asfortranarray(slack)
                return Quantity(values, noise, shared, slack)
        slack = np.abs(a.values) * b.slack + np.abs(b.values) * a.slack + a.slack * b.slack
        noise = a.noise * b.values**2 + b.noise * a.values**2
        return _rounded(values, noise, shared, slack)

    def divide(self, a: Quantity, b: Quantity) -> Quantity:
        """Return a / b; b isn't 0."""
        return self.multiply(a, self._power(b, -1.0))

    def mean(self, a: Quantity, source: str, total: str) -> Quantity:
        """Return the mean of each row; the order of its sum is an error of the name `source`.

        total: the name of the sum, which a kernel may store before it divides.
        """
        count = Quantity(np.full((1, 1), float(a.values.shape[1])))
        if total not in self.program.stored:
            return self._mean(a, source)
        if self.program.row_order is ColumnOrder.blocked:
            added = self.store(self.multiply(self._mean(a, source), count), total)
        else:
            added = self.row_sum(a, total)
        return self.per_count(added, a.values.shape[1])

    def _mean(self, a: Quantity, source: str) -> Quantity:
        """Return the mean of each row, whose sum stays in fp32."""
        shape = a.values.shape
        noise = _widened(a.noise, shape).sum(axis=1, keepdims=True) / shape[1] ** 2
        shared = {
            name: _widened(error, shape).mean(axis=1, keepdims=True)
            for name, error in a.shared.items()
        }
        mean, deviation, narrow = orders.simulated(a.values, self.program.order, quick=self.quick)
        # the simulated sums round their terms; the exact mean doesn't
        exact = orders.exact_mean(a.values)
        shared[source] = deviation[:, None]
        slack = _widened(a.slack, shape).mean(axis=1, keepdims=True)
        return Quantity((exact + (mean - narrow))[:, None], noise, shared, slack)

    def per_count(self, a: Quantity, count: int) -> Quantity:
        """Return a / count; a program that stores 1/N multiplies by it."""
        number = Quantity(np.full((1, 1), float(count)))
        if RECIPROCAL in self.program.stored:
            return self.multiply(a, self.store(self.reciprocal(number), RECIPROCAL))
        return self.divide(a, self.store(number, "N"))

    def row_sum(self, a: Quantity, total: str) -> Quantity:
        """Return the sum of each row (rows, 1), stored after each addition, in the row order."""
        reach = np.broadcast_to(TIE * np.sqrt(a.variance) + a.slack, a.values.shape).T
        low, usual, high = narrow_sums.bounds(
            np.ascontiguousarray(a.values.T),
            reach,
            self.program.stored[total],
            self.program.row_order,
            self.program.rounding,
            self.place,
        ).T
        return Quantity(usual[:, None], slack=np.maximum(high - usual, usual - low)[:, None])

    def root(self, a: Quantity) -> Quantity:
        """Return sqrt(a)."""
        return self._power(a, 0.5)

    def reciprocal(self, a: Quantity) -> Quantity:
        """Return 1 / a."""
        return self._power(a, -1.0)

    def rsqrt(self, a: Quantity) -> Quantity:
        """Return 1 / sqrt(a), with a rounding of its own for the approximation."""
        exact = self._power(a, -0.5)
        noise = exact.noise + (UNIT * binade(exact.values)) ** 2 / 3
        return Quantity(exact.values, noise, exact.shared, exact.slack)

    def epsilon(self, a: Quantity, epsilon: float) -> Quantity:
        """Return a + epsilon, which a kernel may hold as fp32 or wider."""
        held_in_fp32 = float(np.float32(epsilon))
        error = np.full((1, 1), abs(held_in_fp32 - epsilon))
        shared = _joined(a.shared, {"epsilon": error})
        return _rounded(a.values + held_in_fp32, a.noise, shared, a.slack)

    def store(self, a: Quantity, name: str, mode: Mode | None = None) -> Quantity:
        """Return the quantity as the program stores it; unchanged where it doesn't.

        mode: how it is rounded; None: as the program rounds.
        """
        form = self.program.stored.get(name)
        if form is None:
            return a
        mode = mode or self.program.rounding
        variance = a.variance
        grid = operations.grid(form, mode)
        if jit.is_loaded() and grid is not None and _spans(a.values, (variance, a.slack)):
            values, slack = np.empty(a.values.shape), np.empty(a.values.shape)
            variance = jit.plain(variance)
            operations.store(
                jit.plain(a.values), variance, jit.plain(a.slack), TIE, *grid, values, slack
            )
            return Quantity(values, slack=slack)
        reach = TIE * np.sqrt(variance) + a.slack
        if a.values.size <= SMALL:
            three = np.stack(np.broadcast_arrays(a.values, a.values - reach, a.values + reach))
            near, low, high = round_to(three, form, mode)
            values = near[: len(a.values), : a.values.shape[1]].astype(np.float64)
        else:
            values = round_to(a.values, form, mode).astype(np.float64)
            low = round_to(a.values - reach, form, mode)
            high = round_to(a.values + reach, form, mode)
        return Quantity(values, slack=np.maximum(high - values, values - low))

    def _power(self, a: Quantity, exponent: float) -> Quantity:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = a.values**exponent
            slope = exponent * values / a.values
        shared = {source: error * slope for source, error in a.shared.items()}
        return _rounded(values, a.noise * slope**2, shared, a.slack * np.abs(slope))


def _widened(values: Array, shape: tuple[int, ...]) -> Array:
    """Return what np.broadcast_to returns, without its cost where nothing is to be done."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


def _joined(a: Mapping[str, Array], b: Mapping[str, Array]) -> dict[str, Array]:
    """Return the sums of errors of equal sources, and all others."""
    shared = dict(a)
    for source, error in b.items():
        shared[source] = shared[source] + error if source in shared else error
    return shared


def _rounded(values: Array, noise: Array, shared: Mapping[str, Array], slack: Array) -> Quantity:
    """Return a quantity with the rounding of one fp32 operation: h^2 / 3, h half a step.

    Exact operands whose result fp32 holds, such as the product of two 16-bit values, don't round.
    """
    if values.size <= SMALL and jit.is_loaded() and _spans(values, (noise, slack)):
        total = np.empty(values.shape)
        operations.add_rounding(
            jit.plain(values), jit.plain(noise), jit.plain(slack), UNIT, not shared, total
        )
        return Quantity(values, total, shared, slack)
    rounding = (UNIT * binade(values)) ** 2 / 3
    if not shared:
        with np.errstate(over="ignore"):
            fits = values.astype(np.float32) == values
        rounding = np.where(fits & (noise == 0.0) & (slack == 0.0), 0.0, rounding)
    return Quantity(values, noise + rounding, shared, slack)


def _spans(values: Array, parts: Sequence[Array]) -> bool:
    """Return whether each part has as many rows and columns as `values` (rows, N), or 1."""
    shape = rows, columns = values.shape
    for part in parts:
        other = part.shape
        if other != shape and (other[0] not in (rows, 1) or other[1] not in (columns, 1)):
            return False
    return values.size > 0


def _is_by_rows(*products: tuple[Array, Array]) -> bool:
    """Return whether a sum of products lies in memory row by row, where NumPy computes it.

    Chosen columns lie column by column, and NumPy adds up values in an order that depends on it.
    The sum lies like them unless a factor lies row by row, or a column is multiplied by a row.
    """
    return any(
        not (p.flags.f_contiguous and q.flags.f_contiguous)
        or (p.size > 1 < q.size and p.shape[0] != q.shape[0] and p.shape[1] != q.shape[1])
        for p, q in products
    )
