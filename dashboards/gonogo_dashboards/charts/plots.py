"""The chart of a job's seeds: every error with the declared tolerance and the largest by rounding.

The axis is the tolerance ratio, so 1 is where green turns red. The rounding ratio is proportional
to the error, too: an error that is smaller by it is the largest that rounding may make. So
tolerance ratio / rounding ratio is the seed's line of rounding on the same axis. Between that line
and 1 lies the gap in which a wrong kernel is green. An error below the line may be unexplained all
the same, where it has a pattern: the verdict says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Explanation
from gonogo_dashboards.kit import words
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import worst
from gonogo_service.results.model import WHOLE
from gonogo_service.results.seed_order import SeedOrder
from gonogo_service.results.tallies import Tally
from gonogo_service.results.worst import Mark, Spread

WORST_MARKS = 400
"""Number of marks, besides the spread of all, above results.worst.MAX_WHOLE seeds.

More marks would be a smear, and slow.
"""

TOLERANCE_RATIO = "tolerance_ratio"
ROUNDING_RATIO = "rounding_ratio"


@dataclass(frozen=True)
class SeedMark:
    """One seed: its value on the axis, and the largest value that rounding may make.

    None: it has no value, because it hung or gave NaN.
    """

    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    value: float | None
    rounding: float | None
    rounding_ratio: float | None


@dataclass(frozen=True)
class SeedPlot:
    """A job's seeds for one output.

    `metric` is the unit of `value`: tolerance_ratio, or rounding_ratio where no tolerance is
    declared. `limit` is where rounding ends on that axis: the median over the unexplained marks, or
    over all marks where none is (None: not known). `total` counts all seeds, shown or not. `whole`:
    each of them is a mark; else only the worst of each verdict are. `spread` is then the spread of
    all values, from seed `first` to seed `last`.
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


def choose(outputs: Mapping[str, Tally], *requested: str | None) -> str:
    """Return the first requested output that the job has, else the worst; "" for no output."""
    names = worst_first(outputs)
    return next((str(name) for name in (*requested, *names) if name in names), "")


def worst_first(outputs: Mapping[str, Tally]) -> list[str]:
    """Sort outputs by the worst verdict, then the largest rounding ratio, then the name."""
    verdicts = words.ordered({word for tally in outputs.values() for word in tally.counts})
    order = {verdict: rank for rank, verdict in enumerate(verdicts)}

    def place(name: str) -> tuple[int, float, str]:
        tally = outputs[name]
        largest = tally.figure(ROUNDING_RATIO).largest
        return min(order[word] for word in tally.counts), -(largest or 0.0), name

    return sorted(outputs, key=place)


def read(
    session: Session, job: JobRow, output: str, sums: Mapping[str, Tally], noun: str = "seed"
) -> SeedPlot | None:
    """Return the chart of a job's seeds for an output, from the job's sums and its rows.

    None where the output has no seeds.
    """
    tally = sums.get(output, Tally()) if output else Tally()
    total = tally.seeds + sums.get(WHOLE, Tally()).empty
    if not total:
        return None
    numbered = tally.figure(TOLERANCE_RATIO).known or not tally.figure(ROUNDING_RATIO).known
    metric = TOLERANCE_RATIO if numbered else ROUNDING_RATIO
    if total <= worst.MAX_WHOLE:
        marks = worst.marks(session, [job], output, metric, None)
        spread = None
    else:
        of_job = {job.id: tally}
        marks = worst.worst_marks(session, [[job]], output, metric, WORST_MARKS, of_job, None)
        spread = worst.spread(session, [job], output, metric, of_job)
        spread = spread if spread.high is not None else None
    ordered = sorted(marks, key=lambda mark: (mark.seed, mark.repeat))
    return picture(output, metric, total, ordered, spread, noun, ends=_ends(job))


def _ends(job: JobRow) -> tuple[int, int]:
    """Return the first and the last seed of the job that may have finished, about in order."""
    order = SeedOrder.of(job.seeds, job.repeats, job.added_seeds)
    return order.at(0)[0], order.at(max(0, min(len(order), job.done) - 1))[0]


def picture(
    output: str,
    metric: str,
    total: int,
    rows: Sequence[Mark],
    spread: Spread | None = None,
    noun: str = "seed",
    ends: tuple[int, int] | None = None,
) -> SeedPlot:
    """Return the chart from stored rows."""
    marks = tuple(_mark(row, metric) for row in rows)
    known = [mark for mark in marks if mark.rounding is not None]
    wrong = [mark for mark in known if mark.explanation == Explanation.unexplained]
    limits = [mark.rounding for mark in wrong or known if mark.rounding is not None]
    limit = median(limits) if limits else None
    seeds = [mark.seed for mark in marks] + ([] if spread is None else [*(ends or ())])
    whole = len(marks) >= total
    summary = _summary(output, metric, words.count(total, noun), noun, marks, spread, limit)
    if not whole:
        summary += _left_out(len(marks), noun, spread)
    return SeedPlot(
        output, metric, total, marks, whole, min(seeds), max(seeds), spread, limit, summary, noun
    )


def _mark(row: Mark, metric: str) -> SeedMark:
    # Statistics of an output with NaN or Inf describe its finite elements only.
    numbers = {} if row.statistics.get("nonfinite") else row.statistics
    value, ratio = numbers.get(metric), numbers.get(ROUNDING_RATIO)
    rounding = value / ratio if value and ratio else None
    return SeedMark(row.seed, row.repeat, row.verdict, row.explanation, value, rounding, ratio)


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
    if not output:  # no seed gave any
        return f"{total}, none with an output: there is no error to draw."
    if not values:
        return (
            f"{seeds}, none with a finite error to draw. Where values are NaN or Inf, the table of"
            " the worst seeds shows the error of the finite ones."
        )
    low, high = words.number(min(values)), words.number(max(values))
    lies = f"is {high}" if low == high else f"lies between {low} and {high}"
    if metric == ROUNDING_RATIO:
        text = (
            f"{seeds}. The error {lies} times the largest by rounding: {_unexplained(marks, noun)}."
        )
        return f"{text} There is no rtol and atol to compare with."
    text = f"{seeds}. The error {lies} times the declared tolerance (1 = where green turns red)."
    if limit is None:
        return text
    text += f" Up to {words.number(limit)} an error of this form is rounding:"
    text += f" {_unexplained(marks, noun)}."
    without = sum(mark.value is None for mark in marks)
    return text + (
        f" At the top: {words.count(without, noun)} without a finite number." if without else ""
    )


def _unexplained(marks: Sequence[SeedMark], noun: str) -> str:
    """Return how many of the marks with numbers are unexplained, and how large these are."""
    known = [mark for mark in marks if mark.rounding_ratio is not None]
    wrong = [
        mark.rounding_ratio or 0.0 for mark in known if mark.explanation == Explanation.unexplained
    ]
    if not wrong:
        return f"no {noun} shown is unexplained"
    all_of = f"{len(wrong):,} of {words.count(len(known), noun)} shown"
    text = f"{all_of} {'is' if len(wrong) == 1 else 'are'} unexplained"
    text += f", the worst {words.number(max(wrong))} times as large"
    small = sum(ratio <= 1 for ratio in wrong)
    if small:
        text += f"; {small:,} {'is' if small == 1 else 'are'} no larger than that, in a pattern"
        text += " that rounding never has"
    return text


def _left_out(shown: int, noun: str, spread: Spread | None) -> str:
    """Return a sentence about the seeds that have no mark."""
    text = f" The {shown:,} marks are the worst {noun}s of each verdict"
    if spread is None:
        return f"{text}."
    return (
        f"{text}. The bar shows the range of the {noun}s, darker from the 10th to the 90th"
        f" percentile of the newest {worst.NEWEST:,}, with a line at the median."
    )
