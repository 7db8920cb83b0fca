"""The emulated dataflow of kernels that normalize rows: RMSNorm and group norm.

It is written once for two arithmetics: a Wormhole's, and float64. It is the dataflow of
gonogo.kernels.layernorm.emulation.forward, with the same packed buffers between the steps. acc_c is
the sum over tiles in lane c. The right column holds for a kernel without a mean:

    mean  <- sum_c acc_c * bf16(1/N)                 none
    sum   <- sum_c acc_c((x - mean)^2) * bf16(1/N)   acc_c(x^2)
    rstd  <- rsqrt(sum + bf16(eps))
    x^    <- (x - mean) * rstd                       x * rstd
    y     <- x^ * gamma, + beta                      FPU

`Logic` holds the switches of the wrong builds. The float64 version of a build is the same flow
without rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import Arrays, Fault, Floats
from gonogo.kernels.layernorm.emulation.plan import BLOCK_TILES, TILE, Machine, Plan, tiles_of
from gonogo.kernels.layernorm.emulation.rows import lane_sums, normalized, row_mean
from gonogo.kernels.layernorm.emulation.spoil import REGISTER, hang_or_crash, spoil
from gonogo.numerics.blocks import ROWS_PER_BLOCK, over_rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.tensix import arithmetic as wh

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Values = NDArray[Any]
Tiles = Literal["all", "last", "last-block", "not-last", "not-middle"]
STALE_ROWS = 8
"""With a stale partial, every row at a multiple of this number keeps the sum of the row before it.
"""
STALE_IDEAL = 1.0
"""The content of a stale register in float64: 1 left in each lane.

The real leftovers depend on what ran before.
"""


@dataclass(frozen=True)
class Logic:
    """The switches of one build; the defaults are the right kernel.

    Attributes:
        mean: the kernel has a mean. subtract: x^ subtracts it. about: the squares are taken about
            it.
        first_tiles, square_tiles: the tiles that the mean, and the mean of the squares, sum. A
            kernel without a mean has only the latter.
        mask: the padding of the last tile is masked; if not, it holds the row's first values again.
        divisor: what the sums are divided by: N; N with its padding; or N - 1 for the squares.
        epsilon_factor, rstd_factor: what epsilon, and rstd as a scale, are multiplied by.
        narrow_sums: sums over tiles run in a 16-bit Dst. stale: the first sum starts from what the
            kernel before left in the register.
        stale_rows: every 8th row uses the sum of squares of the row before it.
        outliers, nan_tile: y is spoiled afterwards. fate: the process hangs or crashes.
        change: the name of a fault that only this kind has.
    """

    mean: bool = True
    subtract: bool = True
    about: bool = True
    first_tiles: Tiles = "all"
    square_tiles: Tiles = "all"
    mask: bool = True
    divisor: Literal["right", "padded", "unbiased"] = "right"
    epsilon_factor: float = 1.0
    rstd_factor: float = 1.0
    narrow_sums: bool = False
    stale: bool = False
    stale_rows: bool = False
    outliers: bool = False
    nan_tile: bool = False
    fate: Literal["hang", "crash"] | None = None
    change: str = ""

    @property
    def plan(self) -> Plan:
        """The switches that the shared parts of the emulator know."""
        return Plan(
            mask=self.mask,
            narrow_sums=self.narrow_sums,
            outliers=self.outliers,
            nan_tile=self.nan_tile,
        )


def summed_tiles(tiles: Tiles, count: int) -> NDArray[np.bool_]:
    """Return a mask of the row's tiles that are summed. A single tile is always summed."""
    summed = np.ones(count, dtype=np.bool_)
    if count > 1:
        match tiles:
            case "last":
                summed[:-1] = False
            case "last-block":
                summed[: (count - 1) // BLOCK_TILES * BLOCK_TILES] = False
            case "not-last":
                summed[-1] = False
            case "not-middle":
                summed[count // 2] = False
    return summed


class Steps(Protocol):
    """The steps of the dataflow in one arithmetic. Rows are (rows, N), columns (rows,)."""

    def total(self, terms: Values, tiles: NDArray[np.bool_], stale: Values, divisor: int) -> Values:
        """Return the sum of each row over the selected tiles, divided by `divisor`."""
        ...

    def column(self, values: Values) -> Values:
        """Return a column after storing it and reading it back."""
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


@dataclass(frozen=True)
class Wormhole:
    """The arithmetic of a Tensix core, as in gonogo.kernels.layernorm.emulation."""

    machine: Machine

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
        return wh.read_source(
            wh.pack(values[:, None], self.machine.buffers)[:, 0],
            self.machine.reads_bf16("buffers", "x"),
        )

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
        gamma = np.broadcast_to(wh.read_source(gamma, m.reads_bf16("gamma", "buffers")), xhat.shape)
        y = wh.product(xhat, gamma, m.fidelity)
        if m.narrow:
            y = wh.round_dst_bf16(y)
        if beta is not None:
            beta = np.broadcast_to(
                wh.read_source(beta, m.reads_bf16("beta", "buffers")), xhat.shape
            )
            y = wh.align_add(wh.read_source(wh.pack(y, m.buffers)), beta)
            y = wh.round_dst_bf16(y) if m.narrow else y
        return wh.pack(y, m.output)

    def out(self, column: Floats) -> Floats:
        return wh.pack(column[:, None], self.machine.output)[:, 0]


class Exact:
    """The same steps without rounding, in float64."""

    def total(self, terms: Array, tiles: NDArray[np.bool_], stale: Array, divisor: int) -> Array:
        summed = np.repeat(tiles, TILE)[: terms.shape[1]]
        return np.asarray((terms[:, summed].sum(axis=1) + stale.sum()) / divisor)

    def column(self, values: Array) -> Array:
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


@dataclass(frozen=True)
class Rows:
    """The input of the flow.

    `source` holds the values that the statistics use: x, unless a fault changes that. gamma and
    beta have shape (1 or rows, N).
    """

    x: Values
    source: Values
    gamma: Values
    beta: Values | None

    def part(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` to `stop`."""

        def some(a: Values | None) -> Values | None:
            return a if a is None or len(a) == 1 else a[start:stop]

        gamma = some(self.gamma)
        assert gamma is not None
        return Rows(self.x[start:stop], self.source[start:stop], gamma, some(self.beta))


def flow(
    steps: Steps, rows: Rows, epsilon: float, logic: Logic, stale: Values
) -> tuple[Values, Values, Values]:
    """Return y (rows, N), and mean and rstd (rows,). The mean is 0 in a kernel without one."""
    source = rows.source
    n = source.shape[1]
    columns = logic.plan.summed_columns(n)
    clear = np.zeros_like(stale)
    divisor = tiles_of(n) * TILE if logic.divisor == "padded" else n
    tiles = tiles_of(n)
    mean = np.zeros(len(source), source.dtype)
    stored = mean
    if logic.mean:
        mean = steps.total(
            source[:, columns], summed_tiles(logic.first_tiles, tiles), stale, divisor
        )
        stored = steps.column(mean)
    squares = steps.square(steps.centred(source, stored) if logic.mean and logic.about else source)
    below = max(n - 1, 1) if logic.divisor == "unbiased" else divisor
    total = steps.total(
        squares[:, columns],
        summed_tiles(logic.square_tiles, tiles),
        clear if logic.mean else stale,
        below,
    )
    if logic.stale_rows:
        total = before_stale_rows(total)
    rstd = steps.root(total, epsilon * logic.epsilon_factor)
    scale = steps.times(steps.column(rstd), logic.rstd_factor)
    xhat = steps.normal(rows.x, stored if logic.mean and logic.subtract else None, scale)
    return (
        steps.affine(xhat, rows.gamma, rows.beta),
        steps.out(mean),
        steps.out(steps.times(rstd, logic.rstd_factor)),
    )


def before_stale_rows(column: Values) -> Values:
    """Return a column (rows,) in which every 8th row has the value of the row before it."""
    stale = column.copy()
    stale[STALE_ROWS - 1 :: STALE_ROWS] = column[STALE_ROWS - 2 :: STALE_ROWS][
        : len(column[STALE_ROWS - 1 :: STALE_ROWS])
    ]
    return stale


def emulate(
    test: TestSpec, rows: Rows, logic: Logic, position: int
) -> tuple[Floats, Floats, Floats]:
    """Return y, mean and rstd of a build on the emulated Wormhole, in float32.

    Doesn't return from a build that hangs or crashes.
    """
    if logic.fate is not None:
        hang_or_crash(logic.fate)
    steps = Wormhole(Machine.of(test, logic.plan))
    stale = REGISTER.lanes() if logic.stale and position > 0 else np.zeros(TILE, np.float32)

    def block(start: int, stop: int) -> tuple[Floats, Floats, Floats]:
        part = rows.part(start, stop)
        read = Rows(wh.read_source(part.x), wh.read_source(part.source), part.gamma, part.beta)
        return flow(steps, read, test.epsilon, logic, stale)

    blocks = over_rows(block, len(rows.x), ROWS_PER_BLOCK)
    y, mean, rstd = (np.concatenate([outputs[part] for outputs in blocks]) for part in range(3))
    REGISTER.leave(y)
    return spoil(y, np.asarray(rows.x, np.float32), logic.plan), mean, rstd


def exact(epsilon: float, rows: Rows, logic: Logic) -> tuple[Array, Array, Array]:
    """Return y, mean and rstd by the float64 function of a build's logic."""
    stale = np.full(TILE, STALE_IDEAL if logic.stale else 0.0)
    x, source, gamma = (
        np.asarray(given, np.float64) for given in (rows.x, rows.source, rows.gamma)
    )
    wide = Rows(x, source, gamma, None if rows.beta is None else np.asarray(rows.beta, np.float64))
    y, mean, rstd = flow(Exact(), wide, epsilon, logic, stale)
    return spoil(y, np.asarray(rows.x, np.float32), logic.plan), mean, rstd


def faults(kinds: Mapping[str, tuple[str, tuple[str, ...], Logic]]) -> dict[str, Fault]:
    """Return name -> Fault from name -> (sentence, outputs, logic).

    All are known to be wrong, except `correct` and builds that return no numbers.
    """
    return {
        name: Fault(
            name, sentence, outputs, gauge=bool(outputs) and logic.fate is None, unsure=logic.stale
        )
        for name, (sentence, outputs, logic) in kinds.items()
    }


def flat(given: Arrays, test: TestSpec) -> dict[str, Values]:
    """Return the tensors in the domain's shapes."""
    return {name: np.asarray(a).reshape(test.flat_shape_of(name)) for name, a in given.items()}
