"""Read models of the bisections' pages: the state of the search, its posterior, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.bisecting import Signal, Stage
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import axis_events, commands, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import details_of
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.bisections import store
from gonogo_service.bisections.model import (
    LABEL,
    BisectionRow,
    FoundChange,
    SearchMove,
    SearchTrack,
)
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import BisectionState
from gonogo_service.tests import annotations as axis_changes
from gonogo_service.tests.annotations import AxisPlace

FILTERS = ("test", "state")
STATES: Mapping[BisectionState, str] = {
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
    page = store.page(session, **filters, limit=limit, cursor=cursor)
    entries = entry_names.latest(session, {row.test_key for row in page.items})
    tests = [Listed(row.test, entries.get(row.test_key), _title(row.test)) for row in page.items]
    titles = dict(zip((row.id for row in page.items), labels(tests), strict=True))

    def line(row: BisectionRow) -> BisectionLine:
        return _line(row, now, entries.get(row.test_key), titles[row.id])

    return list_view(page, line, urls.bisections, now, filters)


def one(session: Session, bisection_id: str, now: datetime) -> BisectionView | None:
    """Return a bisection's page; None where there is no such bisection."""
    row = store.get(session, bisection_id)
    if row is None:
        return None
    entries = entry_names.latest(session, [row.test_key])
    # Its test is one, so no tolerance changes between its builds.
    places = [
        AxisPlace((build,), tuple(probe.job for probe in row.probes if probe.place == place))
        for place, build in enumerate(row.builds)
    ]
    events = axis_events.of_builds(axis_changes.of_runs(session, {"": places})[""], row.builds)
    return BisectionView(
        bisection=_line(row, now, entries.get(row.test_key), _title(row.test)),
        searches=tuple(_search(row, track, events) for track in row.tracks),
        findings=tuple(row.findings),
        facts=_facts(row),
        probes=tuple(
            ProbeLine(
                probe.number,
                row.builds[probe.place],
                probe.seed,
                urls.job(probe.job),
                probe.ended,
                probe.verdict,
            )
            for probe in reversed(row.probes[-LATEST:])
        ),
        error=row.error,
        version=row.version,
        links={
            "cancel": urls.cancel_bisection(row.id),
            "events": urls.bisection_events(row.id),
            "jobs": urls.jobs({"label": f"{LABEL}={row.id}"}),
            "test": urls.history(row.test_key),
        },
        at=timestamp(now),
    )


def _title(test: Mapping[str, Any]) -> str:
    """Return kernel and shape of a test, or the suite of a selection."""
    if "shape" in test:
        return f"{test['kernel']} {words.shape(test['shape'])}"
    return f"suite {(test.get('selection') or {}).get('suite', '')}"


def _line(row: BisectionRow, now: datetime, entry: str | None, title: str) -> BisectionLine:
    return BisectionLine(
        id=row.id,
        url=urls.bisection(row.id),
        title=title,
        tolerance=commands.tolerance_words(row.test.get("tolerance", {})),
        details=details_of(row.test, entry),
        first=row.builds[0],
        last=row.builds[-1],
        builds=len(row.builds),
        state=row.state.value,
        state_words=STATES[row.state],
        final=row.state.final,
        runs=row.runs,
        words=row.words or "",
        created_at=timestamp(row.created_at),
        age=words.ago((now - row.created_at).total_seconds()),
    )


def _search(row: BisectionRow, track: SearchTrack, events: tuple[AxisEvent, ...]) -> Search:
    low, high, signal, stage = track.low, track.high, track.track, track.stage
    probes = [probe for probe in row.probes if low <= probe.place <= high]
    moves = tuple(filter(None, (_move(row, move, track) for move in row.moves or ())))
    bad, good = signal.answers
    sentence = stage.sentence
    if track.build and stage not in (Stage.gate, Stage.no_change):
        sentence = (
            f"{track.build} with a probability of {track.probability:.3f};"
            f" {track.before:.0%} {bad} before, {track.after:.0%} after"
        )
    return Search(
        track=signal.value,
        track_words=signal.sentence,
        stage=stage.value,
        stage_words=stage.sentence,
        words=sentence,
        low=row.builds[low],
        high=row.builds[high],
        builds=tuple(_build(row, track, place) for place in range(low, high + 1)),
        probability=track.probability,
        before=track.before,
        after=track.after,
        bad=bad,
        good=good,
        bad_looks=_BAD_LOOKS[signal],
        moves=moves,
        dots=tuple(
            Dot(
                probe.number,
                probe.place,
                row.builds[probe.place],
                probe.seed,
                urls.job(probe.job),
                probe.ended,
                probe.is_bad(signal),
            )
            for probe in probes
        ),
        moved=_moved(moves, stage),
        events=tuple(
            replace(event, place=event.place - low) for event in events if low < event.place <= high
        ),
    )


def _build(row: BisectionRow, track: SearchTrack, place: int) -> BuildLine:
    probes = [probe for probe in row.probes if probe.place == place]
    answers = [probe.is_bad(track.track) for probe in probes if probe.ended]
    return BuildLine(
        place=place,
        name=row.builds[place],
        runs=len(answers),
        running=len(probes) - len(answers),
        bad=answers.count(True),
        silent=answers.count(None),
        share=dict(track.posterior).get(place, 0.0),
    )


def _move(row: BisectionRow, move: SearchMove, track: SearchTrack) -> Move | None:
    """Return one move of a track's search in this part of the series; None where there was none.

    Before the series was split, the move comes from the enclosing part.
    """
    around = [
        part
        for part in move.tracks
        if part.track is track.track and part.low <= track.low and track.high <= part.high
    ]
    narrowest = min(around, key=lambda part: part.high - part.low, default=None)
    shares = () if narrowest is None else narrowest.posterior
    inside = tuple(pair for pair in shares if track.low <= pair[0] <= track.high)
    if not inside:
        return None
    place, share = max(inside, key=lambda pair: (pair[1], -pair[0]))
    return Move(move.runs, inside, row.builds[place], share)


def _moved(moves: tuple[Move, ...], stage: Stage) -> str:
    """Return how the likeliest build changed, in a sentence."""
    if stage is Stage.no_change:
        return "No build stood out."
    turns: list[Move] = []
    for move in moves:
        is_clear = move.probability > min(0.5, 1.5 / len(move.shares))  # at first all are alike
        if is_clear and (not turns or turns[-1].build != move.build):
            turns.append(move)
    if not turns:
        return "No build is likelier than the others yet."
    few = turns if len(turns) <= 4 else [turns[0], *turns[-3:]]
    places = ", then ".join(
        f"{words.brief(move.build)} after {words.count(move.runs, 'run')}" for move in few
    )
    return f"Likeliest: {places}; now with a probability of {moves[-1].probability:.3f}."


def _facts(row: BisectionRow) -> tuple[tuple[str, str], ...]:
    return (
        ("builds", f"{len(row.builds)}, from {row.builds[0]} to {row.builds[-1]}"),
        ("compared by", f"{row.signal}: {row.signal.sentence}"),
        ("expected", row.expect.sentence),
        ("tolerance", commands.tolerance_words(row.test.get("tolerance", {}))),
        ("runs on", row.queue),
        ("maximum runs", f"{row.max_runs:,}"),
        ("requested", f"{row.created_at:%Y-%m-%d %H:%M:%S} UTC by {row.owner}"),
    )
