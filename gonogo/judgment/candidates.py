"""Explanations from sharp to wide: the arithmetics that compete for an output, in their order.

1. What the build declares; then nothing else.
2. Nothing stored: each way with blocked, running and updated sums.
3. A truncated output, and stored values that a search finds, in each way.
4. Ways that are much noisier than the reference on these inputs.
5. 16-bit operations in an unknown order: only noise.
6. The same with totals kept in 16 bits, which explains nearly anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gonogo.arithmetic import Program
from gonogo.arithmetic.formats import Doubles
from gonogo.arithmetic.quantity import ZERO
from gonogo.arithmetic.sums import Order
from gonogo.graph import Graph
from gonogo.judgment.fits import Candidate, Output, has_sums
from gonogo.judgment.search import stored_programs

ORDERS: tuple[Order, ...] = ("blocked", "running", "updated")
WIDE = 32.0
"""How much noisier than the reference a way is before which the faults of sharper ones are tried:
E[x^2] - mean^2 at a mean of some deviations, where it still has most of its digits."""


def declared(output: Output) -> list[Candidate]:
    """Return the programs that the build declares."""
    return [Candidate(output.reference, program) for program in output.kernel.programs]


def sharp(output: Output) -> Iterator[Candidate]:
    """Yield the arithmetics in which nothing is stored, but for noisy ways."""
    for order in ORDERS:
        for graph in output.ways:
            if order != "blocked" and not has_sums(graph, output.name):
                continue
            if not is_noisy(output, graph):
                yield Candidate(graph, Program(order=order))


def truncated(output: Output) -> Iterator[Candidate]:
    """Yield the arithmetics whose last cast drops bits, as some compilers make it."""
    if output.form != "fp32":
        for graph in output.ways:
            key = graph.outputs[output.name].key
            yield Candidate(graph, Program(stored={key: f"{output.form}/zero"}))


def storing(output: Output, shift: Doubles = ZERO) -> Iterator[Candidate]:
    """Yield the programs of each way with stored values that a search finds.

    shift: what the best fault adds to the output, so that the rest is sought beside it.
    """
    for form in output.kernel.narrow:
        for graph in output.ways:
            if not is_noisy(output, graph):
                yield from stored_programs(output, graph, form, shift)


def wide(output: Output) -> Iterator[Candidate]:
    """Yield the arithmetics that are noise for the most part; see the rules of wide.py."""
    for graph in output.ways:
        if is_noisy(output, graph):
            for order in ORDERS:
                yield Candidate(graph, Program(order=order))
    for has_narrow_sums in (False, True):
        for form in output.kernel.narrow:
            program = Program(narrow=form, narrow_sums=has_narrow_sums)
            yield Candidate(output.reference, program)


def is_noisy(output: Output, graph: Graph) -> bool:
    """Return whether a way is much noisier than the reference."""
    if graph is output.reference:
        return False
    return _noise(output, graph) > WIDE * _noise(output, output.reference)


def _noise(output: Output, graph: Graph) -> float:
    """Return the usual deviation of the elements where nothing is stored."""
    variance = output.quantity(Candidate(graph)).variance
    return float(np.sqrt(np.median(variance))) if variance.size else 0.0
