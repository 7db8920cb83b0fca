"""Detection limits of the outputs that a budget and its directions explain, such as a Wormhole's.

Each fault is put on a right kernel's output, and goes through the statistics that decide.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.exact.judge import judge_exact
from gonogo.judging import expected
from gonogo.judging.limits.detection import FACTORS, DetectionLimits, is_idle, without_terms
from gonogo.kernels import registry
from gonogo.kernels.kind import ELEMENTS_PER_BLOCK, EVERYTHING
from gonogo.numerics import compare, directions
from gonogo.numerics.expectation import Array, Expectation
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay.graph import Graph
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.regimes import is_exact
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Policy, explain

MAX_ELEMENTS = 2**13
"""Elements of the rows, or of the columns, on which faults are tried first."""
MIN_ROWS = 1
"""The fewest of those rows."""
MIN_COLUMNS = 8
"""The fewest of those columns."""

Arrays = Mapping[str, NDArray[Any]]
Statistics = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Some rows or columns of a test's inputs, as a test of its own.

    Attributes:
        test: the test of this part; the test itself where the part is all of it.
        given: its inputs as the device gets them.
        outputs: the outputs that are tried on it.
        arithmetic: the arithmetic model whose budget decides; None is the generic one.
    """

    test: TestSpec
    given: Arrays
    outputs: tuple[str, ...]
    arithmetic: str | None

    @cached_property
    def references(self) -> Mapping[str, Array]:
        """The float64 function of the inputs, as matrices (see judging.matrix)."""
        references = registry.numerics(self.test).reference(self.test, self.given)
        return {name: self._matrix(name, references[name]) for name in self.outputs}

    @cached_property
    def without_terms(self) -> Mapping[str, Mapping[str, Array]]:
        """The same function without each of an output's terms, by output and term."""
        graphs = registry.numerics(self.test).graphs(self.test, self.given)
        return {
            name: {
                term: self._matrix(name, changed)
                for term, changed in without_terms(_in_doubles(graphs[name])).items()
            }
            for name in self.outputs
            if name in graphs
        }

    def stored(self, name: str, values: Array) -> NDArray[np.float32]:
        """Return values of an output as a right kernel would store them."""
        # a value per row is a column on the device: each has a block of its own
        column = self.test.is_per_row(name)
        with np.errstate(over="ignore"):
            # by way of fp32, in a third of the time: one in 2^16 values rounds another way
            singles = (values.T if column else values).astype(np.float32)
            stored = round_to(singles, self.test.numerics.output)
        return np.ascontiguousarray(stored.T) if column else stored

    def _matrix(self, name: str, values: Array) -> Array:
        features = self.test.features if self.test.is_matrix(name) else values.size
        return np.asarray(values, np.float64).reshape(-1, features)


class Sample:
    """The budget and the directions of a part's outputs, computed once for all of their errors."""

    def __init__(self, part: Part) -> None:
        numerics, test, given = registry.numerics(part.test), part.test, part.given
        expectations = expected.expectations(test, given, part.arithmetic)
        self._part = part
        self._rulers = {
            name: [
                OutputRuler(view)
                for view in (
                    expectations[name],
                    *numerics.views(test, given, name, expectations[name], EVERYTHING),
                )
            ]
            for name in part.outputs
        }

    def is_seen(self, name: str, values: Array, policy: Policy) -> bool:
        """Return whether values of an output are not explained, once they are stored."""
        stored = self._part.stored(name, values)
        if not np.isfinite(stored).all():
            return True
        # one statistic beyond its limit is enough
        return any(
            is_flagged(numbers, policy)
            for ruler in self._rulers[name]
            for numbers in ruler.statistics(stored)
        )


class OutputRuler:
    """The statistics of an output that decide, for any of its errors.

    The rows that can't tell right from wrong are left out.
    """

    def __init__(self, whole: Expectation) -> None:
        keep = whole.informative
        self._rows = slice(None) if keep is None or keep.all() else keep
        self._expected = whole if keep is None else compare.restrict(whole, keep)
        self._is_empty = not self._expected.reference.size
        golden_errors = () if self._is_empty else compare.golden_of(self._expected)
        self._rulers = {
            direction.name: directions.Ruler.of(self._expected, direction, golden_errors)
            for direction in (() if self._is_empty else self._expected.directions)
        }

    def statistics(self, output: NDArray[np.float32]) -> Iterator[Statistics]:
        """Yield the statistics of a finite output, as gonogo.numerics.compare defines them."""
        reference = self._expected.reference
        if self._is_empty:
            return
        error = output.reshape(-1, reference.shape[1])[self._rows] - reference
        yield {
            "count": output.size,
            "budget_ratio": float(compare.shares_of_budget(self._expected, error).max()),
            "chi": float(np.sqrt(compare.standardized_squares(self._expected, error).mean())),
        }
        for name, ruler in self._rulers.items():
            yield directions.scores_of(name, ruler.scores(error))


def is_flagged(numbers: Statistics, policy: Policy) -> bool:
    """Return whether statistics say that an output is wrong, or may be."""
    return explain(numbers, policy) in (Explanation.unexplained, Explanation.suspect)


class Whole:
    """All rows and columns of a test, and all statistics, in a pass for each error."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def is_seen(self, name: str, values: Array, policy: Policy) -> bool:
        """Return whether values of an output are not explained, once they are stored."""
        test, given = self._part.test, self._part.given
        outputs = {name: self._part.stored(name, values)}
        numbers = expected.statistics(test, given, given, outputs, self._part.arithmetic)[name]
        if is_exact(test.inputs):
            numbers["exact"] = asdict(judge_exact(test, given, outputs)[name].comparison)
        return is_flagged(numbers, policy)


def budget_limits(
    test: TestSpec,
    given: Arrays,
    arithmetic: str | None,
    outputs: Sequence[str],
    policy: Policy,
) -> dict[str, DetectionLimits]:
    """Return the faults of each output that its budget and directions would explain.

    Faults are tried on a few rows, and column sums on a few columns. A term that these don't show
    is tried on the whole test, because directions down the columns gain with every row.

    Args:
        test: the test.
        given: what the device was given (see judging.judge).
        arithmetic: the arithmetic model whose budget decides; None is the generic one.
        outputs: the outputs that are explained.
        policy: the thresholds that decide.
    """
    whole = Part(test, given, tuple(outputs), arithmetic)
    limits = {}
    for part in _parts(whole):
        sample = _seen_in(part)
        for name in part.outputs:
            idle, terms = [], []
            reference = part.references[name]
            for term, changed in part.without_terms.get(name, {}).items():
                if is_idle(changed, reference):
                    idle.append(term)
                elif not sample.is_seen(name, changed, policy):
                    terms.append(term)
            if terms:
                alone = replace(whole, outputs=(name,))
                terms = [
                    term
                    for term in terms
                    if not Whole(alone).is_seen(name, alone.without_terms[name][term], policy)
                ]
            # larger factors are easier to see
            seen_from = bisect_left(
                FACTORS, True, key=lambda f: sample.is_seen(name, reference * (1.0 + f), policy)
            )
            factor = FACTORS[seen_from - 1] if seen_from else 0.0
            limits[name] = DetectionLimits(tuple(terms), tuple(idle), factor)
    return {name: limits[name] for name in outputs}


def _seen_in(part: Part) -> Sample | Whole:
    """Return the way to try faults on a part: a large one's expectations don't fit in memory."""
    elements = part.test.rows * part.test.features
    return Sample(part) if elements <= ELEMENTS_PER_BLOCK else Whole(part)


def _parts(whole: Part) -> Iterator[Part]:
    """Yield the parts on which faults are tried first, each with its outputs."""
    test = whole.test
    rows = max(MIN_ROWS, MAX_ELEMENTS // test.features)
    if rows >= test.rows:
        yield whole
        return
    in_rows = [name for name in whole.outputs if test.is_matrix(name) or test.is_per_row(name)]
    if in_rows:
        yield _some_rows(whole, in_rows, _spread(test.rows, rows))
    sums = tuple(name for name in whole.outputs if name not in in_rows)
    if not sums:
        return
    columns = max(MIN_COLUMNS, MAX_ELEMENTS // test.rows)
    if columns < test.features and "rstd" in test.input_names:
        yield _some_columns(whole, sums, _spread(test.features, columns))
    else:  # the statistics of a row need all of its columns
        yield replace(whole, outputs=sums)


def _spread(length: int, count: int) -> NDArray[np.intp]:
    """Return that many places, each in the middle of its share of the length."""
    return np.unique(((np.arange(count) + 0.5) * length / count).astype(np.intp))


def _some_rows(whole: Part, outputs: Sequence[str], rows: NDArray[np.intp]) -> Part:
    test, count = whole.test, len(rows)
    shape: tuple[int, ...] = (count, test.features)
    parameters = dict(test.parameters)
    owners = None
    if "num_groups" in (KERNELS[test.kernel].parameters or {}):
        # any groups of any samples are the groups of one sample
        groups = test.parameter("num_groups")
        owners = (groups, rows % groups)
        shape = (1, count * (test.shape[1] // groups), *test.shape[2:])
        parameters["num_groups"] = count

    def some(name: str, values: NDArray[Any]) -> NDArray[Any]:
        if test.is_matrix(name) or test.is_per_row(name):
            return values[rows]
        return values if owners is None else values.reshape(owners[0], -1)[owners[1]].reshape(-1)

    given = {name: some(name, values) for name, values in whole.given.items()}
    small = test.replace(shape=shape, parameters=parameters, inputs={}, tolerance={})
    return Part(small, given, tuple(outputs), whole.arithmetic)


def _some_columns(whole: Part, outputs: tuple[str, ...], columns: NDArray[np.intp]) -> Part:
    test = whole.test
    given = {
        name: values if test.is_per_row(name) else np.ascontiguousarray(values[..., columns])
        for name, values in whole.given.items()
    }
    small = test.replace(shape=(test.rows, len(columns)), inputs={}, tolerance={})
    return Part(small, given, outputs, whole.arithmetic)


def _in_doubles(graph: Graph) -> Graph:
    """Return the graph with inputs in float64, which large ones may not have."""
    return graph.some(np.arange(graph.shape[0]))
