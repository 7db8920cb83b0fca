"""The executor's side of the pytest plug-in: select tests, and write every event to a file.

It needs only the standard library, pytest and gonogo.public.recorded, because it runs in other
people's interpreters (Python 3.10 or newer).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gonogo.public import recorded

MAX_MESSAGE = 4000
MAX_EXPRESSION = 300
UNWRITABLE = "the tests' results can't be written"
UNWRITABLE_STATUS = 3
HERE = os.path.join(os.getcwd(), "")
"""The folder in which pytest was started. Places in the tests are relative to it, even if a test
changes the current folder."""


class Chooser:
    """Run only the requested tests.

    The requested ids are compared with the collected ones, and never become paths or options of
    pytest.
    """

    def __init__(self, node_ids: Iterable[str]) -> None:
        self.node_ids = [node_id.strip().rstrip("/") for node_id in node_ids]
        self.files = [node_id.partition("::")[0] for node_id in self.node_ids]

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Return True for files without a requested test, so that they aren't even imported."""
        try:
            place = collection_path.relative_to(config.rootpath).as_posix()
        except ValueError:
            return None
        near = any(_below(place, file) or _below(file, place) for file in self.files)
        return None if near or place == "." else True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Deselect all other tests."""
        ids = set(self.node_ids)
        below = tuple(f"{node_id}{mark}" for node_id in ids for mark in ("::", "[", "/"))
        chosen: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            is_chosen = item.nodeid in ids or item.nodeid.startswith(below)
            (chosen if is_chosen else others).append(item)
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = chosen


def _below(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder}/") or folder in ("", ".")


class Recorder:
    """Append a line per event: collected, start, done, uncollected, problem, end.

    Each line is one write, so a crash cuts none.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()
        self._open: dict[str, TestPhases] = {}
        self._is_full = False

    def write(self, event: str, **values: Any) -> None:
        """Write one line; a child that a test forked writes nothing.

        Where the disk is full, the run ends and nothing more is written.
        """
        if os.getpid() != self._pid or self._is_full:
            return
        line = json.dumps({"event": event, **values}).encode() + b"\n"
        try:
            problem = "" if os.write(self._file, line) == len(line) else "no space left"
        except OSError as error:
            problem = str(error.strerror)
        if problem:
            self._is_full = True
            pytest.exit(f"{UNWRITABLE}: {problem}", UNWRITABLE_STATUS)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a line for a file that can't be imported, or that skips itself as a whole."""
        if report.failed:
            message = str(report.longreprtext)[-MAX_MESSAGE:]
            self.write("uncollected", test=report.nodeid, outcome="error", message=message)
        elif report.skipped:
            message = _reason(report)
            self.write("uncollected", test=report.nodeid, outcome="skipped", message=message)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the tests in the order in which they will run."""
        if getattr(session, "items", None):
            self.write("collected", tests=[item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Write the tests if pytest-xdist's own processes collect; each of them has all tests."""
        self.write("collected", tests=list(ids))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write that a test begins."""
        self._open[nodeid] = TestPhases()
        self.write("start", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Fold setup, call and teardown into one outcome, and write it after the teardown.

        A test that a plug-in runs again has several outcomes.
        """
        outcome = self._open.setdefault(report.nodeid, TestPhases())
        outcome.add(report)
        if report.when == "teardown":
            self.write("done", test=report.nodeid, **outcome.to_json())
            del self._open[report.nodeid]

    def pytest_internalerror(self, excrepr: object) -> None:
        """Write that pytest or a plug-in broke."""
        self.write("problem", message=f"internal error: {excrepr}"[-MAX_MESSAGE:])

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Write that a test, or a hook, ended the whole run (pytest.exit)."""
        self.write("problem", message=f"the run was ended: {excinfo.exconly()}"[:MAX_MESSAGE])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the end: no later event belongs to a test."""
        self.write("end", status=int(exitstatus))


class Measurer:
    """Store the numbers of comparisons without arrays as measurements of their tests.

    It runs under a worker, which can't judge these comparisons.
    """

    NUMBERS = ("max_abs", "tolerance_ratio", "pcc_deficit", "tolerance_roundings")

    def __init__(self) -> None:
        self._properties: list[tuple[str, object]] | None = None
        self._stop = recorded.listen(self._add)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Assign the following comparisons to this test."""
        self._properties = item.user_properties

    def _add(self, comparison: recorded.Comparison) -> None:
        if self._properties is not None and comparison.spec is None:
            for output, statistics in comparison.outputs.items():
                name = comparison.name or ""
                label = (name or output) if len(comparison.outputs) == 1 else f"{name}{output}"
                known = [number for number in self.NUMBERS if statistics.get(number) is not None]
                self._properties += [(f"{label}.{number}", statistics[number]) for number in known]

    def pytest_unconfigure(self) -> None:
        """Stop listening."""
        self._stop()


class TestPhases:
    """The outcome of setup, call and teardown of one test.

    failed: the call failed (or a subtest, a strict xfail that passed, a run that a plug-in
    repeats). error: setup or teardown did, or both phases around a call that didn't fail. skipped:
    also an expected failure (xfail), which is never green. passed: also an unexpected pass (xpass),
    with a message.
    """

    def __init__(self) -> None:
        self.outcome = "passed"
        self.message = ""
        self.duration_ms: float | None = None
        self.failures: dict[str, dict[str, Any]] = {}
        self.measurements: dict[str, float] = {}

    def add(self, report: pytest.TestReport) -> None:
        """Fold one phase in."""
        part_of_a_test = hasattr(report, "context")  # a subtest: the call's time includes its own
        if report.when == "call" and not part_of_a_test:
            self.duration_ms = (self.duration_ms or 0.0) + report.duration * 1e3
        again = str(report.outcome) == "rerun"  # pytest-rerunfailures: a failure is tried again
        if report.failed or again:
            self._failed(report, "failed" if report.when == "call" else "error", again)
        elif report.skipped and not part_of_a_test and self.outcome == "passed":
            is_expected = hasattr(report, "wasxfail")
            xfail = f"failed as expected (xfail): {report.wasxfail}" if is_expected else ""
            self.end("skipped", xfail or _reason(report))
        elif report.when == "call" and hasattr(report, "wasxfail") and not report.skipped:
            self.message = f"passed unexpectedly (xpass): {report.wasxfail}"
        for name, value in report.user_properties:
            if (number := _number(value)) is not None:
                self.measurements[str(name)] = number

    def _failed(self, report: pytest.TestReport, outcome: str, again: bool) -> None:
        expression, message = _failure(report)
        entry = {"expression": expression, "count": 0, "message": message}
        self.failures.setdefault(expression, entry)["count"] += 1
        if self.outcome not in ("failed", "error"):
            prefix = "" if report.when == "call" else f"in {report.when}: "
            prefix = "failed, then run again: " if again else prefix
            self.end(outcome, (prefix + message)[:MAX_MESSAGE])

    def end(self, outcome: str, message: str) -> None:
        """Set the outcome and its message."""
        self.outcome, self.message = outcome, message

    def to_json(self) -> dict[str, Any]:
        """Return the part of a `done` line with the outcome: the failures are a list there.

        Measurements may be NaN or Infinity, which Python's JSON allows.
        """
        return {
            "outcome": self.outcome,
            "message": self.message,
            "duration_ms": self.duration_ms,
            "failures": list(self.failures.values()),
            "measurements": self.measurements,
        }


def _failure(report: pytest.TestReport) -> tuple[str, str]:
    """Return the failing source line, and the message with its place."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        text = str(report.longreprtext)
        return text.partition("\n")[0][:MAX_EXPRESSION], text[:MAX_MESSAGE]
    traceback = getattr(report.longrepr, "reprtraceback", None)
    entries = getattr(traceback, "reprentries", None) or [None]
    lines = [line for line in getattr(entries[-1], "lines", ()) if line.startswith(">")]
    first = lines[-1][1:].strip() if lines else str(crash.message).partition("\n")[0]
    message = f"{crash.message}\n{str(crash.path).removeprefix(HERE)}:{crash.lineno}"
    return first[:MAX_EXPRESSION], message[:MAX_MESSAGE]


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Return why something was skipped."""
    where = report.longrepr
    why = str(where[2] if isinstance(where, tuple) else where)
    return why.removeprefix("Skipped: ")[:MAX_MESSAGE]


def _number(value: object) -> float | None:
    """Return a number that a test recorded, including NumPy's; None for texts and bools."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
