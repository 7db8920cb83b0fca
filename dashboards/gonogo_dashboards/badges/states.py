"""Read models of badges: the newest result of a test, of a suite, and of a branch."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from sqlalchemy.orm import Session

from gonogo.spec.executors import EMULATOR
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import build_cells, words
from gonogo_dashboards.kit.list_rows import shape_of
from gonogo_service.builds import store as builds
from gonogo_service.suites import runs
from gonogo_service.suites.model import SuiteRow
from gonogo_service.tests import matrices, recent_builds, standings
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.standings import Kind
from gonogo_service.tests.variants import PLACE, variants_of

NOT_RUN = "not run"
_MAX_RUNS = 20
"""The newest runs of a suite among which a finished one is looked for."""


class BadgeState(NamedTuple):
    """The label and the state of a badge; `verdict` is None where nothing ran."""

    label: str
    state: str = NOT_RUN
    verdict: str | None = None


def of_test(session: Session, key: str, query: Mapping[str, str]) -> BadgeState | None:
    """Return the state of a test on its newest build; None where there is no such test.

    The query may name its branch, arch and board; else the variant that ran last counts.
    """
    test = session.get(TestSpecRow, key)
    if test is None:
        return None
    label = f"{test.kernel} {shape_of(test.test)}"
    named = {name: value for name in PLACE if (value := query.get(name))}.items()
    variants = [one for one in variants_of(session, key) if one.place.items() >= named]
    results = recent_builds.results(session, variants, 1)
    if not results:
        return BadgeState(label)
    last = max(results, key=lambda variant: (variant.branch != EMULATOR, results[variant][-1].at))
    newest = results[last][-1]
    if newest.verdict is None:
        return BadgeState(label)
    state = words.inline(words.mark(newest.verdict).label)
    if newest.hollow and newest.verdict != build_cells.HOLLOW:
        state += ", some hollow"
    return BadgeState(label, state, newest.verdict)


def of_suite(session: Session, name: str) -> BadgeState | None:
    """Return the state of a suite's newest finished run; None where there is no such suite."""
    newest = runs.newest(session, _MAX_RUNS, name=name)
    if not newest:
        return None if session.get(SuiteRow, name) is None else BadgeState(name)
    ended = next((run for run in newest if run.finished_at is not None), None)
    if ended is None:
        return BadgeState(name, "running")
    return BadgeState(name, _counted(ended.red, ended.hollow, ended.jobs.total), ended.verdict)


def of_branch(session: Session, branch: str, now: datetime) -> BadgeState | None:
    """Return how the tests of a branch stand; None where there is no such branch."""
    tests = standings.read(session, since=now - standings.WINDOW, branch=branch)
    if not tests:
        known = any(build.branch == branch for build in matrices.builds(session))
        known = known or builds.has_branch(session, branch)
        return BadgeState(branch) if known else None
    hollow, red = (len(standings.of_kind(tests, kind)) for kind in (Kind.hollow, Kind.red))
    worst = standings.worst_verdict(tests.values())
    if hollow and worst in (None, Verdict.pass_, Verdict.suspect):
        worst = Verdict.pass_by_tolerance
    return BadgeState(branch, _counted(red, hollow, len(standings.by_test(tests))), worst)


def _counted(red: int, hollow: int, tests: int) -> str:
    if not tests:
        return NOT_RUN
    parts = [f"{red:,} red"] if red else []
    parts += [f"{hollow:,} hollow"] if hollow else []
    return ", ".join(parts) + f" of {tests:,}" if parts else f"{tests:,} ran"
