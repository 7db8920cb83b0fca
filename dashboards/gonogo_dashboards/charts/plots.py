"""The chart of a job's seeds: every error with the declared tolerance and what rounding explains.

The axis is the tolerance ratio, so 1 is where green turns red. Every statistic that decides whether
an error is explained grows in proportion to the error. So an error of the same form as a seed's
would be explained if it were smaller by the seed's evidence: its largest statistic divided by that
statistic's limit. Ratio / evidence is therefore the seed's line of what rounding explains, on the
same axis, for every statistic. Between that line and 1 lies the gap in which a wrong kernel is
green.
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
from gonogo_storage.jobs.job_seeds import MarkRecord, OutputRecord
from gonogo_storage.seeds import worst_seeds
from gonogo_storage.seeds.seed_order import SeedOrder
from gonogo_storage.seeds.worst_seeds import RollUp

WORST_MARKS = 400
"""Number of marks, besides the spread of all, above worst_seeds.MAX_WHOLE seeds.

More marks would be a smear, and slow.
"""

TOLERANCE_RATIO = "tolerance_ratio"
EVIDENCE = "evidence"


@dataclass(frozen=True)
class SeedMark:
    """One seed: its value on the axis, and the value up to which rounding would explain it.

    None: it has no value, because it hung or gave NaN.
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
    """A job's seeds for one output.

    `metric` is the unit of `value`: tolerance_ratio, or evidence where no tolerance is declared.
    `limit` is where rounding ends on that axis: the median over the marks beyond it, or over all
    marks where none is (None: not known). `total` counts all seeds, shown or not. `whole`: each of
    them is a mark; else only the worst of each verdict are. `spread` is then the spread of all
    values, from seed `first` to seed `last`. It is None where the axis is the evidence, which is
    known of marks only.
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
    """The unit of a mark: "seed", or "iteration" of tests that exist already."""

    @property
    def numbered(self) -> bool:
        """Return whether there is a number to draw: seeds that all hung or crashed have none."""
        return self.spread is not None or any(mark.value is not None for mark in self.marks)


def choose(outputs: Sequence[OutputRecord], *requested: str | None) -> str:
    """Return the first requested output that the job has, else the worst; "" for no output."""
    names = [output.output for output in worst_first(outputs)]
    return next((str(name) for name in (*requested, *names) if name in names), "")


def worst_first(outputs: Sequence[OutputRecord]) -> list[OutputRecord]:
    """Sort outputs by the worst verdict, then the largest budget ratio, then the name."""
    order = {
        verdict: rank
        for rank, verdict in enumerate(
            words.ordered({word for output in outputs for word in output.counts})
        )
    }
    return sorted(
        outputs,
        key=lambda output: (
            min(order[word] for word in output.counts),
            -(output.budget_ratio or 0.0),
            output.output,
        ),
    )


def read(
    session: Session, job: Job, output: str, rolled_up: RollUp, noun: str = "seed"
) -> SeedPlot | None:
    """Return the chart of a job's seeds for an output, from its roll-up and its rows.

    A roll-up of None isn't counted yet. None where the output has no seeds.
    """
    total = reads.mark_count(session, job.id, output, rolled_up)
    if not total:
        return None
    sums = None if rolled_up is None else rolled_up.get(output)
    most = WORST_MARKS if total > worst_seeds.MAX_WHOLE else None
    sketch = None if sums is None else sums.sketch(TOLERANCE_RATIO)
    marks: list[MarkRecord] = []
    if sketch is None or sketch.count:
        marks = reads.marks(session, job, output, TOLERANCE_RATIO, rolled_up, most)
    if any(mark.statistics.get(TOLERANCE_RATIO) is not None for mark in marks):
        spread = None if most is None or sketch is None else spreads.of(sketch)
        return picture(output, TOLERANCE_RATIO, total, marks, spread, noun, ends=_ends(job))
    if most is not None or not marks:  # all of them are the same whatever the axis
        marks = reads.marks(session, job, output, "budget_ratio", rolled_up, most)
    return picture(output, EVIDENCE, total, marks, None, noun, ends=_ends(job))


def _ends(job: Job) -> tuple[int, int]:
    """Return the first and the last seed of the job that may have finished, about in order."""
    order = SeedOrder.of(job.seeds, job.repeats, job.added_seeds)
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
    """Return the chart from stored rows."""
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
    # Statistics of an output with NaN or Inf describe its finite elements only.
    if row.statistics.get("nonfinite"):
        return SeedMark(row.seed, row.repeat, row.verdict, None, None, None, None)
    beyond = verdicts.evidence(row.statistics)
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
    """Return the chart in words, for readers who don't see it."""
    values = [mark.value for mark in marks if mark.value is not None]
    values += (
        [] if spread is None else [edge for edge in (spread.low, spread.high) if edge is not None]
    )
    seeds = f"{output}: {total}"
    if not values:
        return (
            f"{seeds}, none with a finite error to draw. Where values are NaN or Inf, the table of"
            " the worst seeds shows the error of the finite ones."
        )
    low, high = words.number(min(values)), words.number(max(values))
    lies = f"is {high}" if low == high else f"lies between {low} and {high}"
    if metric == EVIDENCE:
        return (
            f"{seeds}. The error {lies} times what rounding explains (1 = just explained);"
            " there is no rtol and atol to compare with."
        )
    text = f"{seeds}. The error {lies} times the declared tolerance (1 = where green turns red)."
    if limit is None:
        return text
    beyond = [mark.evidence for mark in marks if mark.evidence is not None]
    text += f" Rounding explains errors of this form up to {words.number(limit)}"
    without = sum(mark.value is None for mark in marks)
    every = f"every {'other ' if without else ''}{noun}"
    rest = f" At the top: {words.count(without, noun)} without a finite number." if without else ""
    if min(beyond) > 1:
        worst = words.number(max(beyond))
        return f"{text}: {every} shown is beyond that, the worst {worst} times.{rest}"
    if max(beyond) > 1:
        some = f"{sum(value > 1 for value in beyond):,} of {len(beyond):,} {noun}s shown are"
        return f"{text}: {some} beyond that, the worst {words.number(max(beyond))} times.{rest}"
    return f"{text}: {every} shown is within that.{rest}"


def _left_out(shown: int, noun: str, spread: Spread | None) -> str:
    """Return a sentence about the seeds that have no mark."""
    text = f" The {shown:,} marks are the worst {noun}s of each verdict"
    if spread is None:
        return f"{text}."
    return (
        f"{text}. The bar shows the range of all {noun}s, darker from the 10th to the 90th"
        " percentile, with a line at the median."
    )
