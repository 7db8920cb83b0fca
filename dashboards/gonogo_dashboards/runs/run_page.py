"""The list of runs, and the page of one: what the API says of them, and what tells tests apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.hooks.incoming import OriginLine, origins
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_view import ListView, list_of
from gonogo_dashboards.kit.ranges import Choice
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.suites import run_changes
from gonogo_service.suites import runs as stored_runs
from gonogo_service.suites.model import RunRow
from gonogo_service.suites.run_changes import JobChange, RunChanges
from gonogo_service.suites.runs_api import RUNS, JobOfRun, details

MAX_SUITES = 12
"""Suites that the list offers: those that ran last."""
_runs = list_of(RUNS, urls.runs)


@dataclass(frozen=True)
class SuiteChoice(Choice):
    """A suite, and the verdict of its newest run."""

    verdict: Verdict | None


@dataclass(frozen=True)
class RunList(ListView):
    """A page of runs, each against the run before it."""

    changes: Mapping[str, RunChanges]
    """By run"""
    suites: tuple[SuiteChoice, ...]
    """The suites to choose from, those whose newest run is worst first"""


def listed(
    session: Session, query: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> RunList:
    """Return a page of runs that match the filters. Raises BadCursor."""
    page = _runs(session, query, cursor, limit, now)
    shown = select(RunRow).where(RunRow.id.in_([line["id"] for line in page.items]))
    changes = {run.id: changes for run, changes in run_changes.read(session, shown)}
    newest = stored_runs.newest_of_suites(session, MAX_SUITES)
    newest.sort(key=lambda run: len(Verdict) if run.verdict is None else run.verdict.rank)
    suites = tuple(
        SuiteChoice(
            run.name,
            run.name,
            urls.runs({"suite": run.name}),
            page.filters.get("suite") == run.name,
            run.verdict,
        )
        for run in newest
    )
    return RunList(**vars(page), changes=changes, suites=suites)


@dataclass(frozen=True)
class TestLine:
    """A test of a run, and its name after what tells it from another of the same name."""

    __test__ = False  # pytest: not a test case

    test: JobOfRun
    label: str


@dataclass(frozen=True)
class RunView:
    """Everything on a run's page."""

    run: Mapping[str, Any]
    """As the API answers it"""
    verdict: Verdict | str | None
    """Its verdict; before it ends, the worst of the jobs that have ended"""
    tests: Sequence[TestLine]
    """Red ones first, then hollow ones, each the new ones first; those without a verdict last"""
    changes: tuple[tuple[JobChange, int], ...]
    """The number of tests by how they compare with the run before"""
    origins: tuple[OriginLine, ...]
    at: str


def run(session: Session, run_id: str, now: datetime) -> RunView | None:
    """Return a run's page; None where there is no such run."""
    row = RUNS.get(session, run_id)
    if row is None:
        return None
    shown = details(None, session, row)
    tests: list[JobOfRun] = shown.pop("tests")
    changes = Counter(test.change for test in tests)
    names = labels([Listed(test.test, None, test.name) for test in tests])
    so_far = next(iter(words.ordered(shown["jobs"].verdicts)), None)
    return RunView(
        run=shown,
        verdict=row.verdict if row.state.final else so_far,
        tests=sorted(
            (TestLine(test, name) for test, name in zip(tests, names, strict=True)), key=_urgency
        ),
        changes=tuple((kind, number) for kind in JobChange if (number := changes[kind])),
        origins=origins(session, run=run_id),
        at=timestamp(now),
    )


def _urgency(line: TestLine) -> tuple[int, int]:
    """Return a sort key: by the change, then by the verdict, without one last."""
    change, verdict = line.test.change, line.test.verdict
    return (
        len(JobChange) if change is None else change.rank,
        len(Verdict) if verdict is None else verdict.rank,
    )
