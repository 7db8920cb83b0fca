"""Turns the plug-in's lines and the end of pytest's process into one report per test.

Standard library only.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from child_program import Ended
from child_reports import Report, add_dumps, row

BADNESS = ("passed", "skipped", "failed", "error")
"""A test that ran more than once (a plug-in repeats failures) counts as its worst run.

A retry must not hide a failure.
"""
USAGE_STATUS = 4
BROKEN_STATUSES = (2, 3)
"""pytest was interrupted, or broke."""
FULL_WORDS = "the tests' results can't be written"
"""The text of the plug-in when it ends the run because the disk is full."""
TIMEOUT_WORDS = ("from pytest-timeout", "+ Timeout +")
"""The text of pytest-timeout when it fails a test, or ends the process, that ran too long."""


def reports(lines: Path, dumps: Path, ended: Ended, seconds: float) -> list[Report]:
    """Return one report per collected test in the order of the run.

    Then those that are not a test's: (collection), (pytest), (exit).
    """
    # pytest can't read a filter or an option: the tests that it collected aren't the requested ones
    if ended.status == USAGE_STATUS:
        return [row("(pytest)", "error", ended.tail.strip())]
    events = _RunEvents(_events(lines))
    rows = [_report(test, events, ended, seconds) for test in events.tests]
    rows += [row(test, *ending) for test, ending in events.uncollected.items()]
    is_reported = any(report["outcome"] in ("hang", "crash") for report in rows)
    outside_report = _outside_report(events, ended, seconds, is_reported)
    if outside_report is not None:
        rows.append(outside_report)
    by_name = {report["name"]: report for report in rows}
    add_dumps(by_name, dumps)
    return list(by_name.values())


class _RunEvents:
    """The events of one run, by test."""

    def __init__(self, events: Iterator[dict[str, Any]]) -> None:
        self.tests: dict[str, None] = {}
        self.done: dict[str, dict[str, Any]] = {}
        self.running: set[str] = set()
        self.uncollected: dict[str, tuple[str, str]] = {}
        self.problems: list[str] = []
        self.collected = self.finished = False
        handlers = {
            "collected": self._collected,
            "uncollected": self._uncollected,
            "start": self._start,
            "done": self._done,
        }
        handlers |= {"problem": self._problem, "end": self._end}
        for event in events:
            # A test may write anything into the file
            with contextlib.suppress(KeyError, TypeError, ValueError):
                handlers[event["event"]](event)

    def _collected(self, event: dict[str, Any]) -> None:
        self.collected = True
        self.tests.update(dict.fromkeys(event["tests"]))

    def _uncollected(self, event: dict[str, Any]) -> None:
        self.uncollected[event["test"] or "(collection)"] = (event["outcome"], event["message"])

    def _start(self, event: dict[str, Any]) -> None:
        self.tests.setdefault(event["test"])
        self.running.add(event["test"])

    def _done(self, event: dict[str, Any]) -> None:
        test = event["test"]
        self.tests.setdefault(test)
        self.running.discard(test)
        before = self.done.get(test)
        if before is None or BADNESS.index(event["outcome"]) >= BADNESS.index(before["outcome"]):
            self.done[test] = event

    def _problem(self, event: dict[str, Any]) -> None:
        self.problems.append(event["message"])

    def _end(self, event: dict[str, Any]) -> None:
        self.finished = True


def _events(lines: Path) -> Iterator[dict[str, Any]]:
    """Yield the readable lines: the last one may be cut off where a disk was full."""
    with contextlib.suppress(FileNotFoundError), lines.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, RecursionError):
                yield json.loads(line)


def _report(test: str, events: _RunEvents, ended: Ended, seconds: float) -> Report:
    if test in events.done:
        done = events.done[test]
        outcome = (
            "hang"
            if done["outcome"] == "failed" and TIMEOUT_WORDS[0] in done["message"]
            else done["outcome"]
        )
        details = {name: done[name] for name in ("duration_ms", "failures", "measurements")}
        return row(test, outcome, done["message"], **details)
    if test not in events.running:
        return row(test, "skipped", f"not run: {_why_not(events, ended)}")
    if ended.status is None:
        return row(test, "hang", _hang_words(ended, seconds))
    if events.finished or _is_disk_full(ended):  # pytest.exit, or -x, in the middle of it
        return row(
            test,
            "error",
            "; ".join(events.problems) or "the run was ended in the middle of this test",
        )
    if TIMEOUT_WORDS[1] in ended.tail:
        return row(test, "hang", f"pytest-timeout ended the process\n{ended.tail}")
    return row(test, "crash", f"the process of the tests {ended.words} in the middle of this test")


def _outside_report(
    events: _RunEvents, ended: Ended, seconds: float, reported: bool
) -> Report | None:
    """Return the report of a failure outside of all tests, if there is one.

    `reported`: a test's own report already says why the process ended.
    """
    stage = (
        "(exit)" if events.finished else "(between tests)" if events.collected else "(collection)"
    )
    if ended.status is None:
        return None if reported else row(stage, "hang", _hang_words(ended, seconds))
    if ended.status < 0 or (
        not events.finished and ended.status not in BROKEN_STATUSES and events.collected
    ):
        return (
            None
            if reported
            else row(stage, "crash", f"the process of the tests {ended.words}\n{ended.tail}")
        )
    if events.problems:
        return row("(pytest)", "error", "\n".join(events.problems))
    if not events.finished:
        words = "broke" if events.collected else "could not start"
        return row("(pytest)", "error", f"pytest {words}, it {ended.words}\n{ended.tail}")
    return None


def _is_disk_full(ended: Ended) -> bool:
    return ended.status in BROKEN_STATUSES and FULL_WORDS in ended.tail


def _why_not(events: _RunEvents, ended: Ended) -> str:
    if events.problems:
        return events.problems[-1].partition("\n")[0]
    running = ", ".join(sorted(events.running))
    if ended.status is None:
        return f"{running or 'the run'} hung before"
    return (
        f"the process {ended.words}{f' in {running}' if running else ''} before"
        if not events.finished
        else "the run was ended before"
    )


def _hang_words(ended: Ended, seconds: float) -> str:
    return f"no end within {seconds:.3g} s" + (f"; it hung at {ended.where}" if ended.where else "")
