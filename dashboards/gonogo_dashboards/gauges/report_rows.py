"""A gauge's report on its page: its kernels and their arithmetics as lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gonogo.gauge.advice import spelled as spelled
from gonogo.gauge.summary import GaugeReport, MeasuredRate, alike
from gonogo.spec.arithmetic_names import NAMES
from gonogo.spec.arithmetic_words import grouped
from gonogo.spec.verdicts import Verdict
from gonogo_service.kit.database.encoding import encode as encode


@dataclass(frozen=True)
class PartLine:
    """A kernel: a right one with its false alarms, a mutant with its misses."""

    name: str
    sentence: str
    right: bool
    rate: MeasuredRate | None
    """None: all its runs ended without numbers."""
    hidden: int
    """Seeds on which a mutant's fault can't show with these inputs."""
    unexplained: MeasuredRate | None
    """The runs whose error rounding doesn't explain: GoNoGo sees them with any tolerance."""
    broken: int
    """Runs without numbers."""
    looks: str


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
class ReportView(GaugeReport):
    """The report of a finished gauge, with its kernels as lines."""

    parts: tuple[PartLine, ...]
    models: tuple[ModelLine, ...]
    advised: str
    """The advised tolerance as JSON for a test's spec; "" for none."""


def read(report: GaugeReport) -> ReportView:
    """Return a stored report with its lines."""
    tolerance = report.advice.tolerance
    return ReportView(
        **vars(report),
        parts=tuple(_parts(report)),
        models=tuple(_models(report)),
        advised=encode(tolerance) if tolerance else "",
    )


def _parts(report: GaugeReport) -> list[PartLine]:
    """Return the kernels: right ones, then mutants.

    Mutants that pass come first, those whose fault can't show last.
    """

    def line(name: str, rate: MeasuredRate | None, looks: Verdict, **more: Any) -> PartLine:
        about = {"right": False, "hidden": 0, "unexplained": None} | more
        broken = report.broken.get(name, 0)
        sentence = "" if rate is None else report.sentences.get(name, "")
        return PartLine(name, sentence, rate=rate, broken=broken, looks=looks, **about)

    alarms, misses = report.false_alarms.parts, report.misses.parts
    right = [
        line(name, rate, Verdict.fail_by_tolerance if rate.count else Verdict.pass_, right=True)
        for name, rate in alarms.items()
    ]
    wrong = []
    for name in sorted(misses, key=lambda name: (not misses[name].of, -(misses[name].rate or 0))):
        rate = misses[name]
        # a test that rejects it does what it should
        looks = Verdict.pass_by_tolerance if rate.count else Verdict.pass_
        looks = looks if rate.of else Verdict.inconclusive
        about = {"hidden": rate.cannot_show, "unexplained": rate.unexplained}
        wrong.append(line(name, rate, looks, **about))
    gone = [name for name in report.broken if name not in alarms and name not in misses]
    return [*right, *wrong, *(line(name, None, Verdict.error) for name in gone)]


def _models(report: GaugeReport) -> Iterator[ModelLine]:
    for kernels, outputs in alike(report.arithmetic):
        for output in outputs:
            hover = NAMES.get(output.arithmetic or "", "")
            limits = grouped(output.detection_limits)
            yield ModelLine(kernels, output.output, output.model, hover, limits)
