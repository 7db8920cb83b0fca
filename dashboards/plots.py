"""The picture of a job's seeds: every error on one axis with the declared tolerance and what rounding explains.

The axis is the tolerance ratio, so 1 is where green turns red. Every statistic that decides whether an error is explained grows
in proportion to the error; so an error of the same form as a seed's would be explained if it were smaller by the seed's evidence
(its largest statistic over that statistic's limit). Ratio / evidence is therefore the seed's line of what rounding explains, on the
same axis, whichever statistic found it. Between that line and 1 lies the gap in which a wrong kernel is green.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy.orm import Session

from dashboards import words
from gonogo import verdicts
from storage import overview as reads
from storage.jobs import Job
from storage.overview import BandRecord, MarkRecord, OutputRecord

MAX_MARKS = 5_000
"""More marks than this are never sent to a browser: above it, bands of neighbouring seeds and the worst points."""

WORST_MARKS = 2_000
BANDS = 240

TOLERANCE_RATIO = "tolerance_ratio"
EVIDENCE = "evidence"


@dataclass(frozen=True)
class SeedMark:
    """One seed: its value on the axis (None: it has none, as it hung or gave NaN), and up to which value rounding would explain it."""

    seed: int
    repeat: int
    verdict: str
    value: float | None
    explained: float | None
    budget_ratio: float | None
    evidence: float | None


@dataclass(frozen=True)
class SeedBand:
    """The range of values of neighbouring seeds, where there are too many to show each."""

    first: int
    last: int
    seeds: int
    low: float
    high: float


@dataclass(frozen=True)
class SeedPlot:
    """A job's seeds for one output. `metric` is what `value` is: tolerance_ratio, or evidence where no tolerance is declared.

    `limit` is where rounding ends on that axis: the median over the marks beyond it, if there are none over all (None: unknown).
    `total` counts all seeds, shown or in bands.
    """

    output: str
    metric: str
    total: int
    marks: tuple[SeedMark, ...]
    bands: tuple[SeedBand, ...]
    limit: float | None
    summary: str
    noun: str = "seed"
    """What a mark is: a seed, or an iteration of tests that exist already."""


def choose(outputs: Sequence[OutputRecord], wanted: str | None) -> str:
    """The wanted output if the job has it, else the one with the worst verdict, then the largest budget ratio; "" for none."""
    names = [each.output for each in outputs]
    if wanted in names:
        return str(wanted)
    worst = worst_first(outputs)
    return worst[0].output if worst else ""


def worst_first(outputs: Sequence[OutputRecord]) -> list[OutputRecord]:
    """By the worst verdict, then the largest budget ratio, then the name."""
    order = {verdict: rank for rank, verdict in enumerate(words.ordered({word for each in outputs for word in each.counts}))}
    return sorted(outputs, key=lambda each: (min(order[word] for word in each.counts), -(each.budget_ratio or 0.0), each.output))


def evidence(mark: MarkRecord) -> float | None:
    """How far one output of a seed is beyond what rounding explains (1 = just explained)."""
    return verdicts.evidence(mark.statistics)


def read(session: Session, job: Job, output: str, noun: str = "seed") -> SeedPlot | None:
    """The picture of a job's seeds for an output; None where it has no rows."""
    total = reads.mark_count(session, job.id, output)
    if not total:
        return None
    many = total > MAX_MARKS
    marks = reads.marks(session, job.id, output, WORST_MARKS if many else MAX_MARKS)
    metric = TOLERANCE_RATIO if any(mark.statistics.get(TOLERANCE_RATIO) is not None for mark in marks) else EVIDENCE
    found = reads.bands(session, job.id, output, TOLERANCE_RATIO if metric == TOLERANCE_RATIO else "budget_ratio", BANDS) if many else []
    return picture(output, metric, total, marks, found if metric == TOLERANCE_RATIO else [], noun)


def picture(
    output: str, metric: str, total: int, rows: Sequence[MarkRecord], bands: Sequence[BandRecord], noun: str = "seed"
) -> SeedPlot:
    """The picture from stored rows."""
    marks = tuple(_mark(row, metric) for row in rows)
    known = [mark for mark in marks if mark.explained is not None]
    beyond = [mark for mark in known if (mark.evidence or 0.0) > 1]
    limits = [mark.explained for mark in beyond or known if mark.explained is not None]
    limit = median(limits) if limits else None
    shown = tuple(SeedBand(band.first, band.last, band.seeds, band.low, band.high) for band in bands)
    summary = _summary(output, metric, words.count(total, noun), noun, marks, shown, limit)
    return SeedPlot(output, metric, total, marks, shown, limit, summary, noun)


def _mark(row: MarkRecord, metric: str) -> SeedMark:
    beyond = evidence(row)
    if metric == EVIDENCE:
        value, explained = beyond, None if beyond is None else 1.0
    else:
        value = row.statistics.get(TOLERANCE_RATIO)
        explained = value / beyond if value and beyond else None
    return SeedMark(row.seed, row.repeat, row.verdict, value, explained, row.statistics.get("budget_ratio"), beyond)


def _summary(
    output: str, metric: str, total: str, noun: str, marks: Sequence[SeedMark], bands: Sequence[SeedBand], limit: float | None
) -> str:
    """The picture in words, for readers who don't see it."""
    values = [mark.value for mark in marks if mark.value is not None] + [edge for band in bands for edge in (band.low, band.high)]
    if not values:
        return f"{total}, none with numbers."
    seeds = f"{output}: {total}"
    least, most = words.number(min(values)), words.number(max(values))
    spread = f"is {most}" if least == most else f"lies between {least} and {most}"
    if metric == EVIDENCE:
        return f"{seeds}. The error {spread} times what rounding explains (1 = just explained); there is no rtol and atol to compare with."
    text = f"{seeds}. The error {spread} times the declared tolerance (1 = where green turns red)."
    if limit is None:
        return text
    beyond = [mark.evidence for mark in marks if mark.evidence is not None]
    text += f" Rounding explains errors of this form up to {words.number(limit)}"
    if min(beyond) > 1:
        return f"{text}: every {noun} shown is beyond that, the worst {words.number(max(beyond))} times."
    if max(beyond) > 1:
        some = f"{sum(each > 1 for each in beyond):,} of {len(beyond):,} {noun}s shown are"
        return f"{text}: {some} beyond that, the worst {words.number(max(beyond))} times."
    return f"{text}: every {noun} shown is explained."
