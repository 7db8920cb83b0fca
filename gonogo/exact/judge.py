"""Judge outputs on exact inputs: they must equal the exact result to the bit.

No arithmetic is known. An output is right if the exact value lies in the cell that the output
stands for, within the allowance of gonogo.exact.expected. Otherwise the sensors of the inputs say
which term is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import cells, expected, expected_backward, scales
from gonogo.exact.expected import Arrays, Expected
from gonogo.exact.readings import down, gradients
from gonogo.exact.readings import forward as forward_readings
from gonogo.exact.readings.reading import Reading
from gonogo.numerics.formats import round_to
from gonogo.spec.compared_outputs import ExactComparison
from gonogo.spec.verdicts import Explanation

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Floats = NDArray[np.float32]

COLUMNS = ("dgamma", "dbeta")
"""Outputs that sum all rows."""

MAX_ELEMENTS = 2**18
"""Elements of a block of rows: some fifteen float64 matrices of them are in memory."""


@dataclass(frozen=True)
class ExactJudgement:
    """The judgment of one output on exact inputs.

    Attributes:
        judged: elements of exact rows and of rows about epsilon.
        unequal: judged elements in exact rows that differ from the exact result, rounded once.
        mismatches: judged elements whose cell doesn't hold the exact value, beyond the allowance.
        explanation: explained without mismatches, or where another right arithmetic gives exactly
            these bits; else unexplained. `inconclusive` where no element is judged.
        words: a sentence for people.
        reading: the wrong term, where there is one.
    """

    judged: int
    unequal: int
    mismatches: int
    explanation: Explanation
    words: str
    reading: Reading | None = None

    @property
    def comparison(self) -> ExactComparison:
        """Return what a result holds of it."""
        reading = self.reading
        return ExactComparison(
            self.judged,
            self.unequal,
            self.mismatches,
            self.explanation,
            self.words,
            term=None if reading is None else reading.term,
            tiles=[] if reading is None else list(reading.tiles),
            factor=None if reading is None else reading.factor,
            share=None if reading is None else reading.share,
        )


def judge_exact(
    test: TestSpec, inputs: Arrays, outputs: Mapping[str, NDArray[Any]]
) -> dict[str, ExactJudgement]:
    """Return the judgment of each output that is given, in the test's order.

    inputs: as the kernel gets them (gonogo.judging.inputs.quantise), in any of the test's shapes.
    outputs: float arrays in the test's shapes or flat. A pure function.
    """
    result = {}
    for name in test.outputs:
        if name in outputs:
            shape = (test.rows, test.features) if test.is_matrix(name) else (1, -1)
            output = np.ascontiguousarray(outputs[name], dtype=np.float32).reshape(shape)
            result[name] = _judged(test, inputs, name, output)
    return result


def _judged(test: TestSpec, inputs: Arrays, name: str, output: Floats) -> ExactJudgement:
    fmt = test.numerics.output
    wrong = np.zeros(output.shape, dtype=bool)
    judged = exact = unequal = 0
    for rows in _blocks(test) if name not in COLUMNS else [np.arange(test.rows)]:
        expectation, place = _expected(test, inputs, name, rows)
        block = output[place]
        some = np.isfinite(expectation.allowance)
        outside = cells.distance(block, expectation.exact, fmt) > expectation.allowance
        wrong[place] = some & outside
        judged += int(some.sum())
        strict = expectation.strict & some
        exact += int(strict.sum())
        unequal += int((strict & (block != round_to(expectation.exact, fmt))).sum())
    count = int(wrong.sum())
    if judged == 0:
        words = "no row is exact"
        return ExactJudgement(0, 0, 0, Explanation.inconclusive, words)
    if count == 0:
        words = f"all {judged} equal the exact result"
        if unequal:
            words = f"{unequal} of {exact} differ in the last bits, as right kernels may"
        return ExactJudgement(judged, unequal, 0, Explanation.explained, words)
    if name == "y" and "beta" in inputs:
        wrong = _without_alignment(test, inputs, output, wrong)
        count = int(wrong.sum())
    program = _program(test, inputs, name, output, wrong)
    if program is not None:
        words = f"right, with {program}"
        return ExactJudgement(judged, unequal, 0, Explanation.explained, words)
    if name == "y":
        reading = forward_readings.read(test, inputs, output, wrong)
    elif name == "dx":
        reading = gradients.read(test, inputs, output, wrong)
    elif name in COLUMNS:
        terms, expectation = expected_backward.columns(test, inputs, name)
        reading = down.read(test, inputs, name, terms, expectation, output, wrong)
    else:
        reading = _statistic(test, inputs, name, output, wrong)
    words = f"{count} of {judged} differ from the exact result: {reading.words}"
    return ExactJudgement(judged, unequal, count, Explanation.unexplained, words, reading)


def _blocks(test: TestSpec) -> Iterator[NDArray[np.intp]]:
    """Yield the rows in blocks that fit in memory."""
    step = max(1, MAX_ELEMENTS // test.features)
    for start in range(0, test.rows, step):
        yield np.arange(start, min(start + step, test.rows))


def _expected(
    test: TestSpec, inputs: Arrays, name: str, rows: NDArray[np.intp]
) -> tuple[Expected, Any]:
    """Return the expectation of an output in `rows`, and their place in the output."""
    if name in COLUMNS:
        return expected_backward.columns(test, inputs, name)[1], slice(None)
    if name == "dx":
        return expected_backward.backward(test, inputs, rows).dx, rows
    parts = expected.forward(test, inputs, rows)
    if name == "y":
        return parts.y, rows
    return parts.moments[name], (slice(None), rows)


def _program(
    test: TestSpec, inputs: Arrays, name: str, output: Floats, wrong: NDArray[np.bool_]
) -> str | None:
    """Return the name of another right arithmetic that gives exactly this output; else None."""
    if name == "y" and not wrong.any():
        return expected.ALIGNED
    if name == "dx":
        rows = np.flatnonzero(wrong.any(axis=1))
        if not (scales.layout(test).kind[rows] == scales.WIDE).all():
            return None
        parts = expected_backward.backward(test, inputs, rows)
        halves = expected_backward.in_halves(parts, test.numerics.output)
        if not parts.is_centered and np.array_equal(halves, output[rows]):
            return expected_backward.IN_HALVES
        if gradients.is_partial(test, inputs, output, rows):
            return expected_backward.PARTIAL_SUMS
    if name in COLUMNS and test.numerics.output != "fp32":
        terms, _ = expected_backward.columns(test, inputs, name)
        order = expected_backward.narrow_order(test, terms, output)
        if order is not None:
            return f"{expected_backward.NARROW}, {order}"
    return None


def _unaligned(test: TestSpec, inputs: Arrays, output: Floats) -> NDArray[np.bool_]:
    """Return the elements of exact rows that don't have the bits of ALIGNED."""
    different = np.zeros(output.shape, dtype=bool)
    for rows in _blocks(test):
        parts = expected.forward(test, inputs, rows)
        bits = parts.aligned(test.numerics.output)
        different[rows] = parts.y.strict & (output[rows] != bits)
    return different


def _without_alignment(
    test: TestSpec, inputs: Arrays, output: Floats, wrong: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return the wrong elements of y, as far as ALIGNED doesn't explain them.

    It is the kernel's addition if at least half of the exact rows have its bits in *all* elements:
    a wrong term changes some element of a row in another way.
    """
    strict = scales.layout(test).kind == scales.EXACT
    different = _unaligned(test, inputs, output)
    same: NDArray[np.bool_] = ~np.any(different, axis=1)
    if not strict.any() or 2 * int(same[strict].sum()) < int(strict.sum()):
        return wrong
    return np.where(strict[:, None], different, wrong)


def _statistic(
    test: TestSpec, inputs: Arrays, name: str, output: Floats, wrong: NDArray[np.bool_]
) -> Reading:
    """Return the reading of mean or rstd, which are read directly."""
    rows = np.flatnonzero(wrong[0])
    value = output[0, rows].astype(np.float64)
    if not np.isfinite(value).all():
        return Reading("not finite", f"{name} is NaN or infinite", 1.0)
    exact = expected.forward(test, inputs, rows).moments[name].exact[0]
    kind = scales.layout(test).kind[rows]
    if name == "rstd" and (kind == scales.EPSILON).all():
        return Reading("epsilon", "rstd is wrong only where the variance is about epsilon", 1.0)
    words = f"{name} is wrong in {rows.size} row{'s' * (rows.size > 1)}"
    some = exact != 0
    if not some.any():
        return Reading(name, words, 1.0)
    ratio = float(np.median(value[some] / exact[some]))
    return Reading(name, f"{words}, by a factor of {ratio:.7g}", 1.0, factor=ratio)
