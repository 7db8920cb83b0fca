"""The arithmetic of a Tensix core of a Wormhole: its units, as rules of a program, to the bit.

A value is a float32 array; where a register is narrower, its low bits are 0. Subnormal numbers are
0 in all registers. Sources: Tenstorrent's public ISA documentation (Wormhole B0, Tensix
coprocessor), the simulators made from it, and the figures that tt-train's tests published.

Not modeled: NaN that a rounding packer turns into inf (here NaN stays NaN), and exponents of five
bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.datapath import TINY, Width
from gonogo.arithmetic.formats import Doubles, format_and_mode, round_to
from gonogo.arithmetic.matrix_unit import (
    TILE,
    column_sums,
    group_means,
    matrix_product,
    product_in_dst,
    row_sums,
)
from gonogo.arithmetic.sfpu import (
    ROOT_HALF,
    Form,
    exponential,
    reciprocal,
    rsqrt,
    twice_normal_cdf,
)
from gonogo.arithmetic.sums import rows_of
from gonogo.arithmetic.values import value_of
from gonogo.graph import Node

Array = NDArray[Any]
Singles = NDArray[np.float32]
Unit = Literal[
    "exact", "rounded", "sfpu", "rsqrt", "fpu", "lanes", "columns",
    "library", "inner", "phased", "rows", "down", "groups",
]  # fmt: skip
Fidelity = Literal["lofi", "hifi2", "hifi3", "hifi4"]

NO_TINY_SUM = np.float32(2.0**-102)
"""Numbers of at least this size are multiples of 2**-125, and so are their sums: none is subnormal
but 0."""
GRID = np.float32(2.0**-10)
"""ELWADD and ELWSUB align the smaller operand on so much of the larger one's power of two."""
POWER = np.uint32(0x7F800000)
"""The bits of a float32's exponent: alone, they are the power of two at or below its size."""
PHASES: Mapping[str, tuple[int, int | None]] = {
    "lofi": (0xFFF80000, None),
    "hifi2": (0xFFFFC000, None),
    "hifi3": (0xFFFFC000, 0xFFF80000),
    "hifi4": (0xFFFFC000, 0xFFFFC000),
}
"""The bits of SrcA that are multiplied by SrcB's upper seven, and by its lower four. SrcA is taken
as 5 bits, the implicit one among them, then 5; the last bit of TF32 is never used."""
UPPER, LOWER = 0xFFFE0000, 0xFFFFE000
"""The bits of SrcB's upper seven, and of all eleven."""
SCALER = "bf16/zero"
"""How a kernel makes the tile of 1/N, by which a reduction multiplies."""


@dataclass(frozen=True)
class Rule:
    """How a kernel's operation computes.

    Attributes:
        unit: "exact" rounds nothing; "rounded" once, to nearest fp32. Of a Tensix core: "sfpu"
            computes in fp32; "rsqrt" rounds 1/sqrt once; "fpu" multiplies, adds and subtracts;
            "lanes" sums along rows, "columns" down them. As ttnn's kernels do it: "library" has
            tt-metal's exp, 1/x, 1/sqrt and erfc; "inner" those for 16 bits within another function;
            "phased" is "fpu" with each phase rounded in Dst, and matrix products tile by tile;
            "rows" and "down" sum in groups of 8, and the SFPU multiplies by 1/N; "groups" has the
            means of channels by two sums.
        dst: the width of the registers that take the result.
        fidelity: the phases of the FPU's products.
        totals: the width of the registers that sum the lanes.
        partials: how the 32 lanes' totals are stored before they are summed; "": they aren't. Of
            "rows" and "down": how a buffer stores what tiles add up to, which is summed then.
        reads: how the FPU reads them.
        divisor: what a mean divides by; 0: the number of its terms.
        scaler: how 1/N is stored where "rows" sums products with it; "": the SFPU multiplies.
        is_packed: whether it is the packer that adds tiles in a buffer, in fp32; else the FPU does.
        block: the tiles that "rows" sums at once; the SFPU adds what they give. 0: all.
    """

    unit: Unit
    dst: Width = "fp32"
    fidelity: Fidelity = "hifi4"
    totals: Width = "fp32"
    partials: str = ""
    reads: str = "tf32/zero"
    divisor: int = 0
    scaler: str = ""
    is_packed: bool = False
    block: int = 0

    def __post_init__(self) -> None:
        choices = {"unit": Unit, "dst": Width, "totals": Width, "fidelity": Fidelity}
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in get_args(known):
                choice = ", ".join(get_args(known))
                raise ValueError(f"{name} {value!r} of a rule is not one of {choice}")

    def to_data(self) -> dict[str, str | int]:
        """Return the rule as plain data for JSON, without what is as usual."""
        usual = Rule(self.unit)
        return {
            name: value
            for name, value in asdict(self).items()
            if name == "unit" or value != getattr(usual, name)
        }

    @property
    def is_tensix(self) -> bool:
        """Whether a Tensix core computes it."""
        return self.unit not in ("exact", "rounded")

    def computed(self, node: Node, args: Sequence[Array]) -> Array:
        """Return a Tensix core's result of a node's operation, floats as float32.

        args: the values that its registers hold. A sum's may be longer than the graph says.
        """
        with np.errstate(all="ignore"):
            if self.unit == "rsqrt":
                return _singles(round_to(value_of(node, args), self.dst))
            if self.unit in ("library", "inner"):
                return _singles(self._by_library(node, [np.asarray(arg, float) for arg in args]))
            singles = [_singles(arg) for arg in args]
            match self.unit:
                case "phased" if node.operation == "matmul":
                    a, b = (arg.astype(float) for arg in singles)
                    return _singles(matrix_product(a, b, self.fidelity, self.dst))
                case "phased" if node.operation == "multiply" and self.dst == "bf16":
                    a, b = (arg.astype(float) for arg in singles)
                    return _singles(product_in_dst(a, b, self.fidelity, self.dst))
                case "fpu" | "phased":
                    return self._fpu(node, singles)
                case "rows" | "down" | "groups":
                    return self._reduced(node, singles[0])
                case "lanes":
                    return self._lanes(node, singles[0])
                case "columns":
                    return self._columns(node, singles[0])
            # to round a float64 result is to round once: it has more than twice the digits
            values = value_of(node, [arg.astype(np.float64) for arg in singles])
            return _in_dst(flushed(_singles(values)), self.dst, "bf16/zero")

    def _fpu(self, node: Node, args: Sequence[Singles]) -> Singles:
        match node.operation:
            case "multiply":
                result = product(args[0], args[1], self.fidelity)
            case "add":
                result = aligned_sum(args[0], args[1])
            case "subtract":
                result = aligned_sum(args[0], -args[1])
            case "matmul":
                return self._matmul(args[0], args[1])
            case _:
                raise ValueError(f"the FPU has no {node.operation}")
        return _in_dst(result, self.dst)

    def _by_library(self, node: Node, args: Sequence[Doubles]) -> Doubles:
        form: Form = "inner" if self.unit == "inner" else self.dst
        if node.operation == "exp":
            return exponential(args[0], form)
        if node.operation == "erfc":
            # the argument is exact: the product of the fp32 numbers x and -1/sqrt(2)
            return twice_normal_cdf(args[0] / -ROOT_HALF, form)
        if node.args[1].operation != "sqrt":
            return reciprocal(args[1], form)
        # the root is exact: its square is the fp32 number that the function is given
        result = rsqrt(round_to(np.square(args[1]), "fp32"))
        return result if self.dst == "fp32" else round_to(result, "bf16", "away")

    def _reduced(self, node: Node, terms: Singles) -> Singles:
        """Return sums or means as ttnn's kernels compute them; see matrix_unit."""
        axes = node.attributes["axes"]
        count = math.prod(node.args[0].shape[axis] for axis in axes)
        if self.unit == "groups":
            moved, divisor = format_and_mode(self.reads)[0], self.divisor or count
            means = group_means(terms.astype(float), divisor, self.fidelity, self.dst, moved)
            return _singles(means)
        rows = rows_of(terms, terms.shape, axes)
        tiles = _tiles(rows)
        tiles = stored(self._through_buffer(tiles) if self.partials else tiles, self.reads)
        divisor = self.divisor or count
        factor = float(round_to(1 / divisor, *format_and_mode(self.scaler))) if self.scaler else 1.0
        sums = column_sums if self.unit == "down" else partial(row_sums, factor=factor)
        size = self.block or tiles.shape[-2]
        result = np.zeros(tiles.shape[:-2], np.float32)
        for at in range(0, tiles.shape[-2], size):
            block = tiles[..., at : at + size, :].astype(float)
            total = stored(result, "tf32/zero") + _singles(sums(block, self.fidelity, self.dst))
            result = _in_dst(total, self.dst, "bf16/zero")
        return np.expand_dims(result if self.scaler else self._averaged(node, result), axes)

    def _averaged(self, node: Node, total: Singles) -> Singles:
        """Return a mean's total, which the SFPU multiplies by 1/N; a sum's as it is."""
        if node.operation != "mean":
            return total
        count = math.prod(node.args[0].shape[axis] for axis in node.attributes["axes"])
        factor = np.float32(1) / np.float32(self.divisor or count)
        return _in_dst(flushed(total * factor), self.dst, "bf16/zero")

    def _through_buffer(self, tiles: Singles) -> Singles:
        """Return the one tile that a kernel adds others to, from buffer to buffer."""
        total = stored(tiles[..., 0, :], self.partials)
        for at in range(1, tiles.shape[-2]):
            tile = tiles[..., at, :]
            if self.is_packed:
                total = stored(total + stored(tile, self.partials), self.partials)
                continue
            added = aligned_sum(stored(total, "tf32/zero"), tile)
            total = stored(_in_dst(added, self.dst), self.partials)
        return total[..., None, :]

    def _matmul(self, a: Singles, b: Singles) -> Singles:
        total = np.zeros(
            (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]),
            np.float32,
        )
        for k in range(a.shape[-1]):
            term = product(a[..., :, k, None], b[..., k, None, :], self.fidelity)
            total = accumulated(total, term, self.dst)
        return total

    def _lanes(self, node: Node, terms: Singles) -> Singles:
        """Return sums along rows, or means: of each lane over the tiles, then of the lanes.

        The lanes' totals are multiplied by the tile of 1/N. fp32 sums in the lanes' order stand for
        the hardware's groups of eight products that are aligned to the largest exponent.
        """
        axes = node.attributes["axes"]
        rows = rows_of(terms, terms.shape, axes)
        lanes = running_sum(_tiles(rows), -2, self.totals)
        if self.partials:
            lanes = stored(lanes, self.partials)
        count = self.divisor or math.prod(node.args[0].shape[axis] for axis in axes)
        factor = 1 / count if node.operation == "mean" else 1.0
        terms = product(
            _singles(round_to(factor, *format_and_mode(SCALER))),
            stored(lanes, self.reads),
            self.fidelity,
        )
        return np.expand_dims(running_sum(terms, -1, self.dst), axes)

    def _columns(self, node: Node, terms: Singles) -> Singles:
        """Return sums down the rows, or means: of each tile of rows, then of the tiles."""
        axes = node.attributes["axes"]
        tiles = _tiles(rows_of(terms, terms.shape, axes))
        total = running_sum(running_sum(tiles, -1, self.dst), -1, self.dst)
        return np.expand_dims(self._averaged(node, total), axes)


def _tiles(rows: Singles) -> Singles:
    """Return rows (..., n) in tiles (..., n / 32, 32), the last one filled with 0."""
    tiles = np.zeros((*rows.shape[:-1], -(-rows.shape[-1] // TILE), TILE), np.float32)
    tiles.reshape(*rows.shape[:-1], -1)[..., : rows.shape[-1]] = rows
    return tiles


def _singles(values: Any) -> Array:
    """Return floats as float32; ints and bools as they are."""
    array = np.asarray(values)
    return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array


def _masked(values: Singles, mask: int) -> Singles:
    bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(mask)
    return bits.view(np.float32).reshape(values.shape)


def flushed(values: Singles) -> Singles:
    """Return values with 0 in the place of subnormal numbers."""
    is_tiny = np.abs(values) < TINY
    return (
        np.where(is_tiny, np.copysign(np.float32(0), values), values) if is_tiny.any() else values
    )


def stored(values: Singles, store: str) -> Singles:
    """Return values as a packer stores them, or an unpacker reads them, such as "bf16/away".

    Steps that are joined by "+" follow each other: bfp8_b is made of bf16.
    """
    for step in store.split("+"):
        values = _stored_once(values, step)
    return flushed(values) + np.float32(0)


def _stored_once(values: Singles, store: str) -> Singles:
    form, mode = format_and_mode(store)
    if (form, mode) == ("fp32", "even"):
        return values
    if mode == "zero" and form in ("bf16", "tf32"):
        return _masked(values, 0xFFFF0000 if form == "bf16" else LOWER)
    if (form, mode) == ("bf16", "away") and not np.isnan(values).any():
        bits = np.ascontiguousarray(values).view(np.uint32) + np.uint32(0x8000)
        return _masked(bits.view(np.float32).reshape(values.shape), 0xFFFF0000)
    return _singles(round_to(values, form, mode))


def _in_dst(values: Singles, width: Width, store: str = "bf16/away") -> Singles:
    """Return values as registers of a width take them. The FPU rounds to nearest, the SFPU cuts."""
    return values if width == "fp32" else stored(values, store)


def product(a: Singles, b: Singles, fidelity: str) -> Singles:
    """Return ELWMUL of SrcA and SrcB on cleared registers; both have at most TF32's bits.

    The sum of the phases has at most 21 bits, so that nothing is rounded.
    """
    high, low = PHASES[fidelity]
    b_high = _masked(b, UPPER)
    result = _masked(a, high) * b_high
    if low is not None:
        b_low = _masked(b, LOWER) - b_high
        if b_low.any():
            result = result + _masked(a, low) * b_low
    is_nan = np.isnan(result)
    if is_nan.any():  # 0 in a phase times inf
        result = np.where(is_nan, a * b, result)
    return flushed(result) + np.float32(0)


def aligned_sum(a: Singles, b: Singles) -> Singles:
    """Return ELWADD of two operands of at most TF32's bits, on cleared registers.

    The smaller one is rounded half up, in magnitude, onto the larger one's grid: on ties that is a
    bias. Then they are added exactly.
    """
    a, b = np.broadcast_arrays(a, b)
    size_a, size_b = np.abs(a), np.abs(b)
    is_second = size_a < size_b
    large = np.where(is_second, b, a)
    small = np.where(is_second, size_a, size_b)
    grid = (large.view(np.uint32) & POWER).view(np.float32) * GRID
    # exact up to the half: small has 11 bits, and at most 2^11 steps
    steps = np.floor(small / np.where(grid == 0, np.float32(1), grid) + np.float32(0.5))
    result = large + np.copysign(steps * grid, np.where(is_second, a, b))
    is_odd = ~np.isfinite(result)
    if is_odd.any():
        result = np.where(is_odd, a + b, result)
    return flushed(result) + np.float32(0)


def running_sum(terms: Singles, axis: int, width: Width) -> Singles:
    """Return the sum along an axis as `accumulated` adds term after term to 0."""
    in_order = np.moveaxis(terms, axis, 0)
    if width == "fp32" and not (np.abs(terms) < NO_TINY_SUM).any(where=terms != 0):
        total: Singles = np.add.accumulate(in_order, axis=0)[-1] + np.float32(0)
        return total
    total = np.zeros(in_order.shape[1:], np.float32)
    for term in in_order:
        total = accumulated(total, term, width)
    return total


def accumulated(total: Singles, term: Singles, width: Width) -> Singles:
    """Return Dst + term, rounded to 24 bits; in 16 bits, the term and the result to bf16."""
    if width == "fp32":
        return flushed(total + term)
    return stored(total + stored(term, "bf16/away"), "bf16/away")
