"""A test on one build as a cell: the worst verdict of its seeds, and whether some are hollow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gonogo.flakiness.classes import LOST
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import axis_events, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_service.tests.axis_changes import Annotation, AxisPlace
from gonogo_service.tests.recent_builds import BuildResult

HOLLOW = Verdict.pass_by_tolerance
FAILED = (Verdict.fail, Verdict.fail_by_tolerance)


@dataclass(frozen=True)
class BuildCell:
    """A build in a row of cells, with the facts of a Standing.

    `event`: a change from the build before that can explain a step, in words; else "".
    """

    build: str
    verdict: str
    hollow: bool
    red: bool
    lost: bool
    words: str
    event: str = ""


@dataclass(frozen=True)
class RecentBuilds:
    """A test's last builds, the newest last; `words` names what is wrong with them."""

    cells: tuple[BuildCell, ...]
    words: str


def verdict_of(seeds_by_verdict: Mapping[str, int]) -> str:
    """Return the worst verdict of seeds by verdict.

    Hangs, crashes and errors say nothing about the kernel: they count only where there is nothing
    else, and are a cell's corner where there is.
    """
    ordered = [verdict for verdict in words.ordered(seeds_by_verdict) if seeds_by_verdict[verdict]]
    return next(
        (verdict for verdict in ordered if verdict not in LOST),
        ordered[0] if ordered else Verdict.not_run,
    )


def recent(results: Sequence[BuildResult], changes: Iterable[Annotation] = ()) -> RecentBuilds:
    """Return a test's results on its last builds as cells; `changes`: those between the builds."""
    at_place: dict[int, list[AxisEvent]] = {}
    for event in axis_events.of_builds(changes, [result.build for result in results], named=1):
        at_place.setdefault(round(event.place), []).append(event)
    cells = tuple(
        cell(result, "; ".join(event.words for event in at_place.get(place, ())))
        for place, result in enumerate(results)
    )
    hollow, red = sum(one.hollow for one in cells), sum(one.red for one in cells)
    parts = [f"{hollow:,} hollow"] if hollow else []
    parts += [f"{red:,} red"] if red else []
    lost = sum(one.lost for one in cells)
    parts += [f"{lost:,} with hangs, crashes or errors"] if lost else []
    findings = ", ".join(parts) or "none hollow, none red"
    text = f"The last {words.count(len(cells), 'build')}: {findings}"
    for place, events in sorted(at_place.items()):
        labels = ", ".join(event.label for event in events)
        text += f"; at {words.brief(cells[place].build)}: other {labels}"
    return RecentBuilds(cells, text)


def places(results: Sequence[BuildResult]) -> list[AxisPlace]:
    """Return the places of an axis of these builds."""
    return [AxisPlace((result.build,), (result.job,), result.at) for result in results]


def cell(result: BuildResult, event: str = "") -> BuildCell:
    """Return a test's result on a build as a cell; `event`: the changes before it, in words."""
    verdict, seeds = seeds_of(tuple(result.counts.items()))
    text, flags = f"{words.brief(result.build)}: {seeds}", (result.hollow, result.red, result.lost)
    return BuildCell(result.build, verdict, *flags, text, event)


@lru_cache(maxsize=8192)
def seeds_of(items: tuple[tuple[str, int], ...]) -> tuple[str, str]:
    """Return the verdict of seeds by verdict, and them in words: "4 hollow pass, 1 fail".

    Most cells of a page are alike.
    """
    counts = dict(items)
    named = (
        f"{counts[name]:,} {words.inline(words.mark(name).label)}"
        for name in words.ordered(counts)
        if counts[name]
    )
    return verdict_of(counts), ", ".join(named)
