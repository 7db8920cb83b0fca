"""The gauge's report: from stored rows to false alarms, misses, windows and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gonogo.flakiness.grades import Sharpness
from gonogo.gauge.advice import advice
from gonogo.gauge.comparators import comparators
from gonogo.gauge.gates import Gate, judging
from gonogo.gauge.summary import (
    FalseAlarms,
    GateSummary,
    MeasuredRate,
    MeasuredTest,
    Misses,
    MutantMisses,
)
from gonogo.gauge.windows import Row, window
from gonogo.spec.arithmetic_words import of_results
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Explanation, Verdict, within

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

RAREST = 5e-7
"""A predicted share of failing seeds that isn't told from a smaller one."""


def report(test: TestSpec, rows: Sequence[Row], gates: Sequence[str] = ()) -> MeasuredTest:
    """Return the gauge of a test from rows of gonogo.gauge.measure; there may be none.

    Rates are over runs; a run is a seed of a part. Runs that ended without numbers (error, crash,
    hang) count in no rate.

    gates: names of the public gates to apply; none: all that judge the kernel and its format.
    Raises FieldError for an unknown name.
    """
    useful = with_numbers(rows)
    right_rows = [row for row in useful if row["kind"] == "go"]
    mutant_rows = [row for row in useful if row["kind"] == "no_go"]
    able = [row for row in mutant_rows if row.get("able")]
    declared = declared_of(test)
    outputs = [
        name
        for name in declared or test.outputs
        if any(name in row["outputs"] for row in right_rows)
    ]
    rtols = {tolerance.rtol for tolerance in declared.values() if tolerance.rtol is not None}
    windows = [window(comparator, right_rows, able, outputs) for comparator in comparators(rtols)]
    advised = advice(windows, able)
    alarms = _rates(right_rows, lambda row: not passes(declared, row))
    misses = _rates(able, lambda row: passes(declared, row))
    seen = _rates(mutant_rows, lambda row: row["explanation"] == Explanation.unexplained)
    missed = _sum(misses.values())
    with_outputs = {id(row) for row in useful}
    parts = {}
    for name, rate in seen.items():
        known = misses.get(name, MeasuredRate.counted(0, 0))
        hidden = rate.of - known.of
        parts[name] = MutantMisses(**vars(known), cannot_show=hidden, unexplained=rate)
    sharpness = Sharpness.blunt if missed.count else Sharpness.sharp
    predicted = _predicted(right_rows, declared)
    judged = {gate.name: _gate(gate, test, right_rows, able) for gate in judging(test, gates)}
    measured = MeasuredTest(
        test=test.canonical(),
        key=test.key,
        workload_key=test.workload_key,
        seeds=len({row["seed"] for row in rows}),
        sharpness=sharpness if missed.of else Sharpness.unmeasured,
        false_alarms=FalseAlarms(**vars(_sum(alarms.values())), predicted=predicted, parts=alarms),
        misses=Misses(**vars(missed), parts=parts),
        broken=dict(Counter(row["part"] for row in rows if id(row) not in with_outputs)),
        arithmetic={
            part: list(of_results(row for row in useful if row["part"] == part))
            for part in dict.fromkeys(row["part"] for row in useful)
        },
        windows=windows,
        advice=advised,
        gates={name: gate for name, gate in judged.items() if gate is not None},
        words="",
    )
    return replace(measured, words=" ".join([*findings(measured), advised.words]))


def findings(measured: MeasuredTest) -> list[str]:
    """Return the findings in sentences, without the advice."""
    alarms, misses = measured.false_alarms, measured.misses
    sentences = []
    if alarms.of:
        counts = f"{alarms.count} of {alarms.of} runs of right kernels"
        share = "none" if not alarms.predicted else f"{alarms.predicted:.2g}"
        share = "below 1e-6" if 0 < (alarms.predicted or 0) < RAREST else share
        known = "" if alarms.predicted is None else f" (predicted: {share} of the seeds)"
        sentences.append(f"False alarms: {counts}{known}.")
    if misses.of:
        blind = f"; {', '.join(measured.blind)} on every seed" if measured.blind else ""
        sentences.append(f"Missed: {misses.count} of {misses.of} runs of mutants{blind}.")
    if never := [name for name, rate in misses.parts.items() if not rate.of]:
        sentences.append(f"Can't show with these inputs: {', '.join(never)}.")
    if measured.broken:
        counts = ", ".join(f"{name} ({count})" for name, count in measured.broken.items())
        sentences.append(f"Without numbers: {counts}.")
    return sentences


def declared_of(test: TestSpec) -> dict[str, Tolerance]:
    """Return the tolerance of each output that has one."""
    tolerances = {name: test.tolerance_for(name) for name in test.outputs}
    return {name: tolerance for name, tolerance in tolerances.items() if tolerance is not None}


def with_numbers(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that count in rates: those of runs with outputs that were judged."""
    return [
        row
        for row in rows
        if row.get("outputs")
        and (Verdict(row["verdict"]).judges_kernel or row["verdict"] == "inconclusive")
    ]


def _rates(rows: Sequence[Row], counts: Callable[[Row], bool]) -> dict[str, MeasuredRate]:
    """Return how many of each part's rows count."""
    answers: dict[str, list[bool]] = {}
    for row in rows:
        answers.setdefault(row["part"], []).append(counts(row))
    return {part: MeasuredRate.counted(sum(all_), len(all_)) for part, all_ in answers.items()}


def _sum(rates: Iterable[MeasuredRate]) -> MeasuredRate:
    known = list(rates)
    return MeasuredRate.counted(sum(rate.count for rate in known), sum(rate.of for rate in known))


def passes(declared: Mapping[str, Tolerance], row: Row) -> bool:
    """Return whether the test is green on the row."""
    return all(within(declared.get(name), numbers) for name, numbers in row["outputs"].items())


def _predicted(right_rows: Sequence[Row], declared: Mapping[str, Tolerance]) -> float | None:
    """Return the mean over seeds of the chance that some output's allclose fails."""
    if not any(tolerance.allclose for tolerance in declared.values()):
        return None
    chances = []
    for row in right_rows:
        if row.get("edges"):
            silent = 1.0
            for edge in row["edges"].values():
                silent *= 1.0 - (edge.get("alarm") or 0.0)
            chances.append(1.0 - silent)
    return sum(chances) / len(chances) if chances else None


def gate_passes(gate: Gate, row: Row) -> bool | None:
    """Return whether a gate passes a row; None where the row has nothing that the gate judges.

    A row that was stored before the gate existed has no number for it either. NaN and Inf pass no
    gate, also in outputs that it doesn't compare.
    """
    outputs = row["outputs"]
    if gate.tolerance:
        tolerances = {name: gate.tolerance_for(name) for name in outputs}
        declared = {name: tolerance for name, tolerance in tolerances.items() if tolerance}
        return passes(declared, row) if declared else None
    ratios = [
        numbers["gates"][gate.name]
        for name, numbers in outputs.items()
        if name in gate.outputs and gate.name in (numbers.get("gates") or {})
    ]
    if not ratios:
        return None
    return passes({}, row) and all(ratio is not None and ratio <= 1 for ratio in ratios)


def _gate(
    gate: Gate, test: TestSpec, right_rows: Sequence[Row], able: Sequence[Row]
) -> GateSummary | None:
    """Return a gate's false alarms and misses; None where it judges no right kernel's run."""
    right = [passes for row in right_rows if (passes := gate_passes(gate, row)) is not None]
    answers = [(row["part"], gate_passes(gate, row)) for row in able]
    missed = {part for part, passes in answers if passes}
    parts = dict.fromkeys(part for part, passes in answers if passes is not None)
    if not right:
        return None
    return GateSummary(
        false_alarms=MeasuredRate.counted(right.count(False), len(right)),
        rejected=[part for part in parts if part not in missed],
        missed=[part for part in parts if part in missed],
        sentence=gate.sentence,
        limit=gate.limit_in(test.numerics.output),
        source=gate.source,
    )
