"""Bisections: a series of builds, the probes (ordinary jobs of one seed) and the answer.

A process that steps a bisection locks its row first and jobs after it. A process that holds a job's
lock never asks for a bisection's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from gonogo.flakiness.bisecting import Expect, Signal, Stage
from gonogo.flakiness.masking import BuildChange
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_service.bisections.model import BisectionRow, ProbeRow
from gonogo_service.devices.model import WorkerRow
from gonogo_service.jobs.event_positions import Position
from gonogo_service.jobs.events import Event
from gonogo_service.jobs.job import NewJob
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_json, from_object
from gonogo_service.kit.database.states import BisectionState, JobState
from gonogo_service.kit.outbox import outbox
from gonogo_service.results.rows import SeedResultRow
from gonogo_service.tests import test_specs
from gonogo_service.tests.model import TestSpecRow

FINISHED = "bisection.finished"
LABEL = "bisection"
"""Label of a probe's job: the id of its bisection."""
MAX_MOVES = 120
"""Maximum number of stored moves of the posterior.

Beyond it, every second one of the older moves is dropped.
"""
_VISIBLE = 0.004
"""Smaller probabilities can't be seen in a picture, and aren't stored."""


@dataclass(frozen=True)
class NewBisection:
    """A checked request. `sample`: the job of its first probe, for the test and the queue."""

    sample: NewJob
    builds: Sequence[str]
    request: Mapping[str, Any]
    signal: str
    expect: str
    several: bool = False
    seed_start: int = 0
    max_runs: int = 500
    owner: str = "local"


@dataclass(frozen=True)
class Probe:
    """One run: the build (by its place in the series), the seed, the job, and its result.

    `red` and `wrong` are None where the run can't say.
    """

    number: int
    place: int
    seed: int
    job: str
    ended: bool
    verdict: str | None
    red: bool | None
    wrong: bool | None

    def is_bad(self, track: Signal) -> bool | None:
        """Return whether the run was bad by a signal; None where it can't say."""
        if track is Signal.numbers:
            return self.wrong
        if track is Signal.verdicts:
            return self.red
        is_known = self.verdict is not None and self.verdict != Verdict.error
        return self.verdict == track.value if is_known else None


@dataclass(frozen=True)
class SearchPlace:
    """A search over a part of the series: what it knows of the place of the change."""

    track: Signal
    low: int
    high: int
    """The places of its first and its last build"""
    posterior: list[tuple[int, float]]
    """For each testable build but the first: its place, and the probability that it is the first
    changed one"""
    build: str | None
    """The likeliest build; null before any is"""
    probability: float


@dataclass(frozen=True)
class SearchTrack(SearchPlace):
    """A search with its stage, and with the rates of bad runs before and after the change."""

    stage: Stage
    evidence: float
    place: int | None
    """The place of `build`"""
    before: float
    after: float


@dataclass(frozen=True)
class BisectionProgress:
    """A bisection in its newest version: the data of its events."""

    state: BisectionState
    runs: int
    tracks: list[SearchTrack]
    conclusion: str | None
    words: str | None


@dataclass(frozen=True)
class SearchMove:
    """The searches after a number of ended runs."""

    runs: int
    tracks: list[SearchPlace]


ChangeKind = Literal["fixed", "broken", "masked", "unmasked", "quieter", "louder"]


@dataclass(frozen=True)
class FoundChange:
    """A change with its evidence: the compared numbers of its two neighbors' runs."""

    track: Signal
    kind: ChangeKind
    place: int
    build: str
    """The first changed build"""
    before: str
    """The last unchanged build"""
    between: list[str]
    """Builds between the two that could not be tested"""
    probability: float
    rates: tuple[float, float]
    """The rates of bad runs before and after"""
    words: str
    comparison: BuildChange


@dataclass(frozen=True)
class BisectionSummary:
    """A bisection in a list."""

    id: str
    state: BisectionState
    signal: Signal
    expect: Expect
    several: bool
    owner: str
    test: dict[str, Any]
    test_key: str
    queue: str
    builds: list[str]
    seed_start: int
    max_runs: int
    runs: int
    version: int
    findings: list[FoundChange]
    conclusion: str | None
    """found, no_change, untestable, undecided; null until it is over"""
    words: str | None
    error: str | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class Bisection(BisectionSummary):
    """A bisection with the state of its searches, and its probes."""

    request: dict[str, Any]
    tracks: list[SearchTrack]
    probes: tuple[Probe, ...]
    moves: tuple[SearchMove, ...]
    """The state of the searches after each number of ended runs, oldest first."""


AnyBisection = TypeVar("AnyBisection", bound=BisectionSummary)


def create(session: Session, new: NewBisection, *, now: datetime | None = None) -> Bisection:
    """Store it in the caller's transaction; the background creates its probes."""
    now = now or utcnow()
    job = new.sample
    test_specs.ensure(session, job, now=now)
    row = BisectionRow(
        id=new_id(),
        state=BisectionState.running,
        signal=new.signal,
        expect=new.expect,
        several=new.several,
        owner=new.owner,
        test_key=job.test_key,
        queue=job.queue,
        builds=list(new.builds),
        request=dict(new.request),
        seed_start=new.seed_start,
        max_runs=new.max_runs,
        runs=0,
        version=1,
        tracks=[],
        findings=[],
        created_at=now,
    )
    session.add(row)
    session.flush()
    return _bisection(Bisection, row, dict(job.canonical), tracks=[], probes=(), moves=())


def get(session: Session, bisection_id: str) -> Bisection | None:
    """Return a bisection with its probes; None when there is none."""
    if not is_id(bisection_id):
        return None
    stored = session.execute(_joined().where(BisectionRow.id == bisection_id)).one_or_none()
    if stored is None:
        return None
    row, canonical = stored
    return _bisection(
        Bisection,
        row,
        canonical,
        tracks=[from_json(SearchTrack, track) for track in row.tracks],
        probes=_probes(session, bisection_id),
        moves=tuple(from_json(SearchMove, move) for move in row.moves or ()),
    )


def list_(
    session: Session,
    *,
    test: str | None = None,
    state: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[BisectionSummary]:
    """Return bisections without their probes, newest first. Raises BadCursor."""
    return newest_first(
        session,
        _joined().options(defer(BisectionRow.moves), defer(BisectionRow.tracks)),
        BisectionRow.id,
        partial(_bisection, BisectionSummary),
        limit=limit,
        cursor=cursor,
        filters={BisectionRow.test_key: test, BisectionRow.state: state},
    )


def open_ids(session: Session) -> list[str]:
    """Return the ids of running bisections, oldest first."""
    return list(
        session.scalars(
            select(BisectionRow.id)
            .where(BisectionRow.state == BisectionState.running)
            .order_by(BisectionRow.id)
        )
    )


def due(session: Session, bisection_id: str, *, slots: int) -> bool:
    """Return whether a step could do anything.

    It can when a probe's job has ended and isn't read yet, or when there is room for one more
    probe.
    """
    probes = select(ProbeRow.job_id).where(
        ProbeRow.bisection_id == bisection_id, ProbeRow.ended.is_(False)
    )
    open_probes = list(session.scalars(probes))
    final_states = tuple(state for state in JobState if state.final)
    ended = (
        select(JobRow.id).where(JobRow.id.in_(open_probes), JobRow.state.in_(final_states)).limit(1)
    )
    return len(open_probes) < slots or session.scalar(ended) is not None


def lock(session: Session, bisection_id: str) -> Bisection | None:
    """Lock a running bisection until the transaction ends; None when it has ended meanwhile."""
    row = session.get(BisectionRow, bisection_id, with_for_update=True, populate_existing=True)
    return (
        None if row is None or row.state != BisectionState.running else get(session, bisection_id)
    )


def slots(session: Session, bisection: Bisection, *, live: int, since: datetime) -> int:
    """Return how many probes may be in flight.

    That is one for each live worker that is idle or runs one of them, and at least one, to wait its
    turn. live: workers that serve the queue and may take work. since: a worker last heard before
    that is offline.
    """
    probe_jobs = select(ProbeRow.job_id).where(
        ProbeRow.bisection_id == bisection.id, ProbeRow.ended.is_(False)
    )
    busy = (
        select(WorkerRow.queues)
        .join(AttemptRow, AttemptRow.id == WorkerRow.attempt_id)
        .where(WorkerRow.heard_at >= since, AttemptRow.job_id.not_in(probe_jobs))
    )
    return max(1, live - sum(bisection.queue in queues for queues in session.scalars(busy)))


def read(session: Session, bisection_id: str) -> tuple[tuple[Probe, ...], str | None]:
    """Record the results of probes whose jobs have ended.

    Returns (all probes, why one could not run; None: all could). Hangs, crashes and errors say
    nothing of the kernel. Nor does a job that was canceled before its seed ran.
    """
    problem = None
    for row in session.scalars(
        select(ProbeRow).where(ProbeRow.bisection_id == bisection_id, ProbeRow.ended.is_(False))
    ):
        job = session.get(JobRow, row.job_id, populate_existing=True)
        if job is None or not JobState(job.state).final:
            continue
        row.ended, row.verdict = True, job.verdict
        if job.state == JobState.failed:
            problem = job.error
        if job.verdict is not None:
            row.red = {Outcome.failed: True, Outcome.passed: False}.get(
                outcome_of(job.verdict, _green(job.outcomes))
            )
            row.wrong = _wrong(session, job.id)
    session.flush()
    return _probes(session, bisection_id), problem


def add(session: Session, bisection_id: str, *, place: int, seed: int, job: str) -> None:
    """Add a probe, whose job was created in the same transaction."""
    row = session.get_one(BisectionRow, bisection_id)
    row.runs += 1
    session.add(
        ProbeRow(
            bisection_id=bisection_id,
            number=row.runs,
            place=place,
            seed=seed,
            job_id=job,
            ended=False,
        )
    )
    session.flush()


def message(session: Session, probes: Sequence[Probe], place: int, track: Signal) -> str | None:
    """Return the message of a build's last bad run: of a hang it has the place, where known."""
    jobs = [probe.job for probe in probes if probe.place == place and probe.is_bad(track)]
    query = select(SeedResultRow.message).where(SeedResultRow.job_id.in_(jobs[-1:]))
    return session.scalar(query.limit(1))


def store_tracks(session: Session, bisection_id: str, tracks: Sequence[SearchTrack]) -> None:
    """Store the state of the searches; clients that follow the bisection receive it."""
    row = session.get_one(BisectionRow, bisection_id)
    row.tracks = [asdict(track) for track in tracks]
    ended = (
        select(func.count())
        .select_from(ProbeRow)
        .where(ProbeRow.bisection_id == bisection_id, ProbeRow.ended)
    )
    row.moves = with_move(row.moves or [], session.scalar(ended) or 0, tracks)
    row.version += 1
    session.flush()


def with_move(
    before: Sequence[Mapping[str, Any]], runs: int, tracks: Sequence[SearchTrack]
) -> list[Mapping[str, Any]]:
    """Return the stored moves with one more."""
    places = [
        from_object(
            SearchPlace,
            track,
            posterior=[
                (place, round(share, 3)) for place, share in track.posterior if share > _VISIBLE
            ],
        )
        for track in tracks
    ]
    older = (
        list(before)
        if len(before) < MAX_MOVES
        else [*before[: MAX_MOVES // 2 : 2], *before[MAX_MOVES // 2 :]]
    )
    return [*older, asdict(SearchMove(runs, places))]


def finish(
    session: Session,
    bisection_id: str,
    *,
    conclusion: str | None,
    words: str,
    findings: Sequence[FoundChange] = (),
    state: BisectionState = BisectionState.finished,
    error: str | None = None,
    now: datetime,
) -> list[str]:
    """End a bisection, with one outbox message.

    Returns its jobs in flight, for the caller to cancel. The caller holds its lock.
    """
    row = session.get_one(BisectionRow, bisection_id)
    row.state, row.conclusion, row.words, row.error = state, conclusion, words, error
    row.findings, row.finished_at = [asdict(finding) for finding in findings], now
    row.version += 1
    outbox.add(
        session,
        FINISHED,
        f"{FINISHED}:{bisection_id}",
        {"bisection": bisection_id, "version": row.version},
        now=now,
    )
    session.flush()
    return [probe.job for probe in _probes(session, bisection_id) if not probe.ended]


def positions(session: Session, ids: Collection[str]) -> dict[str, Position]:
    """Return each bisection's position, its version: the streams of the API poll it."""
    rows = session.execute(
        select(BisectionRow.id, BisectionRow.version, BisectionRow.state).where(
            BisectionRow.id.in_(ids)
        )
    )
    return {
        bisection_id: Position(version, BisectionState(state).final)
        for bisection_id, version, state in rows
    }


def after(session: Session, bisection_id: str, version: int) -> list[Event[BisectionProgress]]:
    """Return the event of the newest version, if it is later; earlier versions aren't stored."""
    row = session.get(BisectionRow, bisection_id, populate_existing=True)
    if row is None or row.version <= version:
        return []
    return [
        Event(
            number=row.version,
            type="state" if BisectionState(row.state).final else "progress",
            data=from_object(
                BisectionProgress,
                row,
                state=BisectionState(row.state),
                tracks=[from_json(SearchTrack, track) for track in row.tracks],
            ),
        )
    ]


def _green(outcomes: Mapping[str, int] | None) -> bool | None:
    """Return whether the tests of an iteration report themselves as passed.

    None without such a report.
    """
    if not outcomes or not (outcomes.get("failed") or outcomes.get("passed")):
        return None
    return not outcomes.get("failed")


def _wrong(session: Session, job_id: str) -> bool | None:
    explanations = set(
        session.scalars(
            select(SeedResultRow.explanation).where(SeedResultRow.job_id == job_id).distinct()
        )
    )
    if Explanation.unexplained in explanations:
        return True
    return False if explanations == {Explanation.explained} else None


def _probes(session: Session, bisection_id: str) -> tuple[Probe, ...]:
    rows = session.scalars(
        select(ProbeRow).where(ProbeRow.bisection_id == bisection_id).order_by(ProbeRow.number)
    )
    return tuple(from_object(Probe, row, job=row.job_id) for row in rows)


def _joined() -> Any:
    return select(BisectionRow, TestSpecRow.canonical).join(
        TestSpecRow, TestSpecRow.key == BisectionRow.test_key
    )


def _bisection(
    shape: type[AnyBisection], row: BisectionRow, canonical: dict[str, Any], **others: Any
) -> AnyBisection:
    return from_object(
        shape,
        row,
        state=BisectionState(row.state),
        signal=Signal(row.signal),
        expect=Expect(row.expect),
        test=canonical,
        findings=[from_json(FoundChange, finding) for finding in row.findings],
        **others,
    )
