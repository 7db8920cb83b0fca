"""RMSNorm's numerics: the parts of this folder, as the registry needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gonogo.kernels import kind
from gonogo.kernels.kind import (
    EVERYTHING,
    Arrays,
    Floats,
    Numerics,
    Piece,
    with_min_step,
)
from gonogo.kernels.layernorm import replay
from gonogo.kernels.layernorm.arithmetic import GivenMoments
from gonogo.kernels.layernorm.arithmetic.backward import expectations
from gonogo.kernels.layernorm.arithmetic.terms import backward_terms, forward_terms
from gonogo.kernels.layernorm.numerics import switched
from gonogo.kernels.normalization import forward
from gonogo.kernels.rmsnorm import backward, backward_emulation, budget, emulation, forensics
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.diagnosis import Diagnosis
from gonogo.numerics.expectation import Array, Expectation
from gonogo.numerics.replay.graph import Graph

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class RMSNorm(Numerics):
    """The numerics of rmsnorm_fw."""

    faults = emulation.FAULTS

    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """Return the plain formula in float64."""
        return budget.reference(arrays["x"], arrays["gamma"], test.epsilon)

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Return what is expected of y and rstd.

        The terms are those of LayerNorm's forward pass in this arithmetic: the machine is the same.
        """
        some = {"x": given["x"][rows], "gamma": given["gamma"]}
        expected = budget.expectations(
            some,
            test.epsilon,
            forward_terms(test, arithmetic),
            stores_squares=arithmetic != budget.TT_TRAIN,
        )
        return expected | {"y": with_min_step(expected["y"], test.numerics.output)}

    def graphs(self, test: TestSpec, given: Arrays) -> dict[str, Graph]:
        """Return the formulas of y and rstd."""
        return forward.graphs(test, given, centered=False)

    def run(
        self,
        test: TestSpec,
        given: Mapping[str, Floats],
        build: str,
        *,
        seed: int = 0,
        position: int = 0,
    ) -> dict[str, Floats]:
        """Run the emulated dataflow."""
        return emulation.run(test, given, build, position=position)

    def ideal(self, test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
        """Run the same logic in float64."""
        return emulation.ideal(test, given, build)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """Estimate the mean square, epsilon and gamma that y and rstd were computed with."""
        return forensics.diagnose(test, given, outputs)

    def right_variants(self, test: TestSpec) -> list[tuple[str, str, TestSpec, TestSpec]]:
        """Return the right kernel with another SrcB and with another fidelity."""
        return switched(test)


class RMSNormBackward(Numerics):
    """The numerics of rmsnorm_bw: dx in blocks of rows, dgamma in blocks of columns."""

    faults = backward_emulation.FAULTS

    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """Return the plain formula in float64."""
        return backward.reference(arrays, test.epsilon)

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Return what is expected of dx in these rows, and of dgamma where they are all rows."""
        terms = backward_terms(test, arithmetic)
        some = given
        if rows != EVERYTHING:
            some = {name: a if name == "gamma" else a[rows] for name, a in given.items()}
        expected = expectations(some, _root(test, some, arithmetic), terms, centered=False)
        if rows != EVERYTHING:
            del expected["dgamma"]
        return {name: with_min_step(e, test.numerics.output) for name, e in expected.items()}

    def spans(self, test: TestSpec) -> tuple[int, int]:
        """Return (rows, rows of a block of dx)."""
        return test.rows, max(32, kind.ELEMENTS_PER_BLOCK // test.features // 32 * 32)

    def pieces(self, test: TestSpec, given: Arrays, arithmetic: str | None) -> Iterator[Piece]:
        """Yield blocks of rows of dx and blocks of columns of dgamma."""
        rows, step = self.spans(test)
        for start in range(0, rows, step):
            here = slice(start, min(start + step, rows))
            yield "dx", self.expectations(test, given, arithmetic, here)["dx"], here, EVERYTHING
        known = _root(test, given, arithmetic)
        for start in range(0, test.features, _column_step(test)):
            here = slice(start, min(start + _column_step(test), test.features))
            yield "dgamma", _sums(test, given, known, arithmetic, here), EVERYTHING, here

    def column_parts(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> dict[str, list[Expectation]]:
        """Return the expectations of dgamma in blocks of columns, computed on all cores."""
        known = _root(test, given, arithmetic)
        blocks = over_rows(
            lambda start, stop: _sums(test, given, known, arithmetic, slice(start, stop)),
            test.features,
            _column_step(test),
        )
        return {"dgamma": blocks}

    def graphs(self, test: TestSpec, given: Arrays) -> dict[str, Graph]:
        """Return the formulas of dx and dgamma."""
        return replay.graphs(test, given, centered=False)

    def run(
        self,
        test: TestSpec,
        given: Mapping[str, Floats],
        build: str,
        *,
        seed: int = 0,
        position: int = 0,
    ) -> dict[str, Floats]:
        """Run the emulated dataflow."""
        return backward_emulation.run(test, given, build, position=position)

    def ideal(self, test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
        """Run the same logic in float64."""
        return backward_emulation.ideal(test, given, build)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """Estimate the s2, gamma and factor that dx was computed with, and the rows of dgamma."""
        return forensics.diagnose_gradients(test, given, outputs)

    def right_variants(self, test: TestSpec) -> list[tuple[str, str, TestSpec, TestSpec]]:
        """Return the right kernel with another SrcB and with another fidelity."""
        return switched(test)


def _root(test: TestSpec, given: Arrays, arithmetic: str | None) -> GivenMoments:
    """Return rstd as the kernel has it."""
    return backward.given_root(
        given,
        test.epsilon,
        backward_terms(test, arithmetic),
        stores_squares=arithmetic != budget.TT_TRAIN,
    )


def _column_step(test: TestSpec) -> int:
    """Return the columns of a block of dgamma, which sums over all rows."""
    return max(32, kind.ELEMENTS_PER_BLOCK // test.rows // 32 * 32)


def _sums(
    test: TestSpec, given: Arrays, known: GivenMoments, arithmetic: str | None, columns: slice
) -> Expectation:
    """Return what is expected of some columns of dgamma."""
    names = ("x", "dy", "gamma")
    some = {**given, **{name: given[name][..., columns] for name in names}}
    expected = expectations(some, known, backward_terms(test, arithmetic), centered=False)["dgamma"]
    return with_min_step(expected, test.numerics.output)


NUMERICS = {"rmsnorm_fw": RMSNorm(), "rmsnorm_bw": RMSNormBackward()}
