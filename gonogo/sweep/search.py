"""The search of a sweep: run cases, and shrink the first failure of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.spec.verdicts import Verdict
from gonogo.sweep.cases import SIZES, Case, changed_test, regimes

KindOf = Callable[[Case], str]
"""Runs a case and returns the kind of its failure; "" if it doesn't fail."""


@dataclass
class Failure:
    """The failures of one kind.

    Attributes:
        cases: those that were drawn, in their order.
        smallest: the smallest case that was seen to fail in this way.
    """

    cases: list[Case]
    smallest: Case


FAILURES = (Verdict.crash, Verdict.hang, Verdict.fail, Verdict.pass_by_tolerance)
"""The verdicts of a kernel that fails; an error says nothing about it."""


def failure_kind(row: Mapping[str, Any]) -> str:
    """Return the kind of a failure: its verdict and the wrong outputs."""
    if row["verdict"] not in FAILURES:
        return ""
    outputs = row["outputs"].items()
    return " ".join([row["verdict"], *(n for n, out in outputs if out["verdict"] in FAILURES)])


def sweep(
    cases: Iterable[Case], kind_of: KindOf, is_over: Callable[[], bool]
) -> dict[str, Failure]:
    """Return the failures by their kind, the smallest case of each.

    is_over: whether the time has been spent; it is asked before each run. A kind is shrunk when it
    is first seen.
    """
    failures: dict[str, Failure] = {}
    for case in cases:
        if is_over():
            break
        kind = kind_of(case)
        if kind in failures:
            failures[kind].cases.append(case)
        elif kind:

            def fails(other: Case, kind: str = kind) -> bool:
                return not is_over() and kind_of(other) == kind

            failures[kind] = Failure([case], shrink(case, fails))
    return failures


def shrink(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return the smallest and plainest case that still fails; no case runs twice."""
    tried = {case.key}
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for other in simpler(case):
            if other.key not in tried:
                tried.add(other.key)
                if fails(other):
                    case, is_smaller = other, True
                    break
    return case


def simpler(case: Case) -> Iterator[Case]:
    """Yield cases that are simpler in one way, the simplest first.

    That is a plainer regime of inputs, a parameter's default, or a smaller dimension: a boundary
    below it, else half of the way to 0, a quarter, and so on down to 1 less.
    """
    test = case.test
    for regime in regimes(test.numerics.format_of(test.input_names[0])):
        plainer = changed_test(test, inputs=regime)
        if plainer == test:
            break
        if plainer is not None:
            yield Case(plainer, case.seed)
    for name in test.parameters:
        others = {key: value for key, value in test.parameters.items() if key != name}
        if (usual := changed_test(test, parameters=others)) is not None:
            yield Case(usual, case.seed)
    for axis, size in enumerate(test.shape):
        steps = [size - (size >> halvings) for halvings in range(1, size.bit_length())]
        for less in dict.fromkeys([*(known for known in SIZES if known < size), *steps]):
            shape = (*test.shape[:axis], less, *test.shape[axis + 1 :])
            if (smaller := changed_test(test, shape=shape)) is not None:
                yield Case(smaller, case.seed)
