"""The statistics of normalized rows in a replay: mean, variance and rstd, as a program has them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import orders
from gonogo.numerics.replay.narrow_sums import Place
from gonogo.numerics.replay.program import WELFORD, Program
from gonogo.numerics.replay.quantity import Machine, Quantity

VARIANCES = ("x - mean", "x", "E[x^2] - mean^2")
STATISTICS = (
    "epsilon",
    "sum of x",
    "mean",
    "x - mean",
    "square",
    "sum of squares",
    "mean square",
    "mean^2",
    "variance",
    "variance + epsilon",
)
"""The quantities of a row's statistics that a kernel may store."""
COUNTS = ("N", "1/N")
"""How a kernel holds the number of terms by which it divides a stored sum."""
OF_MEAN = (*COUNTS, "sum of x", "mean", "x - mean")
"""The quantities that decide the mean, and x - mean."""
OF_VARIANCE = (*COUNTS, *(name for name in STATISTICS if "epsilon" not in name))
"""The quantities that decide the variance."""
UPDATED = "updated"
"""The key of the sums that are a variance by WELFORD's updates."""
TAILS = {"root % 8": 8, "root % 32": 32, "root % 64": 64}
"""Roots that only the rows after the last full block of a vectorized loop store.

torch's CPU kernel of rsqrt computes 32 (AVX2) or 64 (AVX-512) 16-bit values at a time in fp32; the
rest goes one by one through a 16-bit root. Eigen's packets have 8 values.
"""
TRUNCATED_TAIL, TRUNCATED_BLOCK = "root % 16 truncated", 16
"""The root that the rows after the last full block store truncated, where all others round it.

OpenVINO 2026.4 converts 16 values at a time to bf16 (AVX-512) and rounds them; of the rest, which
go one by one, it cuts off what bf16 lacks.
"""
WELL_CONDITIONED = 16.0
"""The largest mean^2 / variance of a row in which E[x^2] - mean^2 is an arithmetic model.

There it loses 5 bits. Beyond it, the cancellation is the kernel's own failure: a row is replayed
with the noise of the centered variance. Where 16-bit squares, sums or means are stored, the loss is
no noise, and every row is replayed as it is.
"""
NARROWING = {"sum of x", "sum of squares", "square", "mean", "mean square", "mean^2"}
"""The quantities of E[x^2] - mean^2 whose storing in 16 bits loses what cancels."""
ZERO = np.zeros((1, 1))
MAX_PART = 2**17
"""Maximum size, in elements, of a subset of rows whose statistics `Rows.some` keeps.

The subsets on which the detection limits try a fault are smaller; 1 MB each in float64.
"""
MAX_PARTS = 4
"""Maximum number of such subsets. The detection limits of one output use no more, and those of the
next output use the same ones again."""


@dataclass(frozen=True)
class Rows:
    """The inputs of a kernel that normalizes rows, float64.

    Attributes:
        x: (rows, N); a large one may be float32 (see compiled.results.as_input).
        gamma, beta: (1, N) or (rows, N); None where the kernel has none.
        epsilon: added to the variance.
        centered: whether the kernel subtracts the mean.
        is_outside: whether epsilon is added to the root of the variance instead, which is wrong.
        place: where the rows are in the whole tensor; None: these are all rows.
        channel_width: the number of a row's neighboring elements that share gamma and beta.
        groups: row i is the group i modulo `groups` of its sample's channels.
        cache: the statistics by the definition, by what decides them.
        loops: the statistics by compiled loops, likewise.
        sums: what they are computed from and epsilon doesn't change: means and variances, and the
            sums of compiled loops.
        parts: the subsets of rows whose statistics are kept, by the bytes of their indices.
        origin: of a part, the sums of all rows, and which rows it has: sums of a row are the same.
        base: the rows with the test's epsilon, of those that have another one.
        elements: the number of elements of the whole tensor.
    """

    x: Array
    gamma: Array | None
    beta: Array | None
    epsilon: float
    centered: bool = True
    place: Place | None = None
    is_outside: bool = field(default=False, kw_only=True)
    channel_width: int = 1
    groups: int = 1
    cache: dict[Hashable, Moments] = field(default_factory=dict, compare=False, repr=False)
    loops: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    sums: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    parts: dict[bytes, Rows] = field(default_factory=dict, init=False, compare=False, repr=False)
    origin: tuple[dict[Hashable, Any], NDArray[np.intp] | slice] | None = field(
        default=None, init=False, compare=False, repr=False
    )
    base: Rows | None = field(default=None, init=False, compare=False, repr=False)
    elements: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Take the rows for all rows of their tensor."""
        object.__setattr__(self, "elements", self.x.size)

    def some(self, chosen: NDArray[np.intp] | slice) -> Rows:
        """Return some of the rows. Equal choices share their statistics, while they are kept."""
        if self.base is not None:
            right = self.base.some(chosen)
            return right.with_epsilon(self.epsilon, is_outside=self.is_outside)
        if isinstance(chosen, slice):
            return self._some(chosen)
        if np.array_equal(chosen, np.arange(len(self.x))):
            return self
        if len(chosen) * self.x.shape[1] > MAX_PART:
            return self._some(chosen)
        key = chosen.tobytes()
        part = self.parts.pop(key, None) or self._some(chosen)
        self.parts[key] = part  # the last one is the newest
        while len(self.parts) > MAX_PARTS:
            del self.parts[next(iter(self.parts))]
        return part

    def _some(self, chosen: NDArray[np.intp] | slice) -> Rows:
        def cut(a: Array | None) -> Array | None:
            return a[chosen] if a is not None and a.shape[0] == len(self.x) > 1 else a

        place = self._place
        part = Rows(
            np.asarray(self.x[chosen], np.float64),
            cut(self.gamma),
            cut(self.beta),
            self.epsilon,
            self.centered,
            Place(place.index[chosen], place.count),
            self.channel_width,
            self.groups,
            is_outside=self.is_outside,
        )
        object.__setattr__(part, "origin", (self.sums, chosen))
        object.__setattr__(part, "elements", self.elements)
        return part

    def with_epsilon(self, epsilon: float, *, is_outside: bool = False) -> Rows:
        """Return the rows of a kernel that adds epsilon otherwise, with the same sums."""
        other = replace(self, epsilon=epsilon, is_outside=is_outside, cache={}, loops={})
        object.__setattr__(other, "base", self.base or self)
        return other._with_sums_of(self)

    def with_gamma(self, gamma: Array) -> Rows:
        """Return the rows of a kernel that multiplies by another gamma: the same statistics."""
        return replace(self, gamma=gamma)._with_sums_of(self)

    def _with_sums_of(self, other: Rows) -> Rows:
        for name in ("sums", "origin", "elements"):
            object.__setattr__(self, name, getattr(other, name))
        return self

    def is_tail(self, block: int) -> NDArray[np.bool_]:
        """Return which rows (rows, 1) come after the last full block of rows."""
        place = self._place
        return np.asarray(place.index >= place.count // block * block)[:, None]

    @property
    def channels(self) -> NDArray[np.intp]:
        """Return which value of gamma each element has, (rows, N) or (1, N)."""
        of_row = np.arange(self.x.shape[1]) // self.channel_width
        if self.groups == 1:
            return of_row[None]
        groups = self._place.index[:, None] % self.groups
        return np.asarray(groups * (of_row[-1] + 1) + of_row)

    @property
    def _place(self) -> Place:
        return self.place or Place(np.arange(len(self.x)), len(self.x))


@dataclass(frozen=True)
class Moments:
    """The statistics of a replay, one value per row (rows, 1); x - mean is (rows, N).

    `computed` is the mean before it is stored, `inverse` is rstd before it is. `shifted` is the
    variance + epsilon. `root` is None where the program has only rstd.
    """

    mean: Quantity | None
    computed: Quantity | None
    centered: Quantity
    shifted: Quantity
    inverse: Quantity
    rstd: Quantity
    root: Quantity | None


def moments(program: Program, rows: Rows, *, quick: bool = False) -> Moments:
    """Return the statistics of each row as a program computes them; `quick` as in Machine.

    Programs that differ only in what follows share them.
    """
    names = (*STATISTICS, *COUNTS, "root", "rstd", *TAILS, TRUNCATED_TAIL)
    stored = tuple((name, program.stored[name]) for name in names if name in program.stored)
    is_root = program.product == "(x - mean) / root"
    sums = (program.order, program.row_order, program.rounding)
    key = (program.variance, is_root, stored, *sums, quick)
    if key not in rows.cache:
        rows.cache[key] = _moments(program, rows, Machine(program, quick=quick, place=rows.place))
    return rows.cache[key]


def _moments(program: Program, rows: Rows, machine: Machine) -> Moments:
    key = (*_key(OF_VARIANCE, program, machine), program.variance)
    if key not in rows.sums:
        rows.sums[key] = _unscaled(program, rows, machine)
    mean, computed, centered, variance = rows.sums[key]
    shifted, rstd, root = scale(program, rows, machine, variance)
    inverse = machine.rsqrt(shifted).per_row("rstd")
    return Moments(mean, computed, centered, shifted, inverse, rstd, root)


def _key(names: tuple[str, ...], program: Program, machine: Machine) -> tuple[Hashable, ...]:
    """Return what decides a sum, and which of some quantities are stored before it is known."""
    stored = tuple((name, program.stored[name]) for name in names if name in program.stored)
    return len(names), program.order, program.row_order, program.rounding, machine.quick, stored


def _unscaled(
    program: Program, rows: Rows, machine: Machine
) -> tuple[Quantity | None, Quantity | None, Quantity, Quantity]:
    """Return the mean, as it is stored and before, x - mean, and the variance as it is stored."""
    x = Quantity(rows.x)
    mean = computed = None
    centered = x
    if rows.centered:
        key = _key(OF_MEAN, program, machine)
        if key not in rows.sums:
            computed = machine.mean(x, "mean", "sum of x").per_row("mean")
            mean = machine.store(computed, "mean")
            centered = machine.store(machine.subtract(x, mean), "x - mean")
            rows.sums[key] = mean, computed, centered
        mean, computed, centered = rows.sums[key]
    variance = _variance(program, rows, machine, mean, computed, centered)
    return mean, computed, centered, machine.store(variance, "variance")


def scale(
    program: Program, rows: Rows, machine: Machine, variance: Quantity
) -> tuple[Quantity, Quantity, Quantity | None]:
    """Return variance + epsilon, rstd, and the root where the program divides by it."""
    form = program.stored.get("epsilon")
    epsilon = rows.epsilon if form is None else float(round_to(rows.epsilon, form))
    if rows.is_outside:
        outside = machine.epsilon(machine.root(variance), epsilon)
        shifted = machine.multiply(outside, outside)
    else:
        shifted = machine.epsilon(variance, epsilon)
    shifted = machine.store(shifted, "variance + epsilon")
    rstd = machine.rsqrt(shifted)
    root = machine.root(shifted)
    if program.product == "(x - mean) / root":
        root = machine.store(root, "root")
        return shifted, rstd.per_row("rstd"), root.per_row("rstd")
    if "root" in program.stored:
        rstd = machine.reciprocal(machine.store(root, "root"))
    rstd = machine.store(rstd, "rstd")
    for name, block in TAILS.items():
        if name in program.stored:
            after = machine.store(machine.reciprocal(machine.store(root, name)), "rstd")
            rstd = _where(rows.is_tail(block), after, rstd)
    if TRUNCATED_TAIL in program.stored:
        after = machine.reciprocal(machine.store(root, TRUNCATED_TAIL, "zero"))
        rstd = _where(rows.is_tail(TRUNCATED_BLOCK), after, rstd)
    return shifted, rstd.per_row("rstd"), None


def _variance(
    program: Program,
    rows: Rows,
    machine: Machine,
    mean: Quantity | None,
    computed: Quantity | None,
    centered: Quantity,
) -> Quantity:
    """Return the variance of each row (rows, 1), before it is stored."""
    x = Quantity(rows.x)
    if program.variance == "E[x^2] - mean^2" and mean is not None and computed is not None:
        squares = machine.store(machine.multiply(x, x), "square")
        mean_square = machine.mean(squares, "variance", "sum of squares")
        mean_square = machine.store(mean_square, "mean square")
        squared_mean = machine.store(machine.multiply(mean, mean), "mean^2")
        direct = machine.subtract(mean_square, squared_mean)
        if NARROWING & set(program.stored):
            return Quantity(
                np.maximum(direct.values, 0.0), direct.noise, direct.shared, direct.slack
            )
        usual = machine.multiply(centered, centered)
        centered_variance = machine.mean(usual, "variance", "sum of squares")
        return well_conditioned(mean, direct, centered_variance)
    if program.variance == WELFORD:
        if UPDATED not in rows.sums:
            rows.sums[UPDATED] = orders.welford(x.values)
        values, deviation = rows.sums[UPDATED]
        return Quantity(values[:, None], shared={"variance": deviation[:, None]})
    if program.variance == "x" and computed is not None:
        centered = machine.subtract(x, computed)
    square = machine.store(machine.multiply(centered, centered), "square")
    return machine.mean(square, "variance", "sum of squares")


def well_conditioned(mean: Quantity, direct: Quantity, centered: Quantity) -> Quantity:
    """Return E[x^2] - mean^2 in the rows where it is a model, else the centered variance."""
    usable = mean.values**2 <= WELL_CONDITIONED * centered.values
    return _where(usable, direct, centered)


def _where(chosen: NDArray[np.bool_], a: Quantity, b: Quantity) -> Quantity:
    """Return the quantity `a` in some rows, `b` in the others."""
    shared = {
        source: np.where(chosen, a.shared.get(source, ZERO), b.shared.get(source, ZERO))
        for source in {**a.shared, **b.shared}  # in the same order in every process
    }
    return Quantity(
        np.where(chosen, a.values, b.values),
        np.where(chosen, a.noise, b.noise),
        shared,
        np.where(chosen, a.slack, b.slack),
    )
