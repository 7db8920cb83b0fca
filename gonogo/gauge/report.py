"""The gauge's report: stored rows of GO and NO-GO runs in; false alarms, misses, windows and advice
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gonogo.flakiness.grades import Sharpness
from gonogo.gauge.advice import Advice, advice
from gonogo.gauge.comparators import comparators
from gonogo.gauge.gates import GATES
from gonogo.gauge.rates import Rate
from gonogo.gauge.windows import Row, Window, window
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Explanation, Verdict, within

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


@dataclass(frozen=True)
class Gauge:
    """What is said of one test. Rates are over runs: a seed of a part."""

    test: TestSpec
    seeds: int
    false_alarms: Mapping[str, Rate]
    """Right part -> how often it failed."""
    predicted: float | None
    """The chance that a right kernel fails on a seed, from its budget; None without a declared
    allclose."""
    misses: Mapping[str, Rate]
    """Wrong part -> how often it passed, of the seeds on which it can show."""
    seen: Mapping[str, Rate]
    """Wrong part -> how often rounding doesn't explain it, over all seeds: what GoNoGo sees
    whatever the tolerance."""
    hidden: Mapping[str, int]
    """Wrong part -> seeds on which it can't show with these inputs."""
    broken: Mapping[str, int]
    """Part -> runs that ended without numbers (error, crash, hang): they count into no rate."""
    windows: tuple[Window, ...]
    advice: Advice
    gates: Mapping[str, tuple[Rate, tuple[str, ...], tuple[str, ...]]]
    """Public gate -> its false alarms, the wrong parts that it rejects on every seed, those that
    pass on some."""

    @property
    def alarms(self) -> Rate:
        """All right parts together."""
        return _sum(self.false_alarms)

    @property
    def missed(self) -> Rate:
        """All wrong parts together."""
        return _sum(self.misses)

    @property
    def sharpness(self) -> Sharpness:
        """The grade's second axis."""
        if not self.missed.of:
            return Sharpness.unmeasured
        return Sharpness.blunt if self.missed.count else Sharpness.sharp

    @property
    def blind(self) -> tuple[str, ...]:
        """The wrong parts that pass on every seed on which they can show."""
        return tuple(
            name for name, rate in self.misses.items() if rate.of and rate.count == rate.of
        )

    def to_json(self) -> dict[str, Any]:
        """Return it in plain JSON types."""
        return {
            "test": self.test.canonical(),
            "key": self.test.key,
            "workload_key": self.test.workload_key,
            "seeds": self.seeds,
            "sharpness": self.sharpness.value,
            "false_alarms": {
                **self.alarms.to_json(),
                "predicted": self.predicted,
                "parts": {name: rate.to_json() for name, rate in self.false_alarms.items()},
            },
            "misses": {
                **self.missed.to_json(),
                "parts": {
                    name: {
                        **rate.to_json(),
                        "cannot_show": self.hidden.get(name, 0),
                        "unexplained": self.seen[name].to_json(),
                    }
                    for name, rate in self.misses.items()
                },
            },
            "broken": dict(self.broken),
            "windows": [each.to_json() for each in self.windows],
            "advice": {**self.advice.to_json(), "words": self.advice.words},
            "gates": {
                name: {
                    "false_alarms": alarms.to_json(),
                    "rejected": list(rejected),
                    "missed": list(missed),
                }
                for name, (alarms, rejected, missed) in self.gates.items()
            },
            "words": self.words,
        }

    @property
    def words(self) -> str:
        """The findings in a few sentences."""
        said = []
        if self.alarms.of:
            rare = self.predicted is not None and 0 < self.predicted < 5e-7
            predicted = (
                ""
                if self.predicted is None
                else f" (predicted: {'below 1e-6' if rare else f'{self.predicted:.2g}'} of the seeds)"
            )
            said.append(
                f"False alarms: {self.alarms.count} of {self.alarms.of} runs of right kernels{predicted}."
            )
        able = {name: rate for name, rate in self.misses.items() if rate.of}
        if able:
            said.append(f"Missed: {self.missed.count} of {self.missed.of} runs of wrong kernels")
            said[-1] += f"; {', '.join(self.blind)} on every seed." if self.blind else "."
        if never := [name for name, rate in self.misses.items() if not rate.of]:
            said.append(f"Can't show with these inputs: {', '.join(never)}.")
        if self.broken:
            said.append(
                "Without numbers: "
                + ", ".join(f"{name} ({count})" for name, count in self.broken.items())
                + "."
            )
        return " ".join((*said, self.advice.words))


def _sum(rates: Mapping[str, Rate]) -> Rate:
    return Rate(sum(rate.count for rate in rates.values()), sum(rate.of for rate in rates.values()))


def report(test: TestSpec, rows: Sequence[Row]) -> Gauge:
    """Return the gauge of a test from the rows of gonogo.gauge.measure; any number of them, also none."""
    useful = with_numbers(rows)
    go = [row for row in useful if row["kind"] == "go"]
    no_go = [row for row in useful if row["kind"] == "no_go"]
    able = [row for row in no_go if row.get("able")]
    declared = {
        name: tolerance
        for name in test.outputs
        if (tolerance := test.tolerance_for(name)) is not None
    }
    outputs = [
        name
        for name in test.outputs
        if (name in declared or not declared) and any(name in row["outputs"] for row in go)
    ]
    given = {output for row in go for output in row["outputs"]}
    rtols = {tolerance.rtol for tolerance in declared.values() if tolerance.rtol is not None}
    windows = tuple(window(each, go, able, outputs) for each in comparators(rtols))
    passing = [_passes(declared, row) for row in useful]
    passed = {id(row): green for row, green in zip(useful, passing, strict=True)}
    wrong = tuple(dict.fromkeys(row["part"] for row in no_go))
    return Gauge(
        test=test,
        seeds=len({row["seed"] for row in rows}),
        false_alarms={
            part: Rate(
                sum(not passed[id(row)] for row in go if row["part"] == part),
                sum(row["part"] == part for row in go),
            )
            for part in dict.fromkeys(row["part"] for row in go)
        },
        predicted=_predicted(go, declared),
        misses={
            part: Rate(
                sum(passed[id(row)] for row in able if row["part"] == part),
                sum(row["part"] == part for row in able),
            )
            for part in wrong
        },
        seen={part: _seen([row for row in no_go if row["part"] == part]) for part in wrong},
        hidden={
            part: count
            for part in wrong
            if (count := sum(row["part"] == part and not row.get("able") for row in no_go))
        },
        broken=_counts(row["part"] for row in rows if id(row) not in passed),
        windows=windows,
        advice=advice(windows, able),
        gates={
            name: _gate(dict.fromkeys(gated, Tolerance.parse(gate.tolerance)), go, able)
            for name, gate in GATES.items()
            if (not gate.kernels or test.kernel in gate.kernels)
            and (gated := [output for output in gate.outputs if output in given])
        },
    )


def with_numbers(rows: Sequence[Row]) -> list[Row]:
    """Return the runs that count into rates: those that gave outputs and were judged."""
    return [
        row
        for row in rows
        if row.get("outputs")
        and (Verdict(row["verdict"]).judges_kernel or row["verdict"] == "inconclusive")
    ]


def _passes(declared: Mapping[str, Tolerance], row: Row) -> bool:
    """Return whether the test is green on the row: every declared tolerance holds, and nothing is NaN or
    Inf.
    """
    return all(within(declared.get(name), numbers) for name, numbers in row["outputs"].items())


def _predicted(go: Sequence[Row], declared: Mapping[str, Tolerance]) -> float | None:
    """Return the mean over seeds of the chance that some output's allclose fails.

    Other comparators have no such prediction.
    """
    if not any(tolerance.allclose for tolerance in declared.values()):
        return None
    chances = []
    for row in go:
        if row.get("edges"):
            silent = 1.0
            for edge in row["edges"].values():
                silent *= 1.0 - (edge.get("alarm") or 0.0)
            chances.append(1.0 - silent)
    return sum(chances) / len(chances) if chances else None


def _seen(rows: Sequence[Row]) -> Rate:
    return Rate(sum(row["explanation"] == Explanation.unexplained.value for row in rows), len(rows))


def _counts(names: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found


def _gate(
    tolerances: Mapping[str, Tolerance], go: Sequence[Row], able: Sequence[Row]
) -> tuple[Rate, tuple[str, ...], tuple[str, ...]]:
    alarms = Rate(sum(not _passes(tolerances, row) for row in go), len(go))
    missed = {row["part"] for row in able if _passes(tolerances, row)}
    parts = tuple(dict.fromkeys(row["part"] for row in able))
    return (
        alarms,
        tuple(part for part in parts if part not in missed),
        tuple(part for part in parts if part in missed),
    )
