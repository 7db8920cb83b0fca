"""The picture of a job's seeds: every error on one axis with the declared tolerance and what
rounding explains.

The axis is the tolerance ratio, so 1 is where green turns red. Every statistic that decides whether
an error is explained grows in proportion to the error; so an error of the same form as a seed's
would be explained if it were smaller by the seed's evidence (its largest statistic over that
statistic's limit). Ratio / evidence is therefore the seed's line of what rounding explains, on the
same axis, whichever statistic found it. Between that line and 1 lies the gap in which a wrong
kernel is green.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy.orm import Session

from gonogo.spec import verdicts
from gonogo_dashboards.charts import spreads
from gonogo_dashboards.charts.spreads import Spread
from gonogo_dashboards.kit import words
from gonogo_storage.jobs import job_seeds as reads
from gonogo_storage.jobs.job import Job
from gonogo_storage.jobs.job_seeds import MarkRecord, OutputRecord, RollUp
from gonogo_storage.seeds.seed_order import SeedOrder

MAX_MARKS = 5_000
"""More marks than this are never sent to a browser: above it, the spread of all and the worst
points."""

WORST_MARKS = 400
"""Of more than gonogo_storage.jobs.job_seeds.MAX_WHOLE seeds so many are marks, beside the spread of
all: more would be a smear, and take as long."""

TOLERANCE_RATIO = "tolerance_ratio"
EVIDENCE = "evidence"


@dataclass(frozen=True)
class SeedMark:
    """One seed: its value on the axis (None: it has none, as it hung or gave NaN), and up to which
    value rounding would explain it.
    """

    seed: int
    repeat: int
    verdict: str
    value: float | None
    explained: float | None
    budget_ratio: float | None
    evidence: float | None


@dataclass(frozen=True)
class SeedPlot:
    """A job's seeds for one output. `metric` is what `value` is: tolerance_ratio, or evidence where
    no tolerance is declared.

    `limit` is where rounding ends on that axis: the median over the marks beyond it, if there are
    none over all (None: unknown). `total` counts all seeds, shown or not. `whole`: each of them is
    a mark, else the worst of each verdict are; then `spread` is that of all values (None where the
    axis is the evidence, which is known of marks only), from seed `first` to seed `last`.
    """

    output: str
    metric: str
    total: int
    marks: tuple[SeedMark, ...]
    whole: bool
    first: int
    last: int
    spread: Spread | None
    limit: float | None
    summary: str
    noun: str = "seed"
    """What a mark is: a seed, or an iteration of tests that exist already."""

    @property
    def numbered(self) -> bool:
        """Whether there is a number to draw: seeds that all hung or crashed have none."""
        return self.spread is not None or any(mark.value is not None for mark in self.marks)


def choose(outputs: Sequence[OutputRecord], wanted: str | None) -> str:
    """The wanted output if the job has it, else the one with the worst verdict, then the largest
    budget ratio; "" for none.
    """
    names = [each.output for each in outputs]
    if wanted in names:
        return str(wanted)
    worst = worst_first(outputs)
    return worst[0].output if worst else ""


def worst_first(outputs: Sequence[OutputRecord]) -> list[OutputRecord]:
    """By the worst verdict, then the largest budget ratio, then the name."""
    order = {
        verdict: rank
        for rank, verdict in enumerate(
            words.ordered({word for each in outputs for word in each.counts})
        )
    }
    return sorted(
        outputs,
        key=lambda each: (
            min(order[word] for word in each.counts),
            -(each.budget_ratio or 0.0),
            each.output,
        ),
    )


def evidence(mark: MarkRecord) -> float | None:
    """How far one output of a seed is beyond what rounding explains (1 = just explained)."""
    return verdicts.evidence(mark.statistics)


def read(
    session: Session, job: Job, output: str, told: RollUp, noun: str = "seed"
) -> SeedPlot | None:
    """The picture of a job's seeds for an output, from its roll-up (None: not counted yet) and its
    rows; None where it has none.
    """
    total = reads.mark_count(session, job.id, output, told)
    if not total:
        return None
    sums = None if told is None else told.get(output)
    most = WORST_MARKS if total > reads.MAX_WHOLE else None
    sketch = None if sums is None else sums.sketch(TOLERANCE_RATIO)
    marks: list[MarkRecord] = []
    if sketch is None or sketch.count:
        marks = reads.marks(session, job, output, TOLERANCE_RATIO, told, most)
    if any(mark.statistics.get(TOLERANCE_RATIO) is not None for mark in marks):
        spread = None if most is None or sketch is None else spreads.of(sketch)
        return picture(output, TOLERANCE_RATIO, total, marks, spread, noun, ends=_ends(job))
    if most is not None or not marks:  # all of them are the same whatever the axis
        marks = reads.marks(session, job, output, "budget_ratio", told, most)
    return picture(output, EVIDENCE, total, marks, None, noun, ends=_ends(job))


def _ends(job: Job) -> tuple[int, int]:
    """The first and the last seed of the job that may have come back: they do in about their
    order.
    """
    order = SeedOrder.of(job.request, job.suspects)
    return order.at(0)[0], order.at(max(0, min(len(order), job.done) - 1))[0]


def picture(
    output: str,
    metric: str,
    total: int,
    rows: Sequence[MarkRecord],
    spread: Spread | None = None,
    noun: str = "seed",
    ends: tuple[int, int] | None = None,
) -> SeedPlot:
    """The picture from stored rows."""
    marks = tuple(_mark(row, metric) for row in rows)
    known = [mark for mark in marks if mark.explained is not None]
    beyond = [mark for mark in known if (mark.evidence or 0.0) > 1]
    limits = [mark.explained for mark in beyond or known if mark.explained is not None]
    limit = median(limits) if limits else None
    seeds = [mark.seed for mark in marks] + ([] if spread is None else [*(ends or ())])
    whole = len(marks) >= total
    summary = _summary(output, metric, words.count(total, noun), noun, marks, spread, limit)
    if not whole:
        summary += _left_out(len(marks), noun, spread)
    return SeedPlot(
        output, metric, total, marks, whole, min(seeds), max(seeds), spread, limit, summary, noun
    )


def _mark(row: MarkRecord, metric: str) -> SeedMark:
    beyond = evidence(row)
    if metric == EVIDENCE:
        value, explained = beyond, None if beyond is None else 1.0
    else:
        value = row.statistics.get(TOLERANCE_RATIO)
        explained = value / beyond if value and beyond else None
    return SeedMark(
        row.seed,
        row.repeat,
        row.verdict,
        value,
        explained,
        row.statistics.get("budget_ratio"),
        beyond,
    )


def _summary(
    output: str,
    metric: str,
    total: str,
    noun: str,
    marks: Sequence[SeedMark],
    spread: Spread | None,
    limit: float | None,
) -> str:
    """The picture in words, for readers who don't see it."""
    values = [mark.value for mark in marks if mark.value is not None]
    values += (
        [] if spread is None else [edge for edge in (spread.low, spread.high) if edge is not None]
    )
    if not values:
        return f"{total}, none with numbers."
    seeds = f"{output}: {total}"
    least, most = words.number(min(values)), words.number(max(values))
    lies = f"is {most}" if least == most else f"lies between {least} and {most}"
    if metric == EVIDENCE:
        return f"{seeds}. The error {lies} times what rounding explains (1 = just explained); there is no rtol and atol to compare with."
    text = f"{seeds}. The error {lies} times the declared tolerance (1 = where green turns red)."
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


def _left_out(shown: int, noun: str, spread: Spread | None) -> str:
    """What stands for the seeds that are no marks."""
    said = f" The {shown:,} marks are the worst {noun}s of each verdict, each verdict's share"
    if spread is None:
        return f"{said}."
    return f"{said}; the bar is the range of all, darker from the 10th to the 90th percentile, with a line at the median."
