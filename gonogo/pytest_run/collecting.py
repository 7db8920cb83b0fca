"""In the process that hears of all tests: folds pytest's reports into records, keeps or tells them, and says at the end what they show."""

from __future__ import annotations

import copy
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from gonogo.pytest_lines import Outcome
from gonogo.pytest_run import server, summary
from gonogo.pytest_run.gathering import STRICT, told_by
from gonogo.pytest_run.local import LocalFile, new_id
from gonogo.pytest_run.records import Record, encoded

FLUSH_S = 1.0
"""Tests that ended reach the file this soon; a commit for each would slow a suite of fast ones."""


class Collector:
    """One run. `url`: the server that is told at its end; `path`: the SQLite file, for everything, or for what the server didn't get.

    `asked`: the user named server or file. Otherwise nothing is written before a test has compared something.
    """

    def __init__(self, header: Callable[[], Mapping[str, Any]], *, url: str | None, path: Path | None, asked: bool) -> None:
        """header: the first line of format "gonogo" but for `started_at`; asked for when there is something to keep."""
        self._header_of, self.url, self.path, self.asked = header, url, path, asked
        self.started_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.run = new_id()
        self.records: list[Record] = []
        self.ended: list[str] = []
        """Where the numbers are, in words, and what went wrong."""
        self._open: dict[str, _Test] = {}
        self._repeats: Counter[tuple[str, int | None]] = Counter()
        self._file: LocalFile | None = None
        self._kept = 0
        self._flushed = time.monotonic()

    @cached_property
    def header(self) -> dict[str, Any]:
        """The first line of format "gonogo"."""
        return {**self._header_of(), "started_at": self.started_at}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown of a test become one record; pytest-xdist tells of a crashed process without any phase."""
        test = self._open.setdefault(report.nodeid, _Test(report.nodeid))
        test.add(report)
        if report.when == "teardown" or report.when not in ("setup", "call"):
            self._done(self._open.pop(report.nodeid))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that can't be imported is an error, one that skips itself is skipped."""
        if report.failed or report.skipped:
            message = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            outcome = "error" if report.failed else "skipped"
            self._add(Record(report.nodeid or "(collection)", outcome, message=str(message)[-2000:]))

    def pytest_report_teststatus(self, report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, Any] | None:
        """A hollow pass isn't counted among the passed."""
        green = report.when == "call" and report.passed and not hasattr(report, "wasxfail")
        if not green or not any(each.hollow for each in told_by(report).get("comparisons", ())):
            return None
        return "hollow", "H", ("HOLLOW", {"yellow": True})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Keep the rest, and tell the server."""
        for test in self._open.values():
            test.outcome.outcome, test.outcome.message = "error", "the run was ended in the middle of this test"
            self._done(test)
        self._open.clear()
        status = int(exitstatus)
        if self.url is None:
            self._keep(last=True)
            if self._file is not None:
                self._with_file(lambda file: file.finish(self.run, status))
                self.ended.append(f"numbers: {self.path}, run {self.run}")
        elif self.records:
            self._tell(status)
        if self._file is not None:
            self._file.close()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The hollow passes, by test, and where the numbers are."""
        summary.write(terminalreporter, self.records, self.ended)

    def _done(self, test: _Test) -> None:
        record = test.record()
        record.repeat = self._repeats[record.name, record.seed]
        self._repeats[record.name, record.seed] += 1
        self._add(record)

    def _add(self, record: Record) -> None:
        self.records.append(record)
        self.asked = self.asked or bool(record.comparisons)
        if self.url is None:
            self._keep()

    def _keep(self, last: bool = False) -> None:
        """Write what the file hasn't."""
        now = time.monotonic()
        if self.path is None or not self.asked or not self.records or not (last or now - self._flushed >= FLUSH_S):
            return
        self._flushed = now
        new = list(enumerate(self.records))[self._kept :]
        self._with_file(lambda file: file.add(self.run, new))
        self._kept = len(self.records)

    def _with_file(self, do: Any, unsent_to: str | None = None) -> None:
        """A file that can't be written is no reason to stop anybody's tests: it is said at the end."""
        if self.path is None:
            return
        try:
            if self._file is None:
                self._file = LocalFile(self.path)
                self._file.start(self.run, self.header, unsent_to)
            do(self._file)
        except (OSError, ValueError, sqlite3.Error) as problem:
            words = f"numbers could not be kept in {self.path}: {problem}"
            if words not in self.ended:
                self.ended.append(words)
            self.path = None

    def _tell(self, status: int) -> None:
        """The server hears of this run, then of earlier ones that it couldn't be told; what it doesn't take is kept."""
        assert self.url is not None
        try:
            answers = server.send(self.url, self.run, encoded(self.header), (encoded(each.to_json()) for each in self.records))
        except server.Unsent as problem:
            self.ended.append(f"not sent: {problem}")
            self._with_file(lambda file: file.add(self.run, list(enumerate(self.records))), self.url)
            self._with_file(lambda file: file.finish(self.run, status))
            if self.path is not None:
                self.ended.append(f"numbers: {self.path}, run {self.run}; the next run with this server sends them")
            return
        self.ended += [f"numbers: {self.url.rstrip('/')}/jobs/{each['id']} ({each.get('verdict')})" for each in answers]
        if self.path is not None and self.path.exists():
            self._catch_up()

    def _catch_up(self) -> None:
        assert self.url is not None
        assert self.path is not None
        try:
            file = LocalFile(self.path)
        except (OSError, ValueError, sqlite3.Error) as problem:
            self.ended.append(f"earlier runs in {self.path} can't be read: {problem}")
            return
        try:
            for run in file.unsent(self.url):
                first, *lines = file.lines(run)
                answers = server.send(self.url, run, first, lines)
                file.sent(run, [str(each["id"]) for each in answers])
                self.ended.append(f"sent, too: the run {run} of {self.path}")
        except (sqlite3.Error, server.Unsent) as problem:
            self.ended.append(f"earlier runs in {self.path} not sent: {problem}")
        finally:
            file.close()


class _Test:
    """A test whose teardown wasn't reported yet."""

    def __init__(self, nodeid: str) -> None:
        self.outcome = Outcome()
        self.told: dict[str, Any] = {"name": nodeid, "seed": None}
        self.comparisons: list[Any] = []
        self.place: tuple[str | None, int | None] = (None, None)
        self.worker: str | None = None

    def add(self, report: pytest.TestReport) -> None:
        """Fold a phase in; what strict mode made red counts as the test's own green."""
        told = told_by(report)
        self.comparisons += told.pop("comparisons", [])
        self.told |= told
        self.worker = getattr(report, "worker_id", None)
        path, line, _ = report.location
        self.place = (path, None if line is None else line + 1)
        if getattr(report, STRICT, False):
            report = copy.copy(report)
            report.outcome, report.longrepr = "passed", None
        if report.when not in ("setup", "call", "teardown"):
            self.outcome.outcome, self.outcome.message = "crash", report.longreprtext
        else:
            self.outcome.add(report)

    def record(self) -> Record:
        """What became of it."""
        file, line = self.place
        return Record(
            **self.told,
            outcome=self.outcome.outcome,
            duration_ms=self.outcome.duration_ms,
            message=self.outcome.message,
            failures=list(self.outcome.failures.values()),
            measurements=self.outcome.measurements,
            file=file,
            line=line,
            worker=self.worker,
            comparisons=self.comparisons,
        )
