"""The lines of lists of jobs, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gonogo import urls
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.reports import red_hollow
from gonogo.reports.outcomes import Outcome
from gonogo.spec.selections import KERNEL, Selection, is_selection
from gonogo_dashboards.kit import commands, words
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.values import ImportedFile
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import JobState

_IN_EVERY_LINE = ("kernel", "shape", "tolerance")


@dataclass(frozen=True)
class Count:
    """The number of seeds with a verdict, and its part of a bar of length 1.

    `label` is for the middle of a sentence; `start` is where the part begins. `hollow`: a part of
    tests with hollow seeds besides that verdict.
    """

    verdict: str
    label: str
    sign: str
    count: int
    share: float
    start: float
    hollow: bool = False


@dataclass(frozen=True)
class OutcomeCount:
    """The number of iterations of a test with an outcome; `red` ones are never fine."""

    outcome: str
    count: int
    red: bool


@dataclass(frozen=True)
class SeedChoice:
    """Another seed that a part of a job's page can show."""

    seed: int
    repeat: int
    url: str
    chosen: bool


@dataclass(frozen=True)
class JobLine:
    """A job in a list: its test, its build, its progress and its verdict."""

    id: str
    url: str
    kernel: str
    noun: str
    """Its unit: "seed", or "iteration" for tests that exist already."""
    shape: str
    """For a selection: its tests."""
    tolerance: str
    details: str
    """The suite's name of its test, and its fields that differ from the default."""
    build: str
    queue: str
    state: str
    state_words: str
    verdict: str | None
    both: str
    """A sentence where there are red and hollow seeds or tests; the verdict shows the worse."""
    final: bool
    done: int
    total: int
    counts: tuple[Count, ...]
    outcomes: tuple[OutcomeCount, ...]
    """For a selection: its tests over all iterations, green and red."""
    waiting_reason: str | None
    diagnosis: str
    labels: Mapping[str, Any]
    imported: ImportedFile | None
    created_at: str | None
    finished_at: str | None
    age: str
    duration_s: float | None
    """Seconds from its first attempt to its end, or until now; None: it has not started."""
    device: str = ""
    """In the list of jobs: the devices that it ran on."""


def job_line(
    job: JobRow, now: datetime, entry: str | None = None, devices: Sequence[str] = ()
) -> JobLine:
    """Return a job as a line of a list; `entry`: a suite's name for its test."""
    ran = (job.finished_at or now) - job.started_at if job.started_at else None
    return from_object(
        JobLine,
        job,
        url=urls.job(job.id),
        noun=noun_of(job.test),
        shape=shape_of(job.test),
        tolerance=tolerance_of(job.test),
        details=details_of(job.test, entry),
        state=job.state.value,
        state_words=state_words(job),
        both=red_hollow.words(job.red, job.hollow, red_hollow.noun(job.test)),
        final=job.state.final,
        counts=counts(job.counts, job.total),
        outcomes=outcomes(job.outcomes or {}),
        diagnosis=job.diagnosis_words or "",
        imported=job.import_,
        created_at=timestamp(job.created_at),
        finished_at=timestamp(job.finished_at),
        age=words.ago((now - job.created_at).total_seconds()),
        duration_s=max(ran.total_seconds(), 0.0) if ran is not None else None,
        device=" and ".join([*devices[:1], *([f"{len(devices) - 1} more"] if devices[1:] else [])]),
    )


def noun_of(test: Mapping[str, Any]) -> str:
    """Return "seed" for a kernel's test, "iteration" for tests that exist already."""
    return "iteration" if is_selection(test) else "seed"


def title_of(test: Mapping[str, Any]) -> str:
    """Return a test's kernel and shape, or the tests that a selection names."""
    return f"{test.get('kernel', KERNEL)} {shape_of(test)}"


def shape_of(test: Mapping[str, Any]) -> str:
    """Return the shape of a kernel's test, or the tests that a selection names."""
    return Selection.parse(test).words if is_selection(test) else words.shape(test.get("shape", ()))


def tolerance_of(test: Mapping[str, Any]) -> str:
    """Return the tolerance of a kernel's test; a selection's tests have their own gates."""
    return (
        "gates of its tests"
        if is_selection(test)
        else commands.tolerance_words(test.get("tolerance", {}))
    )


def details_of(test: Mapping[str, Any], entry: str | None = None) -> str:
    """Return what tells a test from others with its kernel, shape and tolerance; "" for nothing.

    It is the suite's name for it (`entry`), then every field that differs from the default.
    """
    differing = [
        f"{name} {commands.plain(value)}"
        for name, value in test.items()
        if name not in _IN_EVERY_LINE and not is_selection(test)
    ]
    return " · ".join([entry, *differing] if entry else differing)


def state_words(job: JobRow) -> str:
    """Return the state of a job in words: "Canceled after 5 of 64 seeds"."""
    label = job.state.label
    return (
        f"{label} after {job.done:,} of {words.count(job.total, noun_of(job.test))}"
        if job.state == JobState.cancelled
        else label
    )


def counts(stored: Mapping[str, int], total: int) -> tuple[Count, ...]:
    """Return the verdict counts, worst first, with their shares of `total`."""
    total = max(total, 1)
    shown: list[Count] = []
    start = 0.0
    for verdict in words.ordered(stored):
        looks, share = words.mark(verdict), stored[verdict] / total
        if stored[verdict]:
            label = words.inline(looks.label)
            shown.append(Count(verdict, label, looks.sign, stored[verdict], share, start))
            start += share
    return tuple(shown)


def outcomes(stored: Mapping[str, int]) -> tuple[OutcomeCount, ...]:
    """Return the counts of tests that exist already by their own outcomes, worst first.

    A verdict can't show them without arrays.
    """
    order = {outcome.value: rank for rank, outcome in enumerate(Outcome)}
    named = sorted(stored, key=lambda word: (order.get(word, 0), word))
    return tuple(
        OutcomeCount(word, stored[word], word in red_hollow.RED_OUTCOMES)
        for word in named
        if stored[word]
    )


def source_url(kind: FlagKind, job: str) -> str:
    """Return the page of the job or the gauge that shows a finding."""
    return urls.gauge(job) if kind.of_gauge else urls.job(job)
