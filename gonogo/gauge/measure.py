"""Measure one run of one part: arrays in, a row of stored numbers out.

Everything else is read from these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.gauge import limits
from gonogo.gauge.comparators import STORED_RTOLS
from gonogo.gauge.gates import RTOLS, judging
from gonogo.gauge.kernels import Kind, Part
from gonogo.judging import edges
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge, matrix
from gonogo.judging.reach import shows
from gonogo.kernels import registry
from gonogo.spec.arithmetic_words import was_replayed
from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]
Row = dict[str, Any]
"""{"part", "kind", "seed", "able", "verdict", "explanation", "outputs": statistics, "edges"}, in
plain JSON types."""


@dataclass(frozen=True)
class Drawn:
    """A seed's arrays: raw, and as the device gets them."""

    test: TestSpec
    seed: int
    raw: Arrays
    given: Arrays

    @classmethod
    def of(cls, test: TestSpec, seed: int) -> Drawn:
        """Draw the arrays of a seed. Raises FieldError for a seed out of range."""
        raw = generate(test, seed)
        return cls(test, seed, raw, quantise(test, raw))

    @cached_property
    def references(self) -> Arrays:
        """The raw reference of every output."""
        return registry.numerics(self.test).reference(self.test, self.raw)

    @cached_property
    def expected(self) -> Arrays:
        """The float64 function of the inputs as given, of every output."""
        return registry.numerics(self.test).reference(self.test, self.given)


def rtols_of(test: TestSpec) -> tuple[float, ...]:
    """Return every rtol at which a row is stored: the usual ones, the gates' and the test's own."""
    declared = {
        a[0]
        for name in test.outputs
        if (t := test.tolerance_for(name)) is not None and (a := t.allclose) is not None
    }
    return tuple(sorted({*STORED_RTOLS, *RTOLS, *declared}))


def turn(test: TestSpec, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return arrays with rows and columns in reverse order: inputs before a run, outputs after it.

    y and dx are in rows, as the domain has them.
    """
    flat = {name: np.reshape(a, test.flat_shape_of(name)) for name, a in arrays.items()}
    return {
        name: np.ascontiguousarray(a[::-1, ::-1] if a.ndim == 2 else a[::-1])
        for name, a in flat.items()
    }


def given_to(part: Part, drawn: Drawn) -> Arrays:
    """Return the part's input arrays."""
    return turn(part.test, drawn.given) if part.turned else drawn.given


def measured(
    part: Part,
    drawn: Drawn,
    outputs: Arrays,
    *,
    arithmetic: str | None,
    produced: tuple[str, ...] | None,
    with_edges: bool = True,
) -> Row:
    """Return the row of one run.

    outputs: as the kernel returned them, for `given_to`. Raises KernelOutputError, as in
    gonogo.judging.judging.judge.
    """
    test = part.judged
    if part.turned:
        named = (
            test.outputs
            if produced is None
            else tuple(name for name in test.outputs if name in produced)
        )
        outputs = turn(test, {name: matrix(test, name, outputs) for name in named})
    judgement = judge(
        test, drawn.raw, drawn.given, outputs, arithmetic=arithmetic, produced=produced
    )
    declared = {
        name: dict(output.statistics)
        for name, output in judgement.outputs.items()
        if name in test.outputs
    }
    for name, numbers in declared.items():
        numbers["needed_atol"] = {
            **(numbers.get("needed_atol") or {}),
            **_needed(test, name, outputs, drawn, rtols_of(test)),
        }
        numbers["gates"] = _ratios(test, name, outputs, drawn)
        if not was_replayed(numbers):
            numbers["arithmetic"] = judgement.arithmetic
    row: Row = {
        "part": part.name,
        "kind": part.kind.value,
        "seed": drawn.seed,
        "able": None,
        "verdict": judgement.verdict.value,
        "explanation": judgement.explanation.value,
        "outputs": declared,
        "edges": None,
    }
    if part.kind is Kind.no_go:
        row["able"] = able(part, drawn, outputs, arithmetic)
    elif with_edges:
        by_output = edges.edges(
            test,
            drawn.raw,
            drawn.given,
            arithmetic,
            rtols_of(test),
            chi={name: numbers.get("chi") for name, numbers in declared.items()},
            models={
                name: numbers["arithmetic"]
                for name, numbers in declared.items()
                if was_replayed(numbers)
            },
        )
        row["edges"] = {name: by_output[name].to_json() for name in declared if name in by_output}
    return row


def able(part: Part, drawn: Drawn, outputs: Arrays, arithmetic: str | None) -> bool:
    """Return whether the part's fault can show on this seed.

    Its float64 effect decides, or its outputs if that effect is not known.
    """
    if part.unsure:
        flat = {
            name: np.reshape(a, drawn.test.flat_shape_of(name))
            for name, a in outputs.items()
            if name in drawn.test.outputs
        }
        return shows(drawn.test, drawn.given, flat, arithmetic)
    return shows(
        drawn.test,
        drawn.given,
        registry.numerics(drawn.test).ideal(drawn.test, drawn.given, part.build),
        arithmetic,
    )


def _needed(
    test: TestSpec, name: str, outputs: Arrays, drawn: Drawn, rtols: Iterable[float]
) -> dict[str, float]:
    """Return the needed atol at the rtols that the statistics don't have."""
    extra = [rtol for rtol in rtols if rtol not in STORED_RTOLS]
    output = matrix(test, name, outputs)
    if not extra or not np.isfinite(output).all():
        return {}
    reference = np.asarray(drawn.references[name], np.float64).reshape(output.shape)
    error, size = np.abs(output - reference), np.abs(reference)
    return {repr(rtol): max(float((error - rtol * size).max()), 0.0) for rtol in extra}


def _ratios(test: TestSpec, name: str, outputs: Arrays, drawn: Drawn) -> limits.Ratios:
    """Return how far an output is from the limits of the gates that need the arrays."""
    output = matrix(test, name, outputs)
    expected = np.asarray(drawn.expected[name], np.float64).reshape(output.shape)
    return limits.ratios(test, name, drawn.given, expected, output, judging(test))


def without_numbers(part: Part, seed: int, verdict: str, message: str) -> Row:
    """Return the row of a run that ended without outputs: an error, a crash or a hang."""
    row: Row = {
        "part": part.name,
        "kind": part.kind.value,
        "seed": seed,
        "able": None,
        "verdict": verdict,
    }
    return row | {"explanation": "not_judged", "outputs": {}, "edges": None, "message": message}
