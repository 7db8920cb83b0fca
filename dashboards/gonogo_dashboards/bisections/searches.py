"""Read models of a bisection's searches: builds, runs, and how the likeliest build moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gonogo.flakiness.bisecting import Signal, Stage
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_service.bisections.model import BisectionRow, SearchMove, SearchTrack

_BAD_LOOKS: Mapping[Signal, Verdict] = {
    Signal.numbers: Verdict.pass_by_tolerance,
    Signal.verdicts: Verdict.fail,
    Signal.hang: Verdict.hang,
    Signal.crash: Verdict.crash,
}
"""The verdict whose shape and color a bad run takes."""


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
    bad: bool | None


@dataclass(frozen=True)
class Search:
    """One search: by numbers or by verdicts, over the whole series or a part beside a change."""

    track: SearchTrack
    words: str
    low: str
    high: str
    builds: tuple[BuildLine, ...]
    moves: tuple[Move, ...]
    dots: tuple[Dot, ...]
    moved: str
    """The moves in words."""
    events: tuple[AxisEvent, ...] = ()
    """The changes of the arithmetic between its builds."""

    @property
    def bad(self) -> str:
        """Return the outcome of a run that indicates a change."""
        return self.track.track.answers[0]

    @property
    def bad_looks(self) -> Verdict:
        """Return the verdict whose looks the bad outcome takes: an error may be green."""
        return _BAD_LOOKS[self.track.track]


def search(row: BisectionRow, track: SearchTrack, events: tuple[AxisEvent, ...]) -> Search:
    """Return a search of a bisection; events: the changes of arithmetic between its builds."""
    low, high, signal, stage = track.low, track.high, track.track, track.stage
    probes = [probe for probe in row.probes if low <= probe.place <= high]
    moves = tuple(filter(None, (_move(row, move, track) for move in row.moves or ())))
    sentence = stage.sentence
    if track.build and stage not in (Stage.gate, Stage.no_change):
        sentence = (
            f"{track.build} with a probability of {track.probability:.3f};"
            f" {track.before:.0%} {signal.answers[0]} before, {track.after:.0%} after"
        )
    return Search(
        track=track,
        words=sentence,
        low=row.builds[low],
        high=row.builds[high],
        builds=tuple(_build(row, track, place) for place in range(low, high + 1)),
        moves=moves,
        dots=tuple(
            Dot(probe.number, probe.place, probe.build, probe.seed, probe.is_bad(signal))
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
