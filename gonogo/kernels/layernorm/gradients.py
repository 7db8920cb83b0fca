"""The numerics that backward kernels that normalize rows share: LayerNorm's and RMSNorm's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from gonogo.kernels.kind import EVERYTHING, Arrays, Numerics, column_step, row_step
from gonogo.kernels.layernorm import forensics, replay
from gonogo.kernels.layernorm.arithmetic import GivenMoments, backward, backward_terms, row_sums
from gonogo.kernels.references import References, RowReferences, some_rows
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.diagnosis import Diagnosis
from gonogo.numerics.expectation import Array, Expectation
from gonogo.numerics.replay.graph import Graph

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class GradientNumerics(Numerics):
    """The numerics of a backward kernel: dx in blocks of rows, its column sums in columns.

    Each kind implements `moments`, and what Numerics asks for besides `expectations`: `reference`,
    `run`, `ideal` and `faults`.
    """

    centered = True
    """Whether the kernel subtracts a mean. Without one there is no s1 and no dbeta."""

    @abstractmethod
    def moments(self, test: TestSpec, given: Arrays, arithmetic: str | None) -> GivenMoments:
        """Return the statistics of the given rows as the kernel has them."""

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Return what is expected of dx in these rows, and of the sums where they are all rows."""
        some = given if rows == EVERYTHING else some_rows(test, given, rows)
        known, terms = self.moments(test, some, arithmetic), backward_terms(test, arithmetic)
        expected = {"dx": backward.input_gradient(some, known, terms, centered=self.centered)}
        if rows == EVERYTHING:
            expected |= backward.column_sums(some, known, terms, centered=self.centered)
        return {name: self.stored(test, e) for name, e in expected.items()}

    def stored(self, test: TestSpec, expected: Expectation) -> Expectation:
        """Return an output's expectation with what only the kind's own formats add to it."""
        return expected

    def spans(self, test: TestSpec) -> tuple[int, int]:
        """Return (rows, rows of a block of dx)."""
        return test.rows, row_step(test)

    def expecting(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> Callable[[slice], dict[str, Expectation]]:
        """Return the expectations of rows of dx; how far all rows err alike is computed once."""
        known, t = self.moments(test, given, arithmetic), backward_terms(test, arithmetic)

        def means(start: int, stop: int) -> Array:
            some, at = some_rows(test, given, slice(start, stop)), known.some(slice(start, stop))
            p = np.asarray(some["dy"], np.float64) * np.asarray(some["gamma"], np.float64)
            return np.stack(row_sums.row_means(p, (some["x"] - at.mean) * at.rstd))

        s1, s2 = np.concatenate(over_rows(means, *self.spans(test)), axis=1)
        coherent = row_sums.coherence_of((s1, s2), t, known.informative)

        def expect(rows: slice) -> dict[str, Expectation]:
            some, at = some_rows(test, given, rows), known.some(rows)
            dx = backward.input_gradient(some, at, t, coherent, centered=self.centered)
            return {"dx": self.stored(test, dx)}

        return expect

    def column_parts(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> dict[str, list[Expectation]]:
        """Return the expectations of the sums in blocks of columns, computed on all cores."""
        known, terms = self.moments(test, given, arithmetic), backward_terms(test, arithmetic)

        def block(start: int, stop: int) -> dict[str, Expectation]:
            some = {name: given[name][:, start:stop] for name in ("x", "dy")}
            sums = backward.column_sums(some, known, terms, centered=self.centered)
            return {name: self.stored(test, expected) for name, expected in sums.items()}

        blocks = over_rows(block, test.features, column_step(test))
        return {name: [part[name] for part in blocks] for name in blocks[0]}

    def references(self, test: TestSpec, raw: Arrays) -> References:
        """Return the raw references, which are computed by rows."""
        return RowReferences(self.reference, test, raw, row_step(test))

    def graphs(self, test: TestSpec, given: Arrays) -> dict[str, Graph]:
        """Return the formula of every output."""
        return replay.graphs(test, given, centered=self.centered)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """Estimate s1, s2, gamma and the factor that dx was computed with, and the sums' rows."""
        return forensics.diagnose(test, given, outputs, centered=self.centered)
