"""The strip plot of a test as the page has it (tests/strip.py reads it), and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_dashboards.charts.plots import TOLERANCE_RATIO
from gonogo_dashboards.charts.spreads import finite
from gonogo_dashboards.kit import comparators_view, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.list_rows import Count
from gonogo_service.results.worst import Mark, Spread

HALF = 0.43
"""Half the width of a column; the next one begins at .5."""
_MIN_SHARE = 0.3
"""Smallest part of a column's width for the smaller group of seeds, explained or unexplained."""


@dataclass(frozen=True)
class StripMark:
    """One seed: its place (0, 1, ... are the columns' centers), and its value on the axis.

    None: it has no value, because it hung or gave NaN.
    """

    x: float
    job: str
    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    value: float | None
    decided: str | None
    """The comparators that decided; None where allclose is the only one."""

    @property
    def key(self) -> tuple[str, int, int]:
        """Return its job, seed and repeat."""
        return self.job, self.seed, self.repeat

    @property
    def is_beyond(self) -> bool:
        """Return whether rounding doesn't explain the error, so that it stands on the right.

        A seed without numbers counts as explained.
        """
        return self.explanation in (Explanation.suspect, Explanation.unexplained)


@dataclass(frozen=True)
class StripBand:
    """The seeds of one form on a build: their place, and the largest allowed error of that form.

    None: not known.
    """

    column: int
    left: float
    right: float
    beyond: bool
    """True where rounding doesn't explain them."""
    shown: int
    rounding: float | None = None
    """The largest error that rounding may make: the median of a few seeds."""
    declared: float | None = None
    advised: float | None = None


@dataclass(frozen=True)
class StripColumn(Spread):
    """A build, and the spread of the errors of all its seeds, shown or not."""

    build: str
    url: str
    seeds: int
    shown: int
    counts: tuple[Count, ...]


@dataclass(frozen=True)
class StripWorst:
    """One of the worst seeds."""

    mark: StripMark
    rounding_ratio: float | None


@dataclass(frozen=True)
class Strip:
    """The chart of an output; `metric` is the unit of `value`.

    `whole`: every seed is a mark; else only the worst of each verdict are.
    """

    output: str
    metric: str
    noun: str
    total: int
    whole: bool
    older: int
    """Builds before the first column, which are not shown."""
    columns: tuple[StripColumn, ...]
    marks: tuple[StripMark, ...]
    bands: tuple[StripBand, ...]
    worst: tuple[StripWorst, ...]
    events: tuple[AxisEvent, ...] = ()

    @property
    def summary(self) -> str:
        """Return the chart in words, for readers who don't see it."""
        edges = [edge for column in self.columns for edge in (column.low, column.high)]
        values = [edge for edge in edges if edge is not None]
        ratio = self.metric == TOLERANCE_RATIO
        declared = "the declared tolerance (1 = where green turns red)"
        of = declared if ratio else "the largest by rounding"
        shown = len(self.columns)
        builds = words.count(shown, "build")
        builds += f", the newest of {shown + self.older}" if self.older else ""
        text = f"{self.output}: {words.count(self.total, self.noun)} on {builds}."
        if values:
            low, high = words.number(min(values)), words.number(max(values))
            between = f"is {high}" if low == high else f"lies between {low} and {high}"
            text += f" The error {between} times {of}."
        hollow = {
            self.columns[band.column].build: band.rounding
            for band in self.bands
            if band.beyond and _green(self.columns[band.column])
        }
        if hollow:
            builds_named = words.named(list(hollow), "build")
            limits = [limit for limit in hollow.values() if limit is not None]
            text += f" Hollow passes, green and not explained by rounding: {builds_named}"
            if limits:
                most = words.number(max(limits))
                text += f", where errors of this form are rounding up to {most}"
            text += "."
        else:
            text += " No green seed is unexplained."
        if not self.whole:
            text += (
                " The bars show the range of the seeds, darker from the 10th to the 90th percentile"
                f" of the newest. The {len(self.marks):,} marks are the worst {self.noun}s of each"
                " verdict, shared out between the builds."
            )
        return text

    @property
    def verdicts(self) -> set[str]:
        """Return the verdicts of the marks, which the key explains."""
        return {mark.verdict for mark in self.marks}

    @property
    def decides(self) -> bool:
        """Return whether the marks say which comparators decided."""
        return any(mark.decided is not None for mark in self.marks)

    def bands_of(self, column: int) -> list[StripBand]:
        """Return a column's bands."""
        return [band for band in self.bands if band.column == column]


def placed_of(
    column: int, seeds: Sequence[Mark], comparing: Tolerance | None = None
) -> tuple[list[StripMark], list[StripBand]]:
    """Return the marks and bands of a column: ordered by form, then by job and seed.

    comparing: the tolerance, where comparators besides allclose are part of it.
    """
    forms: dict[bool, list[StripMark]] = {}
    for seed in sorted(seeds, key=lambda seed: (seed.job, seed.seed, seed.repeat)):
        decided = comparators_view.decided(comparing, seed.statistics) if comparing else None
        value = finite(seed.value)
        about = seed.job, seed.seed, seed.repeat, seed.verdict, seed.explanation
        mark = StripMark(0.0, *about, value, decided)
        forms.setdefault(mark.is_beyond, []).append(mark)
    wrong = len(forms.get(True, ())) / max(1, len(seeds))
    share = min(max(wrong, _MIN_SHARE), 1 - _MIN_SHARE) if len(forms) > 1 else wrong
    left = column - HALF
    marks: list[StripMark] = []
    bands: list[StripBand] = []
    for form, group in sorted(forms.items()):
        right = left + 2 * HALF * (share if form else 1 - share)
        step = (right - left) / len(group)
        marks += [
            replace(mark, x=round(left + step * (place + 0.5), 4))
            for place, mark in enumerate(group)
        ]
        bands.append(StripBand(column, round(left, 4), round(right, 4), form, len(group)))
        left = right
    return marks, bands


def _green(column: StripColumn) -> bool:
    return any(count.verdict == Verdict.pass_by_tolerance for count in column.counts)
