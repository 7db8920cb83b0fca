"""Changes that a time axis marks: a line on the chart, and a sentence below it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gonogo_dashboards.kit import commands, words
from gonogo_service.tests.axis_changes import Annotation, DatedAnnotation

LABELS: Mapping[str, str] = {
    "arithmetic": "arithmetic",
    "build": "new ttnn",
    "firmware": "firmware",
    "tolerance": "tolerance",
}
"""The label of a line, by the kind of its change."""
MAX_NAMED = 3
"""Changes of one kind at one place that a sentence names."""
MAX_NEW_BUILDS = 6
"""More new builds than this are every night's: a line for each would say nothing."""


@dataclass(frozen=True)
class AxisEvent:
    """A change on an axis: its place as a number of the axis, and a sentence that begins there.

    `name` is the build or the day of the place.
    """

    place: float
    name: str
    kind: str
    label: str
    words: str


def of_builds(
    changes: Iterable[Annotation], names: Sequence[str], named: int = MAX_NAMED
) -> tuple[AxisEvent, ...]:
    """Return the events of an axis of builds or days, in their order; `names` are its places.

    named: the changes of one kind at one place that a sentence names.
    """
    by_place: dict[tuple[int, str], list[str]] = {}
    for change in changes:
        by_place.setdefault((change.place, change.kind), []).append(_of_build(change))
    return tuple(
        AxisEvent(place, names[place], kind, LABELS[kind], _joined(sentences, named))
        for (place, kind), sentences in sorted(by_place.items())
    )


def of_days(changes: Iterable[DatedAnnotation], days: Sequence[str]) -> tuple[AxisEvent, ...]:
    """Return the events of an axis of UTC days ("2026-11-23"), one for each day and kind."""
    index = {day: place for place, day in enumerate(days)}
    shown = _without_nightly(changes)
    by_place: dict[tuple[int, str], list[str]] = {}
    for change in shown:
        place = index.get(change.at.date().isoformat())
        if place is not None:
            by_place.setdefault((place, change.kind), []).append(_of_date(change))
    return tuple(
        AxisEvent(place, days[place], kind, LABELS[kind], _joined(sentences))
        for (place, kind), sentences in sorted(by_place.items())
    )


def of_time(changes: Iterable[DatedAnnotation], until: datetime) -> tuple[AxisEvent, ...]:
    """Return the events of an axis of time; a place is in milliseconds."""
    return tuple(
        AxisEvent(
            int(change.at.timestamp() * 1000),
            f"{change.at:%Y-%m-%d %H:%M} UTC",
            change.kind,
            LABELS[change.kind],
            _of_date(change),
        )
        for change in _without_nightly(changes)
        if change.at <= until
    )


def _without_nightly(changes: Iterable[DatedAnnotation]) -> list[DatedAnnotation]:
    known = list(changes)
    builds = sum(change.kind == "build" for change in known)
    return [change for change in known if change.kind != "build" or builds <= MAX_NEW_BUILDS]


def _of_build(change: Annotation) -> str:
    if change.kind == "tolerance":
        tolerance = commands.tolerance_words(change.after)
        subject = change.subject or "this workload"
        return f"another test of {subject} from here on: {tolerance}"
    name = "arithmetic" if change.kind == "arithmetic" else "firmware"
    return f"{name} {change.before} until here, {change.after} from here on"


def _of_date(change: DatedAnnotation) -> str:
    if change.kind == "tolerance":
        tolerance = commands.tolerance_words(change.after)
        return f"a test of {change.subject} with another tolerance: {tolerance}"
    if change.kind == "build":
        return f"new build of ttnn, {words.brief(str(change.after))}, on {change.subject}"
    name = "arithmetic" if change.kind == "arithmetic" else "firmware"
    return f"{name} of {change.subject}: {change.before} until here, {change.after} from here on"


def _joined(sentences: Sequence[str], named: int = MAX_NAMED) -> str:
    more = len(sentences) - named
    text = "; ".join(sentences[:named])
    return f"{text}; and {more:,} more" if more > 0 else text
