"""Graphs: what a search needs to know of an output's formula."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.quantity import Quantity

Columns = slice | NDArray[np.intp]
ALL_COLUMNS: slice = slice(None)


class Graph(Protocol):
    """One output of a kernel: how its programs compute it from the inputs of some rows."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, N)."""

    @property
    def forms(self) -> tuple[Program, ...]:
        """Return a program of each form, with nothing stored, the usual ones first."""

    @property
    def derived(self) -> tuple[Program, ...]:
        """Return programs of formulas that a library derives itself, with nothing stored.

        They are tried with running sums too, but nothing is sought that they might store.
        """

    @property
    def known(self) -> tuple[tuple[Program, tuple[str, ...]], ...]:
        """Return (form, stored quantities) of programs that libraries are known to have."""

    def storable(self, program: Program) -> tuple[str, ...]:
        """Return the quantities that a program of this form may store."""

    def last(self, program: Program) -> str | None:
        """Return the quantity that is the output before its rounding; None: it has no name."""

    def rstd_rounding(self, program: Program) -> Array | None:
        """Return the deviation of rstd's own rounding in each row (rows,), relative to rstd.

        None where the output has no rstd, or is given it, or the program stores it.
        """

    def some(self, rows: NDArray[np.intp]) -> Graph:
        """Return the graph of some of the rows."""

    def replay(
        self, program: Program, columns: Columns = ALL_COLUMNS, *, quick: bool = False
    ) -> Quantity:
        """Return some columns of the output, before its own rounding; `quick` as in Machine."""
