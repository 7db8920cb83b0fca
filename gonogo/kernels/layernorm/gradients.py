"""The numerics that backward kernels that normalize rows share: LayerNorm's and RMSNorm's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.kernels import kind
from gonogo.kernels.kind import EVERYTHING, Arrays, Numerics, Piece
from gonogo.kernels.layernorm import forensics, replay
from gonogo.kernels.layernorm.arithmetic import GivenMoments, backward, backward_terms
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.diagnosis import Diagnosis
from gonogo.numerics.expectation import Expectation
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

    def gradients(
        self, test: TestSpec, given: Arrays, known: GivenMoments, arithmetic: str | None
    ) -> dict[str, Expectation]:
        """Return what is expected of each output, were these all rows and columns."""
        terms = backward_terms(test, arithmetic)
        return backward.expectations(given, known, terms, centered=self.centered)

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Return what is expected of dx in these rows, and of the sums where they are all rows."""
        some = given
        if rows != EVERYTHING:
            some = {name: a if name == "gamma" else a[rows] for name, a in given.items()}
        expected = self.gradients(test, some, self.moments(test, some, arithmetic), arithmetic)
        return expected if rows == EVERYTHING else {"dx": expected["dx"]}

    def spans(self, test: TestSpec) -> tuple[int, int]:
        """Return (rows, rows of a block of dx)."""
        return test.rows, _step(test.features)

    def pieces(self, test: TestSpec, given: Arrays, arithmetic: str | None) -> Iterator[Piece]:
        """Yield blocks of rows of dx, and blocks of columns of the sums."""
        known, (rows, step) = self.moments(test, given, arithmetic), self.spans(test)
        for start in range(0, rows, step):
            here = slice(start, min(start + step, rows))
            yield "dx", self._rows(test, given, known, arithmetic, here), here, EVERYTHING
        step = _step(rows)
        for start in range(0, test.features, step):
            here = slice(start, min(start + step, test.features))
            for name, expected in self._sums(test, given, known, arithmetic, here).items():
                yield name, expected, EVERYTHING, here

    def parts(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> dict[str, list[Expectation]]:
        """Return the same blocks by output, computed on all cores."""
        known = self.moments(test, given, arithmetic)

        def block(start: int, stop: int) -> Expectation:
            return self._rows(test, given, known, arithmetic, slice(start, stop))

        return {"dx": over_rows(block, *self.spans(test))} | self.column_parts(
            test, given, arithmetic
        )

    def column_parts(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> dict[str, list[Expectation]]:
        """Return the expectations of the sums in blocks of columns, computed on all cores."""
        known = self.moments(test, given, arithmetic)

        def block(start: int, stop: int) -> dict[str, Expectation]:
            return self._sums(test, given, known, arithmetic, slice(start, stop))

        blocks = over_rows(block, test.features, _step(test.rows))
        return {name: [part[name] for part in blocks] for name in blocks[0]}

    def _rows(
        self,
        test: TestSpec,
        given: Arrays,
        known: GivenMoments,
        arithmetic: str | None,
        rows: slice,
    ) -> Expectation:
        """Return what is expected of some rows of dx; known: the statistics of all rows."""
        cut = {name: given[name][rows] for name in ("x", "dy")}
        return self.gradients(test, {**given, **cut}, known.some(rows), arithmetic)["dx"]

    def _sums(
        self,
        test: TestSpec,
        given: Arrays,
        known: GivenMoments,
        arithmetic: str | None,
        columns: slice,
    ) -> dict[str, Expectation]:
        """Return what is expected of some columns of dgamma and dbeta."""
        cut = {name: given[name][..., columns] for name in ("x", "dy", "gamma")}
        expected = self.gradients(test, {**given, **cut}, known, arithmetic)
        del expected["dx"]
        return expected

    def graphs(self, test: TestSpec, given: Arrays) -> dict[str, Graph]:
        """Return the formula of every output."""
        return replay.graphs(test, given, centered=self.centered)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """Estimate s1, s2, gamma and the factor that dx was computed with, and the sums' rows."""
        return forensics.diagnose(test, given, outputs, centered=self.centered)


def _step(length: int) -> int:
    """Return the rows, or columns, of a block; each has `length` elements."""
    return max(32, kind.ELEMENTS_PER_BLOCK // length // 32 * 32)
