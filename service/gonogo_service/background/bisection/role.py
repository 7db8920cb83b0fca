"""The role that steps bisections: it reads the probes' results, and starts more or concludes.

Each step is one transaction. Nothing is remembered between steps: the state of a search follows
from its probes, so any process may be killed at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from gonogo.errors import JobError
from gonogo.flakiness import bisection as method
from gonogo.flakiness.bisecting import Expect, Signal, Stage
from gonogo.flakiness.bisection import SearchState
from gonogo.settings import Settings
from gonogo_service.background.bisection import text
from gonogo_service.bisections import store as bisections
from gonogo_service.bisections.store import LABEL, Bisection, Probe
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
"""Maximum number of open probes per bisection, however many devices are free.

More would add little information before the first ones end.
"""


def run_once(context: BackgroundContext, clock: Callable[[], datetime] = utcnow) -> int:
    """Run one pass; return the number of steps.

    Raises the AWAY errors. The next pass does what this one did not.
    """

    def step_one(bisection_id: str) -> bool:
        return context.session(
            lambda session: step(session, bisection_id, context.settings, clock())
        )

    steps = context.handle_each("bisection", context.reading(bisections.open_ids), step_one)
    if steps:
        context.notify()
    return steps


def step(session: Session, bisection_id: str, settings: Settings, now: datetime) -> bool:
    """Advance a bisection in the caller's transaction; return whether there was anything to do."""
    bisection = bisections.get(session, bisection_id)
    if bisection is None or bisection.state.final:
        return False
    live = workers.live(session, now=now, timeout_s=settings.heartbeat_timeout_s)[bisection.queue]
    since = now - timedelta(seconds=settings.heartbeat_timeout_s)
    slots = min(MAX_SLOTS, bisections.slots(session, bisection, live=live, since=since))
    if not bisections.due(session, bisection_id, slots=slots):
        return False
    bisection = bisections.lock(session, bisection_id)
    if bisection is None:
        return False
    probes, problem = bisections.read(session, bisection_id)
    if problem is not None:
        end(
            session,
            bisection,
            state=BisectionState.failed,
            conclusion=None,
            words="a probe could not run",
            error=problem,
            now=now,
        )
        return True
    open_probes = [probe for probe in probes if not probe.ended]
    room = min(slots - len(open_probes), bisection.max_runs - bisection.runs)
    searches = [
        (track, _searches(bisection, track, probes, max(0, room)))
        for track in Signal(bisection.signal).tracks
    ]
    tracks = [
        text.search_track(track, search, builds, bisection.builds)
        for track, (states, builds) in searches
        for search in states
    ]
    if tracks != bisection.tracks:
        bisections.store_tracks(session, bisection_id, tracks)
    if all(search.stage.final for _, (states, _) in searches for search in states):
        findings = [
            text.finding(session, bisection, probes, track, search, builds)
            for track, (states, builds) in searches
            for search in states
            if search.located
        ]
        findings.sort(key=lambda finding: (finding.place, finding.track))
        untestable = any(
            search.stage is Stage.untestable for _, (states, _) in searches for search in states[:1]
        )
        conclusion = "found" if findings else "untestable" if untestable else "no_change"
        end(
            session,
            bisection,
            conclusion=conclusion,
            words=text.words(conclusion, findings),
            findings=findings,
            now=now,
        )
        return True
    if bisection.runs >= bisection.max_runs and not open_probes:
        words = f"{bisection.max_runs} runs were not enough: the chart shows the likeliest places"
        end(session, bisection, conclusion="undecided", words=words, now=now)
        return True
    next_places = _interleaved(
        [
            [builds[place] for place in search.next_builds]
            for _, (states, builds) in searches
            for search in states
        ]
    )
    try:
        for place in next_places[: max(0, room)]:
            probes = (*probes, _start(session, bisection, place, probes, settings, now))
    # a build was removed, or a limit was lowered: nothing of this probe was stored
    except JobError as refused:
        end(
            session,
            bisection,
            state=BisectionState.failed,
            conclusion=None,
            words="a probe could not be submitted",
            error=str(refused),
            now=now,
        )
    return True


def end(
    session: Session, bisection: Bisection, *, now: datetime, words: str, **details: Any
) -> None:
    """Store the end of a bisection, and cancel its open probes."""
    for job_id in bisections.finish(session, bisection.id, words=words, now=now, **details):
        jobs.cancel(session, job_id, now=now)
    log.info("bisection ended", bisection=bisection.id, words=words)


def _searches(
    bisection: Bisection, track: Signal, probes: Sequence[Probe], want: int
) -> tuple[tuple[SearchState, ...], tuple[int, ...]]:
    """Return (the state of a track's searches, the testable builds).

    The places in the searches are places among these builds.
    """
    answers = [(probe.place, probe.is_bad(track)) for probe in probes if probe.ended]
    without_answer = [
        sum(place == build and is_bad is None for place, is_bad in answers)
        for build in range(len(bisection.builds))
    ]
    answered = {place for place, is_bad in answers if is_bad is not None}
    untestable = {
        place
        for place, count in enumerate(without_answer)
        if count >= MAX_RUNS_WITHOUT_ANSWER and place not in answered
    }
    builds = method.testable(len(bisection.builds), untestable)
    at = {place: number for number, place in enumerate(builds)}
    tallies = [(0, 0)] * len(builds)
    for place, is_bad in answers:
        if is_bad is not None and place in at:
            bad, runs = tallies[at[place]]
            tallies[at[place]] = (bad + is_bad, runs + 1)
    pending = [at[probe.place] for probe in probes if not probe.ended and probe.place in at]
    if len(builds) < 2:
        return (SearchState(Stage.untestable, 0, 0, (), 0.0, None, 0.0, 0.5, 0.5, ()),), builds
    sharp = track is Signal.numbers
    states = method.search_states(
        tallies,
        expect=Expect(bisection.expect),
        sharp=sharp,
        pending=pending,
        want=want,
        several=bisection.several or sharp,
    )
    return states, builds


def _interleaved(searches: Sequence[Sequence[int]]) -> list[int]:
    """Return the builds that the searches need next, one of each search in turn.

    One run serves all searches that need the same build in the same turn.
    """
    merged: list[int] = []
    for turn in range(max((len(places) for places in searches), default=0)):
        needed = [places[turn] for places in searches if turn < len(places)]
        merged += dict.fromkeys(needed)
    return merged


def _start(
    session: Session,
    bisection: Bisection,
    place: int,
    probes: Sequence[Probe],
    settings: Settings,
    now: datetime,
) -> Probe:
    """Start a probe of the build at a place, with the next seed that it hasn't run.

    Builds with the same number of runs have run the same seeds. Raises JobError.
    """
    number = sum(probe.place == place for probe in probes)
    seed = bisection.seed_start + number
    request = bisection.request
    labels = {**request.get("labels", {}), LABEL: bisection.id}
    body = JobIn.parse(
        {**request, "build": bisection.builds[place], "seeds": [seed], "labels": labels}
    )
    checked = submission.check(body, settings)
    job = submission.submit(session, checked, settings, bisection.owner, now=now)
    bisections.add(session, bisection.id, place=place, seed=seed, job=job.id)
    return Probe(len(probes) + 1, place, seed, job.id, False, None, None, None)
