"""What every executor that runs existing tests must do: the conformance suite of a Reporter, beside
that of an Executor.

@pytest.mark.parametrize("check", checks(make, narrow="LayerNorm.*", nothing="NoSuchTest*"),
ids=str) def test_conformance(check):
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
    """The suite for one build: `make` opens it, `whole` selects several tests ({} = all), `narrow`
    is a filter that selects some of them, `nothing` one that selects none.
    """
    all_of_it = dict(whole or {})
    return [
        Check(
            "reports are JSON of the documented form, one per test",
            lambda: conform(make, all_of_it),
        ),
        Check("the selection is left alone", lambda: selection_kept(make, all_of_it)),
        Check("every iteration runs the same tests", lambda: same_tests(make, all_of_it)),
        Check("a filter narrows", lambda: narrows(make, all_of_it, narrow)),
        Check(
            "nothing selected is never green",
            lambda: never_green(make, {**all_of_it, "filter": nothing}),
        ),
        Check("an unknown suite is refused", lambda: unknown_suite(make)),
        Check("no process is left behind", lambda: nothing_left(make, all_of_it)),
    ]


def told(
    make: Callable[[], Reporter], selection: Mapping[str, Any], iteration: int = 0
) -> list[dict[str, Any]]:
    """The reports of one iteration of a reporter of its own."""
    reporter = make()
    try:
        return reporter.report(selection, iteration=iteration, seed=None)
    finally:
        close = getattr(reporter, "close", None)
        if close is not None:
            close()


def conform(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """What is told survives JSON and is understood, every test once."""
    found = told(make, selection)
    read = reports_of(json.loads(json.dumps(found, allow_nan=False)))
    assert read, "the whole selection must have tests"
    names = [each["name"] for each in found]
    assert len(set(names)) == len(names), (
        f"a name twice: {sorted(name for name in names if names.count(name) > 1)}"
    )
    slow = [each.name for each in read if each.duration_ms is not None and each.duration_ms < 0]
    assert not slow, f"a duration below 0: {slow}"


def selection_kept(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """The selection is the caller's."""
    given = copy.deepcopy(dict(selection))
    told(make, given)
    assert given == selection, f"the selection was changed to {given}"


def same_tests(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """An iteration is a sample of the same tests, whatever becomes of them."""
    first, second = (
        {each["name"] for each in told(make, selection, iteration)} for iteration in (0, 1)
    )
    assert first == second, f"only in one iteration: {sorted(first ^ second)}"


def narrows(make: Callable[[], Reporter], selection: Mapping[str, Any], words: str) -> None:
    """A filter selects some of the tests, and none that weren't there without it."""
    every = {each["name"] for each in told(make, selection)}
    some = {each["name"] for each in told(make, {**selection, "filter": words})}
    assert some, f"the filter {words!r} selects nothing"
    assert some < every, f"the filter {words!r} selects {sorted(some)} of {sorted(every)}"


def never_green(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """No test, or tests that say themselves that they are absent."""
    green = [each["name"] for each in told(make, selection) if each["outcome"] != Outcome.not_run]
    assert not green, f"selected nothing, and yet: {green}"


def unknown_suite(make: Callable[[], Reporter]) -> None:
    """A suite that the build hasn't got is an exception: an empty list would look like a selection
    of nothing.
    """
    try:
        told(make, {"suite": NO_SUITE})
    except Exception:
        return
    raise AssertionError(f"the suite {NO_SUITE!r} was accepted")


def nothing_left(make: Callable[[], Reporter], selection: Mapping[str, Any]) -> None:
    """Whatever it started has ended when it answers."""
    before = _children()
    told(make, selection)
    left = _children() - before
    assert not left, f"processes {sorted(left)} are left"


def _children() -> set[int]:
    """The children of this process's threads, those that have ended unseen too (Linux)."""
    return {
        int(pid)
        for file in Path("/proc/self/task").glob("*/children")
        for pid in file.read_text().split()
    }
