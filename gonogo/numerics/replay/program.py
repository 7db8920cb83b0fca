"""Programs: the arithmetic of a kernel as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

QUANTITIES = (
    *("epsilon", "sum of x", "mean", "x - mean", "square", "sum of squares", "mean square"),
    *("mean^2", "variance", "variance + epsilon", "root", "root % 32", "root % 64", "rstd"),
    *("gamma rstd", "x rstd", "mean rstd", "x gamma rstd", "mean gamma rstd"),
    *("beta - mean gamma rstd", "x^", "gamma x^", "rstd^2", "rstd^3"),
    *("rstd / (variance + epsilon)", "P", "rstd P", "rstd P added", "P (x - mean)"),
    *("sum of P (x - mean)", "P / root", "x^ / root", "P x^ / root", "P x^", "s1", "s2", "x^ s2"),
    *("P - s1", "P - s1 - x^ s2", "rstd (s1 + x^ s2)", "b", "c", "d root", "d variance"),
    *("d variance / N", "2 d variance / N", "d square", "d (x - mean)", "d mean", "sum of d mean"),
    *("d mean / N", "d mean^2", "d x of the statistics", "d x of the variance", "dy x^"),
    "column sum",
)
"""The quantities that kernels of ours may store, in the order in which kernels compute them."""
_PLACES = {name: place for place, name in enumerate(QUANTITIES)}
CANCELLED = "E[x^2] - mean^2"
"""The variance of programs that don't center x first."""


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
    """The order in which a kernel adds up the rows of a column."""

    blocked = "blocked"
    rows = "rows in order"
    halves = "rows in order, in 2 parts"
    quarters = "rows in order, in 4 parts"
    lanes = "4 lanes of rows"
    folded = "8 lanes of rows, folded"
    windows = "windows of 32 rows"


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
    """

    variance: str = "x - mean"
    product: str = "(x - mean) rstd"
    stored: Mapping[str, str] = field(default_factory=dict)
    order: Order = Order.blocked
    column_order: ColumnOrder = ColumnOrder.blocked

    @property
    def name(self) -> str:
        """Return the name that people read, such as "fp32-inside, running sums"."""
        formats = sorted(set(self.stored.values()))
        parts = [
            f"{'/'.join(formats)}: {', '.join(in_order(self.stored))} stored"
            if formats
            else "fp32-inside"
        ]
        if self.variance == CANCELLED:
            parts.append(f"variance as {CANCELLED}")
        if self.order is not Order.blocked:
            parts.append(self.order.value)
        if self.column_order is not ColumnOrder.blocked:
            parts.append(f"column sums: {self.column_order.value}")
        return ", ".join(parts)
