"""Programs by name: those of a graph that a name permits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gonogo.numerics.formats import Mode
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import (
    ROUNDINGS,
    WELFORD,
    ColumnOrder,
    Order,
    Program,
    along_rows,
)
from gonogo.spec.arithmetic_names import EITHER, VARIANCES
from gonogo.spec.program_name import COLUMN_SUMS, ROW_SUMS, ProgramName


def programs(graph: Graph, name: ProgramName, formats: Sequence[str]) -> Iterator[Program]:
    """Yield the programs of a graph that have a name, in any form.

    Parts that the graph lacks, such as the column sums of y, are ignored.

    formats: the narrow formats of the test's tensors, for names that leave theirs open.
    """
    bases = _bases(graph)
    variance = next((VARIANCES[trait] for trait in name.traits if trait in VARIANCES), None)
    of_names = VARIANCES.values()
    alike = [at for at in bases if (at[0] if at[0] in of_names else None) == variance]
    alike = alike or list(bases)
    applicable = {at: [known for known in name.stored if known in bases[at].stored] for at in alike}
    most = max(map(len, applicable.values()))
    order = next((order for order in Order if order in name.traits), Order.blocked)
    for form in _formats(name, formats):
        for at, quantities in applicable.items():
            if len(quantities) == most:
                stored = {} if form is None else dict.fromkeys(quantities, form)
                yield Program(
                    *at,
                    stored,
                    order,
                    _column_order(bases[at], name),
                    _row_order(name),
                    _rounding(name, ""),
                    _rounding(name, "output "),
                )


@dataclass
class Base:
    """The parts that the programs of one form may have.

    Attributes:
        stored: the quantities that they may store.
        has_orders: whether they have sums in one of several orders, such as column sums.
    """

    stored: set[str] = field(default_factory=set)
    has_orders: bool = False


def _bases(graph: Graph) -> dict[tuple[str, str], Base]:
    """Return the (variance, product) of each form of a graph, the usual forms first."""
    bases: dict[tuple[str, str], Base] = {}
    listed = [(form, graph.storable(form)) for form in graph.forms]
    derived = [(program, ()) for program in graph.derived if program.variance == WELFORD]
    for program, quantities in (*listed, *graph.known, *derived):
        base = bases.setdefault((program.variance, program.product), Base())
        base.stored.update(quantities)
        base.has_orders |= program.column_order is not ColumnOrder.blocked
    return bases


def _formats(name: ProgramName, formats: Sequence[str]) -> Sequence[str | None]:
    """Return the formats in which a program may store; None: it stores nothing."""
    if EITHER in name.stored.values():
        return formats or (None,)
    return tuple(dict.fromkeys(name.stored.values())) or (None,)


def _row_order(name: ProgramName) -> ColumnOrder:
    """Return the order that a name gives sums along a row whose total is stored."""
    orders = (order for order in ColumnOrder if ROW_SUMS + along_rows(order) in name.traits)
    return next(orders, ColumnOrder.blocked)


def _rounding(name: ProgramName, what: str) -> Mode:
    """Return how a name rounds its output (what: "output "), or what it stores (what: "")."""
    modes = (mode for mode, words in ROUNDINGS.items() if what + words in name.traits)
    return next(modes, "even")


def _column_order(base: Base, name: ProgramName) -> ColumnOrder:
    """Return the order that a name gives column sums; blocked for a form without any."""
    orders = (order for order in ColumnOrder if COLUMN_SUMS + order in name.traits)
    return next(orders, ColumnOrder.blocked) if base.has_orders else ColumnOrder.blocked
