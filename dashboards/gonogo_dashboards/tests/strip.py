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
from dataclasses import replace
from statistics import median
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.comparators import beyond
from gonogo.spec import verdicts
from gonogo.spec.selections import is_selection
from gonogo.spec.tolerances import for_output
from gonogo_dashboards.charts.plots import ROUNDING_RATIO, TOLERANCE_RATIO
from gonogo_dashboards.kit import comparators_view
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.list_rows import counts
from gonogo_dashboards.tests.strip_view import (
    Strip,
    StripBand,
    StripColumn,
    StripMark,
    StripWorst,
    placed_of,
)
from gonogo_service.results import tallies
from gonogo_service.results import worst as reads
from gonogo_service.results.model import WHOLE, JobBlockRow
from gonogo_service.results.tallies import Tally
from gonogo_service.results.worst import METRICS, Mark, spread_of
from gonogo_service.tests.build_series import by_place
from gonogo_service.tests.variants import JobFacts

MAX_COLUMNS = 32
"""A month of nights."""
MAX_MARKS = 1_500
"""Maximum seeds with a mark each: more would be a smear, and a page of more than 150 kB."""
WORST_MARKS = 480
"""Number of marks, besides the spread of all, where there are more than MAX_MARKS seeds."""
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


def outputs(session: Session, jobs: Sequence[JobFacts]) -> list[str]:
    """Return the outputs with the worst verdict over the builds shown."""
    ids = [job.id for of_build in _columns(jobs)[-MAX_COLUMNS:] for job in of_build]
    ranks: dict[str, int] = {}
    for of_job in tallies.of_jobs(session, ids, JobBlockRow.output != WHOLE).values():
        for output, tally in of_job.items():
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
    every = _columns(jobs)
    columns = every[-MAX_COLUMNS:]
    shown = [job for of_build in columns for job in of_build]
    total = sum(job.done for job in shown)
    selected, whole = is_selection(test), total <= MAX_MARKS
    declared = None if selected else for_output(test.get("tolerance", {}), output)
    close = selected or (declared is not None and declared.allclose is not None)
    comparing = declared if comparators_view.others(declared) else None
    more = comparators_view.READ if comparing else frozenset[str]()
    sums = {} if whole else reads.of_output(session, [job.id for job in shown], output)
    for metric in METRICS if selected else METRICS[:1] if close else METRICS[1:]:
        of_metric = output, metric
        if whole:
            plotted = reads.marks(session, shown, *of_metric, more)
        else:
            plotted = reads.worst_marks(session, columns, *of_metric, WORST_MARKS, sums, more)
        if any(seed.value is not None for seed in plotted):
            break
    else:
        return None
    place = {job.id: number for number, of_build in enumerate(columns) for job in of_build}
    seeds: list[list[Mark]] = [[] for _ in columns]
    for seed in plotted:
        seeds[place[seed.job]].append(seed)
    placed = [placed_of(number, some, comparing) for number, some in enumerate(seeds)]
    marks = [mark for of_column, _ in placed for mark in of_column]
    samples = [(band, _sampled(band, of_column)) for of_column, bands in placed for band in bands]
    candidates = sorted(marks, key=_largest)[:CANDIDATES]
    chosen: dict[str, list[tuple[int, int]]] = {}
    for mark in (*candidates, *(mark for _, some in samples for mark in some)):
        chosen.setdefault(mark.job, []).append((mark.seed, mark.repeat))
    numbers = reads.statistics(session, chosen, output)
    advised_here = for_output(advised, output) if advised else None
    limits = {
        name: {} if tolerance is None else tolerance.to_json()
        for name, tolerance in (("declared", declared), ("advised", advised_here))
    }
    of_any_build = urls.history(jobs[0].test_key, here)
    heads = tuple(
        _column(session, group, some, metric, output, sums, len(columns), of_any_build)
        for group, some in zip(columns, seeds, strict=True)
    )
    candidates.sort(key=lambda mark: (_severity(mark, numbers.get(mark.key)), mark.key))
    places = {column.build: number for number, column in enumerate(heads)}
    return Strip(
        output=output,
        metric=metric,
        noun="iteration" if selected else "seed",
        total=total,
        whole=whole,
        older=len(every) - len(columns),
        columns=heads,
        marks=tuple(marks),
        bands=tuple(_lined(band, some, numbers, metric, limits) for band, some in samples),
        worst=tuple(
            StripWorst(mark, numbers.get(mark.key, {}).get(ROUNDING_RATIO))
            for mark in candidates[:MAX_NAMED]
        ),
        events=tuple(
            replace(event, place=places[event.name]) for event in events if event.name in places
        ),
    )


def _columns(jobs: Iterable[JobFacts]) -> list[list[JobFacts]]:
    """Return the jobs of each build, in the branch's order."""
    builds = by_place(jobs, "builds")
    return [builds[place] for place in sorted(builds)]


def _sampled(band: StripBand, marks: Sequence[StripMark]) -> list[StripMark]:
    """Return up to _MAX_SAMPLED seeds of a band with numbers, spread evenly over it."""
    numbered = [mark for mark in marks if band.left <= mark.x <= band.right and mark.value]
    some = min(_MAX_SAMPLED, len(numbered))
    return [numbered[place * len(numbered) // some] for place in range(some)]


def _lined(
    band: StripBand,
    samples: Sequence[StripMark],
    numbers: Numbers,
    metric: str,
    limits: Mapping[str, Mapping[str, float]],
) -> StripBand:
    """Return the band with its lines: the median over the statistics of a few of its seeds."""
    lines: dict[str, list[float]] = {}
    for mark in samples:
        statistics = numbers.get(mark.key)
        if statistics is None or not mark.value:
            continue
        factors = {name: beyond(limit, statistics) for name, limit in limits.items()}
        for name, factor in (factors | {"rounding": statistics.get(ROUNDING_RATIO)}).items():
            if factor and math.isfinite(factor):
                lines.setdefault(name, []).append(mark.value / factor)
    medians: dict[str, Any] = {
        name: float(f"{median(values):.4g}") for name, values in lines.items()
    }
    return replace(band, **medians | ({"declared": 1.0} if metric == TOLERANCE_RATIO else {}))


def _column(
    session: Session,
    jobs: Sequence[JobFacts],
    seeds: Sequence[Mark],
    metric: str,
    output: str,
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


def _largest(mark: StripMark) -> tuple[Any, ...]:
    """Return the sort key of the candidates for the worst: verdict, then the value shown."""
    value = math.inf if mark.value is None else mark.value
    return _RANK.get(mark.verdict, len(_RANK)), -value, mark.key


def _severity(mark: StripMark, numbers: Mapping[str, Any] | None) -> tuple[int, float]:
    """Return the place of a seed among the worst, as on its job's page."""
    output = {"": {"verdict": mark.verdict, **numbers}} if numbers else {}
    return verdicts.severity(mark.verdict, output)
