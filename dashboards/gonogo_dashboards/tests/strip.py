"""The central picture of a test: every seed's error, a column per build in order, against the
tolerance and what rounding explains.

The axis is the tolerance ratio, so 1 is where green turns red; where no rtol and atol are declared
it is error ÷ budget. Lines are found as in dashboards/gonogo_dashboards/charts/plots.py: an error of a
seed's form would be explained, or within another tolerance, if it were smaller by a factor that its
stored statistics tell; so value / factor is that line on this axis. Seeds that are explained and
seeds that are not have errors of different form: each build has a band for either, left and right.
With more than MAX_MARKS seeds a column shows the spread of all of them, from the roll-ups, and the
worst of each verdict as marks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.sketches import Sketch
from gonogo.gauge.comparators import beyond
from gonogo.spec import verdicts
from gonogo.spec.selections import is_selection
from gonogo.spec.tolerances import for_output
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_dashboards.charts import spreads
from gonogo_dashboards.charts.plots import MAX_MARKS, TOLERANCE_RATIO
from gonogo_dashboards.charts.spreads import Spread, finite
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import Count, counts
from gonogo_storage.rollups.variants import JobFacts
from gonogo_storage.seeds import strips as reads
from gonogo_storage.seeds.strips import StripSeed, Sums

MAX_COLUMNS = 32
"""A month of nights."""
WORST_MARKS = 480
"""Of more than MAX_MARKS seeds so many are marks, beside the spread of all."""
HALF = 0.43
"""Half the width of a column; the next one begins at .5."""
_MIN_SHARE = 0.3
"""Of a column's width, for the few seeds that are explained, or that are not, beside the many."""
_ASKED = 3
"""Seeds of each form and build whose statistics say where the lines are: the median of so many."""
MAX_NAMED = 12
_RANK = {str(verdict): verdict.rank for verdict in verdicts.WORST_FIRST}


@dataclass(frozen=True)
class StripMark:
    """One seed: where it stands (0, 1, ... are the columns' middles), and its value on the axis;
    None: it has none, it hung or gave NaN.
    """

    x: float
    job: str
    seed: int
    repeat: int
    verdict: str
    explanation: str | None
    value: float | None


@dataclass(frozen=True)
class StripBand:
    """The seeds of one form on a build: from where to where they stand, and how large an error of
    that form may be (None: not known).
    """

    column: int
    left: float
    right: float
    beyond: bool
    """Whether rounding does not explain them."""
    shown: int
    explained: float | None
    """By what rounding explains."""
    declared: float | None
    advised: float | None


@dataclass(frozen=True)
class StripColumn(Spread):
    """A build, and how far the errors of all its seeds spread, shown or not."""

    build: str
    url: str
    seeds: int
    shown: int
    counts: tuple[Count, ...]


@dataclass(frozen=True)
class StripWorst:
    """One of the worst seeds, with its evidence."""

    build: str
    seed: int
    repeat: int
    verdict: str
    value: float | None
    url: str


@dataclass(frozen=True)
class Strip:
    """The picture of an output. `metric` is what `value` is; `whole`: every seed is a mark, else
    the worst of each verdict are.
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

    @property
    def verdicts(self) -> set[str]:
        """Those that marks have: what the key explains."""
        return {mark.verdict for mark in self.marks}

    def bands_of(self, column: int) -> list[StripBand]:
        """A column's bands."""
        return [band for band in self.bands if band.column == column]


def outputs(session: Session, jobs: Sequence[JobFacts]) -> list[str]:
    """The outputs with the worst verdict over the builds that are shown: those that a reader must
    see first; none where nothing is counted yet.
    """
    columns, _ = _columns(jobs)
    found = reads.outputs(session, [job.id for group in columns for job in group])
    ranks = {
        output: min((_RANK.get(verdict, len(_RANK)) for verdict in told), default=len(_RANK))
        for output, told in found.items()
    }
    return [output for output, rank in ranks.items() if rank == min(ranks.values())]


def read(
    session: Session,
    jobs: Sequence[JobFacts],
    output: str,
    test: Mapping[str, Any],
    advised: Mapping[str, Any],
    here: Mapping[str, str],
) -> Strip | None:
    """The picture of these jobs of one variant, newest first; None where no seed has a number.

    test: its canonical form; advised: the tolerance that a gauge advises, in the form of a test's,
    {} for none; here: the variant as the query of a page names it.
    """
    columns, older = _columns(jobs)
    shown = [job for group in columns for job in group]
    total = sum(job.done for job in shown)
    selected = is_selection(test)
    declared = None if selected else for_output(test.get("tolerance", {}), output)
    close = selected or (declared is not None and declared.allclose is not None)
    whole = total <= MAX_MARKS
    for metric in (
        (TOLERANCE_RATIO, "budget_ratio")
        if selected
        else (TOLERANCE_RATIO,)
        if close
        else ("budget_ratio",)
    ):
        told = {} if whole else reads.sums(session, [job.id for job in shown], output, metric)
        seeds = _seeds(session, columns, output, metric, None if whole else told)
        if any(seed.value is not None for group in seeds for seed in group):
            break
    else:
        return None
    marks, bands = _placed(seeds)
    numbers = reads.statistics(session, _asked(marks, bands), output)
    allowed = {} if declared is None else declared.to_json()
    asked = for_output(advised, output) if advised else None
    lines = [
        _lined(band, marks, numbers, metric, allowed, {} if asked is None else asked.to_json())
        for band in bands
    ]
    of_any_build = urls.history(jobs[0].variant.test_key, here)
    made = [
        _column(group, own, told, whole, of_any_build)
        for group, own in zip(columns, seeds, strict=True)
    ]
    flat = [mark for group in marks for mark in group]
    noun = "iteration" if selected else "seed"
    worst = [
        _worst(mark, made[round(mark.x)].build, output)
        for mark in sorted(flat, key=_severity)[:MAX_NAMED]
    ]
    strip = Strip(
        output=output,
        metric=metric,
        noun=noun,
        total=total,
        whole=whole,
        older=older,
        columns=tuple(made),
        marks=tuple(flat),
        bands=tuple(lines),
        worst=tuple(worst),
        summary="",
    )
    return replace(strip, summary=summary(strip))


def _columns(jobs: Iterable[JobFacts]) -> tuple[list[list[JobFacts]], int]:
    """(The jobs of each build that is shown, in the order of the line; how many older builds there
    are).
    """
    groups: dict[tuple[int, str], list[JobFacts]] = {}
    for job in jobs:
        groups.setdefault((job.sequence, job.build), []).append(job)
    order = sorted(groups)
    kept = order[-MAX_COLUMNS:]
    return [groups[place] for place in kept], len(order) - len(kept)


def _seeds(
    session: Session,
    columns: Sequence[Sequence[JobFacts]],
    output: str,
    metric: str,
    told: Mapping[str, Sums] | None,
) -> list[list[StripSeed]]:
    """The seeds that are marks, by column: all, or where `told` are the sums of too many the
    worst.
    """
    found: list[list[StripSeed]] = [[] for _ in columns]
    place = {job.id: number for number, group in enumerate(columns) for job in group}
    if told is None:
        rows = reads.marks(session, [job for group in columns for job in group], output, metric)
    else:
        rows = reads.worst(session, columns, output, metric, WORST_MARKS, told)
    for row in rows:
        found[place[row.job]].append(row)
    return found


def _placed(
    columns: Sequence[Sequence[StripSeed]],
) -> tuple[list[list[StripMark]], list[StripBand]]:
    """Where each seed stands: by form, in each by job and seed."""
    marks: list[list[StripMark]] = []
    bands: list[StripBand] = []
    for number, seeds in enumerate(columns):
        forms: dict[bool, list[StripSeed]] = {}
        for seed in sorted(seeds, key=lambda each: (each.job, each.seed, each.repeat)):
            forms.setdefault(_beyond(seed), []).append(seed)
        wrong = len(forms.get(True, ())) / max(1, len(seeds))
        share = min(max(wrong, _MIN_SHARE), 1 - _MIN_SHARE) if len(forms) > 1 else wrong
        left = number - HALF
        own: list[StripMark] = []
        for form in sorted(forms):
            group = forms[form]
            right = left + 2 * HALF * (share if form else 1 - share)
            for place, seed in enumerate(group):
                x = left + (right - left) * (place + 0.5) / len(group)
                own.append(
                    StripMark(
                        round(x, 4),
                        seed.job,
                        seed.seed,
                        seed.repeat,
                        seed.verdict,
                        seed.explanation,
                        finite(seed.value),
                    )
                )
            bands.append(
                StripBand(
                    number, round(left, 4), round(right, 4), form, len(group), None, None, None
                )
            )
            left = right
        marks.append(own)
    return marks, bands


def _of_band(band: StripBand, marks: Sequence[Sequence[StripMark]]) -> list[StripMark]:
    """So many of a band's seeds with numbers, spread evenly over them."""
    own = [mark for mark in marks[band.column] if band.left <= mark.x <= band.right and mark.value]
    return [
        own[place * len(own) // min(_ASKED, len(own))] for place in range(min(_ASKED, len(own)))
    ]


def _asked(
    marks: Sequence[Sequence[StripMark]], bands: Sequence[StripBand]
) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for band in bands:
        for mark in _of_band(band, marks):
            found.setdefault(mark.job, []).append((mark.seed, mark.repeat))
    return found


def _lined(
    band: StripBand, marks: Sequence[Sequence[StripMark]], numbers: Mapping[tuple[str, int, int], Mapping[str, Any]], metric: str,
    declared: Mapping[str, float], advised: Mapping[str, float],
) -> StripBand:  # fmt: skip
    """The band with its lines: what the statistics of a few of its seeds say, the median of
    them.
    """
    lines: dict[str, list[float]] = {"explained": [], "declared": [], "advised": []}
    for mark in _of_band(band, marks):
        told = numbers.get((mark.job, mark.seed, mark.repeat))
        if told is None or not mark.value:
            continue
        factors = {
            "explained": verdicts.evidence(told),
            "declared": beyond(declared, told),
            "advised": beyond(advised, told),
        }
        for name, factor in factors.items():
            if factor and math.isfinite(factor):
                lines[name].append(mark.value / factor)
    found = {
        name: float(f"{median(values):.4g}") if values else None for name, values in lines.items()
    }
    if metric == TOLERANCE_RATIO:
        found["declared"] = 1.0
    return StripBand(band.column, band.left, band.right, band.beyond, band.shown, **found)


def _column(
    jobs: Sequence[JobFacts],
    seeds: Sequence[StripSeed],
    told: Mapping[str, Sums],
    whole: bool,
    of_any_build: str,
) -> StripColumn:
    found = (
        _own_sums(seeds)
        if whole
        else reads.together([told[job.id] for job in jobs if job.id in told])
    )
    return StripColumn(
        build=jobs[0].build,
        url=of_any_build + urls.further("build", jobs[0].build),
        seeds=sum(job.done for job in jobs),
        shown=len(seeds),
        counts=counts(found.counts, max(1, sum(found.counts.values()))),
        **vars(spreads.of(found.sketch)),
    )


def _own_sums(seeds: Sequence[StripSeed]) -> Sums:
    told: dict[str, int] = {}
    for seed in seeds:
        told[seed.verdict] = told.get(seed.verdict, 0) + 1
    return Sums(told, Sketch.of(seed.value for seed in seeds))


def _beyond(seed: StripSeed) -> bool:
    """Whether rounding doesn't explain it: those stand on the right. A seed without numbers says
    nothing.
    """
    return seed.explanation in (Explanation.suspect, Explanation.unexplained)


def _severity(mark: StripMark) -> tuple[Any, ...]:
    return (
        _RANK.get(mark.verdict, len(_RANK)),
        -(math.inf if mark.value is None else mark.value),
        mark.job,
        mark.seed,
        mark.repeat,
    )


def _worst(mark: StripMark, build: str, output: str) -> StripWorst:
    url = urls.job(mark.job, output=output, seed=(mark.seed, mark.repeat))
    return StripWorst(build, mark.seed, mark.repeat, mark.verdict, mark.value, url)


def summary(strip: Strip) -> str:
    """The picture in words, for readers who don't see it."""
    values = [
        edge for column in strip.columns for edge in (column.low, column.high) if edge is not None
    ]
    of = (
        "the declared tolerance (1 = where green turns red)"
        if strip.metric == TOLERANCE_RATIO
        else "its budget"
    )
    builds = words.count(len(strip.columns), "build") + (
        f", the newest of {len(strip.columns) + strip.older}" if strip.older else ""
    )
    said = f"{strip.output}: {words.count(strip.total, strip.noun)} on {builds}."
    if values:
        least, most = words.number(min(values)), words.number(max(values))
        said += f" The error {f'is {most}' if least == most else f'lies between {least} and {most}'} times {of}."
    hollow = [
        (column, band)
        for band in strip.bands
        if band.beyond and _green(column := strip.columns[band.column])
    ]
    if hollow:
        names = [words.brief(column.build) for column, _ in hollow]
        some = f" and {len(names) - 4} more" if len(names) > 4 else ""
        said += f" Green and not explained by rounding: {words.count(len(names), 'build')} ({', '.join(names[:4])}{some})"
        limits = [band.explained for _, band in hollow if band.explained is not None]
        said += f", where rounding explains up to {words.number(max(limits))}." if limits else "."
    else:
        said += " No green seed is beyond what rounding explains."
    if not strip.whole:
        said += f" The bars are the range of all, darker from the 10th to the 90th percentile; the {len(strip.marks):,} marks are"
        said += f" the worst {strip.noun}s of each verdict, each build's share."
    return said


def _green(column: StripColumn) -> bool:
    return any(each.verdict == Verdict.pass_by_tolerance for each in column.counts)
