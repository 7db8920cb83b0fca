"""The gauge's report: from stored rows to false alarms, misses, windows and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gonogo.flakiness.grades import Sharpness
from gonogo.gauge.advice import Advice, advice
from gonogo.gauge.arithmetic import by_part
from gonogo.gauge.comparators import comparators
from gonogo.gauge.gates import Gate, judging
from gonogo.gauge.rates import Rate
from gonogo.gauge.summary import (
    FalseAlarms,
    GateSummary,
    MeasuredTest,
    Misses,
    MutantMisses,
    PartArithmetic,
)
from gonogo.gauge.windows import Row, Window, window
from gonogo.spec.arithmetic_words import OutputArithmetic
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Explanation, Verdict, within

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


@dataclass(frozen=True)
class Gauge:
    """The result of gauging one test. Rates are over runs; a run is a seed of a part."""

    test: TestSpec
    seeds: int
    false_alarms: Mapping[str, Rate]
    """Right kernel -> how often it failed."""
    predicted: float | None
    """The chance that a right kernel fails on a seed, from its budget; None without a declared
    allclose."""
    misses: Mapping[str, Rate]
    """Mutant -> how often it passed, of the seeds on which it can show."""
    seen: Mapping[str, Rate]
    """Mutant -> how often rounding doesn't explain it, over all seeds: GoNoGo sees these with
    any tolerance."""
    hidden: Mapping[str, int]
    """Mutant -> seeds on which it can't show with these inputs."""
    broken: Mapping[str, int]
    """Part -> runs that ended without numbers (error, crash, hang): they count in no rate."""
    arithmetic: Mapping[str, tuple[OutputArithmetic, ...]]
    """Part -> the arithmetic models of its outputs, with their detection limits."""
    windows: tuple[Window, ...]
    advice: Advice
    gates: Mapping[str, tuple[Rate, tuple[str, ...], tuple[str, ...]]]
    """Public gate -> its false alarms, the mutants that it rejects on every seed, and those that
    pass on some."""
    applied_gates: Mapping[str, Gate]
    """The same gates, with their limits and sources."""

    @property
    def alarms(self) -> Rate:
        """The rate of false alarms of all right kernels together."""
        return _sum(self.false_alarms)

    @property
    def missed(self) -> Rate:
        """The rate of misses of all mutants together."""
        return _sum(self.misses)

    @property
    def sharpness(self) -> Sharpness:
        """The grade's second axis."""
        if not self.missed.of:
            return Sharpness.unmeasured
        return Sharpness.blunt if self.missed.count else Sharpness.sharp

    @property
    def blind(self) -> tuple[str, ...]:
        """The mutants that pass on every seed on which they can show."""
        return tuple(
            name for name, rate in self.misses.items() if rate.of and rate.count == rate.of
        )

    @property
    def summary(self) -> MeasuredTest:
        """Return it in plain values."""
        return MeasuredTest(
            test=self.test.canonical(),
            key=self.test.key,
            workload_key=self.test.workload_key,
            seeds=self.seeds,
            sharpness=self.sharpness,
            false_alarms=FalseAlarms(
                **vars(self.alarms.summary),
                predicted=self.predicted,
                parts={name: rate.summary for name, rate in self.false_alarms.items()},
            ),
            misses=Misses(
                **vars(self.missed.summary),
                parts={
                    name: MutantMisses(
                        **vars(rate.summary),
                        cannot_show=self.hidden.get(name, 0),
                        unexplained=self.seen[name].summary,
                    )
                    for name, rate in self.misses.items()
                },
            ),
            broken=dict(self.broken),
            arithmetic={
                part: [
                    PartArithmetic(**vars(output.summary), model=output.model) for output in outputs
                ]
                for part, outputs in self.arithmetic.items()
            },
            windows=[window.summary for window in self.windows],
            advice=self.advice.summary,
            gates={
                name: GateSummary(
                    alarms.summary,
                    list(rejected),
                    list(missed),
                    sentence=self.applied_gates[name].sentence,
                    limit=self.applied_gates[name].limit_in(self.test.numerics.output),
                    source=self.applied_gates[name].source,
                )
                for name, (alarms, rejected, missed) in self.gates.items()
            },
            words=self.words,
        )

    @property
    def words(self) -> str:
        """The findings in a few sentences."""
        sentences = []
        if self.alarms.of:
            predicted = ""
            if self.predicted is not None:
                rare = 0 < self.predicted < 5e-7
                share = "below 1e-6" if rare else f"{self.predicted:.2g}"
                predicted = f" (predicted: {share} of the seeds)"
            sentences.append(
                f"False alarms: {self.alarms.count} of {self.alarms.of} runs of right"
                f" kernels{predicted}."
            )
        able = {name: rate for name, rate in self.misses.items() if rate.of}
        if able:
            sentences.append(f"Missed: {self.missed.count} of {self.missed.of} runs of mutants")
            sentences[-1] += f"; {', '.join(self.blind)} on every seed." if self.blind else "."
        if never := [name for name, rate in self.misses.items() if not rate.of]:
            sentences.append(f"Can't show with these inputs: {', '.join(never)}.")
        if self.broken:
            sentences.append(
                "Without numbers: "
                + ", ".join(f"{name} ({count})" for name, count in self.broken.items())
                + "."
            )
        return " ".join((*sentences, self.advice.words))


def _sum(rates: Mapping[str, Rate]) -> Rate:
    return Rate(sum(rate.count for rate in rates.values()), sum(rate.of for rate in rates.values()))


def report(test: TestSpec, rows: Sequence[Row], gates: Sequence[str] = ()) -> Gauge:
    """Return the gauge of a test from rows of gonogo.gauge.measure; there may be none.

    gates: names of the public gates to apply; none: all that judge the kernel and its format.
    Raises FieldError for an unknown name.
    """
    useful = with_numbers(rows)
    right_rows = [row for row in useful if row["kind"] == "go"]
    mutant_rows = [row for row in useful if row["kind"] == "no_go"]
    able = [row for row in mutant_rows if row.get("able")]
    declared = {
        name: tolerance
        for name in test.outputs
        if (tolerance := test.tolerance_for(name)) is not None
    }
    outputs = [
        name
        for name in test.outputs
        if (name in declared or not declared) and any(name in row["outputs"] for row in right_rows)
    ]
    applied = {
        gate.name: gate
        for gate in judging(test, gates)
        if any(gate_passes(gate, row) is not None for row in right_rows)
    }
    rtols = {tolerance.rtol for tolerance in declared.values() if tolerance.rtol is not None}
    windows = tuple(
        window(comparator, right_rows, able, outputs) for comparator in comparators(rtols)
    )
    passing = [_passes(declared, row) for row in useful]
    passed = {id(row): green for row, green in zip(useful, passing, strict=True)}
    wrong = tuple(dict.fromkeys(row["part"] for row in mutant_rows))
    return Gauge(
        test=test,
        seeds=len({row["seed"] for row in rows}),
        false_alarms={
            part: Rate(
                sum(not passed[id(row)] for row in right_rows if row["part"] == part),
                sum(row["part"] == part for row in right_rows),
            )
            for part in dict.fromkeys(row["part"] for row in right_rows)
        },
        predicted=_predicted(right_rows, declared),
        misses={
            part: Rate(
                sum(passed[id(row)] for row in able if row["part"] == part),
                sum(row["part"] == part for row in able),
            )
            for part in wrong
        },
        seen={part: _seen([row for row in mutant_rows if row["part"] == part]) for part in wrong},
        hidden={
            part: count
            for part in wrong
            if (count := sum(row["part"] == part and not row.get("able") for row in mutant_rows))
        },
        broken=_counts(row["part"] for row in rows if id(row) not in passed),
        arithmetic=by_part(useful),
        windows=windows,
        advice=advice(windows, able),
        gates={name: _gate(gate, right_rows, able) for name, gate in applied.items()},
        applied_gates=applied,
    )


def with_numbers(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that count in rates: those of runs with outputs that were judged."""
    return [
        row
        for row in rows
        if row.get("outputs")
        and (Verdict(row["verdict"]).judges_kernel or row["verdict"] == "inconclusive")
    ]


def _passes(declared: Mapping[str, Tolerance], row: Row) -> bool:
    """Return whether the test is green on the row.

    Every declared tolerance must hold, and nothing may be NaN or Inf.
    """
    return all(within(declared.get(name), numbers) for name, numbers in row["outputs"].items())


def _predicted(right_rows: Sequence[Row], declared: Mapping[str, Tolerance]) -> float | None:
    """Return the mean over seeds of the chance that some output's allclose fails.

    Other comparators have no such prediction.
    """
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


def _seen(rows: Sequence[Row]) -> Rate:
    return Rate(sum(row["explanation"] == Explanation.unexplained.value for row in rows), len(rows))


def _counts(names: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def gate_passes(gate: Gate, row: Row) -> bool | None:
    """Return whether a gate passes a row; None where the row has nothing that the gate judges.

    A row that was stored before the gate existed has no number for it either. NaN and Inf pass no
    gate, also in outputs that it doesn't compare.
    """
    outputs = row["outputs"]
    if gate.tolerance:
        declared = {
            name: tolerance
            for name in outputs
            if (tolerance := gate.tolerance_for(name)) is not None
        }
        return _passes(declared, row) if declared else None
    ratios = [
        numbers["gates"][gate.name]
        for name, numbers in outputs.items()
        if name in gate.outputs and gate.name in (numbers.get("gates") or {})
    ]
    if not ratios:
        return None
    return _passes({}, row) and all(ratio is not None and ratio <= 1 for ratio in ratios)


def _gate(
    gate: Gate, right_rows: Sequence[Row], able: Sequence[Row]
) -> tuple[Rate, tuple[str, ...], tuple[str, ...]]:
    right = [passes for row in right_rows if (passes := gate_passes(gate, row)) is not None]
    mutants = [
        (row["part"], passes) for row in able if (passes := gate_passes(gate, row)) is not None
    ]
    alarms = Rate(right.count(False), len(right))
    missed = {part for part, passes in mutants if passes}
    parts = tuple(dict.fromkeys(part for part, _ in mutants))
    return (
        alarms,
        tuple(part for part in parts if part not in missed),
        tuple(part for part in parts if part in missed),
    )
