"""The base class of each kind's numerics: reference, expectations, forensics and emulated builds.

The rest follows from these, row block by row block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.kernels import blockwise
from gonogo.kernels.references import References
from gonogo.numerics import compare
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.diagnosis import Diagnosis, Term
from gonogo.numerics.expectation import Array, Expectation
from gonogo.numerics.jit import pays
from gonogo.numerics.replay.graph import Graph
from gonogo.spec.numerics import BLOCK_FORMATS
from gonogo.spec.regimes import is_exact

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float32]
Piece = tuple[str, Expectation, slice, slice]
"""(output, its expectation, rows, columns): a part of an output that fits memory."""

EVERYTHING = slice(None)
ELEMENTS_PER_BLOCK = 2**18
"""Elements whose expectations (some forty float64 matrices) are in memory at a time, per core."""
ELEMENTS_IN_CACHE = 2**15
"""The same where all rows share nothing but numbers that are computed first: blocks may be small,
and stay in a processor's cache."""


def row_step(test: TestSpec) -> int:
    """Return the rows of such a block.

    In a block format 16 values share an exponent, and a value per row is an element.
    """
    step = max(1, ELEMENTS_IN_CACHE // test.features)
    return -(-step // 16) * 16 if test.numerics.output in BLOCK_FORMATS else step


def column_step(test: TestSpec) -> int:
    """Return the columns of a block with all rows."""
    return max(32, ELEMENTS_IN_CACHE // test.rows // 32 * 32)


@dataclass(frozen=True)
class Fault:
    """An emulated build of a kernel, right or wrong.

    Attributes:
        name: the build's name; kernels may share it where it means the same.
        sentence: what it does, in one line.
        outputs: the outputs that it changes; empty for the right kernel.
        gauge: True for a mutant whose numbers a test must reject.
        unsure: True where it depends on what ran before. Its outputs then say whether it can show.
    """

    name: str
    sentence: str
    outputs: tuple[str, ...] = ()
    gauge: bool = True
    unsure: bool = False


class Emulation:
    """The emulated builds of a kernel that GoNoGo has a Wormhole's program of."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel

    @property
    def FAULTS(self) -> Mapping[str, Fault]:
        """Its builds by name."""
        return {
            name: Fault(name, build.sentence, build.outputs, build.is_wrong, build.is_stale)
            for name, build in emulator.builds_of(self._kernel).items()
        }

    def run(
        self,
        test: TestSpec,
        given: Mapping[str, Floats],
        build: str,
        *,
        seed: int = 0,
        position: int = 0,
    ) -> dict[str, Floats]:
        """Return what Numerics.run returns."""
        return emulator.run(test, given, build, position=position)

    def ideal(self, test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
        """Return what Numerics.ideal returns."""
        return emulator.ideal(test, given, build)


class Numerics(ABC):
    """The numerics of one kind of kernel.

    Each kind implements `reference` and `expectations`, and names its emulated builds. The other
    methods have defaults.

    Arrays are flat, as TestSpec.flat_shape_of says: matrices (rows, features), values per row
    (rows,), vectors (N,).
    """

    emulation: Emulation | None = None
    """The emulated builds; None: the kind has none, or overrides `faults`, `run` and `ideal`."""

    @property
    def faults(self) -> Mapping[str, Fault]:
        """The emulated builds by name, `correct` among them, in the order of Kernel.builds."""
        return {} if self.emulation is None else self.emulation.FAULTS

    @abstractmethod
    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """Return the kernel's float64 function of `arrays`.

        For the inputs as the device gets them, this is the quantized reference. For the raw inputs,
        it is the raw reference.
        """

    @abstractmethod
    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Return what is expected of each output in these rows, from what the device was given.

        arithmetic: the arithmetic model of the kernel; None is the generic one.

        The expectation of a matrix output holds these rows. An output with one value per row has
        shape (1, rows). A vector's has shape (1, N) and covers all rows.
        """

    def views(
        self, test: TestSpec, given: Arrays, output: str, expected: Expectation, rows: slice
    ) -> tuple[Expectation, ...]:
        """Return the same expectation with its rows cut differently, such as into channels.

        Each view holds the directions that are measured there.
        """
        return ()

    def graphs(self, test: TestSpec, given: Arrays) -> dict[str, Graph]:
        """Return the formula of each output whose arithmetic can be replayed, with its inputs."""
        return {}

    def run(
        self,
        test: TestSpec,
        given: Mapping[str, Floats],
        build: str,
        *,
        seed: int = 0,
        position: int = 0,
    ) -> dict[str, Floats]:
        """Return the outputs of the emulated build, as flat float32 arrays.

        seed: the seed of the inputs. position: how many runs came before in this process; only a
        fault may depend on it. Raises KeyError for an unknown build.
        """
        if self.emulation is None:
            raise KeyError(build)
        return self.emulation.run(test, given, build, seed=seed, position=position)

    def ideal(self, test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
        """Return the float64 function of the build's logic, unrounded.

        Its distance from the reference says whether a fault can show. Raises KeyError for an
        unknown build.
        """
        if self.emulation is None:
            raise KeyError(build)
        return self.emulation.ideal(test, given, build)

    def diagnose(self, test: TestSpec, given: Arrays, outputs: Arrays) -> Diagnosis:
        """Return what is wrong with the outputs (any subset, flat), term by term. Never raises."""
        words = f"cannot tell: {test.kernel} has no forensics"
        return Diagnosis(
            (Term(test.outputs[0], "all", 0, (), (), words, can_tell=False),), words, False
        )

    def right_variants(self, test: TestSpec) -> list[tuple[str, str, TestSpec, TestSpec]]:
        """Return the emulated right kernel in other arithmetics, for the gauge.

        Each is (name, sentence, the test that the kernel runs, the test that judges it). By default
        it has another SrcB, and another fidelity with its own budget, where the test has not
        switched them already. Neither is exact on exact inputs, and without emulated builds there
        is none.
        """
        numerics = test.numerics
        variants: list[tuple[str, str, TestSpec, TestSpec]] = []
        if not self.faults or is_exact(test.inputs):
            return variants
        if numerics.srcb == "tf32":
            other = test.replace(numerics=numerics.replace(srcb="bf16"))
            sentence = "The right kernel where SrcB sees bf16 of an fp32 value."
            variants.append(("srcb-bf16", sentence, other, test))
        if numerics.fidelity == "hifi4":
            other = test.replace(numerics=numerics.replace(fidelity="hifi3"))
            sentence = "The right kernel with HiFi3 products, judged by their budget."
            variants.append(("hifi3", sentence, other, other))
        return variants

    def candidates(self, test: TestSpec) -> list[tuple[str, str, dict[str, Any]]]:
        """Return inputs that make wrong terms large, the likeliest first.

        Each is (name, sentence, the test's `inputs`).
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

    # The rest is derived from the methods above.

    def sums_over_rows(self, test: TestSpec) -> bool:
        """Return whether an output is a vector, summed over all rows.

        Such a kernel can't be judged in blocks of rows.
        """
        return any(not test.is_matrix(name) and not test.is_per_row(name) for name in test.outputs)

    def spans(self, test: TestSpec) -> tuple[int, int]:
        """Return (rows, rows of a block)."""
        step = (
            test.rows
            if self.sums_over_rows(test)
            else max(32, ELEMENTS_PER_BLOCK // test.features // 32 * 32)
        )
        return test.rows, step

    def pieces(self, test: TestSpec, given: Arrays, arithmetic: str | None) -> Iterator[Piece]:
        """Yield the expectations of all outputs in parts that fit in memory."""
        rows, step = self.spans(test)
        expect = self.expecting(test, given, arithmetic)
        for start in range(0, rows, step):
            here = slice(start, min(start + step, rows))
            for name, expected in expect(here).items():
                yield (
                    name,
                    expected,
                    here if test.is_matrix(name) else EVERYTHING,
                    here if test.is_per_row(name) else EVERYTHING,
                )
        for name, parts in self.column_parts(test, given, arithmetic).items():
            start = 0
            for expected in parts:
                stop = start + expected.reference.shape[1]
                yield name, expected, EVERYTHING, slice(start, stop)
                start = stop

    def parts(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> dict[str, list[Expectation]]:
        """Return the expectations of each output, block by block. All cores compute them."""
        rows, step = self.spans(test)
        expect = self.expecting(test, given, arithmetic)
        elements = rows * test.features
        blocks = over_rows(
            lambda start, stop: expect(slice(start, stop)), rows, step, elements=elements
        )
        in_rows = {name: [block[name] for block in blocks] for name in blocks[0]}
        return in_rows | self.column_parts(test, given, arithmetic)

    def expecting(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> Callable[[slice], dict[str, Expectation]]:
        """Return `expectations` as a function of the rows, without `column_parts`.

        A kind overrides it to compute what all rows share once.
        """
        return partial(self.expectations, test, given, arithmetic)

    def references(self, test: TestSpec, raw: Arrays) -> References:
        """Return the raw references; a kind overrides it to compute them by rows."""
        return References(self.reference(test, raw))

    def column_parts(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> dict[str, list[Expectation]]:
        """Return the expectations of the outputs that come in blocks of columns."""
        return {}

    def statistics(
        self,
        test: TestSpec,
        raw: Arrays,
        given: Arrays,
        outputs: Mapping[str, Floats],
        arithmetic: str | None,
    ) -> dict[str, Any]:
        """Return every statistic of each output, ready for JSON.

        Outputs are matrices (see judging.matrix). gonogo.numerics.compare is the definition. It
        answers for small tests; larger ones are compared block by block.
        """
        rows, step = self.spans(test)
        if rows <= step and not pays(rows * test.features):
            return self.definition(test, raw, given, outputs, arithmetic)
        references = self.references(test, raw)
        results: dict[str, Any] = {}
        matrices = {
            name: output
            for name, output in outputs.items()
            if test.is_matrix(name) and output.shape[0] > 1
        }
        rest = [name for name in outputs if name not in matrices]
        if matrices:
            columns = self.column_parts(test, given, arithmetic) if rest else {}
            in_rows = [name for name in rest if name not in columns]
            results, parts = blockwise.statistics(
                self, test, references.rows, given, matrices, arithmetic, in_rows
            )
            parts |= columns
        else:
            parts = self.parts(test, given, arithmetic)
        for name in rest:
            expected = parts[name][0] if test.is_matrix(name) else blockwise.joined(parts[name])
            results[name] = self.compared(
                test, given, name, outputs[name], expected, references.whole(name)
            )
        return {name: compare.storable(results[name]) for name in outputs}

    def definition(
        self,
        test: TestSpec,
        raw: Arrays,
        given: Arrays,
        outputs: Mapping[str, Floats],
        arithmetic: str | None,
    ) -> dict[str, Any]:
        """Return the same statistics by their definition, in NumPy and with whole arrays."""
        references = self.reference(test, raw)
        expected = self.expectations(test, given, arithmetic)
        return {
            name: compare.storable(
                self.compared(test, given, name, output, expected[name], references[name])
            )
            for name, output in outputs.items()
        }

    def compared(
        self,
        test: TestSpec,
        given: Arrays,
        name: str,
        output: Floats,
        expected: Expectation,
        raw: Array,
    ) -> dict[str, Any]:
        """Return the statistics of one whole output, with the directions of its views."""
        tolerance = test.tolerance_for(name)
        allclose = None if tolerance is None else tolerance.allclose
        raw = np.asarray(raw, np.float64).reshape(output.shape)
        shape = output.shape if test.is_matrix(name) else output.shape[1:]
        results = compare.statistics(output, expected, raw, allclose=allclose, shape=shape)
        keep = compare.finite_rows(output)
        for view in self.views(test, given, name, expected, EVERYTHING):
            some = np.repeat(keep, view.reference.shape[0] // keep.size)
            cut, golden = (
                np.ascontiguousarray(output).reshape(view.reference.shape)[some],
                raw.reshape(view.reference.shape)[some],
            )
            part = compare.restrict(view, some)
            scores = (
                compare.statistics(cut, part, golden, allclose=None, shape=cut.shape)
                if some.any()
                else compare.blank(direction.name for direction in view.directions)
            )
            results |= {
                key: value
                for key, value in scores.items()
                if key.startswith(tuple(f"{direction.name}_" for direction in view.directions))
            }
        return results


MIN_HALF_STEP = {"fp16": 2.0**-25}
"""Half the smallest step of the formats whose subnormals ordinary values reach.

The step stays the same below the format's smallest normal number.
"""


def with_min_step(expected: Expectation, output: str) -> Expectation:
    """Return the expectation of an output whose values may be subnormal in its format.

    The smallest normal number of fp16 is 2^-14.
    """
    half_step = MIN_HALF_STEP.get(output, 0.0)
    return (
        replace(expected, bound=expected.bound + half_step, noise=expected.noise + half_step**2 / 3)
        if half_step
        else expected
    )


def rows_cut(expected: Expectation, width: int) -> Expectation:
    """Return the expectation of the same elements with each row cut into rows of `width`.

    The result has no directions.
    """
    times = expected.reference.shape[1] // width

    def cut(a: Array) -> Array:
        whole = np.broadcast_to(a, (a.shape[0], times * width)) if a.shape[1] == 1 else a
        return np.ascontiguousarray(whole).reshape(-1, width)

    def per_cut_row(a: Array) -> Array:  # one value per row
        return (
            a
            if a.shape[0] == 1 and expected.reference.shape[0] > 1
            else np.repeat(a, times, axis=0)
        )

    def cut_pattern(a: Array) -> Array:  # a pattern with all rows or a single one
        return cut(np.broadcast_to(a, expected.reference.shape))

    return replace(
        expected,
        reference=cut(expected.reference),
        bound=cut_pattern(expected.bound),
        noise=cut_pattern(expected.noise),
        shared=tuple(
            replace(s, variance=per_cut_row(s.variance), pattern=cut_pattern(s.pattern))
            for s in expected.shared
        ),
        bias=None if expected.bias is None else cut_pattern(expected.bias),
        trend=tuple(cut_pattern(t) for t in expected.trend),
        spread=None if expected.spread is None else cut_pattern(expected.spread),
        allowance=tuple(cut_pattern(pattern) for pattern in expected.allowance),
        truncated=None if expected.truncated is None else cut_pattern(expected.truncated),
        keyed=tuple(
            replace(k, key=cut_pattern(k.key), amplitude=cut_pattern(k.amplitude))
            for k in expected.keyed
        ),
        informative=None
        if expected.informative is None
        else np.repeat(expected.informative, times),
        directions=(),
    )
