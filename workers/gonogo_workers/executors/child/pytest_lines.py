"""From the lines that the plug-in wrote, and from how pytest's process ended, to one report per
test. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from child_program import Ended

Report = dict[str, Any]

MAX_MESSAGE = 4000
BADNESS = ("passed", "skipped", "failed", "error")
"""A test that ran more than once (a plug-in runs failures again) counts as its worst: a retry must
not hide a failure."""
USAGE_STATUS = 4
BROKEN_STATUSES = (2, 3)
"""pytest was interrupted, or broke."""
TIMEOUT_WORDS = ("from pytest-timeout", "+ Timeout +")
"""What pytest-timeout writes when it fails a test, or ends the process, that ran too long."""


def reports(lines: Path, dumps: Path, ended: Ended, seconds: float) -> list[Report]:
    """One report per collected test in the order of the run, then those of what isn't a test:
    (collection), (pytest), (exit).
    """
    if (
        ended.status == USAGE_STATUS
        # a filter or an option that pytest can't read: the tests that it had collected aren't those
        # asked for
    ):
        return [_row("(pytest)", "error", ended.tail.strip())]
    story = _Story(_events(lines))
    found = [_report(test, story, ended, seconds) for test in story.tests]
    found += [
        _row(test, outcome, message) for test, (outcome, message) in story.uncollected.items()
    ]
    beside = _beside(
        story, ended, seconds, any(each["outcome"] in ("hang", "crash") for each in found)
    )
    if beside is not None:
        found.append(beside)
    named = {each["name"]: each for each in found}
    for test, dump in _dumps(dumps):
        if test not in named:
            named[test] = _row(test, "not_run", "arrays were handed over outside of any test")
            found.append(named[test])
        named[test]["dumps"].append(dump)
    return found


class _Story:
    """The events of one run, by test."""

    def __init__(self, events: Iterator[dict[str, Any]]) -> None:
        self.tests: dict[str, None] = {}
        self.done: dict[str, dict[str, Any]] = {}
        self.running: set[str] = set()
        self.uncollected: dict[str, tuple[str, str]] = {}
        self.problems: list[str] = []
        self.collected = self.finished = False
        tell = {
            "collected": self._collected,
            "uncollected": self._uncollected,
            "start": self._start,
            "done": self._done,
        }
        tell |= {"problem": self._problem, "end": self._end}
        for event in events:
            with contextlib.suppress(
                KeyError, TypeError, ValueError
            ):  # a test may write anything into a file that it finds
                tell[event["event"]](event)

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
    """The lines that can be read: the last one may be cut off where a disk was full."""
    with contextlib.suppress(FileNotFoundError), lines.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError):
                yield json.loads(line)


def _report(test: str, story: _Story, ended: Ended, seconds: float) -> Report:
    if test in story.done:
        done = story.done[test]
        outcome = (
            "hang"
            if done["outcome"] == "failed" and TIMEOUT_WORDS[0] in done["message"]
            else done["outcome"]
        )
        row = _row(test, outcome, done["message"])
        failures = [
            {**each, "expression": _clean(each["expression"]), "message": _clean(each["message"])}
            for each in done["failures"]
        ]
        measured = {_clean(name): value for name, value in done["measurements"].items()}
        return {
            **row,
            "duration_ms": done["duration_ms"],
            "failures": failures,
            "measurements": measured,
        }
    if test not in story.running:
        return _row(test, "skipped", f"not run: {_why_not(story, ended)}")
    if ended.status is None:
        return _row(test, "hang", _hang_words(ended, seconds))
    if story.finished:  # pytest.exit, or -x, in the middle of it
        return _row(
            test,
            "error",
            "; ".join(story.problems) or "the run was ended in the middle of this test",
        )
    if TIMEOUT_WORDS[1] in ended.tail:
        return _row(test, "hang", f"pytest-timeout ended the process\n{ended.tail}")
    return _row(test, "crash", f"the process of the tests {ended.words} in the middle of this test")


def _beside(story: _Story, ended: Ended, seconds: float, told: bool) -> Report | None:
    """What went wrong outside of any test; `told`: a test's own report says already why the process
    ended.
    """
    stage = "(exit)" if story.finished else "(between tests)" if story.collected else "(collection)"
    if ended.status is None:
        return None if told else _row(stage, "hang", _hang_words(ended, seconds))
    if ended.status < 0 or (
        not story.finished and ended.status not in BROKEN_STATUSES and story.collected
    ):
        return (
            None
            if told
            else _row(stage, "crash", f"the process of the tests {ended.words}\n{ended.tail}")
        )
    if story.problems:
        return _row("(pytest)", "error", "\n".join(story.problems))
    if not story.finished:
        return _row("(pytest)", "error", f"pytest could not start, it {ended.words}\n{ended.tail}")
    return None


def _why_not(story: _Story, ended: Ended) -> str:
    if story.problems:
        return story.problems[-1].partition("\n")[0]
    running = ", ".join(sorted(story.running))
    if ended.status is None:
        return f"{running or 'the run'} hung before"
    return (
        f"the process {ended.words}{f' in {running}' if running else ''} before"
        if not story.finished
        else "the run was ended before"
    )


def _hang_words(ended: Ended, seconds: float) -> str:
    return f"no end within {seconds:.3g} s" + (f"; it hung at {ended.where}" if ended.where else "")


def _row(name: str, outcome: str, message: str) -> Report:
    cut = (
        message
        if len(message) <= MAX_MESSAGE
        else message[: MAX_MESSAGE // 2] + "\n...\n" + message[-MAX_MESSAGE // 2 :]
    )
    return {
        "name": _clean(name),
        "outcome": outcome,
        "duration_ms": None,
        "message": _clean(cut),
        "failures": [],
        "measurements": {},
        "stage": None,
        "dumps": [],
    }


def _clean(text: str) -> str:
    """Without what no database takes: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _dumps(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every comparison that was handed over whole, with the test that did it, in the order in which
    it was made.
    """
    for manifest in sorted(
        folder.glob("[!.]*/manifest.json"), key=lambda path: (path.stat().st_mtime_ns, path)
    ):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(manifest.read_text("utf-8"))
            files = {
                kind: {
                    str(name): str(manifest.parent / Path(file).name)
                    for name, file in told.get(kind, {}).items()
                }
                for kind in ("tensors", "raw")
            }
            dump = {
                "kernel": told["kernel"],
                "fields": told["fields"],
                **files,
                "arithmetic": told.get("arithmetic"),
                "name": told.get("name"),
            }
            yield str(told.get("test") or "(no test)"), dump
