"""Explanations from sharp to wide: the arithmetics that compete for an output, in their order.

1. What the build declares; then nothing else.
2. Nothing stored: each way with blocked, running and updated sums.
3. Programs that the caller knows, such as those of a Wormhole, and those of other outputs.
4. A truncated output, and stored values that a search finds, in each way.
5. Ways that are much noisier than the reference on these inputs.
6. 16-bit operations in an unknown order: only noise.
7. The same with totals kept in 16 bits, which explains nearly anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from gonogo.arithmetic import Program
from gonogo.arithmetic.formats import Doubles, format_and_mode, unit_roundoff
from gonogo.arithmetic.program import TOTAL
from gonogo.arithmetic.quantity import ZERO
from gonogo.arithmetic.sums import Order
from gonogo.faults.changes import Fault
from gonogo.faults.table import STORED, is_of_input
from gonogo.graph import Graph
from gonogo.judgment.fits import Candidate, Output, has_sums
from gonogo.judgment.search import closest_totals, last_sum, stored_programs

ORDERS: tuple[Order, ...] = ("blocked", "running", "updated")
WAYS_OF_TOTALS = 2
"""Ways that are tried with them: the terms of a sum down the rows hardly differ."""
ROUNDINGS = ("", "/zero")
"""How a kernel stores: to nearest even, or truncated, as some compilers and interpreters do."""


def declared(output: Output) -> list[Candidate]:
    """Return the arithmetics that the build declares."""
    return list(of_output(output.name, output.values.shape, output.kernel.declared))


def sharp(output: Output) -> Iterator[Candidate]:
    """Yield the arithmetics in which nothing is stored, but for noisy ways."""
    for order in ORDERS:
        for graph in output.usual_ways:
            if order == "blocked" or has_sums(graph, output.name):
                yield Candidate(graph, Program(order=order))


def known(output: Output) -> Iterator[Candidate]:
    """Yield the arithmetics that the caller knows."""
    return of_output(output.name, output.values.shape, output.kernel.known)


def proven(output: Output) -> Iterator[Candidate]:
    """Yield the arithmetics that explain other outputs of the kernel, which computes all by one."""
    return of_output(output.name, output.values.shape, output.kernel.proven)


def of_output(name: str, shape: tuple[int, ...], every: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the arithmetics that have an output, without its last rounding."""
    for candidate in every:
        node = candidate.graph.outputs.get(name)
        if node is not None and node.shape == shape:
            yield Candidate(candidate.graph, candidate.program.before_last_rounding(node.key))


def truncated(output: Output) -> Iterator[Candidate]:
    """Yield the arithmetics whose last cast drops bits, as some compilers make it."""
    if output.form != "fp32":
        for graph in output.ways:
            key = graph.outputs[output.name].key
            yield Candidate(graph, Program(stored={key: f"{output.form}/zero"}))


def named(output: Output, graph: Graph, faults: Sequence[Fault]) -> Iterator[Candidate]:
    """Yield the arithmetics of a way that store the values which faults of its say are stored."""
    stored = {}
    for fault in faults:
        kind, _, place = fault.id.partition(":")
        if kind not in STORED or is_of_input(fault):
            return
        key = place.partition("@")[0]  # stored for one who uses it, stored for all of this output's
        if key == graph.outputs[output.name].key:  # it is rounded anyway
            return
        stored[key] = format_and_mode(STORED[kind])[0]
    most = max((unit_roundoff(form) for form in output.kernel.narrow), default=0.0)
    if stored and all(unit_roundoff(form) <= most for form in stored.values()):
        for rounding in ("", "/away", "/zero"):
            stores = {key: form + rounding for key, form in stored.items()}
            yield Candidate(graph, Program(stored=stores))


def storing(output: Output, shift: Doubles = ZERO) -> Iterator[Candidate]:
    """Yield the programs of each way with stored values that a search finds.

    shift: what the best fault adds to the output, so that the rest is sought beside it.
    """
    for graph in output.usual_ways:
        for form in output.kernel.narrow:
            for rounding in ROUNDINGS:
                yield from stored_programs(output, graph, form + rounding, shift)


def with_totals(output: Output) -> Iterator[Candidate]:
    """Yield the programs that store values, and the totals of the sum that the output is.

    Where few values differ, a search finds nothing: totals alone are tried without one.
    """
    for form in output.kernel.narrow:
        for totals in closest_totals(output, form):
            for graph in islice(output.usual_ways, WAYS_OF_TOTALS):
                last = last_sum(graph, output.name)
                if last is not None:
                    stored = {f"{last.key}{TOTAL}": form}
                    yield Candidate(graph, Program(stored=stored, totals=totals))
                    yield from stored_programs(output, graph, form, totals=totals)


def wide(output: Output) -> Iterator[Candidate]:
    """Yield the arithmetics that are noise for the most part; see the rules of wide.py."""
    for graph in output.ways:
        if not output.is_usual(graph):
            for order in ORDERS:
                yield Candidate(graph, Program(order=order))
    for has_narrow_sums in (False, True):
        for form in output.kernel.narrow:
            program = Program(narrow=form, narrow_sums=has_narrow_sums)
            yield Candidate(output.reference, program)
