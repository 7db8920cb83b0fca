"""The conformance suite of a Reporter, an executor that runs existing tests.

from gonogo_workers.reports.conformance import checks

@pytest.mark.parametrize(
    "check", checks(make, narrow="LayerNorm.*", nothing="NoSuchTest*"), ids=str
)
def test_conformance(check):
    check()
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gonogo.reports.outcomes import Outcome
from gonogo_workers.executors.base import Reporter
from gonogo_workers.executors.conformance import Check
from gonogo_workers.reports.rows import reports_of

NO_SUITE = "no-such-suite-4711"


def checks(
    make: Callable[[], Reporter],
    *,
    narrow: str,
    nothing: str,
    whole: Mapping[str, Any] | None = None,
) -> list[Check]:
    """Return the suite for one build.

    `make` opens it, `whole` selects several tests ({}: all), `narrow` is a filter that selects some
    of them, `nothing` one that selects none.
    """
    whole_selection = dict(whole or {})
    return [
        Check(
            "reports are JSON of the documented form, one per test",
            lambda: conform(make, whole_selection),
        ),
        Check("the selection is left alone", lambda: selection_unchanged(make, whole_selection)),
        Check("every iteration runs the same tests", lambda: same_tests(make, whole_selection)),
        Check("a filter narrows", lambda: narrows(make, whole_selection, narrow)),
        Check(
            "nothing selected is never green",
            lambda: never_green(make, {**whole_selection, "filter": nothing}),
        ),
        Check("an unknown suite is refused", lambda: unknown_suite(make)),
        Check("no process is left behind", lambda: nothing_left(make, whole_selection)),
    ]


def run_reporter(
    make: Callable[[], Reporter], selection: Mapping[str, Any], iteration: int = 0
) -> list[dict[str, Any]]:
    """Return the reports of one iteration of a new reporter."""
    reporter = make()
    try:
        return reporter.report(selection, iteration=iteration, seed=None)
    finally:
        close = getattr(reporter, "close", None)
        if close is not None:
            close()


def conform(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """Check that the reports survive JSON and can be read, every test once."""
    reports = run_reporter(make, selection)
    parsed = reports_of(json.loads(json.dumps(reports, allow_nan=False)))
    assert parsed, "the whole selection must have tests"
    names = [report["name"] for report in reports]
    assert len(set(names)) == len(names), (
        f"a name twice: {sorted(name for name in names if names.count(name) > 1)}"
    )
    slow = [
        report.name
        for report in parsed
        if report.duration_ms is not None and report.duration_ms < 0
    ]
    assert not slow, f"a duration below 0: {slow}"


def selection_unchanged(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """Check that the reporter does not change the selection."""
    given = copy.deepcopy(dict(selection))
    run_reporter(make, given)
    assert given == selection, f"the selection was changed to {given}"


def same_tests(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """Check that two iterations run the same tests, regardless of their outcomes."""
    first, second = (
        {report["name"] for report in run_reporter(make, selection, iteration)}
        for iteration in (0, 1)
    )
    assert first == second, f"only in one iteration: {sorted(first ^ second)}"


def narrows(make: Callable[[], Reporter], selection: Mapping[str, Any], words: str) -> None:
    """Check that a filter selects some of the tests, and none that are missing without it."""
    every = {report["name"] for report in run_reporter(make, selection)}
    some = {report["name"] for report in run_reporter(make, {**selection, "filter": words})}
    assert some, f"the filter {words!r} selects nothing"
    assert some < every, f"the filter {words!r} selects {sorted(some)} of {sorted(every)}"


def never_green(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """Check that selecting nothing gives no report, or only reports of tests that were not run."""
    green = [
        report["name"]
        for report in run_reporter(make, selection)
        if report["outcome"] != Outcome.not_run
    ]
    assert not green, f"selected nothing, and yet: {green}"


def unknown_suite(make: Callable[[], Reporter]) -> None:
    """Check that an unknown suite is an exception.

    An empty list would look like an empty selection.
    """
    try:
        run_reporter(make, {"suite": NO_SUITE})
    except Exception:
        return
    raise AssertionError(f"the suite {NO_SUITE!r} was accepted")


def nothing_left(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """Check that every process that the reporter started has ended when it returns."""
    before = _children()
    run_reporter(make, selection)
    left = _children() - before
    assert not left, f"processes {sorted(left)} are left"


def _children() -> set[int]:
    """Return the children of this process's threads, including those not yet reaped (Linux)."""
    return {
        int(pid)
        for file in Path("/proc/self/task").glob("*/children")
        for pid in file.read_text().split()
    }
