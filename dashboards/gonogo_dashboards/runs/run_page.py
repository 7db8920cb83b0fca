"""The list of runs, and the page of one: what the API says of them, and what tells tests apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.hooks.incoming import OriginLine, origins
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_view import list_of
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.suites import runs as stored_runs
from gonogo_service.suites.runs_api import RUN, RUNS, JobOfRun, details

runs = list_of(
    RUNS, urls.runs, lambda session, run: rows.values(RUN, stored_runs.current(session, run))
)


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
    """The worst first, those without a verdict last"""
    origins: tuple[OriginLine, ...]
    at: str


def run(session: Session, run_id: str, now: datetime) -> RunView | None:
    """Return a run's page; None where there is no such run."""
    row = RUNS.get(session, run_id)
    if row is None:
        return None
    shown = details(None, session, row)
    tests: list[JobOfRun] = shown.pop("tests")
    names = labels([Listed(test.test, None, test.name) for test in tests])
    so_far = next(iter(words.ordered(shown["jobs"].verdicts)), None)
    return RunView(
        run=shown,
        verdict=row.verdict if row.state.final else so_far,
        tests=sorted(
            (TestLine(test, name) for test, name in zip(tests, names, strict=True)),
            key=lambda line: len(Verdict) if line.test.verdict is None else line.test.verdict.rank,
        ),
        origins=origins(session, run=run_id),
        at=timestamp(now),
    )
