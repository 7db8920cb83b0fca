"""Read models of the bisections' pages: the state of the search, its posterior, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.bisecting import Expect, Signal, Stage
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import axis_events, commands, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import details_of
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.bisections import store as stored
from gonogo_service.bisections.store import (
    Bisection,
    BisectionSummary,
    FoundChange,
    SearchMove,
    SearchTrack,
)
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import BisectionState
from gonogo_service.tests import annotations as axis_changes
from gonogo_service.tests.annotations import AxisPlace

FILTERS = ("test", "state")
STATES: Mapping[str, str] = {
    BisectionState.running: "Searching",
    BisectionState.finished: "Finished",
    BisectionState.cancelled: "Canceled",
    BisectionState.failed: "Could not run",
}
_BAD_LOOKS: Mapping[Signal, Verdict] = {
    Signal.numbers: Verdict.pass_by_tolerance,
    Signal.verdicts: Verdict.fail,
    Signal.hang: Verdict.hang,
    Signal.crash: Verdict.crash,
}
"""The verdict whose shape and color a bad run takes."""
LATEST = 100
"""Runs that the page lists; the API has all."""


@dataclass(frozen=True)
class BisectionLine:
    """A bisection in a list."""

    id: str
    url: str
    title: str
    tolerance: str
    details: str
    """The suite's name of its test, and its fields that differ from the default."""
    first: str
    last: str
    builds: int
    state: str
    state_words: str
    final: bool
    runs: int
    words: str
    created_at: str | None
    age: str


@dataclass(frozen=True)
class BuildLine:
    """A build of the series: its runs by answer.

    `share` is the probability that it is the first changed build.
    """

    place: int
    name: str
    runs: int
    running: int
    bad: int
    silent: int
    share: float


@dataclass(frozen=True)
class Move:
    """The state of the search after some runs.

    `shares` has [place, probability] of each visible build; `build` is the likeliest.
    """

    runs: int
    shares: tuple[tuple[int, float], ...]
    build: str
    probability: float


@dataclass(frozen=True)
class Dot:
    """A run: its number, the place of its build, and its answer (None: running, or no answer)."""

    number: int
    place: int
    build: str
    seed: int
    url: str
    ended: bool
    bad: bool | None


@dataclass(frozen=True)
class Search:
    """One search: by numbers or by verdicts, over the whole series or a part beside a change."""

    track: str
    track_words: str
    stage: str
    stage_words: str
    words: str
    low: str
    high: str
    builds: tuple[BuildLine, ...]
    probability: float
    before: float
    after: float
    bad: str
    """The outcome of a run that indicates a change."""
    good: str
    bad_looks: str
    """The verdict whose looks the bad outcome takes: an unexplained error may be green."""
    moves: tuple[Move, ...]
    dots: tuple[Dot, ...]
    moved: str
    """The moves in words."""
    events: tuple[AxisEvent, ...] = ()
    """The changes of the arithmetic between its builds."""


@dataclass(frozen=True)
class ProbeLine:
    """A run of a build."""

    number: int
    build: str
    seed: int
    url: str
    ended: bool
    verdict: str | None


@dataclass(frozen=True)
class BisectionView:
    """Everything on a bisection's page."""

    bisection: BisectionLine
    searches: tuple[Search, ...]
    findings: tuple[FoundChange, ...]
    facts: tuple[tuple[str, str], ...]
    probes: tuple[ProbeLine, ...]
    error: str | None
    version: int
    links: Mapping[str, str]
    at: str | None


def listed(
    session: Session, query: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> ListView:
    """Return a page of bisections. Raises BadCursor."""
    filters = {name: query[name] for name in FILTERS if query.get(name)}
    page = stored.list_(
        session, test=filters.get("test"), state=filters.get("state"), limit=limit, cursor=cursor
    )
    entries = entry_names.latest(session, {bisection.test_key for bisection in page.items})
    named = iter(
        labels(
            [
                Listed(bisection.test, entries.get(bisection.test_key), _title(bisection.test))
                for bisection in page.items
            ]
        )
    )

    def line(bisection: BisectionSummary) -> BisectionLine:
        return _line(bisection, now, entries.get(bisection.test_key), next(named))

    return list_view(page, line, urls.bisections, now, filters)


def one(session: Session, bisection_id: str, now: datetime) -> BisectionView | None:
    """Return a bisection's page; None where there is no such bisection."""
    bisection = stored.get(session, bisection_id)
    if bisection is None:
        return None
    links = {
        "cancel": urls.cancel_bisection(bisection.id),
        "events": urls.bisection_events(bisection.id),
        "jobs": urls.jobs({"label": f"{stored.LABEL}={bisection.id}"}),
        "test": urls.history(bisection.test_key),
    }
    probes = tuple(
        from_object(ProbeLine, probe, build=bisection.builds[probe.place], url=urls.job(probe.job))
        for probe in reversed(bisection.probes[-LATEST:])
    )
    entries = entry_names.latest(session, [bisection.test_key])
    # Its test is one, so no tolerance changes between its builds.
    places = [
        AxisPlace((build,), tuple(probe.job for probe in bisection.probes if probe.place == place))
        for place, build in enumerate(bisection.builds)
    ]
    events = axis_events.of_builds(axis_changes.of_runs(session, places), bisection.builds)
    searches = tuple(_search(bisection, track, events) for track in bisection.tracks)
    return BisectionView(
        _line(bisection, now, entries.get(bisection.test_key), _title(bisection.test)),
        searches,
        tuple(bisection.findings),
        _facts(bisection),
        probes,
        bisection.error,
        bisection.version,
        links,
        timestamp(now),
    )


def _title(test: Mapping[str, Any]) -> str:
    """Return kernel and shape of a test, or the suite of a selection."""
    if "shape" in test:
        return f"{test['kernel']} {words.shape(test['shape'])}"
    return f"suite {(test.get('selection') or {}).get('suite', '')}"


def _line(
    bisection: BisectionSummary, now: datetime, entry: str | None, title: str
) -> BisectionLine:
    test = bisection.test
    return BisectionLine(
        id=bisection.id,
        url=urls.bisection(bisection.id),
        title=title,
        tolerance=commands.tolerance_words(test.get("tolerance", {})),
        details=details_of(test, entry),
        first=bisection.builds[0],
        last=bisection.builds[-1],
        builds=len(bisection.builds),
        state=bisection.state.value,
        state_words=STATES[bisection.state],
        final=bisection.state.final,
        runs=bisection.runs,
        words=bisection.words or "",
        created_at=timestamp(bisection.created_at),
        age=words.ago((now - bisection.created_at).total_seconds()),
    )


def _search(bisection: Bisection, track: SearchTrack, events: tuple[AxisEvent, ...]) -> Search:
    low, high, shares = track.low, track.high, dict(track.posterior)
    lines = []
    for place in range(low, high + 1):
        probes = [probe for probe in bisection.probes if probe.place == place]
        answers = [probe.is_bad(track.track) for probe in probes if probe.ended]
        lines.append(
            BuildLine(
                place,
                bisection.builds[place],
                len(answers),
                len(probes) - len(answers),
                answers.count(True),
                answers.count(None),
                shares.get(place, 0.0),
            )
        )
    moves = tuple(
        shown for move in bisection.moves if (shown := _move(bisection, move, track)) is not None
    )
    dots = tuple(
        from_object(
            Dot,
            probe,
            build=bisection.builds[probe.place],
            url=urls.job(probe.job),
            bad=probe.is_bad(track.track),
        )
        for probe in bisection.probes
        if low <= probe.place <= high
    )
    stage = track.stage
    culprit = track.build if stage is not Stage.gate and stage is not Stage.no_change else None
    bad, good = track.track.answers
    rates = f"{track.before:.0%} {bad} before, {track.after:.0%} after"
    result_words = (
        f"{track.build} with a probability of {track.probability:.3f}; {rates}"
        if culprit
        else stage.sentence
    )
    return from_object(
        Search,
        track,
        track_words=track.track.sentence,
        stage=stage.value,
        stage_words=stage.sentence,
        words=result_words,
        low=bisection.builds[low],
        high=bisection.builds[high],
        builds=tuple(lines),
        bad=bad,
        good=good,
        bad_looks=_BAD_LOOKS[track.track],
        moves=moves,
        dots=dots,
        moved=_moved(moves, stage),
        events=tuple(
            replace(event, place=event.place - low) for event in events if low < event.place <= high
        ),
    )


def _move(bisection: Bisection, move: SearchMove, track: SearchTrack) -> Move | None:
    """Return one move of a track's search in this part of the series; None where there was none.

    Before the series was split, the move comes from the enclosing part.
    """
    around = [
        part
        for part in move.tracks
        if part.track is track.track and part.low <= track.low and track.high <= part.high
    ]
    if not around:
        return None
    narrowest = min(around, key=lambda part: part.high - part.low)
    inside = [pair for pair in narrowest.posterior if track.low <= pair[0] <= track.high]
    if not inside:
        return None
    place, share = max(inside, key=lambda pair: (pair[1], -pair[0]))
    return Move(move.runs, tuple(inside), bisection.builds[place], share)


def _moved(moves: tuple[Move, ...], stage: Stage) -> str:
    """Return how the likeliest build changed, in a sentence; "" before anything moved."""
    clear_moves = [
        move for move in moves if move.probability > min(0.5, 1.5 / len(move.shares))
    ]  # at first all builds are equally likely
    turns = [
        move
        for before, move in zip((None, *clear_moves), clear_moves, strict=False)
        if before is None or before.build != move.build
    ]
    if stage is Stage.no_change:
        return "No build stood out."
    if not turns:
        return "No build is likelier than the others yet."
    few = turns if len(turns) <= 4 else [turns[0], *turns[-3:]]
    places_words = ", then ".join(
        f"{words.brief(move.build)} after {words.count(move.runs, 'run')}" for move in few
    )
    last = moves[-1]
    return f"Likeliest: {places_words}; now with a probability of {last.probability:.3f}."


def _facts(bisection: Bisection) -> tuple[tuple[str, str], ...]:
    return (
        (
            "builds",
            f"{len(bisection.builds)}, from {bisection.builds[0]} to {bisection.builds[-1]}",
        ),
        ("compared by", f"{bisection.signal}: {Signal(bisection.signal).sentence}"),
        ("expected", Expect(bisection.expect).sentence),
        ("tolerance", commands.tolerance_words(bisection.test.get("tolerance", {}))),
        ("runs on", bisection.queue),
        ("maximum runs", f"{bisection.max_runs:,}"),
        (
            "requested",
            f"{bisection.created_at:%Y-%m-%d %H:%M:%S} UTC by {bisection.owner}",
        ),
    )
