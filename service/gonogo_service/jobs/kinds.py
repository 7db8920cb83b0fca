"""The kinds of jobs: how each stores its results, and what it concludes from them.

`kind_of(job)` is the only place that asks of which kind a job is. Every function here runs under
the job's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.reports import red_hollow
from gonogo.spec.executors import EMULATOR
from gonogo.spec.selections import sample
from gonogo.spec.verdicts import Verdict
from gonogo.spec.verdicts import worst as worst_verdict
from gonogo_service.flags import evidence, suspects
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.gauges import gauge_ends, gauge_rows, gauge_work
from gonogo_service.jobs import events, sequential, work
from gonogo_service.jobs.events import Progress, SeedVerdict, StateChange
from gonogo_service.jobs.model import ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.jobs.values import SuspectSeeds
from gonogo_service.kit.database.states import JobKind, JobState
from gonogo_service.kit.outbox import outbox
from gonogo_service.results import store as results
from gonogo_service.results.batch import Batch
from gonogo_service.tests.assessments import ASSESS, request_assessment
from gonogo_service.tests.variants import variants_of


class Kernel:
    """A kernel's seeds on one build."""

    noun: ClassVar[str] = "job"
    topic: ClassVar[str] = "job.finished"
    on_devices: ClassVar[bool] = True
    """Whether its seeds count as the work of devices."""

    def complete(
        self, session: Session, job: JobRow, message: dict[str, Any], seed_s: float | None
    ) -> float | None:
        """Complete the message to a worker; return the seconds that a seed is expected to take."""
        return seed_s

    def record(
        self, session: Session, job: JobRow, attempt_id: str, batch: Batch, *, now: datetime
    ) -> None:
        """Store new results and count them, for the job and in the aggregates."""
        results.store(session, job, attempt_id, batch, now=now)
        before, added = job.counts, Counter([row["verdict"] for row in batch.rows])
        job.counts = dict(Counter(before) + added)
        red, hollow = self.red_and_hollow(job, batch, added)
        job.red, job.hollow, job.done = job.red + red, job.hollow + hollow, job.done + len(batch)
        judges = (row["judge"] for row in batch.rows if row.get("judge"))
        job.judge = job.judge or next(judges, None)
        worst = _worst(added)
        if not before or worst.rank < _worst(before).rank:
            row = min(
                (row for row in batch.rows if row["verdict"] == worst),
                key=lambda row: (row["seed"], row["repeat"]),
            )
            data = SeedVerdict(
                **sample(job.test, row["seed"]),
                repeat=row["repeat"],
                verdict=row["verdict"],
                explanation=row.get("explanation"),
            )
            events.add(session, job, data, now=now)
        events.add(session, job, Progress(job.done, job.total, job.counts), now=now)

    def red_and_hollow(self, job: JobRow, batch: Batch, added: Counter[str]) -> tuple[int, int]:
        """Count the red and the hollow seeds of a batch with these verdicts."""
        return red_hollow.of_seeds(added)

    def conclude(self, session: Session, job: JobRow, state: JobState, *, now: datetime) -> bool:
        """Store the verdict, the diagnosis and the flags; False where it goes on with more seeds.

        state: finished or canceled.
        """
        if state is JobState.finished and self._goes_on(session, job, now=now):
            return False
        counts = suspects.settled_counts(job.counts, job.suspects)
        verdict = _worst(counts) if counts else None
        if state is JobState.cancelled and verdict is Verdict.pass_:
            verdict = None  # seeds that never ran can't be green; a wrong result stays wrong
        if verdict is Verdict.suspect:
            self.tell_undecided(session, job)
        job.verdict = verdict
        session.flush()
        job.diagnosis = evidence.diagnosis(session, job.id, verdict)
        for finding in self.findings(session, job):
            flags.upsert(session, finding, now=now)
        if job.done:
            self.ask_for_assessment(session, job, now=now)
        return True

    def _goes_on(self, session: Session, job: JobRow, *, now: datetime) -> bool:
        sequential.finalize(session, job)
        seeds = self.more_seeds(session, job)
        if seeds:
            _add_seeds(session, job, seeds, now=now)
        return bool(seeds)

    def more_seeds(self, session: Session, job: JobRow) -> list[int]:
        """Return the seeds that suspect ones add."""
        return suspects.consider(session, job)

    def tell_undecided(self, session: Session, job: JobRow) -> None:
        """Tell what would decide about suspect seeds."""
        suspects.undecided(session, job)

    def findings(self, session: Session, job: JobRow) -> Iterable[FlagRow]:
        """Return the flags that its seeds call for."""
        return evidence.findings(session, job)

    def ask_for_assessment(self, session: Session, job: JobRow, *, now: datetime) -> None:
        """Ask for a new assessment of what the job says about its test."""
        outbox.add(session, ASSESS, f"{ASSESS}:{job.id}", {"job": job.id}, now=now)


class Comparison(Kernel):
    """A kernel's seeds on two builds: a flag is about one build, so it has none."""

    def more_seeds(self, session: Session, job: JobRow) -> list[int]:
        """Return none."""
        return []

    def findings(self, session: Session, job: JobRow) -> Iterable[FlagRow]:
        """Return none."""
        return ()

    def ask_for_assessment(self, session: Session, job: JobRow, *, now: datetime) -> None:
        """Ask for none."""


class Selection(Kernel):
    """Iterations of tests that exist already, which have their own criteria."""

    def red_and_hollow(self, job: JobRow, batch: Batch, added: Counter[str]) -> tuple[int, int]:
        """Count the red and hollow tests, and the tests of all iterations by outcome.

        An iteration without any test counts by its verdict.
        """
        outcomes, red, hollow = Counter(job.outcomes or {}), 0, 0
        for place, row in enumerate(batch.rows):
            tests = batch.objects.get(place, {}).values()
            named = [test["outcome"] for test in tests if test.get("outcome")]
            outcomes.update(named or [row["verdict"]])
            of_row = red_hollow.of_tests(tests, row["verdict"])
            red, hollow = red + of_row[0], hollow + of_row[1]
        job.outcomes = dict(outcomes)
        return red, hollow

    def more_seeds(self, session: Session, job: JobRow) -> list[int]:
        """Return none."""
        return []


class Import(Selection):
    """A run that happened elsewhere: its seeds can't be run again."""

    def tell_undecided(self, session: Session, job: JobRow) -> None:
        """Tell nothing: no more seeds can run."""


class Gauge(Kernel):
    """Right and known-wrong kernels on a test, with a report in place of a verdict."""

    noun = "gauge"
    topic = "gauge.finished"
    on_devices = False

    def complete(
        self, session: Session, job: JobRow, message: dict[str, Any], seed_s: float | None
    ) -> float | None:
        """Name the parts in the place of a build: the work lists (seed, number of the part)."""
        fields = gauge_work.message_fields(session, job.id, message["test"], message["work"])
        executor = message["target"]["executor"] = fields.pop("executor")
        message |= {"artifacts": {"first": False, "worst": 0}, **fields}
        # a gauge runs other builds, too, and of those only the emulator's are alike
        return seed_s if executor == EMULATOR else None

    def record(
        self, session: Session, job: JobRow, attempt_id: str, batch: Batch, *, now: datetime
    ) -> None:
        """Store new results in the gauge's own table."""
        done = gauge_rows.add(session, job.id, attempt_id, batch.rows)
        events.add(session, job, Progress(done, job.total, {}), now=now)

    def conclude(self, session: Session, job: JobRow, state: JobState, *, now: datetime) -> bool:
        """Store the report and the flag, and ask for assessments: sharpness is part of a grade.

        False where the gauge goes on with other inputs.
        """
        if not gauge_ends.conclude(session, job, state, now=now):
            return False
        for variant in variants_of(session, job.test_key):
            if (variant.arch, variant.board) == (job.arch, job.board):
                request_assessment(session, variant, f"gauge:{job.id}", now=now)
        return True


_KERNEL, _COMPARISON, _SELECTION = Kernel(), Comparison(), Selection()
_OTHERS = {JobKind.gauge: Gauge(), JobKind.import_: Import()}


def kind_of(job: JobRow) -> Kernel:
    """Return the rules of a job's kind."""
    if job.kind in _OTHERS:
        return _OTHERS[job.kind]
    if job.is_selection:
        return _SELECTION
    return _KERNEL if job.reference is None else _COMPARISON


def _worst(counts: Iterable[str]) -> Verdict:
    return worst_verdict([Verdict(name) for name in counts])


def _add_seeds(session: Session, job: JobRow, seeds: Sequence[int], *, now: datetime) -> None:
    """Add seeds to a job, in chunks that are no longer than its longest so far."""
    longest_s = session.scalars(
        select(func.max(ChunkRow.estimate_s)).where(ChunkRow.job_id == job.id)
    ).one()
    pair_s = session.scalars(
        select(ChunkRangeRow.pair_s).where(ChunkRangeRow.job_id == job.id).limit(1)
    ).one()
    more = work.Work(seeds, range(job.repeats))
    cut = work.equal(more, 1.0, max(1.0, round(longest_s / pair_s)))
    work.add(session, job, more, cut, queue=job.queue, pair_s=pair_s)
    job.version += 1
    assert isinstance(job.suspects, SuspectSeeds)
    status = replace(job.suspects, added=list(seeds))
    change = StateChange(job.state, reason=status.words, suspects=status)
    events.add(session, job, change, now=now)
    events.add(session, job, Progress(job.done, job.total, job.counts), now=now)
    session.flush()
