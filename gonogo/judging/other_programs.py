"""Other programs that explain an output beside the one that names its arithmetic.

The ladder names the first program that explains an output. On small outputs several do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.measure import measure
from gonogo.numerics.replay.missed import known_programs
from gonogo.numerics.replay.program import Program
from gonogo.spec.program_name import same

MAX_ELEMENTS = 2**12
"""The most elements of x where other programs are sought: up to here they cost 50 ms at most."""
MAX_STORING_ELEMENTS = 1000
"""The same of storing programs, which take a few milliseconds each at any size."""
MAX_NAMES = 8
"""The most names: the programs that store nothing have no more."""


def other_programs(
    graph: Graph,
    output: NDArray[np.floating],
    form: str,
    formats: Sequence[str],
    named: Program,
    elements: int,
) -> tuple[str, ...]:
    """Return the names of other programs that explain an output, in the order of the ladder.

    No new ones are sought: they are those that store nothing, and where `named` stores, those of
    known libraries. Programs that the output can't tell apart (program_name.same) count as one.

    Args:
        graph: the output's formula with the kernel's inputs.
        output: (rows, N), which `named` explains.
        form: the output's format.
        formats: the formats in which a kernel may store.
        named: the program that names the arithmetic.
        elements: the number of elements of x.
    """
    if elements > MAX_ELEMENTS:
        return ()
    stores = named.stored and elements <= MAX_STORING_ELEMENTS
    names: list[str] = []
    for program in chain(ladder.plain(graph), known_programs(graph, formats) if stores else ()):
        if len(names) == MAX_NAMES:
            break
        if any(same(program.name, name) for name in (named.name, *names)):
            continue
        with np.errstate(over="ignore", invalid="ignore"):  # fp16 squares overflow
            measured = measure(graph, program, output, form, ladder.LIMIT)
        if max(measured.largest, measured.largest_row) <= ladder.LIMIT:
            names.append(program.name)
    return tuple(names)
