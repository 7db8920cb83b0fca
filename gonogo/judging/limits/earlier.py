"""The rungs of the ladder before one that explains an output."""

from __future__ import annotations

from itertools import takewhile

from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Program


def error_class(program: Program) -> tuple[str, ...]:
    """Return what decides how far the rows of a program are off: its variance and its sums."""
    return program.variance, program.order, program.column_order


def earlier(graph: Graph, program: Program) -> list[Program]:
    """Return the rungs before a program that stores nothing, one of each error.

    They are simpler: the ladder comes to the program only where none of them explains an output.
    """
    if program.stored or program.output_rounding != "even":
        return []
    before = takewhile(lambda rung: rung != program, ladder.plain(graph))
    by_error = {
        error_class(rung): rung for rung in before if error_class(rung) != error_class(program)
    }
    return list(by_error.values())
