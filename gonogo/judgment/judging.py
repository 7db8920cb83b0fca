"""Judge a kernel's outputs: explanations compete, from sharp to wide, and the first one wins.

An explanation is an arithmetic. Where none that is sharp explains an output, faults compete with
wide arithmetics, which may explain it only where none of the rules in wide.py speaks against that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from types import MappingProxyType

import numpy as np

from gonogo.arithmetic import Inputs, Program
from gonogo.arithmetic.formats import Doubles
from gonogo.arithmetic.values import Array
from gonogo.faults.table import is_of_input, is_storing
from gonogo.graph import Graph
from gonogo.judgment import candidates
from gonogo.judgment.blocks import MIN_ROWS
from gonogo.judgment.cells import LIMIT
from gonogo.judgment.common import Common, most_certain
from gonogo.judgment.diagnosis import Diagnosis, diagnose
from gonogo.judgment.fits import Candidate, Fit, Output, TracedKernel
from gonogo.judgment.pooling import MIN_SCORE
from gonogo.judgment.reach import fault_in_reach
from gonogo.judgment.tolerance import Tolerance
from gonogo.judgment.verdict import Judgment, OutputJudgment
from gonogo.judgment.wide import (
    MAX_COMPONENT,
    REPRODUCES,
    component,
    is_reproduced,
    is_tail,
    largest_component,
    whole_effect,
)
from gonogo.spec.verdicts import Explanation

SETTLES = 0.99
"""The share of the misfit that a fault must take away for nothing stored to be sought."""
SUSPECT = 2 * LIMIT
"""The size up to which one seed alone doesn't decide."""
HOPELESS = 4 * LIMIT
"""The size in some groups from which an arithmetic isn't tried on the others."""
DIAGNOSED_WAYS = 5
"""Ways whose faults are tried: those of others differ in how the variance is computed."""
MIN_OUTSIDE = 0.5
"""The share of the values that the closest arithmetic misses from which other ways' are tried."""
FEWER = 0.9
"""The share of a sharper arithmetic's misses to which another one must come down to be closer: a
noisier one misses a little less of any wrong output."""


def judge(
    graphs: Sequence[Graph],
    inputs: Inputs,
    outputs: Mapping[str, Array],
    formats: Mapping[str, str],
    narrow: Sequence[str] = (),
    programs: Sequence[Program | Candidate] = (),
    known: Sequence[Candidate] = (),
    tolerances: Mapping[str, Tolerance] = MappingProxyType({}),
    expected: Mapping[str, Doubles] = MappingProxyType({}),
    *,
    with_faults: bool = True,
) -> Judgment:
    """Judge the outputs of a kernel.

    Args:
        graphs: the reference, then other ways to compute the same.
        inputs: what the kernel was given, by name.
        outputs: what it gave, by name.
        formats: the format of each output.
        narrow: 16-bit formats of the kernel's tensors, in which it may store values.
        programs: those that the build declares, of the reference if they have no graph of their
            own; then nothing else explains its outputs.
        known: other arithmetics that are tried, of graphs of their own.
        tolerances: those of the test, by output. An output that fails its own is explained only if
            no fault is the likelier reason.
        expected: what tolerances are measured from, by output; the exact values, where it has none.
        with_faults: whether to name the fault of an output that a declared program doesn't explain:
            it takes longer than the rest.

    Raises ValueError for an output that the reference doesn't have, or has in another shape.
    """
    declared = tuple(
        Candidate(graphs[0], one) if isinstance(one, Program) else one for one in programs
    )
    kernel = TracedKernel(graphs, inputs, tuple(dict.fromkeys(narrow)), declared, tuple(known))
    judged, doubles = {}, {}
    for name, values in outputs.items():
        node = graphs[0].outputs.get(name)
        if node is None:
            names = ", ".join(graphs[0].outputs)
            raise ValueError(f"the kernel has no output {name!r}; it has {names}")
        given = doubles[name] = np.asarray(values, np.float64)
        if given.shape != node.shape:
            raise ValueError(f"output {name} has shape {given.shape}, its reference {node.shape}")
        output = Output(
            kernel, name, given, formats[name], tolerances.get(name), expected.get(name)
        )
        judged[name] = answer = judge_output(output, with_faults)
        if answer.explanation is Explanation.explained and answer.program.stored:
            kernel.proven.append(Candidate(kernel.every[answer.way], answer.program))
    return Judgment(judged, kernel.every, inputs, doubles, formats, tolerances, expected)


def judge_output(output: Output, with_faults: bool = True) -> OutputJudgment:
    """Judge one output."""
    sharp = _Tried(output)
    is_declared = bool(output.kernel.declared)
    if sharp.explained_by(candidates.declared(output) if is_declared else candidates.sharp(output)):
        return _explained(output, sharp.last)
    if is_declared:
        best = sharp.best
        return _unexplained(output, sharp, _diagnosed(output, best) if with_faults else None)
    known = _Tried(output)
    if known.explained_by(chain(candidates.known(output), candidates.proven(output))):
        return _explained(output, known.last)
    diagnosis = _diagnosed(output, sharp.best)
    storing = _Tried(output)
    if not _is_settled(output, sharp.best, diagnosis):
        simple = _Tried(output)
        faults = [fault for fault in (diagnosis.fault, diagnosis.second) if fault is not None]
        if simple.explained_by(
            chain(candidates.truncated(output), candidates.named(output, diagnosis.graph, faults))
        ):
            return _explained(output, simple.last)
        if storing.explained_by(chain(candidates.storing(output), candidates.with_totals(output))):
            return _explained(output, storing.last)
        if storing.is_empty:
            diagnosis = _beside_stored(output, sharp.best, diagnosis) or diagnosis
    diagnosis = _of_any_way(output, sharp.best, diagnosis)
    if _says_why(output, diagnosis):  # rule c of wide arithmetics
        return _unexplained(output, sharp, diagnosis)
    for candidate in candidates.wide(output):
        fit = output.fit(candidate)
        if fit.is_explained:
            return _explained_by_wide(output, fit, sharp, storing, diagnosis)
    return _unexplained(output, sharp, _beside_known(output, sharp.best, diagnosis))


class _Tried:
    """The arithmetics that were tried on an output."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self._tries: list[Candidate] = []
        self._fits: list[Fit] = []

    def explained_by(self, tried: Iterable[Candidate]) -> bool:
        """Try arithmetics; stop at the first that explains the output, and say whether one did."""
        for candidate in tried:
            # what fails on a few groups isn't tried on the others
            if not self._tries or self.output.screen.fit(candidate).size <= HOPELESS:
                self._fits.append(self.output.fit(candidate))
                if self.last.is_explained:
                    return True
            self._tries.append(candidate)
        return False

    @property
    def last(self) -> Fit:
        """The last arithmetic that was tried on the whole output."""
        return self._fits[-1]

    @property
    def is_empty(self) -> bool:
        """Whether there was no arithmetic to try."""
        return not self._tries

    def fits(self) -> Iterator[Fit]:
        """Yield each arithmetic's fit of the whole output."""
        return (self.output.fit(candidate) for candidate in self._tries)

    @property
    def best(self) -> Fit:
        """The sharpest of those that miss few elements: the kernel's own, but for its fault."""
        best, *others = self._tries
        for candidate in others:
            fit, least = self.output.screen.fit(candidate), self.output.screen.fit(best)
            if fit.outside.sum() < FEWER * least.outside.sum():
                best = candidate
        return self.output.fit(best)

    @property
    def smallest(self) -> float:
        """The smallest distance of the arithmetics that were tried on the whole output."""
        return min(fit.size for fit in self._fits)


def _says_why(output: Output, diagnosis: Diagnosis) -> bool:
    """Return whether faults are the reason of an error; to store a value may be right.

    To store an input is not: what the kernel was given has more digits.
    """
    if diagnosis.fault is None or diagnosis.share < REPRODUCES:
        return False
    return not _is_stored(output, diagnosis)


def _is_stored(output: Output, diagnosis: Diagnosis) -> bool:
    """Return whether most of an error is that the kernel stores values, as a right one may."""
    faults = [fault for fault in (diagnosis.fault, diagnosis.second) if fault is not None]
    if not faults or diagnosis.share < REPRODUCES or not output.kernel.narrow:
        return False
    return all(
        is_storing(fault, output.kernel.narrow) and not is_of_input(fault) for fault in faults
    )


def _is_settled(output: Output, best: Fit, diagnosis: Diagnosis) -> bool:
    """Return whether a fault leaves nothing to explain by stored values.

    Storing a single number, such as epsilon, looks like a factor: that needs enough other numbers.
    And a fitted number explains a few values by itself.
    """
    fault = diagnosis.fault
    if fault is None or diagnosis.share < SETTLES or fault.id.startswith("stored-"):
        return False
    if diagnosis.size == 1.0:
        return True
    if best.outside.sum() < MIN_ROWS:
        return False
    base = output.kernel.exact(best.candidate.graph, output.name)
    return all(at in base and np.unique(base[at]).size >= MIN_ROWS for at in fault.edits)


def _diagnosed(output: Output, best: Fit) -> Diagnosis:
    """Return the best fault of the closest arithmetic, else of the reference, if that is better."""
    closest = _diagnosed_by(output, best.candidate)
    if _says_why(output, closest) or best.candidate.graph is output.reference:
        return closest
    other = _diagnosed_by(output, Candidate(output.reference))
    return max(closest, other, key=lambda diagnosis: diagnosis.share)


def _asks_others(output: Output, best: Fit, diagnosis: Diagnosis) -> bool:
    """Return whether the fault may be that of another arithmetic than the closest one.

    Where that explains half of the values, it is the kernel's own.
    """
    return not _says_why(output, diagnosis) and bool(best.outside.mean() >= MIN_OUTSIDE)


def _of_any_way(output: Output, best: Fit, diagnosis: Diagnosis) -> Diagnosis:
    """Return the best fault of the usual ways, if that says why and the known one doesn't."""
    if not _asks_others(output, best, diagnosis):
        return diagnosis
    for graph in islice(output.usual_ways, 1, DIAGNOSED_WAYS):
        other = _diagnosed_by(output, Candidate(graph))
        if _says_why(output, other):
            return other
    return diagnosis


def _diagnosed_by(output: Output, candidate: Candidate) -> Diagnosis:
    return diagnose(
        candidate.graph,
        output.kernel.inputs,
        output.name,
        output.values,
        output.form,
        output.quantity(candidate),
        candidate.program,
    )


def _beside_stored(output: Output, best: Fit, diagnosis: Diagnosis) -> Diagnosis | None:
    """Return a diagnosis beside stored values, which are sought in what the best fault leaves."""
    fault, graph = diagnosis.fault, best.candidate.graph
    if fault is None:
        return None
    effect = whole_effect(output, graph, fault)
    if effect is None:
        return None
    for candidate in candidates.storing(output, effect):
        again = _diagnosed_by(output, candidate)
        if _says_why(output, again):
            return again
    return None


def _beside_known(output: Output, best: Fit, diagnosis: Diagnosis) -> Diagnosis:
    """Return the fault of a known program, if that says why and the closest arithmetic doesn't.

    It only names what is wrong anyway: beside a strange kernel's program a fault says nothing.
    """
    for candidate in candidates.known(output):
        if not _asks_others(output, best, diagnosis):
            break
        # of a wrong kernel less is known to the bit: it may round elsewhere
        program = replace(candidate.program, is_of_card=True)
        of_known = _diagnosed_by(output, replace(candidate, program=program))
        diagnosis = max(diagnosis, of_known, key=lambda one: one.share)
    return diagnosis


def _explained(output: Output, fit: Fit) -> OutputJudgment:
    if fit.cancels:
        return _answer(
            output,
            fit,
            Explanation.inconclusive,
            "the kernel's own rounding is larger than the output: nothing can be said about it",
        )
    fault = fault_in_reach(output, fit)
    if fault is not None:
        sentence = f"the test may fail for another reason than rounding: {fault.label}"
        return _answer(output, fit, Explanation.inconclusive, sentence)
    return _answer(output, fit, Explanation.explained)


def _explained_by_wide(
    output: Output, fit: Fit, sharp: _Tried, storing: _Tried, diagnosis: Diagnosis
) -> OutputJudgment:
    """Return the answer where a wide arithmetic would explain an output."""
    program = fit.candidate.program
    if program.is_unknown_order:
        for other in sharp.fits():
            reason = is_reproduced(other, fit)
            if reason and not (is_tail(other.outside) and _is_stored(output, diagnosis)):
                return _unexplained(output, sharp, diagnosis, reason)
        for other in storing.fits():
            reason = is_reproduced(other, fit)
            if reason and not is_tail(other.outside):
                beside = _diagnosed_by(output, other.candidate)
                return _answer(output, other, Explanation.suspect, reason, beside)
    component = largest_component(output, fit)
    if component is not None:
        sentence = (
            f"the error is no noise: {component.score:.1f} deviations along {component.label}"
        )
        if component.score >= MAX_COMPONENT:
            return _unexplained(output, sharp, diagnosis, sentence)
        return _answer(output, fit, Explanation.suspect, sentence)
    if program.narrow_sums:
        return _answer(
            output, fit, Explanation.inconclusive, f"only {program.label} would explain it"
        )
    return _explained(output, fit)


def _unexplained(
    output: Output, tried: _Tried, diagnosis: Diagnosis | None, reason: str = ""
) -> OutputJudgment:
    """Return the answer where nothing explains an output: suspect, where it is close."""
    best = tried.best
    if tried.smallest <= SUSPECT:
        sentence = f"{tried.smallest:.1f} deviations from {best.candidate.program.label}"
        return _answer(output, best, Explanation.suspect, reason or sentence, diagnosis)
    sentence = "rounding does not explain it"
    return _answer(output, best, Explanation.unexplained, reason or sentence, diagnosis)


def _factors(output: Output, fit: Fit) -> list[Common]:
    """Return the common factors of the sources, and that of the output itself.

    A program of a Wormhole says how the output is stored, ties away from zero: that is no noise.
    """
    if fit.candidate.program.rules:
        return list(fit.common)
    along = component(output.name, *fit.comparison.projections)
    if not along.score:
        return list(fit.common)
    deviation = abs(along.size) / along.score
    is_certain = along.score >= MIN_SCORE
    return [*fit.common, Common(output.name, along.size, deviation, is_certain)]


def _answer(
    output: Output,
    fit: Fit,
    explanation: Explanation,
    reason: str = "",
    diagnosis: Diagnosis | None = None,
) -> OutputJudgment:
    way = next(at for at, graph in enumerate(output.kernel.every) if graph is fit.candidate.graph)
    label, is_named = fit.candidate.program.label, bool(fit.candidate.program.name)
    return OutputJudgment(
        explanation=explanation,
        arithmetic=f"{fit.candidate.graph.name}; {label}" if way and not is_named else label,
        program=fit.candidate.program,
        way=way,
        rounding_ratio=fit.comparison.ratio,
        distance=fit.comparison.largest,
        shared=fit.comparison.shared,
        common=most_certain(_factors(output, fit)),
        misfit=fit.comparison.misfit,
        outside=fit.outside,
        reason=reason,
        diagnosis=diagnosis,
    )
