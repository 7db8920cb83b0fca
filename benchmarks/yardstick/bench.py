"""A test with its kernels on one seed: what runs, and how each run is measured.

A kernel is `correct`, or it is a mutant with a *twin*: the same kernel without its fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.gauge import measure
from gonogo.gauge.kernels import Kind, Part
from gonogo.gauge.measure import Drawn, Row
from gonogo.judging.judging import matrix
from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]

PLAIN_FACTOR = 1.25
"""A fault is plain where a mutant's error exceeds the worst right kernel's by this factor: another
right kernel on the same inputs doesn't come near it."""
FAINT_ELEMENTS = 3
"""Below this many changed elements a mutant is the right kernel on these inputs, for all that
anybody can see."""


class Showing(StrEnum):
    """How a mutant's fault shows on a seed; what isn't counted."""

    plain = "plain"
    """Its error is more than PLAIN_FACTOR times that of the worst right kernel."""
    faint = "faint"
    """It changes at least FAINT_ELEMENTS elements, and no error is that large."""
    hidden = "hidden"
    """It changes nothing that counts: neither caught nor missed."""
    overflow = "overflow"
    """A right kernel that gives NaN or Inf: its arithmetic doesn't hold these inputs."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a test: how it runs, and what a mutant is compared with.

    run: from the inputs to the outputs. twin: the run of the mutant without its fault. no_op:
    whether the fault changes nothing in exact arithmetic on these inputs.
    """

    name: str
    right: bool
    run: Callable[[Arrays], Arrays]
    twin: Callable[[Arrays], Arrays] | None = None
    no_op: bool = False
    turned: bool = False
    """It takes rows and columns in reverse order (gonogo.gauge.measure.turn)."""


@dataclass(frozen=True)
class Bench:
    """Kernels on one seed of a test.

    arithmetic: the arithmetic model of the kernels; None where nobody names it. produced: the
    outputs that they have.
    """

    family: str
    name: str
    test: TestSpec
    seed: int
    given: Arrays
    kernels: tuple[Kernel, ...]
    arithmetic: str | None = None
    produced: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Result:
    """One run: the kernel, how its fault shows (None: a right kernel), and its measured row."""

    family: str
    test: str
    kind: str
    output_format: str
    kernel: str
    showing: Showing | None
    row: Row


def results(bench: Bench) -> Iterator[Result]:
    """Yield the result of every kernel, right ones first: they say what a plain fault is.

    The inputs count as they were given: no gate is charged with their rounding.
    """
    test = bench.test
    drawn = Drawn(test, bench.seed, bench.given, bench.given)
    names = [name for name in test.outputs if bench.produced is None or name in bench.produced]
    worst = dict.fromkeys(names, 0.0)
    for kernel in sorted(bench.kernels, key=lambda kernel: not kernel.right):
        part = Part(kernel.name, Kind.go, "", kernel.name, test, test, turned=kernel.turned)
        outputs = kernel.run(measure.given_to(part, drawn))
        row = measure.measured(
            part,
            drawn,
            outputs,
            arithmetic=bench.arithmetic,
            produced=bench.produced,
            with_edges=False,
        )
        errors = {name: _error(row["outputs"][name]) for name in names}
        showing: Showing | None = None
        if kernel.right and not all(map(np.isfinite, errors.values())):
            showing = Showing.overflow
        elif kernel.right:
            worst = {name: max(worst[name], errors[name]) for name in names}
        else:
            changed = 0
            if kernel.twin is not None and not kernel.no_op:
                twin = kernel.twin(drawn.given)
                changed = sum(
                    int((matrix(test, name, outputs) != matrix(test, name, twin)).sum())
                    for name in names
                )
            showing = shows(errors, worst, changed)
        yield Result(
            bench.family, bench.name, test.kernel, test.numerics.output, kernel.name, showing, row
        )


def shows(errors: Mapping[str, float], worst: Mapping[str, float], changed: int) -> Showing:
    """Return how a fault shows.

    errors: output -> the mutant's largest |e|. worst: the same of the worst right kernel. changed:
    elements that differ from the twin's.
    """
    if changed < FAINT_ELEMENTS:
        return Showing.hidden
    if any(errors[name] > PLAIN_FACTOR * worst[name] for name in errors):
        return Showing.plain
    return Showing.faint


def _error(numbers: Mapping[str, Any]) -> float:
    """Return an output's largest |e| against float64; infinite with NaN or Inf."""
    value = numbers.get("max_abs")
    return float(value) if value is not None and not numbers.get("nonfinite") else np.inf
