"""The role that steps bisections: it reads the probes' results, and starts more or concludes.

Each step is one transaction. Nothing is remembered between steps: the state of a search follows
from its probes, so any process may be killed at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

from sqlalchemy.orm import Session

from gonogo.errors import JobError
from gonogo.flakiness import bisection as method
from gonogo.flakiness.bisecting import Signal, Stage
from gonogo.flakiness.bisection import SearchState
from gonogo.settings import Settings
from gonogo_service.bisections import findings, store
from gonogo_service.bisections.model import LABEL, BisectionRow
from gonogo_service.devices import workers
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs import submission
from gonogo_service.jobs.bodies import JobIn
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import BisectionState

MAX_RUNS_WITHOUT_ANSWER = 3
"""After this many runs without an answer (crash, hang, failed build) a build can't be tested."""
MAX_SLOTS = 32
"""Open probes of a bisection, however many devices are free: more would add little information
before the first ones end."""
_UNTESTABLE = SearchState(Stage.untestable, 0, 0, (), 0.0, None, 0.0, 0.5, 0.5, ())


def run_once(context: BackgroundContext) -> int:
    """Run one pass; return the number of steps.

    Raises the AWAY errors. The next pass does what this one did not.
    """

    def step_one(bisection_id: str) -> bool:
        return context.session(
            lambda session: step(session, bisection_id, context.settings, utcnow())
        )

    steps = context.handle_each("bisection", context.reading(store.open_ids), step_one)
    if steps:
        context.notify()
    return steps


@dataclass(frozen=True)
class _Search:
    """A search by one signal. builds: the testable ones, which its places are places among."""

    track: Signal
    state: SearchState
    builds: Sequence[int]
    is_whole: bool
    """Whether it is that of the whole series, not of a part beside a change."""


def step(session: Session, bisection_id: str, settings: Settings, now: datetime) -> bool:
    """Advance a bisection in the caller's transaction; return whether anything changed."""
    bisection = session.get(BisectionRow, bisection_id)
    if bisection is None or bisection.state.final:
        return False
    live = workers.live(session, now=now, timeout_s=settings.heartbeat_timeout_s)[bisection.queue]
    since = now - timedelta(seconds=settings.heartbeat_timeout_s)
    slots = min(MAX_SLOTS, store.slots(session, bisection, live=live, since=since))
    if not store.due(session, bisection, slots=slots):
        return False
    bisection = store.lock(session, bisection_id)
    if bisection is None:
        return False
    session.expire(bisection, ["probes"])
    problem = store.read(session, bisection)
    if problem is not None:
        _fail(session, bisection, "a probe could not run", problem, now)
        return True
    open_probes = sum(not probe.ended for probe in bisection.probes)
    room = max(0, min(slots - open_probes, bisection.max_runs - bisection.runs))
    searches = [
        search for track in bisection.signal.tracks for search in _searches(bisection, track, room)
    ]
    tracks = [
        findings.search_track(search.track, search.state, search.builds, bisection.builds)
        for search in searches
    ]
    if has_moved := tracks != bisection.tracks:
        store.store_tracks(session, bisection, tracks)
    if all(search.state.stage.final for search in searches):
        _conclude(session, bisection, searches, now)
        return True
    if bisection.runs >= bisection.max_runs and not open_probes:
        words = f"{bisection.max_runs} runs were not enough: the chart shows the likeliest places"
        _end(session, bisection, conclusion="undecided", words=words, now=now)
        return True
    places = _next_places(searches)[:room]
    try:
        for place in places:
            _start(session, bisection, place, settings, now)
    # a build was removed, or a limit was lowered: nothing of this probe was stored
    except JobError as refused:
        _fail(session, bisection, "a probe could not be submitted", str(refused), now)
    return has_moved or bool(places)


def _conclude(
    session: Session, bisection: BisectionRow, searches: Sequence[_Search], now: datetime
) -> None:
    located = [
        findings.found_change(session, bisection, search.track, search.state, search.builds)
        for search in searches
        if search.state.located
    ]
    located.sort(key=lambda change: (change.place, change.track))
    is_untestable = any(
        search.is_whole and search.state.stage is Stage.untestable for search in searches
    )
    conclusion = "found" if located else "untestable" if is_untestable else "no_change"
    words = findings.answer(conclusion, located)
    _end(session, bisection, conclusion=conclusion, words=words, findings=located, now=now)


def _fail(session: Session, bisection: BisectionRow, words: str, error: str, now: datetime) -> None:
    _end(session, bisection, state=BisectionState.failed, words=words, error=error, now=now)


def _end(session: Session, bisection: BisectionRow, *, now: datetime, **details: Any) -> None:
    """Store the end of a bisection, and cancel its open probes."""
    for job_id in store.finish(session, bisection, now=now, **details):
        jobs.cancel(session, job_id, now=now)
    log.info("bisection ended", bisection=bisection.id, words=details["words"])


def _searches(bisection: BisectionRow, track: Signal, want: int) -> list[_Search]:
    """Return a track's searches of the whole series, and of the parts beside a change."""
    ended: list[list[bool | None]] = [[] for _ in bisection.builds]
    for probe in bisection.probes:
        if probe.ended:
            ended[probe.place].append(probe.is_bad(track))
    untestable = {
        place
        for place, answers in enumerate(ended)
        if len(answers) >= MAX_RUNS_WITHOUT_ANSWER and set(answers) == {None}
    }
    builds = tuple(place for place in range(len(ended)) if place not in untestable)
    if len(builds) < 2:
        return [_Search(track, _UNTESTABLE, builds, True)]
    at = {place: number for number, place in enumerate(builds)}
    answers = [[bad for bad in ended[place] if bad is not None] for place in builds]
    states = method.search_states(
        [(sum(known), len(known)) for known in answers],
        expect=bisection.expect,
        sharp=track is Signal.numbers,
        pending=[
            at[probe.place] for probe in bisection.probes if not probe.ended and probe.place in at
        ],
        want=want,
        several=bisection.several or track is Signal.numbers,
    )
    return [_Search(track, state, builds, not place) for place, state in enumerate(states)]


def _next_places(searches: Sequence[_Search]) -> list[int]:
    """Return the builds that the searches need next, one of each search in turn.

    One run serves all searches that need the same build in the same turn.
    """
    needed = [[search.builds[at] for at in search.state.next_builds] for search in searches]
    turns = zip_longest(*needed)
    return [place for turn in turns for place in dict.fromkeys(turn) if place is not None]


def _start(
    session: Session, bisection: BisectionRow, place: int, settings: Settings, now: datetime
) -> None:
    """Start a probe of the build at a place, with the next seed that it hasn't run.

    Builds with the same number of runs have run the same seeds. Raises JobError.
    """
    seed = bisection.seed_start + sum(probe.place == place for probe in bisection.probes)
    request = bisection.request
    labels = {**request.get("labels", {}), LABEL: bisection.id}
    body = JobIn.parse(
        {**request, "build": bisection.builds[place], "seeds": [seed], "labels": labels}
    )
    job = submission.submit(session, body, settings, bisection.owner, now=now)
    store.add_probe(session, bisection, place=place, seed=seed, job=job.id)
