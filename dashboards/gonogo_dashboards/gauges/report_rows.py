"""A gauge's report as lines of its page: kernels, windows, other inputs, public gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.gauge.advice import spelled
from gonogo.gauge.summary import (
    GateSummary,
    GaugeReport,
    MeasuredRate,
    TriedSummary,
    WindowEdges,
    WindowSummary,
    alike,
)
from gonogo.spec.arithmetic_names import NAMES
from gonogo.spec.arithmetic_words import OutputArithmetic, grouped
from gonogo.spec.verdicts import Verdict
from gonogo_service.kit.database.encoding import encode


@dataclass(frozen=True)
class RateLine:
    """A count with its 95% interval."""

    count: int
    of: int
    words: str


@dataclass(frozen=True)
class PartLine:
    """A kernel: a right one with its false alarms, a mutant with its misses."""

    name: str
    sentence: str
    right: bool
    rate: RateLine
    hidden: int
    """Seeds on which a mutant's fault can't show with these inputs."""
    unexplained: RateLine | None
    """The runs whose error rounding doesn't explain: GoNoGo sees them with any tolerance."""
    broken: int
    """Runs without numbers."""
    looks: str


@dataclass(frozen=True)
class WindowLine:
    """A comparator: its edges, whether it works, and the tolerance at its lower edge.

    `missed` are the mutants that pass this tolerance.
    """

    comparator: str
    works: bool
    edges: Mapping[str, WindowEdges]
    """By output."""
    missed: tuple[str, ...]
    tolerance: str


@dataclass(frozen=True)
class ElsewhereLine:
    """Other inputs that were tried: their advised tolerance, and the mutants gained and lost."""

    name: str
    sentence: str
    inputs: str
    works: bool
    tolerance: str
    words: str
    gains: tuple[str, ...]
    loses: tuple[str, ...]


@dataclass(frozen=True)
class GateLine:
    """The gate of a public suite on the same runs."""

    name: str
    sentence: str
    limit: str
    """The limit for this test in words."""
    source: str
    """The public file that describes it."""
    alarms: RateLine
    rejected: int
    of: int
    missed: tuple[str, ...]


@dataclass(frozen=True)
class ModelLine:
    """The arithmetic of one output of some kernels, and its detection limits."""

    kernels: str
    output: str
    model: str
    hover: str
    """The meaning of the name, if a build may declare it."""
    detection_limits: tuple[str, ...]


@dataclass(frozen=True)
class ReportView:
    """The report of a finished gauge."""

    alarms: RateLine
    predicted: float | None
    misses: RateLine
    parts: tuple[PartLine, ...]
    models: tuple[ModelLine, ...]
    advice: str
    works: bool
    advised: str
    """The advised tolerance as JSON for a test's spec; "" for none."""
    elsewhere: tuple[ElsewhereLine, ...]
    beyond: str
    windows: tuple[WindowLine, ...]
    gates: tuple[GateLine, ...]
    command: str
    leaves_out: tuple[str, ...]


def read(report: GaugeReport) -> ReportView:
    """Return the lines of a stored report."""
    advice = report.advice
    return ReportView(
        alarms=_rate(report.false_alarms),
        predicted=report.false_alarms.predicted,
        misses=_rate(report.misses),
        parts=tuple(_parts(report)),
        models=tuple(_models(report.arithmetic)),
        advice=advice.words,
        works=advice.works,
        advised=encode(advice.tolerance) if advice.tolerance else "",
        elsewhere=tuple(_elsewhere(tried) for tried in report.elsewhere),
        beyond=report.beyond,
        windows=tuple(_window(window) for window in report.windows),
        gates=tuple(_gate(name, gate) for name, gate in report.gates.items()),
        command=report.command.line,
        leaves_out=tuple(report.command.leaves_out),
    )


def _rate(rate: MeasuredRate) -> RateLine:
    return RateLine(rate.count, rate.of, str(rate) if rate.of else "–")


def _parts(report: GaugeReport) -> list[PartLine]:
    """Return the kernels: right ones, then mutants.

    Mutants that pass come first, those whose fault can't show last.
    """

    def line(name: str, rate: MeasuredRate | None, looks: Verdict, **more: Any) -> PartLine:
        about = {"right": False, "hidden": 0, "unexplained": None} | more
        shown = RateLine(0, 0, "–") if rate is None else _rate(rate)
        broken = report.broken.get(name, 0)
        sentence = "" if rate is None else report.sentences.get(name, "")
        return PartLine(name, sentence, rate=shown, broken=broken, looks=looks, **about)

    alarms, misses = report.false_alarms.parts, report.misses.parts
    right = [
        line(name, rate, Verdict.fail_by_tolerance if rate.count else Verdict.pass_, right=True)
        for name, rate in alarms.items()
    ]
    wrong = []
    for name, rate in misses.items():
        # a test that rejects it does what it should
        looks = Verdict.pass_by_tolerance if rate.count else Verdict.pass_
        looks = looks if rate.of else Verdict.inconclusive
        seen = _rate(rate.unexplained)
        wrong.append(line(name, rate, looks, hidden=rate.cannot_show, unexplained=seen))
    wrong.sort(key=lambda part: (not part.rate.of, -part.rate.count / max(part.rate.of, 1)))
    gone = [name for name in report.broken if name not in alarms and name not in misses]
    return [*right, *wrong, *(line(name, None, Verdict.error) for name in gone)]


def _models(parts: Mapping[str, Sequence[OutputArithmetic]]) -> Iterator[ModelLine]:
    for kernels, outputs in alike(parts):
        for output in outputs:
            yield ModelLine(
                kernels,
                output.output,
                output.model,
                NAMES.get(output.arithmetic or "", ""),
                grouped(output.detection_limits),
            )


def _window(window: WindowSummary) -> WindowLine:
    rtol = "" if window.rtol is None else f", rtol {window.rtol:g}"
    return WindowLine(
        comparator=f"{window.comparator}{rtol}",
        works=window.works,
        edges=window.outputs,
        missed=tuple(window.missed),
        tolerance="" if window.tolerance is None else spelled(window.tolerance),
    )


def _elsewhere(tried: TriedSummary) -> ElsewhereLine:
    advice = tried.advice
    return ElsewhereLine(
        name=tried.name,
        sentence=tried.sentence,
        inputs=encode(tried.inputs),
        works=advice.works,
        tolerance=spelled(advice.tolerance) or "–",
        words=advice.words,
        gains=tuple(tried.gains),
        loses=tuple(tried.loses),
    )


def _gate(name: str, gate: GateSummary) -> GateLine:
    return GateLine(
        name,
        gate.sentence,
        gate.limit,
        gate.source,
        _rate(gate.false_alarms),
        len(gate.rejected),
        len(gate.rejected) + len(gate.missed),
        tuple(gate.missed),
    )
