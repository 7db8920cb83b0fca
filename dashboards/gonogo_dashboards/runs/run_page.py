"""The list of runs, and the page of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.reports import red_hollow
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.hooks.incoming import OriginLine, origins
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import Count, counts, details_of, tolerance_of
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.jobs.values import JobCommit
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.suites import runs as stored_runs
from gonogo_service.suites.model import RunRow
from gonogo_service.suites.runs import RunJob
from gonogo_service.suites.runs_api import RUNS

FILTERS = ("suite", "state", "schedule")


@dataclass(frozen=True)
class RunLine:
    """A run in a list: its suite, its progress and its verdict."""

    id: str
    url: str
    suite: str
    suite_version: int | None
    builds: tuple[str, ...]
    schedule: str | None
    due_at: str | None
    state: str
    state_words: str
    final: bool
    verdict: str | None
    both: str
    """A sentence where some jobs are red and some hollow; the verdict shows the worse."""
    jobs: int
    jobs_ended: int
    done: int
    total: int
    counts: tuple[Count, ...]
    labels: Mapping[str, Any]
    owner: str
    created_at: str | None
    finished_at: str | None
    age: str


@dataclass(frozen=True)
class TestLine:
    """A test of a run: its job, its progress and its verdict."""

    __test__ = False  # pytest: not a test case

    name: str
    label: str
    """Its name, after what tells it from another test of the run with the same name."""
    job: str
    url: str
    kernel: str
    tolerance: str
    details: str
    """The suite's name of its test, and its fields that differ from the default."""
    build: str
    state: str
    state_words: str
    verdict: str | None
    both: str
    """A sentence where there are red and hollow seeds or tests; the verdict shows the worse."""
    final: bool
    done: int
    total: int
    counts: tuple[Count, ...]
    waiting_reason: str | None
    diagnosis: str
    error: str | None


@dataclass(frozen=True)
class RunView:
    """Everything on a run's page.

    Before the run has a verdict, `verdict` is the worst of the jobs that have ended.
    """

    run: RunLine
    verdict: str | None
    sentence: str
    tests: tuple[TestLine, ...]
    commit: JobCommit | None
    origins: tuple[OriginLine, ...]
    cancel: str
    files: Mapping[str, str]
    """Format -> address of all results."""
    at: str | None


def runs(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> ListView:
    """Return a page of runs that match the filters (FILTERS; empty values are ignored).

    Raises gonogo_service.kit.database.paging.BadCursor.
    """
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    page = RUNS.page(session, **given, limit=limit, cursor=cursor or None)

    def line(run: RunRow) -> RunLine:
        return _run(stored_runs.current(session, run), now)

    return list_view(page, line, urls.runs, now, given)


def run(session: Session, run_id: str, now: datetime) -> RunView | None:
    """Return a run's page; None where there is no such run."""
    stored_run = stored_runs.get(session, run_id)
    if stored_run is None:
        return None
    stored, members = stored_run
    so_far = next(iter(words.ordered(stored.jobs.verdicts)), None)
    verdict = stored.verdict if stored.state.final else so_far
    return RunView(
        run=_run(stored, now),
        verdict=verdict,
        sentence=words.sentence(verdict),
        tests=_tests(members),
        commit=stored.commit,
        origins=origins(session, run=run_id),
        cancel=urls.cancel_run(run_id),
        files={form: urls.run_results(run_id, form) for form in urls.FILES},
        at=timestamp(now),
    )


def _run(run: RunRow, now: datetime) -> RunLine:
    return from_object(
        RunLine,
        run,
        url=urls.run(run.id),
        suite=run.suite.name,
        suite_version=run.suite.version,
        both=red_hollow.words(run.red, run.hollow, "job"),
        jobs_ended=run.jobs.ended,
        done=run.seeds.done,
        total=run.seeds.total,
        builds=tuple(run.builds),
        due_at=timestamp(run.due_at),
        state=run.state.value,
        state_words=run.state.label,
        final=run.state.final,
        jobs=run.jobs.total,
        counts=counts(run.seeds.verdicts, max(run.seeds.total, 1)),
        created_at=timestamp(run.created_at),
        finished_at=timestamp(run.finished_at),
        age=words.ago((now - run.created_at).total_seconds()),
    )


def _tests(members: Sequence[RunJob]) -> tuple[TestLine, ...]:
    names = labels([Listed(member.test, None, member.name) for member in members])
    return tuple(_test(member, name) for member, name in zip(members, names, strict=True))


def _test(member: RunJob, label: str) -> TestLine:
    return from_object(
        TestLine,
        member,
        job=member.id,
        url=urls.job(member.id),
        tolerance=tolerance_of(member.test),
        label=label,
        details=details_of(member.test),
        state=member.state.value,
        state_words=member.state.label,
        both=red_hollow.words(member.red, member.hollow, red_hollow.noun(member.test)),
        final=member.state.final,
        counts=counts(member.counts, max(member.total, 1)),
        diagnosis="" if member.verdict == Verdict.pass_ else member.diagnosis or "",
    )
