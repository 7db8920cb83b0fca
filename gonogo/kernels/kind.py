"""What a kind of kernel computes: reference, expectations, forensics, emulated builds; the rest
follows, row block by row block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels import blockwise
from gonogo.numerics import compare
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.diagnosis import Diagnosis, Term
from gonogo.numerics.expectation import Array, Expectation

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float32]
Piece = tuple[str, Expectation, slice, slice]
"""(output, its expectation, rows, columns): a part of an output that fits memory."""

EVERYTHING = slice(None)
ELEMENTS_PER_BLOCK = 2**18
"""Elements whose expectation (some forty float64 matrices) is in memory at a time, on each core."""


@dataclass(frozen=True)
class Fault:
    """An emulated build of a kernel, right or wrong.

    Attributes:
        name: the build's name; kernels may share it where it means the same.
        sentence: what it does, in one line.
        outputs: those that it touches; empty: the right kernel.
        gauge: a known-wrong kernel whose numbers a test must reject (NO-GO).
        unsure: it depends on what ran before: whether it can show is read off its outputs.
    """

    name: str
    sentence: str
    outputs: tuple[str, ...] = ()
    gauge: bool = True
    unsure: bool = False


class Numerics(ABC):
    """One kind's numerics. `reference`, `expectations`, `run`, `ideal` and `faults` are a kind's
    own; the others may stay.

    Arrays are flat, as TestSpec.flat_shape_of has them: matrices (rows, features), one value a row
    (rows,), vectors (N,).
    """

    faults: Mapping[str, Fault] = {}
    """The emulated builds by name, `correct` among them, in the order of Kernel.builds."""

    @abstractmethod
    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """The float64 function of `arrays`: the quantised reference of what a device was given, the
        raw one of the raw inputs.
        """

    @abstractmethod
    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """What is expected of every output in these rows, of a kernel of that arithmetic (None:
        generic), on what the device was given.

        A matrix output's expectation has its rows; one with a value a row, (1, rows); a vector's,
        (1, N), is that of all rows.
        """

    def views(
        self, test: TestSpec, given: Arrays, output: str, expected: Expectation, rows: slice
    ) -> tuple[Expectation, ...]:
        """The same expectation with its rows cut otherwise (a channel's elements, say) and the
        directions that are told there.
        """
        return ()

    def run(
        self,
        test: TestSpec,
        given: Mapping[str, Floats],
        build: str,
        *,
        seed: int = 0,
        position: int = 0,
    ) -> dict[str, Floats]:
        """The outputs of the emulated build on flat float32 arrays; KeyError for an unknown one.

        seed: of the inputs. position: how many runs came before in this process, which only a fault
        may look at.
        """
        raise KeyError(build)

    def ideal(self, test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
        """The float64 function of that build's logic, unrounded: its distance from the reference
        says whether a fault can show.
        """
        raise KeyError(build)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """What is wrong with the outputs (any subset, flat), term by term; always answers."""
        said = f"cannot tell: nobody has written down which terms {test.kernel} has"
        return Diagnosis(
            (Term(test.outputs[0], "all", 0, (), (), said, can_tell=False),), said, False
        )

    def go_variants(self, test: TestSpec) -> list[tuple[str, str, TestSpec, TestSpec]]:
        """Other right arithmetics for the gauge: (name, sentence, what the kernel is asked to run,
        what judges it).
        """
        return []

    def candidates(self, test: TestSpec) -> list[tuple[str, str, dict[str, Any]]]:
        """Inputs that make wrong terms large, the likeliest first: (name, sentence, the test's
        `inputs`).
        """
        first = test.drawn_names[0]
        offset = {"regime": "offset", "offset": 1.0, "std": 1.0}
        hot = {"regime": "hot_tile", "tile": -(-test.features // 32) // 2, "value": 64}
        small = {"regime": "normal", "mean": 0, "std": 1e-3}
        return [
            (
                f"offset {first}",
                f"{first} has a mean: a wrong sum moves every element.",
                {first: offset},
            ),
            (
                f"hot tile of {first}",
                "The sums of a row come from the middle tile alone.",
                {first: hot},
            ),
            (
                f"small {first}",
                "Squares near epsilon: a wrong epsilon scales the outputs.",
                {first: small},
            ),
        ]

    # What follows from these.

    def sums_over_rows(self, test: TestSpec) -> bool:
        """Whether an output is a vector, summed over all rows: then the kernel isn't judged in
        blocks of rows.
        """
        return any(not test.is_matrix(name) and not test.is_per_row(name) for name in test.outputs)

    def spans(self, test: TestSpec) -> tuple[int, int]:
        """(rows, rows of a block)."""
        step = (
            test.rows
            if self.sums_over_rows(test)
            else max(32, ELEMENTS_PER_BLOCK // test.features // 32 * 32)
        )
        return test.rows, step

    def pieces(self, test: TestSpec, given: Arrays, arithmetic: str | None) -> Iterator[Piece]:
        """The expectations of all outputs, in parts that fit memory."""
        rows, step = self.spans(test)
        for start in range(0, rows, step):
            here = slice(start, min(start + step, rows))
            for name, expected in self.expectations(test, given, arithmetic, here).items():
                yield (
                    name,
                    expected,
                    here if test.is_matrix(name) else EVERYTHING,
                    here if test.is_per_row(name) else EVERYTHING,
                )

    def parts(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> dict[str, list[Expectation]]:
        """The expectations of each output, block by block; made on all cores."""
        rows, step = self.spans(test)
        found = over_rows(
            lambda start, stop: self.expectations(test, given, arithmetic, slice(start, stop)),
            rows,
            step,
        )
        return {name: [each[name] for each in found] for name in found[0]}

    def statistics(
        self,
        test: TestSpec,
        raw: Arrays,
        given: Arrays,
        outputs: Mapping[str, Floats],
        arithmetic: str | None,
    ) -> dict[str, Any]:
        """Every statistic of each output (matrices, see judging.matrix), JSON-ready:
        gonogo.numerics.compare is the definition.
        """
        references = self.reference(test, raw)
        found: dict[str, Any] = {}
        matrices = {
            name: output
            for name, output in outputs.items()
            if test.is_matrix(name) and output.shape[0] > 1
        }
        if matrices:
            found |= blockwise.statistics(self, test, references, given, matrices, arithmetic)
        rest = [name for name in outputs if name not in matrices]
        if rest:
            parts = self.parts(test, given, arithmetic)
            for name in rest:
                wanted = parts[name][0] if test.is_matrix(name) else blockwise.joined(parts[name])
                found[name] = self.compared(
                    test, given, name, outputs[name], wanted, references[name]
                )
        return {name: compare.storable(found[name]) for name in outputs}

    def compared(
        self,
        test: TestSpec,
        given: Arrays,
        name: str,
        output: Floats,
        wanted: Expectation,
        raw: Array,
    ) -> dict[str, Any]:
        """The statistics of one output at once: the definition, and the directions of the views."""
        tolerance = test.tolerance_for(name)
        allclose = None if tolerance is None else tolerance.allclose
        raw = np.asarray(raw, np.float64).reshape(output.shape)
        shape = output.shape if test.is_matrix(name) else output.shape[1:]
        found = compare.statistics(output, wanted, raw, allclose=allclose, shape=shape)
        keep = compare.finite_rows(output)
        for view in self.views(test, given, name, wanted, EVERYTHING):
            some = np.repeat(keep, view.reference.shape[0] // keep.size)
            cut, golden = (
                np.ascontiguousarray(output).reshape(view.reference.shape)[some],
                raw.reshape(view.reference.shape)[some],
            )
            part = compare.restrict(view, some)
            told = (
                compare.statistics(cut, part, golden, allclose=None, shape=cut.shape)
                if some.any()
                else compare.blank(view)
            )
            found |= {
                key: value
                for key, value in told.items()
                if key.startswith(tuple(f"{each.name}_" for each in view.directions))
            }
        return found


LEAST_STEP = {"fp16": 2.0**-25}
"""Half a step of the formats whose smallest normal number ordinary values reach: below it the step
stays the same."""


def with_least_step(expected: Expectation, output: str) -> Expectation:
    """The expectation of an output whose values may be below its format's smallest normal number
    (2^-14 in fp16).
    """
    least = LEAST_STEP.get(output, 0.0)
    return (
        replace(expected, bound=expected.bound + least, noise=expected.noise + least**2 / 3)
        if least
        else expected
    )


def rows_cut(expected: Expectation, width: int) -> Expectation:
    """The expectation of the same elements with each row cut into rows of `width`; no
    directions.
    """
    times = expected.reference.shape[1] // width

    def cut(a: Array) -> Array:
        whole = np.broadcast_to(a, (a.shape[0], times * width)) if a.shape[1] == 1 else a
        return np.ascontiguousarray(whole).reshape(-1, width)

    def each(a: Array) -> Array:  # one value a row
        return (
            a
            if a.shape[0] == 1 and expected.reference.shape[0] > 1
            else np.repeat(a, times, axis=0)
        )

    def wide(a: Array) -> Array:  # a pattern, of every row or of one
        return cut(np.broadcast_to(a, expected.reference.shape))

    return replace(
        expected,
        reference=cut(expected.reference),
        bound=wide(expected.bound),
        noise=wide(expected.noise),
        shared=tuple(
            replace(s, variance=each(s.variance), pattern=wide(s.pattern)) for s in expected.shared
        ),
        bias=None if expected.bias is None else wide(expected.bias),
        trend=tuple(wide(t) for t in expected.trend),
        spread=None if expected.spread is None else wide(expected.spread),
        allowance=tuple(wide(each) for each in expected.allowance),
        truncated=None if expected.truncated is None else wide(expected.truncated),
        keyed=tuple(
            replace(k, key=wide(k.key), amplitude=wide(k.amplitude)) for k in expected.keyed
        ),
        informative=None
        if expected.informative is None
        else np.repeat(expected.informative, times),
        directions=(),
    )
