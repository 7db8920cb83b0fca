"""Read models of the bisections' pages: how the search stands, the picture of its posterior, and
what it found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.bisecting import Expect, Signal, Stage
from gonogo_dashboards.kit import commands, words
from gonogo_storage.automation import bisections as stored
from gonogo_storage.automation.bisections import Bisection
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.states import BisectionState

FILTERS = ("test", "state")
STATES: Mapping[str, str] = {
    BisectionState.running: "searching",
    BisectionState.finished: "finished",
    BisectionState.cancelled: "cancelled",
    BisectionState.failed: "could not be run",
}
LATEST = 100
"""Runs that the page lists; the API has all."""


@dataclass(frozen=True)
class BisectionLine:
    """A bisection in a list."""

    id: str
    url: str
    title: str
    tolerance: str
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
class BisectionsView:
    """A page of the list of bisections."""

    items: tuple[BisectionLine, ...]
    filters: Mapping[str, str]
    next: str | None
    next_url: str | None
    at: str | None


@dataclass(frozen=True)
class BuildLine:
    """A build of the series: how often it ran, and what its runs said. `share`: the probability
    that it is the first changed one.
    """

    place: int
    name: str
    runs: int
    flying: int
    bad: int
    silent: int
    share: float


@dataclass(frozen=True)
class Move:
    """Where the search stood after so many runs: how likely each build was, [[place, probability],
    ...] of those that can be seen, and the likeliest.
    """

    runs: int
    shares: tuple[tuple[int, float], ...]
    build: str
    probability: float


@dataclass(frozen=True)
class Dot:
    """A run: which of all it is, the place of its build, what it said (None: in flight, or
    nothing).
    """

    number: int
    place: int
    build: str
    seed: int
    url: str
    ended: bool
    bad: bool | None


@dataclass(frozen=True)
class Search:
    """One of its searches: by numbers or by verdicts, of the whole series or of a part beside a
    change.
    """

    track: str
    track_words: str
    stage: str
    stage_words: str
    words: str
    low: str
    high: str
    builds: tuple[BuildLine, ...]
    culprit: str | None
    probability: float
    before: float
    after: float
    bad: str
    """What a run is that speaks for a change."""
    moves: tuple[Move, ...]
    dots: tuple[Dot, ...]
    moved: str
    """The moves in words."""


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
    """Everything of a bisection's page."""

    bisection: BisectionLine
    searches: tuple[Search, ...]
    findings: tuple[Mapping[str, Any], ...]
    facts: tuple[tuple[str, str], ...]
    probes: tuple[ProbeLine, ...]
    error: str | None
    version: int
    links: Mapping[str, str]
    at: str | None


def listed(
    session: Session, query: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> BisectionsView:
    """A page of bisections. Raises BadCursor."""
    filters = {name: query[name] for name in FILTERS if query.get(name)}
    page = stored.list_(
        session, test=filters.get("test"), state=filters.get("state"), limit=limit, cursor=cursor
    )
    items = tuple(_line(each, now) for each in page.items)
    following = None if page.next is None else urls.bisections(filters, cursor=page.next)
    return BisectionsView(items, filters, page.next, following, timestamp(now))


def one(session: Session, bisection_id: str, now: datetime) -> BisectionView | None:
    """A bisection's page; None when there is none."""
    found = stored.get(session, bisection_id)
    if found is None:
        return None
    links = {
        "cancel": urls.cancel_bisection(found.id),
        "events": urls.bisection_events(found.id),
        "jobs": urls.jobs({"label": f"{stored.LABEL}={found.id}"}),
        "test": urls.history(found.test_key),
    }
    probes = tuple(
        ProbeLine(
            each.number,
            found.builds[each.place],
            each.seed,
            urls.job(each.job),
            each.ended,
            each.verdict,
        )
        for each in reversed(found.probes[-LATEST:])
    )
    searches = tuple(_search(found, track) for track in found.tracks)
    return BisectionView(
        _line(found, now),
        searches,
        tuple(found.findings),
        _facts(found),
        probes,
        found.error,
        found.version,
        links,
        timestamp(now),
    )


def _line(found: Bisection, now: datetime) -> BisectionLine:
    test = found.canonical
    selection = test.get("selection")
    title = (
        f"{test['kernel']} {words.shape(test['shape'])}"
        if "shape" in test
        else f"suite {(selection or {}).get('suite', '')}"
    )
    return BisectionLine(
        id=found.id,
        url=urls.bisection(found.id),
        title=title,
        tolerance=commands.tolerance_words(test.get("tolerance", {})),
        first=found.builds[0],
        last=found.builds[-1],
        builds=len(found.builds),
        state=found.state.value,
        state_words=STATES[found.state],
        final=found.state.final,
        runs=found.runs,
        words=found.words or "",
        created_at=timestamp(found.created_at),
        age=words.ago((now - found.created_at).total_seconds()),
    )


def _search(found: Bisection, track: Mapping[str, Any]) -> Search:
    numbers = track["track"] == Signal.numbers
    low, high = int(track["low"]), int(track["high"])
    shares = {int(place): float(share) for place, share in track["posterior"]}
    lines = []
    for place in range(low, high + 1):
        probes = [probe for probe in found.probes if probe.place == place]
        said = [probe.wrong if numbers else probe.red for probe in probes if probe.ended]
        lines.append(
            BuildLine(
                place,
                found.builds[place],
                len(said),
                len(probes) - len(said),
                said.count(True),
                said.count(None),
                shares.get(place, 0.0),
            )
        )
    moves = tuple(move for each in found.moves if (move := _move(found, each, track)) is not None)
    dots = tuple(
        Dot(
            probe.number,
            probe.place,
            found.builds[probe.place],
            probe.seed,
            urls.job(probe.job),
            probe.ended,
            probe.wrong if numbers else probe.red,
        )
        for probe in found.probes
        if low <= probe.place <= high
    )
    stage = Stage(track["stage"])
    culprit = track["build"] if stage is not Stage.gate and stage is not Stage.no_change else None
    bad = "unexplained" if numbers else "red"
    rates = f"{track['before']:.0%} {bad} before, {track['after']:.0%} after"
    said_words = (
        f"{track['build']} with a probability of {track['probability']:.3f}; {rates}"
        if culprit
        else stage.sentence
    )
    return Search(
        track=track["track"], track_words=Signal(track["track"]).sentence, stage=stage.value, stage_words=stage.sentence, words=said_words,
        low=found.builds[low], high=found.builds[high], builds=tuple(lines), culprit=culprit, probability=float(track["probability"]),
        before=float(track["before"]), after=float(track["after"]), bad=bad, moves=moves, dots=dots, moved=_moved(moves, stage),
    )  # fmt: skip


def _move(found: Bisection, move: Mapping[str, Any], track: Mapping[str, Any]) -> Move | None:
    """One move of the search of a track and of a part of the series, or of the part that it was cut
    from; None where there was none yet.
    """
    low, high = int(track["low"]), int(track["high"])
    around = [
        each
        for each in move["tracks"]
        if each["track"] == track["track"] and each["low"] <= low and high <= each["high"]
    ]
    if not around:
        return None
    own = min(around, key=lambda each: each["high"] - each["low"])
    inside = [
        (int(place), float(share)) for place, share in own["posterior"] if low <= place <= high
    ]
    if not inside:
        return None
    place, share = max(inside, key=lambda pair: (pair[1], -pair[0]))
    return Move(int(move["runs"]), tuple(inside), found.builds[place], share)


def _moved(moves: tuple[Move, ...], stage: Stage) -> str:
    """How the likeliest build changed, in a sentence; "" before anything moved."""
    told = [
        move for move in moves if move.probability > min(0.5, 1.5 / len(move.shares))
    ]  # at first all are as likely
    turns = [
        move
        for before, move in zip((None, *told), told, strict=False)
        if before is None or before.build != move.build
    ]
    if stage is Stage.no_change:
        return "No build stood out."
    if not turns:
        return "No build is likelier than the others yet."
    few = turns if len(turns) <= 4 else [turns[0], *turns[-3:]]
    said = ", then ".join(
        f"{words.brief(move.build)} after {words.count(move.runs, 'run')}" for move in few
    )
    last = moves[-1]
    return f"Likeliest: {said}; now with a probability of {last.probability:.3f}."


def _facts(found: Bisection) -> tuple[tuple[str, str], ...]:
    return (
        ("builds", f"{len(found.builds)}, from {found.builds[0]} to {found.builds[-1]}"),
        ("told apart by", f"{found.signal}: {Signal(found.signal).sentence}"),
        ("expected", Expect(found.expect).sentence),
        ("tolerance", commands.tolerance_words(found.canonical.get("tolerance", {}))),
        ("runs on", found.queue),
        ("runs at most", f"{found.max_runs:,}"),
        (
            "asked for",
            f"{(timestamp(found.created_at) or '')[:19].replace('T', ' ')} UTC by {found.owner}",
        ),
    )
