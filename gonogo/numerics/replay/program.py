"""Programs: the arithmetic of a kernel as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the names of programs are read without NumPy
    from gonogo.numerics.formats import Mode

QUANTITIES = (
    *("epsilon", "sum of x", "N", "1/N", "mean", "x - mean", "square", "sum of squares"),
    *("mean square", "mean^2", "variance", "variance + epsilon", "root", "root % 8", "root % 32"),
    *("root % 64", "root % 16 truncated"),
    *("rstd", "gamma rstd", "x rstd", "mean rstd", "x gamma rstd", "mean gamma rstd"),
    *("beta - mean gamma rstd", "x^", "gamma x^", "rstd^2", "rstd^3", "rstd divided"),
    *("rstd / (variance + epsilon)", "P", "rstd P", "rstd P added", "P (x - mean)", "P x"),
    *("sum of P (x - mean)", "sum of P x", "rstd times the sum", "P / root", "x^ / root"),
    *("P x^ / root", "P x^", "s1", "s2", "x^ s2", "P - s1", "P - x^ s2", "P - s1 - x^ s2"),
    *("rstd x^ s2", "rstd (s1 + x^ s2)", "b", "c", "d x of the product", "dy x", "dy mean"),
    *("d (gamma rstd)", "d (gamma rstd) gamma", "d rstd", "d root", "d variance"),
    *("d variance / N", "2 d variance / N", "d square", "d x", "d (x - mean)", "d mean terms"),
    *("d mean", "sum of d mean", "d mean / N", "d mean^2", "d x of the statistics"),
    *("d x of the variance", "dy x^", "column sum"),
)
"""The quantities that kernels of ours may store, in the order in which kernels compute them."""
_PLACES = {name: place for place, name in enumerate(QUANTITIES)}
CANCELLED = "E[x^2] - mean^2"
"""The variance of programs that don't center x first."""
WELFORD = "Welford's updates"
"""The variance of programs that update it, and the mean, term by term, in lanes."""


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return quantities in the order of QUANTITIES; others follow, in alphabetical order."""
    return tuple(sorted(names, key=lambda name: (_PLACES.get(name, len(_PLACES)), name)))


class Order(StrEnum):
    """The order in which a kernel adds up the terms of a sum, as a class of orders."""

    blocked = "blocked"
    """Many short sums that are added up at the end: lanes, pairs, blocks."""
    running = "running sums"
    """One sum that takes in term after term."""
    running_mean = "running means"
    """A mean that takes in term after term, as Welford's algorithm does."""


class ColumnOrder(StrEnum):
    """The order of a sum whose total is stored after each addition: down a column, along a row."""

    blocked = "blocked"
    rows = "rows in order"
    halves = "rows in order, in 2 parts"
    quarters = "rows in order, in 4 parts"
    lanes = "4 lanes of rows"
    folded = "8 lanes of rows, folded"
    windows = "windows of 32 rows"
    packets = "4 packets of 8 rows, in halves"
    """Eigen's order along a row: see columns.packets."""
    warps = "32 lanes of rows, in halves"
    """XLA's order along a row on a GPU: see narrow_sums."""
    tiles = "64 lanes or more of rows, in pairs and halves"
    """The same where XLA has Triton compile the sum: see narrow_sums."""
    one_warp = "every 32nd row, in halves"
    """XLA's order down a column on a GPU: see narrow_sums."""
    threads = "128 threads of rows, in halves"
    """Triton's order in a block of 4 warps: see narrow_sums."""
    unordered = "rows in any order"
    """One total, or several, to which rows are added as they come: see walks."""


def along_rows(order: ColumnOrder) -> str:
    """Return the name of an order of sums along a row, whose terms aren't rows."""
    return order.value.replace("rows", "terms")


ROUNDINGS: Mapping[Mode, str] = {
    "even": "rounded to nearest",
    "away": "rounded with ties away from zero",
    "zero": "truncated",
    "random": "rounded at random",
}


@dataclass(frozen=True)
class Program:
    """The arithmetic of a kernel.

    Attributes:
        variance: how the variance is computed: from "x - mean" as the kernel has it, from "x" with
            a mean of its own, as "E[x^2] - mean^2", or by "Welford's updates".
        product: the order of the products, a name of the graph's.
        stored: the format of each stored quantity, by the quantity's name. Everything else stays in
            fp32.
        order: the class of orders of the sums along a row.
        column_order: the order of the sums down a column.
        row_order: the order of the sums along a row whose total is stored: blocked where it is
            stored once, at the end.
        rounding: how stored values are rounded; see formats.round_to.
        output_rounding: how the output is; "random": up with the probability of what is cut off.
    """

    variance: str = "x - mean"
    product: str = "(x - mean) rstd"
    stored: Mapping[str, str] = field(default_factory=dict)
    order: Order = Order.blocked
    column_order: ColumnOrder = ColumnOrder.blocked
    row_order: ColumnOrder = ColumnOrder.blocked
    rounding: Mode = "even"
    output_rounding: Mode = "even"

    @property
    def name(self) -> str:
        """Return the name that people read, such as "fp32-inside, running sums"."""
        formats = sorted(set(self.stored.values()))
        parts = [
            f"{'/'.join(formats)}: {', '.join(in_order(self.stored))} stored"
            if formats
            else "fp32-inside"
        ]
        if self.stored and self.rounding != "even":
            parts.append(ROUNDINGS[self.rounding])
        if self.output_rounding != "even":
            parts.append(f"output {ROUNDINGS[self.output_rounding]}")
        if self.variance == CANCELLED:
            parts.append(f"variance as {CANCELLED}")
        if self.variance == WELFORD:
            parts.append(f"variance by {WELFORD}")
        if self.order is not Order.blocked:
            parts.append(self.order.value)
        if self.column_order is not ColumnOrder.blocked:
            parts.append(f"column sums: {self.column_order.value}")
        if self.row_order is not ColumnOrder.blocked:
            parts.append(f"row sums: {along_rows(self.row_order)}")
        return ", ".join(parts)
