"""The replay of kernels that normalize rows: LayerNorm, RMSNorm and group norm, forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.normalization.measure import measure
from gonogo.kernels.normalization.moments import (
    COUNTS,
    STATISTICS,
    TAILS,
    TRUNCATED_TAIL,
    VARIANCES,
    Moments,
    Rows,
)
from gonogo.kernels.normalization.row_moments import (
    RowMoments,
    mean_of_rows,
    of_part,
    root_mean_squares,
    row_moments,
)
from gonogo.numerics.expectation import Array
from gonogo.numerics.replay import orders
from gonogo.numerics.replay.cells import Measurement
from gonogo.numerics.replay.compiled.results import as_input
from gonogo.numerics.replay.graph import ALL_COLUMNS, Columns, Graph
from gonogo.numerics.replay.program import CANCELLED, WELFORD, ColumnOrder, Program
from gonogo.numerics.replay.quantity import Machine, Quantity
from gonogo.numerics.replay.shifts import MeanOfRows

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

LINEAR = "x (gamma rstd) + (beta - mean gamma rstd)"
PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "(x - mean) rstd": ("root", "rstd", "x^", "gamma x^"),
    "(x - mean) (gamma rstd)": ("root", "rstd", "gamma rstd", "gamma x^"),
    "(x - mean) / root": ("root", "x^", "gamma x^"),
    "x rstd - mean rstd": ("root", "rstd", "x rstd", "mean rstd", "x^", "gamma x^"),
    LINEAR: (
        "root",
        "rstd",
        "gamma rstd",
        "x gamma rstd",
        "mean gamma rstd",
        "beta - mean gamma rstd",
    ),
}
"""The orders of the products, each with the quantities that it may store."""


def storable(program: Program, rows: Rows) -> tuple[str, ...]:
    """Return the quantities that a program of this form may store, for these rows."""
    names = [
        name
        for name in (*_statistics(program, rows), *PRODUCTS[program.product])
        if (rows.gamma is not None or "gamma" not in name)
        and (rows.centered or "mean " not in name)
    ]
    # a sum and its mean round alike where N is a power of two: the mean is the usual one
    return tuple(sorted(names, key=lambda name: name.startswith("sum")))


def _statistics(program: Program, rows: Rows) -> tuple[str, ...]:
    """Return the quantities of the statistics that a program of this form may store."""
    left_out = {"epsilon", *(() if rows.centered else ("sum of x", "mean", "x - mean"))}
    if program.variance == "E[x^2] - mean^2":
        left_out -= {"epsilon"}
    else:
        left_out |= {"mean square", "mean^2"}
    return tuple(name for name in STATISTICS if name not in left_out)


def output(
    program: Program,
    rows: Rows,
    statistics: Moments | RowMoments,
    columns: Columns = ALL_COLUMNS,
) -> Quantity:
    """Return y of some of the columns, before its own rounding."""
    machine = Machine(program, place=rows.place)

    def vector(a: Array | None) -> Quantity | None:
        return None if a is None else Quantity(a[:, columns])

    x, gamma, beta = Quantity(rows.x[:, columns]), vector(rows.gamma), vector(rows.beta)
    mean, rstd = statistics.mean, statistics.rstd
    if program.product == LINEAR:
        factor = rstd if gamma is None else machine.multiply(rstd, gamma)
        factor = machine.store(factor, "gamma rstd")
        scaled = machine.store(machine.multiply(x, factor), "x gamma rstd")
        if mean is None:
            return scaled if beta is None else machine.add(scaled, beta)
        shift = machine.store(machine.multiply(mean, factor), "mean gamma rstd")
        if beta is None:
            return machine.subtract(scaled, shift)
        rest = machine.store(machine.subtract(beta, shift), "beta - mean gamma rstd")
        return machine.add(scaled, rest)
    if program.product == "x rstd - mean rstd":
        normalized = machine.store(machine.multiply(x, rstd), "x rstd")
        if mean is not None:
            shift = machine.store(machine.multiply(mean, rstd), "mean rstd")
            normalized = machine.subtract(normalized, shift)
    else:
        centered = x if mean is None else machine.subtract(x, mean)
        centered = machine.store(centered, "x - mean")
        if program.product == "(x - mean) / root":
            assert statistics.root is not None
            normalized = machine.divide(centered, statistics.root)
        elif program.product == "(x - mean) (gamma rstd)" and gamma is not None:
            factor = machine.store(machine.multiply(rstd, gamma), "gamma rstd")
            scaled = machine.store(machine.multiply(centered, factor), "gamma x^")
            return scaled if beta is None else machine.add(scaled, beta)
        else:
            normalized = machine.multiply(centered, rstd)
    normalized = machine.store(normalized, "x^")
    if gamma is not None:
        normalized = machine.store(machine.multiply(normalized, gamma), "gamma x^")
    return normalized if beta is None else machine.add(normalized, beta)


SINGLE = ("mean", "x - mean", "square", "variance", "variance + epsilon")
OWN_VARIANCE = ("mean", "x - mean", "variance", "variance + epsilon")
SUMS = ("sum of x", "sum of squares")
SCALED = ("rstd", "x^", "gamma x^")
AFFINE = tuple(name for name in PRODUCTS[LINEAR] if name != "root")
PACKED = (("mean", "x - mean", *SCALED), ("mean", "x - mean", "rstd", "x^"))
"""Quantities that kernels of packed 16-bit operations (half2, bfloat162) store beside statistics in
fp32; the second ones fuse the addition of beta."""
KNOWN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # MLX's LayerNorm, TensorFlow's fused kernel
    ("x - mean", "(x - mean) rstd", ("x^", "gamma x^")),
    # LlamaRMSNorm, MLX's RMSNorm
    ("x - mean", "(x - mean) rstd", ("x^",)),
    # composites of torch: every operation stores its result; rsqrt of few 16-bit values on a CPU is
    # a root and a reciprocal
    ("x - mean", "(x - mean) rstd", (*SINGLE, "root", *SCALED)),
    ("x - mean", "(x - mean) rstd", (*SINGLE, *SCALED)),
    ("x - mean", "(x - mean) rstd", (*SINGLE, "root % 8", *SCALED)),
    ("x - mean", "(x - mean) rstd", (*SINGLE, "root % 64", *SCALED)),
    ("x - mean", "(x - mean) rstd", (*SINGLE, "root % 32", *SCALED)),
    ("x - mean", "(x - mean) / root", (*SINGLE, "root", "x^", "gamma x^")),
    ("x - mean", "(x - mean) rstd", (*SUMS, *SINGLE, *SCALED)),
    # composites of MLX: a mean is the sum times 1/N, rsqrt a root and a reciprocal
    ("x - mean", "(x - mean) rstd", (*SUMS, "1/N", *SINGLE, "root", *SCALED)),
    # the same with the library's own variance of x: torch.var_mean, jnp.var
    ("x", "(x - mean) / root", (*OWN_VARIANCE, "root", "x^", "gamma x^")),
    ("x", "(x - mean) rstd", (*OWN_VARIANCE, *SCALED)),
    # XLA on a CPU: compiled code contracts fp16's multiplications and additions, and squares bf16's
    # values in fp32
    ("x", "(x - mean) rstd", (*OWN_VARIANCE, "rstd", "x^")),
    ("x - mean", "(x - mean) rstd", (*OWN_VARIANCE, *SCALED)),
    # jax.nn.standardize in bf16, in fp16, and in fp16 with its products contracted
    ("E[x^2] - mean^2", "(x - mean) rstd", (*OWN_VARIANCE, "mean square", "mean^2", *SCALED)),
    ("E[x^2] - mean^2", "(x - mean) rstd", (*SINGLE, "mean square", *SCALED)),
    ("E[x^2] - mean^2", "(x - mean) rstd", (*SINGLE, "mean square", "rstd", "x^")),
    # tf.nn.moments, which squares in fp32 where x is fp16, and tf.nn.batch_normalization
    ("x - mean", LINEAR, (*SINGLE, *AFFINE)),
    ("x - mean", LINEAR, (*SINGLE, "root % 8", *AFFINE)),
    ("x", LINEAR, (*OWN_VARIANCE, *AFFINE)),
    ("x", LINEAR, (*OWN_VARIANCE, "root % 8", *AFFINE)),
    *(("x", "(x - mean) rstd", quantities) for quantities in PACKED),
)
"""(variance, product, stored quantities) of programs that libraries are known to have; PACKED."""


def is_packed(program: Program) -> bool:
    """Return whether a program has packed operations, as no library here is known to have."""
    return program.variance == "x" and set(program.stored) in map(set, PACKED)


VISIBLE_EPSILON = 256.0
"""The largest variance, in epsilons, at which it shows that epsilon is rounded to 16 bits.

The rounding, at most 2^-9 of epsilon, then changes rstd by 2^-18: an eighth of fp16's half step.
"""


def with_epsilon(
    listed: Sequence[tuple[Program, tuple[str, ...]]], rows: Rows
) -> tuple[tuple[Program, tuple[str, ...]], ...]:
    """Return the known programs, and those that store variance + epsilon with a stored epsilon."""
    size = np.square(rows.x, dtype=np.float64).mean(axis=1)
    if rows.centered:
        size = rows.x.var(axis=1, dtype=np.float64)
    if size.min() > VISIBLE_EPSILON * rows.epsilon:
        return tuple(listed)
    rounded = (
        (program, ("epsilon", *names)) for program, names in listed if "variance + epsilon" in names
    )
    return (*listed, *rounded)


@dataclass(frozen=True)
class NormalizedRows:
    """The graph of y."""

    rows: Rows

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, N)."""
        return self.rows.x.shape[0], self.rows.x.shape[1]

    @property
    def forms(self) -> tuple[Program, ...]:
        """Return a program of each form, with nothing stored, the usual ones first."""
        variances = VARIANCES if self.rows.centered else VARIANCES[:1]
        return tuple(Program(variance, product) for variance in variances for product in PRODUCTS)

    @property
    def derived(self) -> tuple[Program, ...]:
        """Return the programs whose variance is updated, of which ATen's LayerNorm is one."""
        products = PRODUCTS if self.rows.centered else ()
        return tuple(Program(WELFORD, product) for product in products)

    @property
    def known(self) -> tuple[tuple[Program, tuple[str, ...]], ...]:
        """Return (form, stored quantities) of programs that libraries are known to have."""
        listed: list[tuple[Program, tuple[str, ...]]] = []
        for variance, product, quantities in KNOWN:
            program = Program(variance, product)
            allowed = self.storable(program)
            names = tuple(n for n in quantities if n in (*allowed, *COUNTS, *TAILS))
            if (program, names) not in listed and (self.rows.centered or variance == VARIANCES[0]):
                listed.append((program, names))
        # Eigen adds up a row in packets of its own format; TensorFlow lets it do so in fp16
        allowed = (*self.storable(Program()), *COUNTS)
        names = tuple(name for name in (*SUMS, "N", *SINGLE, *SCALED) if name in allowed)
        packets = Program(row_order=ColumnOrder.packets)
        listed += [(packets, names), (packets, (*names, "root % 8"))]
        # Triton's tl.sum of x and x x keeps the format of x; the rest of such a kernel is fp32
        names = tuple(name for name in SUMS if name in allowed)
        variance = CANCELLED if self.rows.centered else VARIANCES[0]
        listed.append((Program(variance, row_order=ColumnOrder.threads), names))
        if self.rows.centered:  # ATen's group norm on a GPU, which returns mean and rstd
            listed.append((Program("x", LINEAR), ("epsilon", "mean", "rstd")))
        else:  # OpenVINO's fused RMSNorm
            listed.append((Program(), ("epsilon", "square", "root", TRUNCATED_TAIL)))
        return with_epsilon(listed, self.rows)

    def storable(self, program: Program) -> tuple[str, ...]:
        """Return the quantities that a program of this form may store."""
        return storable(program, self.rows)

    def last(self, program: Program) -> str | None:
        """Return the product that y is, where no beta is added."""
        if self.rows.beta is not None:
            return None
        if program.product == LINEAR:
            return None if self.rows.centered else "x gamma rstd"
        return "x^" if self.rows.gamma is None else "gamma x^"

    def rstd_rounding(self, program: Program) -> Array | None:
        """Return the deviation of rstd's own rounding in each row, relative to it; see Graph."""
        return row_moments(program, self.rows).rounding

    def mean_of_rows(self, program: Program) -> MeanOfRows | None:
        """Return the rows' means, whose shift may be common; see shifts.Centered."""
        return mean_of_rows(program, self.rows)

    def some(self, rows: NDArray[np.intp]) -> NormalizedRows:
        """Return the graph of some of the rows."""
        return NormalizedRows(self.rows.some(rows))

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return some columns of y, before its own rounding."""
        statistics = of_part(program, self.rows, quick=quick)
        return output(program, self.rows, statistics, columns)

    def measure(
        self, program: Program, output: NDArray[np.floating], form: str, limit: float
    ) -> Measurement | None:
        """Return how near y is to its replay, by compiled loops; see measure.measure."""
        return measure(self.rows, program, output, form, limit)


@dataclass(frozen=True)
class RowStatistic:
    """The graph of mean or rstd, (rows, 1).

    Attributes:
        rows: the kernel's inputs.
        rstd: True for rstd, False for the mean.
    """

    rows: Rows
    rstd: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, 1)."""
        return self.rows.x.shape[0], 1

    @property
    def forms(self) -> tuple[Program, ...]:
        """Return a program of each form, with nothing stored, the usual ones first."""
        return tuple(Program(variance) for variance in (VARIANCES if self.rstd else VARIANCES[:1]))

    @property
    def derived(self) -> tuple[Program, ...]:
        """Return the program whose variance is updated."""
        return (Program(WELFORD),) if self.rstd and self.rows.centered else ()

    @property
    def known(self) -> tuple[tuple[Program, tuple[str, ...]], ...]:
        """Return (form, stored quantities) of programs that libraries are known to have."""
        return ()

    def storable(self, program: Program) -> tuple[str, ...]:
        """Return the quantities that a program of this form may store."""
        names = storable(program, self.rows)
        if not self.rstd:
            return tuple(name for name in names if name == "sum of x")
        return tuple(name for name in names if name in STATISTICS or name == "root")

    def last(self, program: Program) -> None:
        """Return None: the statistic is replayed before it is stored."""

    def rstd_rounding(self, program: Program) -> Array | None:
        """Return the deviation of rstd's own rounding in each row, relative to it; see Graph."""
        return row_moments(program, self.rows).rounding if self.rstd else None

    def mean_of_rows(self, program: Program) -> MeanOfRows | None:
        """Return the rows' means, whose shift may be common; see shifts.Centered."""
        if self.rstd:
            return None
        stored = {name: form for name, form in program.stored.items() if name != "mean"}
        return mean_of_rows(replace(program, stored=stored), self.rows)

    def some(self, rows: NDArray[np.intp]) -> RowStatistic:
        """Return the graph of some of the rows."""
        return RowStatistic(self.rows.some(rows), self.rstd)

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return the statistic, before its own rounding."""
        unstored = {name: f for name, f in program.stored.items() if name not in ("mean", "rstd")}
        computed = row_moments(replace(program, stored=unstored), self.rows, quick=quick)
        if self.rstd:
            return computed.rstd
        assert computed.mean is not None
        # terms that cancel, or whose fp32 sums are exact, show no noise in the simulated orders
        size, mean = root_mean_squares(self.rows), computed.mean
        least = orders.partial_mean_deviation(size, mean.values, self.rows.x.shape[1]) ** 2
        return replace(mean, noise=mean.noise + np.maximum(least - mean.variance, 0.0))


def graphs(
    test: TestSpec,
    given: Mapping[str, NDArray[Any]],
    *,
    centered: bool = True,
    channel_width: int = 1,
    groups: int = 1,
) -> dict[str, Graph]:
    """Return the graph of each output of a forward kernel, from what the device was given.

    given: x (rows, N); gamma and beta (N,), or (rows, N) where rows differ in them. channel_width,
    groups: as in Rows.
    """

    def vector(name: str) -> Array | None:
        return np.atleast_2d(np.asarray(given[name], np.float64)) if name in given else None

    rows = Rows(
        as_input(given["x"]),
        vector("gamma"),
        vector("beta"),
        test.epsilon,
        centered,
        channel_width=channel_width,
        groups=groups,
    )
    listed: dict[str, Graph] = {"y": NormalizedRows(rows), "rstd": RowStatistic(rows, rstd=True)}
    if centered:
        listed["mean"] = RowStatistic(rows, rstd=False)
    return {name: graph for name, graph in listed.items() if name in test.outputs}
