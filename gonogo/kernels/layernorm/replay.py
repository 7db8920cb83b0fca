"""The replay of backward passes: dx row by row, dgamma and dbeta down the columns.

They are LayerNorm's, and those of RMSNorm, which subtracts no mean: there is no s1, and no dbeta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm import autograd, derivations, measure, programs
from gonogo.kernels.layernorm.programs import CENTERED, LINEAR, PRODUCTS, TWO_CASTS
from gonogo.kernels.normalization.moments import VARIANCES, Moments, Rows, moments
from gonogo.kernels.normalization.row_moments import mean_of_rows, row_moments
from gonogo.numerics.expectation import Array
from gonogo.numerics.jit import pays
from gonogo.numerics.replay import spans
from gonogo.numerics.replay.cells import Measurement
from gonogo.numerics.replay.columns import column_sum
from gonogo.numerics.replay.compiled import gradient
from gonogo.numerics.replay.compiled.results import as_input, singles
from gonogo.numerics.replay.graph import ALL_COLUMNS, Columns, Graph
from gonogo.numerics.replay.narrow_sums import Place
from gonogo.numerics.replay.program import WELFORD, ColumnOrder, Program
from gonogo.numerics.replay.quantity import Machine, Quantity
from gonogo.numerics.replay.shifts import MeanOfRows

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

FORMULAS = {
    CENTERED: gradient.CENTERED,
    TWO_CASTS: gradient.TWO_CASTS,
    LINEAR: gradient.LINEAR,
}
"""The formulas that compiled loops cover."""
LATE_MEAN = "x rstd - mean rstd"
"""The form of dgamma's terms in ATen, whose noise grows with |mean| rstd."""


@dataclass(frozen=True)
class BackwardRows:
    """The inputs of layernorm_bw or rmsnorm_bw, float64.

    Attributes:
        x, dy: (rows, N); large ones may be float32 (see compiled.results.as_input).
        gamma: (1, N).
        mean, rstd: (rows, 1) where the kernel is given them, else None.
        epsilon: added to the variance where the kernel computes it.
        forward: the rows as a forward pass has them, where these are some of a tensor's rows.
        centered: whether the kernel subtracts the mean.
    """

    x: Array
    dy: Array
    gamma: Array
    mean: Array | None
    rstd: Array | None
    epsilon: float
    forward: Rows | None = None
    centered: bool = True

    @property
    def is_given(self) -> bool:
        """Return whether the kernel is given the statistics of its rows."""
        return self.rstd is not None

    def with_epsilon(self, epsilon: float, *, is_outside: bool = False) -> BackwardRows:
        """Return the rows of a kernel that adds epsilon otherwise; see Rows."""
        forward = self._forward.with_epsilon(epsilon, is_outside=is_outside)
        return replace(self, epsilon=epsilon, forward=forward)

    def exact_rstd(self, variance: Array) -> Array:
        """Return rstd without any rounding, from the variances (rows, 1)."""
        if self._forward.is_outside:
            return np.asarray(1.0 / (np.sqrt(variance) + self.epsilon))
        return np.asarray(1.0 / np.sqrt(variance + self.epsilon))

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

    def statistics(self, program: Program, *, quick: bool) -> measure.Statistics:
        """Return mean and rstd as the kernel has them."""
        if self.rstd is not None:
            return None if self.mean is None else Quantity(self.mean), Quantity(self.rstd)
        computed = row_moments(program, self._forward, quick=quick)
        return computed.mean, computed.rstd

    def rstd_rounding(self, program: Program) -> Array | None:
        """Return the deviation of rstd's own rounding in each row (rows,), relative to it.

        None where the kernel is given it or stores it.
        """
        return None if self.is_given else row_moments(program, self._forward).rounding

    def mean_of_rows(self, program: Program) -> MeanOfRows | None:
        """Return the rows' means; None where the kernel is given them or stores them."""
        return None if self.is_given else mean_of_rows(program, self._forward)

    def moments(self, program: Program, *, quick: bool) -> Moments:
        """Return the statistics of a forward pass, which the kernel computes itself."""
        as_root = (
            "(x - mean) / root" if program.product == derivations.QUOTIENT else program.product
        )
        return moments(replace(program, product=as_root), self._forward, quick=quick)

    @property
    def place(self) -> Place | None:
        """Return where the rows are in the whole tensor; None: these are all."""
        return self._forward.place

    @cached_property
    def _forward(self) -> Rows:
        return self.forward or Rows(self.x, None, None, self.epsilon, self.centered)


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
        is_usual = self.rows.is_given or not self.rows.centered
        variances = VARIANCES[:1] if is_usual else (VARIANCES[0], VARIANCES[2])
        return tuple(Program(variance, product) for variance in variances for product in PRODUCTS)

    @property
    def derived(self) -> tuple[Program, ...]:
        """Return the gradients that libraries derive, each operation rounded to fp32."""
        if self.rows.is_given:
            return ()
        if not self.rows.centered:
            return tuple(Program(product=name) for name in derivations.UNCENTERED_DISTINCT)
        derived = (Program(derivations.VARIANCE_OF[name], name) for name in derivations.DISTINCT)
        return (*derived, *(Program(WELFORD, product) for product in programs.PRODUCTS))

    @property
    def known(self) -> tuple[tuple[Program, tuple[str, ...]], ...]:
        """Return (form, stored quantities) of programs that libraries are known to have."""
        return programs.of_inputs(self.rows.centered, self.rows.is_given)

    def storable(self, program: Program) -> tuple[str, ...]:
        """Return the quantities that a program of this form may store, none of a derived gradient.

        The known programs list all that libraries store there: a search would only add allowances.
        """
        if program.product in derivations.DERIVED:
            return ()
        centered = self.rows.centered
        names = programs.storable(program.product, centered=centered)
        return names if self.rows.is_given else (*programs.statistics(centered), *names)

    def last(self, program: Program) -> None:
        """Return None: what dx is before its rounding has no name."""

    def rstd_rounding(self, program: Program) -> Array | None:
        """Return the deviation of rstd's own rounding in each row, relative to it; see Graph."""
        return self.rows.rstd_rounding(program)

    def mean_of_rows(self, program: Program) -> MeanOfRows | None:
        """Return the rows' means, whose shift may be common; see shifts.Centered."""
        return self.rows.mean_of_rows(program)

    def some(self, rows: NDArray[np.intp]) -> InputGradient:
        """Return the graph of some of the rows."""
        return InputGradient(self.rows.some(rows))

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return some columns of dx, before its own rounding."""
        machine = Machine(program, quick=quick, place=self.rows.place)
        x, dy = Quantity(self.rows.x), Quantity(self.rows.dy)
        product = machine.store(machine.multiply(dy, Quantity(self.rows.gamma)), "P")
        if program.product in derivations.DERIVED:
            at = self.rows.moments(program, quick=quick)
            gamma = Quantity(self.rows.gamma)
            normalized = autograd.normalized(program, at, ALL_COLUMNS)
            forward = autograd.Forward(x, dy, gamma, product, normalized, at)
            place = self.rows.place
            dx = autograd.input_gradient(program, forward, quick=quick, place=place)
            return dx.columns(columns)
        mean, rstd = self.rows.statistics(program, quick=quick)
        s1 = None if mean is None else machine.mean(product, "s1", "sum of P").per_row("s1")
        if program.product == LINEAR:
            return self._linear(machine, x, product, (mean, rstd, s1), columns)
        centered = x
        if mean is not None:
            centered = machine.store(machine.subtract(x, mean), "x - mean")
        normalized = machine.store(machine.multiply(centered, rstd), "x^")
        weighted = machine.store(machine.multiply(product, normalized), "P x^")
        s2 = machine.store(machine.mean(weighted, "s2", "sum of P x^").per_row("s2"), "s2")
        product, normalized = product.columns(columns), normalized.columns(columns)
        share = machine.store(machine.multiply(normalized, s2), "x^ s2")
        last = programs.storable(program.product, centered=s1 is not None)[-1]
        if s1 is not None:
            s1 = machine.store(s1, "s1")
        if program.product == TWO_CASTS:
            direct = machine.store(machine.multiply(product, rstd), "rstd P")
            through = machine.multiply(share if s1 is None else machine.add(s1, share), rstd)
            return machine.subtract(direct, machine.store(through, last))
        if s1 is not None:
            product = machine.store(machine.subtract(product, s1), "P - s1")
        rest = machine.store(machine.subtract(product, share), last)
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
        per_row: tuple[Quantity | None, Quantity, Quantity | None],
        columns: Columns,
    ) -> Quantity:
        """Return dx as ATen's CPU kernel computes it: rstd P + b x - c."""
        mean, rstd, s1 = per_row
        weighted = machine.mean(machine.multiply(product, x), "s2", "sum of P x").per_row("s2")
        b, c = _coefficients(machine, mean, rstd, s1, weighted)
        scaled = machine.multiply(product.columns(columns), rstd)
        linear = machine.add(scaled, machine.multiply(x.columns(columns), b))
        return linear if mean is None else machine.subtract(linear, c)


def _coefficients(
    machine: Machine,
    mean: Quantity | None,
    rstd: Quantity,
    s1: Quantity | None,
    weighted: Quantity,
) -> tuple[Quantity, Quantity]:
    """Return b = (s1 mean - E[P x]) rstd^3 and c = b mean + s1 rstd, with E[P x] over x itself.

    Without a mean c is 0.
    """
    cube = machine.multiply(machine.multiply(rstd, rstd), rstd)
    if mean is None or s1 is None:
        product = machine.multiply(autograd.negative(weighted), cube)
        return machine.store(product.per_row("b"), "b"), measure.NO_MEAN
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
    def derived(self) -> tuple[Program, ...]:
        """Return the programs whose variance is updated; sums of dy don't need it."""
        if not self.weighted or self.rows.is_given or not self.rows.centered:
            return ()
        return tuple(replace(form, variance=WELFORD) for form in self.forms)

    @property
    def known(self) -> tuple[tuple[Program, tuple[str, ...]], ...]:
        """Return (form, stored quantities) of programs that libraries are known to have."""
        if not self.weighted:
            return programs.of_plain_sums()
        return programs.of_weighted_sums(self.rows.centered, self.rows.is_given)

    @property
    def count(self) -> int:
        """Return the number of rows that are added up."""
        return len(self.rows.x)

    def unordered(self, formats: Sequence[str], likely: Iterable[Program]) -> Iterable[Program]:
        """Return the programs that add up the rows in any order; see walks.Summed."""
        return programs.in_any_order(formats, likely, self.forms)

    def of_same_kernel(self, program: Program) -> tuple[Program, ...]:
        """Return the programs of these sums in a kernel whose dx has a storing program."""
        rows = self.rows
        if not self.weighted:
            return ()
        return programs.of_same_kernel(program, centered=rows.centered, is_given=rows.is_given)

    def storable(self, program: Program) -> tuple[str, ...]:
        """Return nothing: a single row is too little to search on, so only known programs count."""
        return ()

    def last(self, program: Program) -> None:
        """Return None: the order in which a sum is stored shows in it."""

    def rstd_rounding(self, program: Program) -> None:
        """Return None: the rows' errors are not to be told apart in their sums."""

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
        if program.product in derivations.DERIVED:
            at = self.rows.moments(program, quick=quick)
            if program.product == derivations.MOMENTS:
                x = Quantity(self.rows.x[:, columns])
                assert at.mean is not None
                factor = autograd.of_factor(machine, dy, x, at.mean)
                return machine.store(machine.multiply(factor, at.rstd), "dy x^")
            normalized = autograd.normalized(program, at, columns)
            return machine.store(machine.multiply(dy, normalized), "dy x^")
        mean, rstd = self.rows.statistics(program, quick=quick)
        x = Quantity(self.rows.x[:, columns])
        if mean is None:
            normalized = machine.multiply(x, rstd)
        elif program.product == LATE_MEAN or (
            "column sum" in program.stored and "x - mean" not in program.stored
        ):
            # as ATen has it; its noise covers (x - mean) rstd
            shift = machine.multiply(mean, rstd)
            normalized = machine.subtract(machine.multiply(x, rstd), shift)
        else:
            centered = machine.store(machine.subtract(x, mean), "x - mean")
            normalized = machine.multiply(centered, rstd)
        normalized = machine.store(normalized, "x^")
        return machine.store(machine.multiply(dy, normalized), "dy x^")

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return some columns of the sums, before their own rounding."""
        is_plain = not program.stored and program.product != LATE_MEAN
        is_plain &= program.column_order is not ColumnOrder.unordered
        if is_plain and not quick and columns is ALL_COLUMNS and pays(self.rows.x.size):
            return self.by_loops(program)
        return self.by_definition(program, columns, quick=quick)

    def by_definition(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return some columns of the sums by the definition, in blocks of columns."""
        count, width = self.rows.x.shape
        chosen = np.arange(width)[columns]
        parts = [
            column_sum(
                self.terms(program, chosen[start:stop], quick=quick),
                program,
                Place(chosen[start:stop], width),
            )
            for start, stop in spans.even(len(chosen), count)
        ]
        return Quantity.joined(parts, axis=1)

    def by_loops(self, program: Program) -> Quantity:
        """Return all sums by compiled loops; the program stores nothing."""
        statistics = self.rows.statistics(program, quick=False) if self.weighted else None
        return measure.column_sums(self.rows.x, self.rows.dy, statistics, program)


def graphs(
    test: TestSpec, given: Mapping[str, NDArray[Any]], *, centered: bool = True
) -> dict[str, Graph]:
    """Return the graph of each output of a backward pass, from what the device was given."""

    def per_row(name: str) -> Array | None:
        return np.asarray(given[name], np.float64).reshape(-1, 1) if name in given else None

    rows = BackwardRows(
        as_input(given["x"]),
        as_input(given["dy"]),
        np.atleast_2d(np.asarray(given["gamma"], np.float64)),
        per_row("mean"),
        per_row("rstd"),
        test.epsilon,
        centered=centered,
    )
    listed: dict[str, Graph] = {
        "dx": InputGradient(rows),
        "dgamma": ColumnGradient(rows, weighted=True),
        "dbeta": ColumnGradient(rows, weighted=False),
    }
    return {name: graph for name, graph in listed.items() if name in test.outputs}
