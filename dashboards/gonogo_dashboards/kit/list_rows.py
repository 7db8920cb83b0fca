"""What lists show of a job and of a flag: one line each, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gonogo import urls
from gonogo.spec.selections import Selection, is_selection
from gonogo_dashboards.kit import commands, imported, words
from gonogo_dashboards.kit.imported import ImportedView
from gonogo_dashboards.kit.outcomes import OutcomeCount, outcomes
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.states import FlagKind, JobState
from gonogo_storage.flags.attention import FlagRecord
from gonogo_storage.jobs.job import Job


@dataclass(frozen=True)
class Count:
    """How many seeds got a verdict, with its looks, and where its part of a bar of length 1
    begins.
    """

    verdict: str
    label: str
    sign: str
    count: int
    share: float
    start: float


@dataclass(frozen=True)
class SeedChoice:
    """Another seed that a part of a job's page can show."""

    seed: int
    repeat: int
    url: str
    chosen: bool


@dataclass(frozen=True)
class JobLine:
    """A job in a list: what, where, how far, what came out."""

    id: str
    url: str
    kernel: str
    noun: str
    """What it is run over: seeds, or iterations of tests that exist already."""
    shape: str
    """Of a selection: which tests."""
    tolerance: str
    build: str
    queue: str
    state: str
    state_words: str
    verdict: str | None
    verdict_words: str
    final: bool
    done: int
    total: int
    counts: tuple[Count, ...]
    outcomes: tuple[OutcomeCount, ...]
    """Of a selection: its tests over all iterations, green and red."""
    waiting_reason: str | None
    diagnosis: str
    labels: Mapping[str, Any]
    imported: ImportedView | None
    created_at: str | None
    finished_at: str | None
    age: str


@dataclass(frozen=True)
class FlagLine:
    """An open finding: one sentence, and the job that shows it."""

    id: str
    kind: str
    kind_words: str
    verdict: str
    state: str
    sentence: str
    diagnosis: str
    kernel: str
    shape: str
    tolerance: str
    build: str
    jobs: int
    job_url: str
    updated_at: str | None
    age: str


def job_line(job: Job, now: datetime) -> JobLine:
    """A job as a line of a list."""
    return JobLine(
        id=job.id,
        url=urls.job(job.id),
        kernel=job.kernel,
        noun=noun_of(job.canonical),
        shape=shape_of(job.canonical),
        tolerance=tolerance_of(job.canonical),
        build=job.build,
        queue=job.queue,
        state=job.state.value,
        state_words=state_words(job),
        verdict=job.verdict,
        verdict_words=words.mark(job.verdict).label if job.verdict else "",
        final=job.state.final,
        done=job.done,
        total=job.total,
        counts=counts(job.counts, max(job.total, 1)),
        outcomes=outcomes(job.outcomes or {}),
        waiting_reason=job.waiting_reason,
        diagnosis=str((job.diagnosis or {}).get("words") or ""),
        labels=job.labels,
        imported=imported.read(job),
        created_at=timestamp(job.created_at),
        finished_at=timestamp(job.finished_at),
        age=words.ago((now - job.created_at).total_seconds()),
    )


def noun_of(test: Mapping[str, Any]) -> str:
    """What a job is run over: seeds of a kernel's test, or iterations of tests that exist
    already.
    """
    return "iteration" if is_selection(test) else "seed"


def shape_of(test: Mapping[str, Any]) -> str:
    """The shape of a kernel's test; of a selection which tests it names."""
    return Selection.parse(test).words if is_selection(test) else words.shape(test.get("shape", ()))


def tolerance_of(test: Mapping[str, Any]) -> str:
    """The tolerance of a kernel's test; the gates of a selection are in its tests."""
    return (
        "gates of its tests"
        if is_selection(test)
        else commands.tolerance_words(test.get("tolerance", {}))
    )


def state_words(job: Job) -> str:
    """The state of a job in words: "cancelled after 5 of 64 seeds"."""
    said = words.STATES.get(job.state, job.state.value)
    return (
        f"{said} after {job.done:,} of {words.count(job.total, noun_of(job.canonical))}"
        if job.state == JobState.cancelled
        else said
    )


def counts(stored: Mapping[str, int], total: int) -> tuple[Count, ...]:
    """Verdict counts, worst first, with their shares of `total`."""
    found: list[Count] = []
    start = 0.0
    for verdict in words.ordered(stored):
        looks, share = words.mark(verdict), stored[verdict] / total
        if stored[verdict]:
            found.append(Count(verdict, looks.label, looks.sign, stored[verdict], share, start))
            start += share
    return tuple(found)


def flag_line(flag: FlagRecord, now: datetime) -> FlagLine:
    said = flag.evidence.get("sentence") or words.FLAGS.get(flag.kind, flag.kind)
    diagnosed = flag.evidence.get("diagnosis")
    return FlagLine(
        id=flag.id,
        kind=flag.kind,
        kind_words=words.FLAGS.get(flag.kind, flag.kind.replace("_", " ")),
        verdict=words.FLAG_VERDICTS.get(flag.kind, "suspect"),
        state=flag.state,
        sentence=str(said),
        diagnosis=str(diagnosed or ""),
        kernel=flag.kernel,
        shape=shape_of(flag.test),
        tolerance=tolerance_of(flag.test),
        build=flag.build,
        jobs=flag.jobs,
        job_url=source_url(flag.kind, flag.last_job),
        updated_at=timestamp(flag.updated_at),
        age=words.ago((now - flag.updated_at).total_seconds()),
    )


def source_url(kind: str, job: str) -> str:
    """The page of the job or the gauge that shows a finding."""
    return urls.gauge(job) if kind == FlagKind.blunt_test else urls.job(job)
