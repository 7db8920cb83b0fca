"""The role that steps bisections: reads what came of their probes, and starts the next ones, or
concludes. One transaction a step.

Nothing is remembered between steps: where a search stands follows from its probes, so any process
may be killed at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from gonogo.errors import JobError
from gonogo.flakiness import bisection as method
from gonogo.flakiness.bisecting import Expect, Signal, Stage
from gonogo.flakiness.bisection import Look
from gonogo_service.background.bisection import text
from gonogo_service.kit.background_context import AWAY, Core, log
from gonogo_service.submission import jobs as submission
from gonogo_service.submission.bodies import JobIn
from gonogo_settings import Settings
from gonogo_storage.automation import bisections
from gonogo_storage.automation.bisections import LABEL, Bisection, Probe
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.states import BisectionState
from gonogo_storage.devices import workers
from gonogo_storage.jobs import jobs

MOST_SILENT = 3
"""Runs of a build that say nothing (a crash, a hang, a build that can't be made): after so many it
counts as one that can't be tested."""
MOST_SLOTS = 32
"""Probes in flight of one bisection, however many devices are free: more would hardly tell more
before the first ones come back."""


def run_once(core: Core, clock: Callable[[], datetime] = utcnow) -> int:
    """One pass; how many steps were made. Raises core.AWAY errors: what was not done is found by
    the next pass.
    """
    made = 0
    for bisection_id in core.reading(bisections.open_ids):
        try:
            made += bool(
                core.session(
                    partial(step, bisection_id=bisection_id, settings=core.settings, now=clock())
                )
            )
        except AWAY:
            raise
        except Exception:  # one bisection must not keep the others from theirs; it is stepped again
            log.exception("a bisection could not be stepped; trying again", bisection=bisection_id)
    if made:
        core.ring()
    return made


def step(session: Session, bisection_id: str, settings: Settings, now: datetime) -> bool:
    """Go on with a bisection in the caller's transaction, if there is anything to do; whether there
    was.
    """
    found = bisections.get(session, bisection_id)
    if found is None or found.state.final:
        return False
    live = workers.live(session, now=now, timeout_s=settings.heartbeat_timeout_s)[found.queue]
    since = now - timedelta(seconds=settings.heartbeat_timeout_s)
    slots = min(MOST_SLOTS, bisections.slots(session, found, live=live, since=since))
    if not bisections.due(session, bisection_id, slots=slots):
        return False
    found = bisections.lock(session, bisection_id)
    if found is None:
        return False
    probes, problem = bisections.read(session, bisection_id)
    if problem is not None:
        end(
            session,
            found,
            state=BisectionState.failed,
            conclusion=None,
            words="a probe could not be run",
            error=problem,
            now=now,
        )
        return True
    flying = [probe for probe in probes if not probe.ended]
    room = min(slots - len(flying), found.max_runs - found.runs)
    searches = [
        (track, _searches(found, track, probes, max(0, room)))
        for track in Signal(found.signal).tracks
    ]
    told = [
        text.shown(track, look, builds, found.builds)
        for track, (looks, builds) in searches
        for look in looks
    ]
    if told != found.tracks:
        bisections.tell(session, bisection_id, told)
    if all(look.stage.final for _, (looks, _) in searches for look in looks):
        findings = [
            text.finding(session, found, probes, track, look, builds)
            for track, (looks, builds) in searches
            for look in looks
            if look.found
        ]
        findings.sort(key=lambda each: (each["place"], each["track"]))
        untestable = any(
            look.stage is Stage.untestable for _, (looks, _) in searches for look in looks[:1]
        )
        conclusion = "found" if findings else "untestable" if untestable else "no_change"
        end(
            session,
            found,
            conclusion=conclusion,
            words=text.words(conclusion, findings),
            findings=findings,
            now=now,
        )
        return True
    if found.runs >= found.max_runs and not flying:
        words = (
            f"{found.max_runs} runs were not enough: the likeliest places are those of its picture"
        )
        end(session, found, conclusion="undecided", words=words, now=now)
        return True
    wanted = _merged(
        [
            [builds[place] for place in look.wanted]
            for _, (looks, builds) in searches
            for look in looks
        ]
    )
    try:
        for place in wanted[: max(0, room)]:
            probes = (*probes, _start(session, found, place, probes, settings, now))
    # a build that is gone, a limit that was lowered: nothing was written of this probe
    except JobError as refused:
        end(
            session,
            found,
            state=BisectionState.failed,
            conclusion=None,
            words="a probe could not be made",
            error=str(refused),
            now=now,
        )
    return True


def end(session: Session, found: Bisection, *, now: datetime, words: str, **what: Any) -> None:
    """Write the end of a bisection, and cancel what is still in flight."""
    for job_id in bisections.finish(session, found.id, words=words, now=now, **what):
        jobs.cancel(session, job_id, now=now)
    log.info("bisection ended", bisection=found.id, words=words)


def _searches(
    found: Bisection, track: Signal, probes: Sequence[Probe], want: int
) -> tuple[tuple[Look, ...], tuple[int, ...]]:
    """(how the searches of a track stand, the builds that can be tested): the places of the looks
    are places among these.
    """
    answers = [
        (probe.place, probe.wrong if track is Signal.numbers else probe.red)
        for probe in probes
        if probe.ended
    ]
    silent = [
        sum(place == each and said is None for place, said in answers)
        for each in range(len(found.builds))
    ]
    spoken = {place for place, said in answers if said is not None}
    lost = {
        place
        for place, number in enumerate(silent)
        if number >= MOST_SILENT and place not in spoken
    }
    builds = method.testable(len(found.builds), lost)
    at = {place: number for number, place in enumerate(builds)}
    tallies = [(0, 0)] * len(builds)
    for place, said in answers:
        if said is not None and place in at:
            bad, runs = tallies[at[place]]
            tallies[at[place]] = (bad + said, runs + 1)
    pending = [at[probe.place] for probe in probes if not probe.ended and probe.place in at]
    if len(builds) < 2:
        return (Look(Stage.untestable, 0, 0, (), 0.0, None, 0.0, 0.5, 0.5, ()),), builds
    sharp = track is Signal.numbers
    looks = method.looks(
        tallies,
        expect=Expect(found.expect),
        sharp=sharp,
        pending=pending,
        want=want,
        several=found.several or sharp,
    )
    return looks, builds


def _merged(rows: Sequence[Sequence[int]]) -> list[int]:
    """The wishes of all searches in turn; one run serves all that wish for the same build at
    once.
    """
    merged: list[int] = []
    for turn in range(max((len(row) for row in rows), default=0)):
        wishes = [row[turn] for row in rows if turn < len(row)]
        merged += dict.fromkeys(wishes)
    return merged


def _start(
    session: Session,
    found: Bisection,
    place: int,
    probes: Sequence[Probe],
    settings: Settings,
    now: datetime,
) -> Probe:
    """A probe of the build at that place, with the next seed that it hasn't run: equal numbers of
    runs are equal seeds. Raises JobError.
    """
    number = sum(probe.place == place for probe in probes)
    seed = found.seed_start + number
    request = found.request
    labels = {**request.get("labels", {}), LABEL: found.id}
    body = JobIn.model_validate(
        {**request, "build": found.builds[place], "seeds": [seed], "labels": labels}
    )
    job = jobs.create(
        session,
        submission.resolve(session, submission.check(body, settings), settings, found.owner),
        now=now,
    )
    bisections.add(session, found.id, place=place, seed=seed, job=job.id)
    return Probe(len(probes) + 1, place, seed, job.id, False, None, None, None)
