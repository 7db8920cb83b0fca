"""The SQL of bisections: a series of builds, the probes (ordinary jobs of one seed), the answer.

A process that steps a bisection locks its row first and jobs after it. A process that holds a job's
lock never asks for a bisection's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.bisecting import Signal
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.spec.verdicts import Explanation
from gonogo_service.bisections.model import (
    BisectionProgress,
    BisectionRow,
    FoundChange,
    ProbeRow,
    SearchMove,
    SearchPlace,
    SearchTrack,
)
from gonogo_service.devices.model import WorkerRow
from gonogo_service.jobs.events import Event, Position
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.database.states import FINAL_JOB, BisectionState, JobState
from gonogo_service.kit.outbox import outbox
from gonogo_service.results.model import ResultRow
from gonogo_service.results.seeds import SEED

FINISHED = "bisection.finished"
MAX_MOVES = 120
"""Maximum number of stored moves of the posterior; beyond it, every second older one is dropped."""
_VISIBLE = 0.004
"""Smaller probabilities can't be seen in a picture, and aren't stored."""


def lock(session: Session, bisection_id: str) -> BisectionRow | None:
    """Lock a running bisection until the transaction ends; None when it has ended meanwhile."""
    row = session.get(BisectionRow, bisection_id, with_for_update=True, populate_existing=True)
    return None if row is None or row.state.final else row


def open_ids(session: Session) -> list[str]:
    """Return the ids of running bisections, oldest first."""
    is_open = BisectionRow.state == BisectionState.running
    return list(session.scalars(select(BisectionRow.id).where(is_open).order_by(BisectionRow.id)))


def due(session: Session, bisection: BisectionRow, *, slots: int) -> bool:
    """Return whether a step could do anything.

    It can when a probe's job has ended and isn't read yet, or when there is room for one more.
    """
    jobs = [probe.job_id for probe in bisection.probes if not probe.ended]
    ended = select(JobRow.id).where(JobRow.id.in_(jobs), JobRow.state.in_(FINAL_JOB)).limit(1)
    return len(jobs) < slots or session.scalar(ended) is not None


def slots(session: Session, bisection: BisectionRow, *, live: int, since: datetime) -> int:
    """Return how many probes may be in flight.

    That is one for each live worker that is idle or runs one of them, and at least one, to wait its
    turn. live: workers that serve the queue and may take work. since: a worker last heard before
    that is offline.
    """
    jobs = [probe.job_id for probe in bisection.probes if not probe.ended]
    busy = (
        select(WorkerRow.queues)
        .join(AttemptRow, AttemptRow.id == WorkerRow.attempt)
        .where(WorkerRow.heard_at >= since, AttemptRow.job_id.not_in(jobs))
    )
    return max(1, live - sum(bisection.queue in queues for queues in session.scalars(busy)))


def read(session: Session, bisection: BisectionRow) -> str | None:
    """Record the results of probes whose jobs have ended.

    Returns why one could not run; None: all could. Hangs, crashes and errors say nothing of the
    kernel. Nor does a job that was canceled before its seed ran.
    """
    problem = None
    for probe in bisection.probes:
        job = None
        if not probe.ended:
            job = session.get(JobRow, probe.job_id, populate_existing=True)
        if job is None or not JobState(job.state).final:
            continue
        probe.ended, probe.verdict = True, job.verdict
        if job.state == JobState.failed:
            problem = job.error
        if job.verdict is not None:
            outcome = outcome_of(job.verdict, _green(job.outcomes))
            probe.red = {Outcome.failed: True, Outcome.passed: False}.get(outcome)
            probe.wrong = _wrong(session, job.id)
    session.flush()
    return problem


def _green(outcomes: Mapping[str, int] | None) -> bool | None:
    """Return whether the tests of an iteration report themselves as passed; None: none does."""
    if not outcomes or not (outcomes.get("failed") or outcomes.get("passed")):
        return None
    return not outcomes.get("failed")


def _wrong(session: Session, job_id: str) -> bool | None:
    explanations = set(
        session.scalars(
            select(ResultRow.seed_explanation).where(ResultRow.job_id == job_id).distinct()
        )
    )
    if Explanation.unexplained in explanations:
        return True
    return False if explanations == {Explanation.explained} else None


def add_probe(
    session: Session, bisection: BisectionRow, *, place: int, seed: int, job: str
) -> None:
    """Add a probe, whose job was created in the same transaction."""
    bisection.runs += 1
    number = bisection.runs
    bisection.probes.append(
        ProbeRow(number=number, place=place, seed=seed, job_id=job, ended=False)
    )
    session.flush()


def message(session: Session, bisection: BisectionRow, place: int, track: Signal) -> str | None:
    """Return the message of a build's last bad run: of a hang it has the place, where known."""
    bad = [probe for probe in bisection.probes if probe.place == place and probe.is_bad(track)]
    jobs = [probe.job_id for probe in bad]
    query = select(ResultRow.message).where(ResultRow.job_id.in_(jobs[-1:]), SEED)
    return session.scalar(query.limit(1))


def store_tracks(session: Session, bisection: BisectionRow, tracks: Sequence[SearchTrack]) -> None:
    """Store the state of the searches; clients that follow the bisection receive it."""
    bisection.tracks = list(tracks)
    ended = sum(probe.ended for probe in bisection.probes)
    bisection.moves = with_move(bisection.moves or [], ended, tracks)
    bisection.version += 1
    session.flush()


def with_move(
    before: Sequence[SearchMove], runs: int, tracks: Sequence[SearchPlace]
) -> list[SearchMove]:
    """Return the moves with one more."""
    names = SearchPlace.__dataclass_fields__
    places = []
    for track in tracks:
        place = SearchPlace(**{name: getattr(track, name) for name in names})
        visible = [(at, round(share, 3)) for at, share in track.posterior if share > _VISIBLE]
        places.append(replace(place, posterior=visible))
    half = MAX_MOVES // 2
    older = list(before) if len(before) < MAX_MOVES else [*before[:half:2], *before[half:]]
    return [*older, SearchMove(runs, places)]


def finish(
    session: Session,
    bisection: BisectionRow,
    *,
    words: str,
    now: datetime,
    conclusion: str | None = None,
    findings: Sequence[FoundChange] = (),
    state: BisectionState = BisectionState.finished,
    error: str | None = None,
) -> list[str]:
    """End a bisection, with one outbox message.

    Returns its jobs in flight, for the caller to cancel. The caller holds its lock.
    """
    bisection.state, bisection.conclusion, bisection.words = state, conclusion, words
    bisection.error, bisection.findings, bisection.finished_at = error, list(findings), now
    bisection.version += 1
    payload: dict[str, Any] = {"bisection": bisection.id, "version": bisection.version}
    outbox.add(session, FINISHED, f"{FINISHED}:{bisection.id}", payload, now=now)
    session.flush()
    return [probe.job_id for probe in bisection.probes if not probe.ended]


def positions(session: Session, ids: Collection[str]) -> dict[str, Position]:
    """Return each bisection's position, its version: the streams of the API poll it."""
    row = BisectionRow
    positioned = session.execute(select(row.id, row.version, row.state).where(row.id.in_(ids)))
    return {id_: Position(version, state.final) for id_, version, state in positioned}


def after(session: Session, bisection_id: str, version: int) -> list[Event[BisectionProgress]]:
    """Return the event of the newest version, if it is later; earlier versions aren't stored."""
    row = session.get(BisectionRow, bisection_id, populate_existing=True)
    if row is None or row.version <= version:
        return []
    data = BisectionProgress(row.state, row.runs, row.tracks, row.conclusion, row.words)
    return [Event(row.version, "state" if row.state.final else "progress", data)]
