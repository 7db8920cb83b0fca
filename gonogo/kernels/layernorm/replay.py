"""The replay of LayerNorm's backward pass: dx row by row, dgamma and dbeta down the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm import autograd, measure
from gonogo.kernels.normalization.moments import VARIANCES, Moments, Rows, moments
from gonogo.kernels.normalization.row_moments import row_moments
from gonogo.numerics.expectation import Array
from gonogo.numerics.jit import HAVE_NUMBA
from gonogo.numerics.replay import spans
from gonogo.numerics.replay.cells import Measurement
from gonogo.numerics.replay.columns import column_sum
from gonogo.numerics.replay.compiled import gradient
from gonogo.numerics.replay.compiled.results import as_input, singles
from gonogo.numerics.replay.graph import ALL_COLUMNS, Columns, Graph
from gonogo.numerics.replay.program import ColumnOrder, Program
from gonogo.numerics.replay.quantity import Machine, Quantity

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

CENTERED = "rstd (P - s1 - x^ s2)"
LINEAR = "rstd P + b x + c"
TWO_CASTS = "rstd P - rstd (s1 + x^ s2)"
PRODUCTS: Mapping[str, tuple[str, ...]] = {
    CENTERED: ("x^", "P", "P x^", "s1", "s2", "x^ s2", "P - s1", "P - s1 - x^ s2"),
    LINEAR: ("P", "b", "c"),
    TWO_CASTS: ("P", "rstd P", "rstd (s1 + x^ s2)"),
}
"""The formulas of dx, each with the quantities that it may store besides mean and rstd."""
FORMULAS = {
    CENTERED: gradient.CENTERED,
    TWO_CASTS: gradient.TWO_CASTS,
    LINEAR: gradient.LINEAR,
}
"""The formulas that compiled loops cover."""
LATE_MEAN = "x rstd - mean rstd"
"""The form of dgamma's terms in ATen, whose noise grows with |mean| rstd."""
STATISTICS = ("mean", "rstd")
COLUMN_ORDERS = (
    ColumnOrder.rows,  # ATen
    ColumnOrder.windows,  # XLA; with up to 64 rows its windows are halves
    ColumnOrder.lanes,  # TensorFlow
    ColumnOrder.folded,
    ColumnOrder.halves,
    ColumnOrder.quarters,
)
"""The orders of 16-bit column sums, those of libraries first."""


@dataclass(frozen=True)
class BackwardRows:
    """The inputs of layernorm_bw, float64.

    Attributes:
        x, dy: (rows, N); large ones may be float32 (see compiled.results.as_input).
        gamma: (1, N).
        mean, rstd: (rows, 1) where the kernel is given them, else None.
        epsilon: added to the variance where the kernel computes it.
        forward: the rows as a forward pass has them, where these are some of a tensor's rows.
    """

    x: Array
    dy: Array
    gamma: Array
    mean: Array | None
    rstd: Array | None
    epsilon: float
    forward: Rows | None = None

    def some(self, chosen: NDArray[np.intp]) -> BackwardRows:
        """Return some of the rows."""
        mean = None if self.mean is None else self.mean[chosen]
        rstd = None if self.rstd is None else self.rstd[chosen]
        forward = self._forward.some(chosen)
        return replace(
            self,
            x=np.asarray(self.x[chosen], np.float64),
            dy=np.asarray(self.dy[chosen], np.float64),
            mean=mean,
            rstd=rstd,
            forward=forward,
        )

    def statistics(self, program: Program, *, quick: bool) -> tuple[Quantity, Quantity]:
        """Return mean and rstd as the kernel has them (rows, 1)."""
        if self.mean is not None and self.rstd is not None:
            return Quantity(self.mean), Quantity(self.rstd)
        computed = row_moments(program, self._forward, quick=quick)
        assert computed.mean is not None
        return computed.mean, computed.rstd

    def moments(self, program: Program, *, quick: bool) -> Moments:
        """Return the statistics of a forward pass, which the kernel computes itself."""
        as_root = "(x - mean) / root" if program.product == autograd.QUOTIENT else program.product
        return moments(replace(program, product=as_root), self._forward, quick=quick)

    @cached_property
    def _forward(self) -> Rows:
        return self.forward or Rows(self.x, None, None, self.epsilon)


@dataclass(frozen=True)
class InputGradient:
    """The graph of dx."""

    rows: BackwardRows

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, N)."""
        return self.rows.x.shape[0], self.rows.x.shape[1]

    @property
    def forms(self) -> tuple[Program, ...]:
        """Return a program of each form, with nothing stored, the usual ones first."""
        variances = VARIANCES[:1] if self.rows.mean is not None else (VARIANCES[0], VARIANCES[2])
        return tuple(Program(variance, product) for variance in variances for product in PRODUCTS)

    @property
    def known(self) -> tuple[tuple[Program, tuple[str, ...]], ...]:
        """Return (form, stored quantities) of programs that libraries are known to have."""
        if self.rows.mean is not None:
            return (
                (Program(product=CENTERED), ("P",)),
                (Program(product=TWO_CASTS), ("rstd P", "rstd (s1 + x^ s2)")),
            )
        listed = [
            (Program("x", LINEAR), STATISTICS),  # ATen on a CPU
            (Program(product=CENTERED), ("P",)),  # MLX, TensorFlow's fused kernel
            (Program(product=TWO_CASTS), ("rstd P", "rstd (s1 + x^ s2)")),  # flax
            (Program("x", CENTERED), STATISTICS),
            (Program(product=CENTERED), STATISTICS),
            (Program(product=LINEAR), STATISTICS),
        ]
        return (*listed, *autograd.derived())

    def storable(self, program: Program) -> tuple[str, ...]:
        """Return the quantities that a program of this form may store."""
        names = PRODUCTS[program.product]
        return names if self.rows.mean is not None else (*STATISTICS, *names)

    def some(self, rows: NDArray[np.intp]) -> InputGradient:
        """Return the graph of some of the rows."""
        return InputGradient(self.rows.some(rows))

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return some columns of dx, before its own rounding."""
        machine = Machine(program, quick=quick)
        x, dy = Quantity(self.rows.x), Quantity(self.rows.dy)
        product = machine.store(machine.multiply(dy, Quantity(self.rows.gamma)), "P")
        if program.product in autograd.PRODUCTS:
            at = self.rows.moments(program, quick=quick)
            forward = autograd.Forward(
                x, product, autograd.normalized(program, at, ALL_COLUMNS), at
            )
            return autograd.input_gradient(program, forward, quick=quick).columns(columns)
        mean, rstd = self.rows.statistics(program, quick=quick)
        s1 = machine.mean(product, "s1", "sum of P").per_row("s1")
        if program.product == LINEAR:
            return self._linear(machine, x, product, (mean, rstd, s1), columns)
        normalized = machine.store(machine.multiply(machine.subtract(x, mean), rstd), "x^")
        weighted = machine.store(machine.multiply(product, normalized), "P x^")
        s2 = machine.store(machine.mean(weighted, "s2", "sum of P x^").per_row("s2"), "s2")
        s1 = machine.store(s1, "s1")
        product, normalized = product.columns(columns), normalized.columns(columns)
        share = machine.store(machine.multiply(normalized, s2), "x^ s2")
        if program.product == TWO_CASTS:
            direct = machine.store(machine.multiply(product, rstd), "rstd P")
            through = machine.multiply(machine.add(s1, share), rstd)
            return machine.subtract(direct, machine.store(through, "rstd (s1 + x^ s2)"))
        difference = machine.store(machine.subtract(product, s1), "P - s1")
        rest = machine.store(machine.subtract(difference, share), "P - s1 - x^ s2")
        return machine.multiply(rest, rstd)

    def measure(
        self, program: Program, output: NDArray[np.floating], form: str, limit: float
    ) -> Measurement | None:
        """Return how near dx is to its replay, by compiled loops; None for other formulas."""
        dx = singles(output)
        if dx is None or program.product not in FORMULAS:
            return None
        rows = self.rows
        mean, rstd = rows.statistics(program, quick=False)
        return measure.input_gradient(
            (rows.x, rows.dy, rows.gamma),
            (mean, rstd),
            FORMULAS[program.product],
            program,
            lambda s1, weighted: _coefficients(Machine(program), mean, rstd, s1, weighted),
            dx,
            form,
            limit,
        )

    def _linear(
        self,
        machine: Machine,
        x: Quantity,
        product: Quantity,
        per_row: tuple[Quantity, Quantity, Quantity],
        columns: Columns,
    ) -> Quantity:
        """Return dx as ATen's CPU kernel computes it: rstd P + b x - c."""
        mean, rstd, s1 = per_row
        weighted = machine.mean(machine.multiply(product, x), "s2", "sum of P x").per_row("s2")
        b, c = _coefficients(machine, mean, rstd, s1, weighted)
        scaled = machine.multiply(product.columns(columns), rstd)
        linear = machine.add(scaled, machine.multiply(x.columns(columns), b))
        return machine.subtract(linear, c)


def _coefficients(
    machine: Machine, mean: Quantity, rstd: Quantity, s1: Quantity, weighted: Quantity
) -> tuple[Quantity, Quantity]:
    """Return b = (s1 mean - E[P x]) rstd^3 and c = b mean + s1 rstd, with E[P x] over x itself."""
    cube = machine.multiply(machine.multiply(rstd, rstd), rstd)
    centered = machine.subtract(machine.multiply(s1, mean), weighted).per_row("s2")
    b = machine.store(machine.multiply(centered, cube).per_row("b"), "b")
    shift = machine.add(machine.multiply(b, mean), machine.multiply(s1, rstd)).per_row("c")
    return b, machine.store(shift, "c")


@dataclass(frozen=True)
class ColumnGradient:
    """The graph of dgamma or dbeta, a single row (1, N) that sums over all rows.

    Attributes:
        rows: the kernel's inputs.
        weighted: True for dgamma, the sum of dy x^; False for dbeta, the sum of dy.
    """

    rows: BackwardRows
    weighted: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Return (1, N)."""
        return 1, self.rows.x.shape[1]

    @property
    def forms(self) -> tuple[Program, ...]:
        """Return a program of each form, with nothing stored, the usual ones first."""
        usual = (Program(column_order=ColumnOrder.blocked), Program(column_order=ColumnOrder.rows))
        late = tuple(replace(program, product=LATE_MEAN) for program in usual)
        return (*usual, *late) if self.weighted else usual

    @property
    def known(self) -> tuple[tuple[Program, tuple[str, ...]], ...]:
        """Return (form, stored quantities) of programs that libraries are known to have."""
        orders = COLUMN_ORDERS
        if not self.weighted:
            return tuple((Program(column_order=order), ("column sum",)) for order in orders)
        terms: list[tuple[Program, tuple[str, ...]]] = [
            (Program(), ()),
            (Program(), ("x^",)),
            (Program(), ("dy x^",)),
            (Program(), ("x^", "dy x^")),
        ]
        if self.rows.mean is None:
            terms += [(Program("x"), STATISTICS), (Program(), STATISTICS)]
        listed = [(program, names) for program, names in terms if names]
        for order in orders:
            listed += [
                (replace(program, column_order=order), (*names, "column sum"))
                for program, names in terms
            ]
        if self.rows.mean is None:
            for program, names in autograd.derived():
                sums = ("column sum",) if program.column_order is ColumnOrder.windows else ()
                forward = (*autograd.STATISTICS_OF[program.product], *autograd.FIRST)
                statistics = tuple(name for name in names if name in forward)
                choices = [(program, (*statistics, "dy x^", *sums))]
                if sums:  # compiled fp16 code contracts the products
                    folded = replace(program, column_order=ColumnOrder.folded)
                    choices += [(program, (*statistics, *sums)), (folded, (*statistics, *sums))]
                listed += [choice for choice in choices if choice not in listed]
        return tuple(listed)

    def storable(self, program: Program) -> tuple[str, ...]:
        """Return nothing: a single row is too little to search on, so only known programs count."""
        return ()

    def some(self, rows: NDArray[np.intp]) -> ColumnGradient:
        """Return the graph itself: every row is part of each sum."""
        return self

    def terms(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return the terms of the sums (rows, some columns)."""
        machine = Machine(program, quick=quick)
        dy = Quantity(self.rows.dy[:, columns])
        if not self.weighted:
            return dy
        if program.product in autograd.PRODUCTS:
            at = self.rows.moments(program, quick=quick)
            normalized = autograd.normalized(program, at, columns)
            return machine.store(machine.multiply(dy, normalized), "dy x^")
        mean, rstd = self.rows.statistics(program, quick=quick)
        x = Quantity(self.rows.x[:, columns])
        if program.product == LATE_MEAN or "column sum" in program.stored:
            # as ATen has it; its noise covers (x - mean) rstd
            shift = machine.multiply(mean, rstd)
            normalized = machine.subtract(machine.multiply(x, rstd), shift)
        else:
            normalized = machine.multiply(machine.subtract(x, mean), rstd)
        normalized = machine.store(normalized, "x^")
        return machine.store(machine.multiply(dy, normalized), "dy x^")

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return some columns of the sums, before their own rounding."""
        is_plain = not program.stored and program.product != LATE_MEAN
        if HAVE_NUMBA and is_plain and not quick and columns is ALL_COLUMNS:
            return self.by_loops(program)
        return self.by_definition(program, columns, quick=quick)

    def by_definition(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return some columns of the sums by the definition, in blocks of columns."""
        count, width = self.rows.x.shape
        chosen = np.arange(width)[columns]
        parts = [
            column_sum(self.terms(program, chosen[start:stop], quick=quick), program)
            for start, stop in spans.even(len(chosen), count)
        ]
        return Quantity.joined(parts, axis=1)

    def by_loops(self, program: Program) -> Quantity:
        """Return all sums by compiled loops; the program stores nothing."""
        statistics = self.rows.statistics(program, quick=False) if self.weighted else None
        return measure.column_sums(self.rows.x, self.rows.dy, statistics, program)


def graphs(test: TestSpec, given: Mapping[str, NDArray[Any]]) -> dict[str, Graph]:
    """Return the graph of each output of layernorm_bw, from what the device was given."""

    def per_row(name: str) -> Array | None:
        return np.asarray(given[name], np.float64).reshape(-1, 1) if name in given else None

    rows = BackwardRows(
        as_input(given["x"]),
        as_input(given["dy"]),
        np.atleast_2d(np.asarray(given["gamma"], np.float64)),
        per_row("mean"),
        per_row("rstd"),
        test.epsilon,
    )
    return {
        "dx": InputGradient(rows),
        "dgamma": ColumnGradient(rows, weighted=True),
        "dbeta": ColumnGradient(rows, weighted=False),
    }
