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

from gonogo import emulator
from gonogo.arithmetic.formats import Doubles, half_cell, round_to, step
from gonogo.closeness import NEEDED_RTOLS
from gonogo.gauge.gates import RTOLS, Gate, judging
from gonogo.gauge.kernels import Kind, Part
from gonogo.judging.edges import edges
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import SeedJudgement, judge, matrix
from gonogo.judging.questions import questions
from gonogo.judgment import candidates
from gonogo.judgment.cells import LIMIT
from gonogo.judgment.fits import Candidate, Output, TracedKernel
from gonogo.spec.arithmetic_names import TT_TRAIN
from gonogo.spec.executors import ON_WORMHOLE
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation
from gonogo.workloads import exact_outputs

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

    def as_given_to(self, part: Part) -> Drawn:
        """Return the part's arrays."""
        return self.turned if part.turned else self

    @cached_property
    def turned(self) -> Drawn:
        """The same with rows and columns in reverse order."""
        raw = turn(self.test, self.raw)
        return Drawn(self.test, self.seed, raw, quantise(self.test, raw))

    @cached_property
    def references(self) -> Arrays:
        """The raw reference of every output."""
        return exact_outputs(self.test, self.raw)

    @cached_property
    def expected(self) -> Arrays:
        """The float64 function of the inputs as given, of every output."""
        return exact_outputs(self.test, self.given)

    @cached_property
    def rounding(self) -> Mapping[str, Doubles]:
        """The largest error that rounding may give each value of the emulated right kernel, flat.

        It is the shift by what the kernel stores, slack, 8 deviations of noise, and half a step.
        """
        allowed = {}
        for question in reversed(questions(self.test, self.given, TT_TRAIN)):
            kernel = TracedKernel(question.graphs, question.inputs, declared=question.declared)
            for name, node in question.graphs[0].outputs.items():
                if name not in self.expected:
                    continue
                exact = self.expected[name].reshape(node.shape)
                form = question.formats[name]
                output = Output(kernel, name, round_to(exact, form), form)
                right = next(iter(candidates.declared(output)), Candidate(question.graphs[0]))
                replay = output.quantity(right)
                half = half_cell(round_to(replay.values, form), replay.values, form)
                noise = LIMIT * np.sqrt(replay.variance) + replay.slack
                size = np.abs(replay.values - exact) + noise + half
                allowed[name] = size.reshape(self.expected[name].shape)
        return allowed


def rtols_of(test: TestSpec) -> tuple[float, ...]:
    """Return every rtol at which a row is stored: the usual ones, the gates' and the test's own."""
    tolerances = [test.tolerance_for(name) for name in test.outputs]
    declared = {one.rtol for one in tolerances if one is not None and one.rtol is not None}
    return tuple(sorted({*NEEDED_RTOLS, *RTOLS, *declared}))


def turn(test: TestSpec, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return arrays with rows and columns in reverse order: inputs before a run, outputs after it.

    y and dx are in rows, as the domain has them.
    """
    flat = {name: np.reshape(a, test.flat_shape_of(name)) for name, a in arrays.items()}
    return {name: np.ascontiguousarray(np.flip(a)) for name, a in flat.items()}


def measured(
    part: Part,
    seed: Drawn,
    outputs: Arrays,
    *,
    arithmetic: str | None,
    produced: tuple[str, ...] | None,
) -> Row:
    """Return the row of one run.

    outputs: as the kernel returned them, for the arrays of `as_given_to`. Raises KernelOutputError,
    as in gonogo.judging.judging.judge.
    """
    test, drawn = part.test, seed.as_given_to(part)
    raw, given = drawn.raw, drawn.given
    is_wrong = part.kind is Kind.no_go
    judgement = judge(
        test,
        raw,
        given,
        outputs,
        arithmetic=arithmetic,
        produced=produced,
        on_wormhole=part.executor in ON_WORMHOLE,
        with_limits=not is_wrong and test == seed.test,
        with_faults=not is_wrong,
    )
    declared = {
        name: output.to_json() for name, output in judgement.outputs.items() if name in test.outputs
    }
    for name, numbers in declared.items():
        output = matrix(test, name, outputs)
        more = _needed(test, drawn.references[name], output)
        numbers["needed_atol"] = {**(numbers.get("needed_atol") or {}), **more}
        expected = drawn.expected[name].reshape(output.shape)
        gates = [gate for gate in judging(test) if name in gate.outputs and not gate.tolerance]
        numbers["gates"] = gate_ratios(gates, test.numerics.output, output, expected)
    return {
        "part": part.name,
        "kind": part.kind.value,
        "seed": seed.seed,
        "able": able(part, drawn, judgement) if is_wrong else None,
        "verdict": judgement.verdict.value,
        "explanation": judgement.explanation.value,
        "outputs": declared,
        "edges": None
        if is_wrong
        else edges(test, raw, given, outputs, judgement, rtols_of(test), arithmetic),
    }


def able(part: Part, drawn: Drawn, judgement: SeedJudgement) -> bool:
    """Return whether a mutant's fault can show on this seed.

    Its float64 function must differ by more than the right kernel's rounding. Where that function
    isn't known, rounding must not explain its outputs.
    """
    if part.unsure:
        return judgement.explanation in (Explanation.unexplained, Explanation.suspect)
    ideal = emulator.ideal(drawn.test, drawn.given, part.build)
    with np.errstate(invalid="ignore"):
        return any(
            not (np.abs(ideal[name] - drawn.expected[name]) <= allowed).all()
            for name, allowed in drawn.rounding.items()
        )


def _needed(test: TestSpec, reference: Doubles, output: NDArray[np.float32]) -> dict[str, float]:
    """Return the needed atol at the rtols that the statistics don't have."""
    extra = [rtol for rtol in rtols_of(test) if rtol not in NEEDED_RTOLS]
    if not extra or not np.isfinite(output).all():
        return {}
    reference = reference.reshape(output.shape)
    error, size = np.abs(output - reference), np.abs(reference)
    return {repr(rtol): max(float((error - rtol * size).max()), 0.0) for rtol in extra}


def gate_ratios(
    gates: Iterable[Gate], form: str, output: NDArray[np.float32], reference: Doubles
) -> dict[str, float | None]:
    """Return the largest ratio of error and limit by gate; up to 1 passes. None: infinite.

    The errors are from the reference, the float64 function of what the kernel got, rounded once to
    the output's format: what a perfect kernel would give. NaN and Inf are beyond every limit.
    """
    expected = round_to(reference, form)
    error, size, ratios = np.abs(output - expected), np.abs(expected), {}
    for gate in gates:
        limits = gate.limits_in(form)
        if "ulp" in limits:
            allowed = limits["ulp"] * step(expected, form)
        elif "guard" in limits:
            allowed = np.maximum(limits["atol"], limits["rtol"] * (size + limits["guard"]))
        else:
            allowed = limits["atol"] + limits["rtol"] * size
        with np.errstate(divide="ignore", invalid="ignore"):  # an error of 0 is within 0
            ratio = float(np.where(error == 0, 0.0, error / allowed).max(initial=0.0))
        ratios[gate.name] = ratio if np.isfinite(ratio) else None
    return ratios


def without_numbers(part: Part, seed: int, verdict: str, message: str) -> Row:
    """Return the row of a run that ended without outputs: an error, a crash or a hang."""
    row: Row = {"part": part.name, "kind": part.kind.value, "seed": seed, "able": None}
    row |= {"verdict": verdict, "explanation": "not_judged", "outputs": {}, "edges": None}
    return row | {"message": message}
