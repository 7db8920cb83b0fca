"""Missed rows: those of an output that the nearest storing program does not reproduce.

A stored statistic hides a small fault in most rows, since it is rounded to the same value, and
moves the others by a whole step. So a program may reproduce nearly all rows of a wrong kernel; the
others, counted over seeds, tell it from a right one (gonogo.spec.missed_rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.replay import search
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.measure import measure
from gonogo.numerics.replay.program import Program

MIN_ROWS = 4
"""Rows that a program reproduces by no chance."""
MAX_SHARE = 0.5
"""The largest share of missed rows at which it is the others that tell the program."""
MIN_BEYOND = 4
"""The least elements beyond the limit in a missed row, on average.

Of another arithmetic, single elements differ, all over the output: where they leave half of the
rows alone, a missed row has 1.4 of them. A statistic that moved by a step moves its whole row.
"""
PROBED_ROWS, SAMPLED_ROWS, COLUMNS = 2, 16, 192
"""The parts of an output on which programs are tried before one is tried on all of it.

A program that misses both probed rows isn't tried further. Where a fault moves a fifth of the rows,
both have moved in one seed of 25; the other seeds of a test count the rows then.
"""


def has_rows(graph: Graph) -> bool:
    """Return whether an output has enough rows, and elements in each, for counting missed rows."""
    rows, count = graph.shape
    return rows >= 2 * MIN_ROWS and count >= MIN_BEYOND


def known_programs(graph: Graph, formats: Sequence[str]) -> Iterator[Program]:
    """Yield the storing programs that libraries are known to have, also with running sums.

    formats: the formats in which a kernel may store, those of its tensors.
    """
    for form in formats:
        known = [
            replace(base, stored=dict.fromkeys(quantities, form))
            for base, quantities in graph.known
        ]
        yield from known
        yield from search.running(known)


def _sample(graph: Graph, output: NDArray[np.floating], form: str, most: int) -> search.Sample:
    rows, count = graph.shape
    chosen = np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.intp))
    columns = np.unique(np.linspace(0, count - 1, min(count, COLUMNS)).astype(np.intp))
    part = np.asarray(output[np.ix_(chosen, columns)], np.float64)
    return search.Sample(graph.some(chosen), part, columns, form)


def find_missed(
    graph: Graph, output: NDArray[np.floating], form: str, programs: Iterable[Program]
) -> tuple[Program, int] | None:
    """Return the nearest of some storing programs, and the number of rows that it misses.

    It is the one that misses the fewest of a sample of rows. None where it misses more rows than it
    reproduces, or where what it misses has no pattern of rows: then it isn't the kernel's program.

    Args:
        graph: the output's formula with the kernel's inputs.
        output: (rows, N), finite values; all sums down a column are one row.
        form: the output's format.
        programs: the programs; those that store nothing are left out.
    """
    if not has_rows(graph):
        return None
    rows, _ = graph.shape
    probed = _sample(graph, output, form, PROBED_ROWS)
    sampled = _sample(graph, output, form, SAMPLED_ROWS)
    tried = [
        (sampled.missed_rows(program), program)
        for program in programs
        if program.stored and probed.missed_rows(program) < PROBED_ROWS
    ]
    if not tried:
        return None
    fewest, nearest = min(tried, key=lambda item: item[0])
    if fewest > MAX_SHARE * len(sampled.output):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        measured = measure(graph, nearest, output, form, search.LIMIT)
    is_missed = ~(measured.per_row <= search.LIMIT)
    missed = int(is_missed.sum())
    if missed > MAX_SHARE * rows or measured.beyond[is_missed].sum() < MIN_BEYOND * missed:
        return None
    return nearest, missed
