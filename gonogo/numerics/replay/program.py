"""Programs: the arithmetic of a kernel as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gonogo.numerics.formats import Mode


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


ROUNDINGS: Mapping[Mode, str] = {
    "even": "rounded to nearest",
    "away": "rounded with ties away from zero",
    "zero": "truncated",
}


@dataclass(frozen=True)
class Program:
    """The arithmetic of a kernel.

    Attributes:
        variance: how the variance is computed: from "x - mean" as the kernel has it, from "x" with
            a mean of its own, or as "E[x^2] - mean^2".
        product: the order of the products, a name of the graph's.
        stored: the format of each stored quantity, by the quantity's name. Everything else stays in
            fp32.
        order: the class of orders of the sums along a row.
        column_order: the order of the sums down a column.
        row_order: the order of the sums along a row whose total is stored: blocked where it is
            stored once, at the end.
        rounding: how stored values are rounded; see formats.round_to.
        output_rounding: how the output is.
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
            f"{'/'.join(formats)}: {', '.join(self.stored)} stored" if formats else "fp32-inside"
        ]
        if self.stored and self.rounding != "even":
            parts.append(ROUNDINGS[self.rounding])
        if self.output_rounding != "even":
            parts.append(f"output {ROUNDINGS[self.output_rounding]}")
        if self.variance == "E[x^2] - mean^2":
            parts.append("variance as E[x^2] - mean^2")
        if self.order is not Order.blocked:
            parts.append(self.order.value)
        if self.column_order is not ColumnOrder.blocked:
            parts.append(f"column sums: {self.column_order.value}")
        if self.row_order is not ColumnOrder.blocked:
            parts.append(f"row sums: {self.row_order.value.replace('rows', 'terms')}")
        return ", ".join(parts)
