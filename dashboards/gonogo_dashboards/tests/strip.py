"""The main chart of a test: every seed's error, a column per build in order.

The axis is the tolerance ratio, so 1 is where green turns red. Where no rtol and atol are declared
it is the rounding ratio. Lines are found as in dashboards/gonogo_dashboards/charts/plots.py. A
smaller error of a seed's form would be one that rounding may make, or within another tolerance: the
factor is in the seed's stored statistics. So value / factor is that line on this axis.

Explained and unexplained seeds have errors of different form: each build has a band for either,
left and right. With more than MAX_MARKS seeds a column shows the spread of the newest,
and the worst seeds of each verdict as marks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.comparators import beyond
from gonogo.spec import verdicts
from gonogo.spec.selections import is_selection
from gonogo.spec.tolerances import Tolerance, for_output
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_dashboards.charts.plots import ROUNDING_RATIO, TOLERANCE_RATIO
from gonogo_dashboards.charts.spreads import finite
from gonogo_dashboards.kit import comparators_view, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.list_rows import Count, counts
from gonogo_service.results import tallies
from gonogo_service.results import worst as reads
from gonogo_service.results.model import WHOLE, JobBlockRow
from gonogo_service.results.tallies import Tally
from gonogo_service.results.worst import METRICS, Mark, Spread, spread_of
from gonogo_service.tests.variants import JobFacts

MAX_COLUMNS = 32
"""A month of nights."""
MAX_MARKS = 1_500
"""Maximum seeds with a mark each: more would be a smear, and a page of more than 150 kB."""
WORST_MARKS = 480
"""Number of marks, besides the spread of all, where there are more than MAX_MARKS seeds."""
HALF = 0.43
"""Half the width of a column; the next one begins at .5."""
_MIN_SHARE = 0.3
"""Smallest part of a column's width for the smaller group of seeds, explained or unexplained."""
_MAX_SAMPLED = 3
"""Seeds of each form and build whose statistics give the lines: their median is used."""
MAX_NAMED = 12
MIN_SAMPLE = 60
"""Least newest seeds of a column whose quantiles are shown."""
CANDIDATES = 100
"""Seeds with the largest errors of the worst verdicts, among which the worst are looked for."""
Numbers = Mapping[tuple[str, int, int], Mapping[str, Any]]
"""(Job, seed, repeat) -> its statistics of the output."""
_RANK = {str(verdict): verdict.rank for verdict in verdicts.WORST_FIRST}


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
    rounding: float | None
    """The largest error that rounding may make: the median of up to _MAX_SAMPLED seeds."""
    declared: float | None
    advised: float | None


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

    build: str
    seed: int
    repeat: int
    verdict: str
    value: float | None
    rounding_ratio: float | None
    decided: str | None
    url: str


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
    summary: str
    events: tuple[AxisEvent, ...] = ()

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


def outputs(session: Session, jobs: Sequence[JobFacts]) -> list[str]:
    """Return the outputs with the worst verdict over the builds shown.

    None where nothing is counted yet.
    """
    columns, _ = _columns(jobs)
    of_outputs = JobBlockRow.output != WHOLE
    jobs_shown = [job.id for group in columns for job in group]
    ranks: dict[str, int] = {}
    for outputs_of_job in tallies.of_jobs(session, jobs_shown, of_outputs).values():
        for output, tally in outputs_of_job.items():
            worst = min(_RANK[verdict] for verdict in tally.counts)
            ranks[output] = min(worst, ranks.get(output, worst))
    return [output for output, rank in ranks.items() if rank == min(ranks.values())]


def read(
    session: Session,
    jobs: Sequence[JobFacts],
    output: str,
    test: Mapping[str, Any],
    advised: Mapping[str, Any],
    here: Mapping[str, str],
    events: Sequence[AxisEvent] = (),
) -> Strip | None:
    """Return the chart of these jobs of one variant, newest first; None where no seed has a number.

    test: its canonical form; advised: the tolerance that a gauge advises, in the form of a test's,
    {} for none; here: the variant as a page's query names it; events: the changes between builds.
    """
    columns, older = _columns(jobs)
    shown = [job for group in columns for job in group]
    total = sum(job.done for job in shown)
    selected = is_selection(test)
    declared = None if selected else for_output(test.get("tolerance", {}), output)
    close = selected or (declared is not None and declared.allclose is not None)
    whole = total <= MAX_MARKS
    comparing = declared if comparators_view.others(declared) else None
    more = comparators_view.READ if comparing else frozenset[str]()
    sums = {} if whole else reads.of_output(session, [job.id for job in shown], output)
    for metric in METRICS if selected else METRICS[:1] if close else METRICS[1:]:
        seeds = _seeds(session, columns, output, metric, None if whole else sums, more)
        if any(seed.value is not None for group in seeds for seed in group):
            break
    else:
        return None
    marks, bands = _placed(seeds, comparing)
    flat = [mark for group in marks for mark in group]
    candidates = sorted(flat, key=_largest)[:CANDIDATES]
    sampled = [mark for band in bands for mark in _of_band(band, marks)]
    numbers = reads.statistics(session, _pairs([*sampled, *candidates]), output)
    allowed = {} if declared is None else declared.to_json()
    advised_of_output = for_output(advised, output) if advised else None
    lines = [
        _lined(
            band,
            marks,
            numbers,
            metric,
            allowed,
            {} if advised_of_output is None else advised_of_output.to_json(),
        )
        for band in bands
    ]
    of_any_build = urls.history(jobs[0].variant.test_key, here)
    columns_shown = [
        _column(session, group, marked, output, metric, sums, len(columns), of_any_build)
        for group, marked in zip(columns, seeds, strict=True)
    ]
    noun = "iteration" if selected else "seed"
    ordered = sorted(
        (_severity(mark, numbers), mark.job, mark.seed, mark.repeat, mark) for mark in candidates
    )
    worst = [
        _worst(mark, columns_shown[round(mark.x)].build, output, _numbers_of(mark, numbers))
        for *_, mark in ordered[:MAX_NAMED]
    ]
    strip = Strip(
        output=output,
        metric=metric,
        noun=noun,
        total=total,
        whole=whole,
        older=older,
        columns=tuple(columns_shown),
        marks=tuple(flat),
        bands=tuple(lines),
        worst=tuple(worst),
        summary="",
        events=_events(events, [column.build for column in columns_shown]),
    )
    return replace(strip, summary=summary(strip))


def _events(events: Sequence[AxisEvent], builds: Sequence[str]) -> tuple[AxisEvent, ...]:
    """Return the events of the columns, with their places."""
    places = {build: place for place, build in enumerate(builds)}
    return tuple(
        replace(event, place=places[event.name]) for event in events if event.name in places
    )


def _columns(jobs: Iterable[JobFacts]) -> tuple[list[list[JobFacts]], int]:
    """Return (the jobs of each build shown, in the branch's order; the number of older builds)."""
    groups: dict[tuple[int, str], list[JobFacts]] = {}
    for job in jobs:
        groups.setdefault((job.sequence, job.build), []).append(job)
    order = sorted(groups)
    newest = order[-MAX_COLUMNS:]
    return [groups[place] for place in newest], len(order) - len(newest)


def _seeds(
    session: Session,
    columns: Sequence[Sequence[JobFacts]],
    output: str,
    metric: str,
    sums: Mapping[str, Tally] | None,
    more: frozenset[str],
) -> list[list[Mark]]:
    """Return the seeds that are marks, by column: all of them, or the worst where `sums` is given.

    `sums` are the totals of too many seeds for marks, `more` further statistics to read.
    """
    by_column: list[list[Mark]] = [[] for _ in columns]
    place = {job.id: number for number, group in enumerate(columns) for job in group}
    if sums is None:
        rows = reads.marks(
            session, [job for group in columns for job in group], output, metric, more
        )
    else:
        rows = reads.worst_marks(session, columns, output, metric, WORST_MARKS, sums, more)
    for row in rows:
        by_column[place[row.job]].append(row)
    return by_column


def _placed(
    columns: Sequence[Sequence[Mark]], comparing: Tolerance | None = None
) -> tuple[list[list[StripMark]], list[StripBand]]:
    """Return the place of each seed: ordered by form, then by job and seed.

    comparing: the tolerance, where comparators besides allclose are part of it.
    """
    marks: list[list[StripMark]] = []
    bands: list[StripBand] = []
    for number, seeds in enumerate(columns):
        forms: dict[bool, list[Mark]] = {}
        for seed in sorted(seeds, key=lambda seed: (seed.job, seed.seed, seed.repeat)):
            forms.setdefault(_beyond(seed), []).append(seed)
        wrong = len(forms.get(True, ())) / max(1, len(seeds))
        share = min(max(wrong, _MIN_SHARE), 1 - _MIN_SHARE) if len(forms) > 1 else wrong
        left = number - HALF
        placed: list[StripMark] = []
        for form in sorted(forms):
            group = forms[form]
            right = left + 2 * HALF * (share if form else 1 - share)
            for place, seed in enumerate(group):
                x = left + (right - left) * (place + 0.5) / len(group)
                placed.append(
                    StripMark(
                        round(x, 4),
                        seed.job,
                        seed.seed,
                        seed.repeat,
                        seed.verdict,
                        seed.explanation,
                        finite(seed.value),
                        comparators_view.decided(comparing, seed.statistics) if comparing else None,
                    )
                )
            bands.append(
                StripBand(
                    number, round(left, 4), round(right, 4), form, len(group), None, None, None
                )
            )
            left = right
        marks.append(placed)
    return marks, bands


def _of_band(band: StripBand, marks: Sequence[Sequence[StripMark]]) -> list[StripMark]:
    """Return up to _MAX_SAMPLED seeds of a band with numbers, spread evenly over it."""
    numbered = [
        mark for mark in marks[band.column] if band.left <= mark.x <= band.right and mark.value
    ]
    return [
        numbered[place * len(numbered) // min(_MAX_SAMPLED, len(numbered))]
        for place in range(min(_MAX_SAMPLED, len(numbered)))
    ]


def _pairs(marks: Sequence[StripMark]) -> dict[str, list[tuple[int, int]]]:
    pairs: dict[str, list[tuple[int, int]]] = {}
    for mark in marks:
        pairs.setdefault(mark.job, []).append((mark.seed, mark.repeat))
    return pairs


def _lined(
    band: StripBand,
    marks: Sequence[Sequence[StripMark]],
    numbers: Numbers,
    metric: str,
    declared: Mapping[str, float],
    advised: Mapping[str, float],
) -> StripBand:
    """Return the band with its lines: the median over the statistics of a few of its seeds."""
    lines: dict[str, list[float]] = {"rounding": [], "declared": [], "advised": []}
    for mark in _of_band(band, marks):
        statistics = numbers.get((mark.job, mark.seed, mark.repeat))
        if statistics is None or not mark.value:
            continue
        factors = {
            "rounding": statistics.get(ROUNDING_RATIO),
            "declared": beyond(declared, statistics),
            "advised": beyond(advised, statistics),
        }
        for name, factor in factors.items():
            if factor and math.isfinite(factor):
                lines[name].append(mark.value / factor)
    medians = {
        name: float(f"{median(values):.4g}") if values else None for name, values in lines.items()
    }
    if metric == TOLERANCE_RATIO:
        medians["declared"] = 1.0
    return StripBand(band.column, band.left, band.right, band.beyond, band.shown, **medians)


def _column(
    session: Session,
    jobs: Sequence[JobFacts],
    seeds: Sequence[Mark],
    output: str,
    metric: str,
    sums: Mapping[str, Tally],
    columns: int,
    of_any_build: str,
) -> StripColumn:
    """Return a build's column; `sums` are those of its jobs where only the worst seeds are marks.

    Then the quantiles are those of its newest seeds: NEWEST over all columns.
    """
    verdict_counts: Counter[str] = Counter()
    if sums:
        for job in jobs:
            verdict_counts.update(sums[job.id].counts if job.id in sums else {})
        most = max(MIN_SAMPLE, reads.NEWEST // columns)
        spread = reads.spread(session, jobs, output, metric, sums, most)
    else:
        verdict_counts.update(seed.verdict for seed in seeds)
        values = [seed.value for seed in seeds if seed.value is not None]
        spread = spread_of(values, unnumbered=len(seeds) - len(values))
    return StripColumn(
        build=jobs[0].build,
        url=of_any_build + urls.further("build", jobs[0].build),
        seeds=sum(job.done for job in jobs),
        shown=len(seeds),
        counts=counts(verdict_counts, max(1, verdict_counts.total())),
        **vars(spread),
    )


def _beyond(seed: Mark) -> bool:
    """Return whether rounding doesn't explain the error, so that the seed stands on the right.

    A seed without numbers counts as explained.
    """
    return seed.explanation in (Explanation.suspect, Explanation.unexplained)


def _largest(mark: StripMark) -> tuple[Any, ...]:
    """Return the sort key of the candidates for the worst: verdict, then the value shown."""
    return (
        _RANK.get(mark.verdict, len(_RANK)),
        -(math.inf if mark.value is None else mark.value),
        mark.job,
        mark.seed,
        mark.repeat,
    )


def _numbers_of(mark: StripMark, numbers: Numbers) -> Mapping[str, Any]:
    return numbers.get((mark.job, mark.seed, mark.repeat), {})


def _severity(mark: StripMark, numbers: Numbers) -> tuple[int, float]:
    """Return the place of a seed among the worst, as on its job's page."""
    of_mark = _numbers_of(mark, numbers)
    output = {"verdict": mark.verdict, **of_mark}
    return verdicts.severity(mark.verdict, {"": output} if of_mark else {})


def _worst(mark: StripMark, build: str, output: str, numbers: Mapping[str, Any]) -> StripWorst:
    url = urls.job(mark.job, output=output, seed=(mark.seed, mark.repeat))
    ratio = numbers.get(ROUNDING_RATIO)
    return StripWorst(
        build, mark.seed, mark.repeat, mark.verdict, mark.value, ratio, mark.decided, url
    )


def summary(strip: Strip) -> str:
    """Return the chart in words, for readers who don't see it."""
    values = [
        edge for column in strip.columns for edge in (column.low, column.high) if edge is not None
    ]
    of = (
        "the declared tolerance (1 = where green turns red)"
        if strip.metric == TOLERANCE_RATIO
        else "the largest by rounding"
    )
    builds = words.count(len(strip.columns), "build") + (
        f", the newest of {len(strip.columns) + strip.older}" if strip.older else ""
    )
    text = f"{strip.output}: {words.count(strip.total, strip.noun)} on {builds}."
    if values:
        low, high = words.number(min(values)), words.number(max(values))
        text += f" The error {f'is {high}' if low == high else f'lies between {low} and {high}'}"
        text += f" times {of}."
    hollow = [
        (column, band)
        for band in strip.bands
        if band.beyond and _green(column := strip.columns[band.column])
    ]
    if hollow:
        names = [words.brief(column.build) for column, _ in hollow]
        some = f" and {len(names) - 4} more" if len(names) > 4 else ""
        text += " Hollow passes, green and not explained by rounding:"
        text += f" {words.count(len(names), 'build')} ({', '.join(names[:4])}{some})"
        limits = [band.rounding for _, band in hollow if band.rounding is not None]
        text += (
            f", where errors of this form are rounding up to {words.number(max(limits))}."
            if limits
            else "."
        )
    else:
        text += " No green seed is unexplained."
    if not strip.whole:
        text += (
            " The bars show the range of the seeds, darker from the 10th to the 90th percentile of"
            " the newest."
        )
        text += f" The {len(strip.marks):,} marks are the worst {strip.noun}s of each verdict,"
        text += " shared out between the builds."
    return text


def _green(column: StripColumn) -> bool:
    return any(count.verdict == Verdict.pass_by_tolerance for count in column.counts)
