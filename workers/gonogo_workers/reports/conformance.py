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
from functools import partial
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
    every = dict(whole or {})
    promises: dict[str, Callable[[], None]] = {
        "reports are JSON of the documented form, one per test": partial(conform, make, every),
        "the selection is left alone": partial(selection_unchanged, make, every),
        "every iteration runs the same tests": partial(same_tests, make, every),
        "a filter narrows": partial(narrows, make, every, narrow),
        "nothing selected is never green": partial(never_green, make, {**every, "filter": nothing}),
        "an unknown suite is refused": partial(unknown_suite, make),
        "no process is left behind": partial(nothing_left, make, every),
    }
    return [Check(name, call) for name, call in promises.items()]


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
    twice = sorted(name for name in names if names.count(name) > 1)
    assert not twice, f"a name twice: {twice}"
    negative = [one.name for one in parsed if (one.duration_ms or 0) < 0]
    assert not negative, f"a duration below 0: {negative}"


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
    reports = run_reporter(make, selection)
    green = [report["name"] for report in reports if report["outcome"] != Outcome.not_run]
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
