"""Fold pytest's reports into records, deliver them, and summarize them at the end.

This runs in the process that receives the reports of all tests.
"""

from __future__ import annotations

import copy
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from gonogo.pytest_plugin import summary, together
from gonogo.pytest_plugin.delivery import catch_up, deliver
from gonogo.pytest_plugin.gathering import HOLLOW, gathered
from gonogo.pytest_plugin.lines import TestPhases
from gonogo.pytest_plugin.records import Record, new_id
from gonogo.pytest_plugin.spool import Spool, SpooledRun, Undelivered


class Collector:
    """One run of pytest.

    `to`: the server or the folder that gets the run at its end; None: none. Until then it is
    spooled in the folder `root`. `requested`: whether the user named it. Otherwise
    nothing is written before a test has compared something. `strict`: whether hollow passes fail.
    `header` makes the first line of format "gonogo" without `started_at`, once there is something
    to record.
    """

    def __init__(
        self,
        header: Callable[[], Mapping[str, Any]],
        *,
        root: Path,
        to: str | None,
        requested: bool,
        strict: bool = False,
    ) -> None:
        self._header_of, self.root, self.to, self.requested = header, root, to, requested
        self.strict = strict
        self.hollow: list[Record] = []  # the tests that --gonogo-strict turns red
        self.started_at = _now()
        self.run = new_id()
        self.records: list[Record] = []
        # as all seeds of each test settle them, once all tests have run
        self.settled: list[Record] = []
        # the green tests that are hollow by all their seeds together, or suspect with each
        self.together: list[Record] = []
        # sentences that say where the numbers are, and what went wrong
        self.ended: list[str] = []
        self._open: dict[str, _Test] = {}
        self._repeats: Counter[tuple[str, int | None]] = Counter()
        self._spool: Spool | None = None
        self._spools = True
        self._pid = os.getpid()

    @cached_property
    def header(self) -> dict[str, Any]:
        """The first line of format "gonogo"."""
        return {**self._header_of(), "started_at": self.started_at}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record that a test begins: if the run is killed, the running test is known."""
        self._open[nodeid] = _Test(nodeid)
        self._keep(lambda spool: spool.began(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Fold setup, call and teardown of a test into one record.

        pytest-xdist reports a crashed process without any phase.
        """
        test = self._open.setdefault(report.nodeid, _Test(report.nodeid))
        has_content = test.add(report)
        if report.when == "teardown" or report.when not in ("setup", "call"):
            self._done(self._open.pop(report.nodeid))
        elif has_content:
            self.requested = self.requested or bool(test.comparisons)
            self._keep(lambda spool: spool.write_record(report.nodeid, test.record(), done=False))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that can't be imported as an error, and one that skips itself as a skip."""
        if report.failed or report.skipped:
            why = report.longrepr
            message = str(why[2] if isinstance(why, tuple) else report.longreprtext)[-2000:]
            outcome = "error" if report.failed else "skipped"
            self._add(Record(report.nodeid or "(collection)", outcome, message=message))

    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> tuple[str, str, Any] | None:
        """Return a status for hollow passes, so that they don't count as passed."""
        green = report.when == "call" and report.passed and not hasattr(report, "wasxfail")
        comparisons = gathered(report).get("comparisons", ()) if green else ()
        if not any(comparison.hollow for comparison in comparisons):
            return None
        return "hollow", "H", ("HOLLOW PASS", {"yellow": True})

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None]:
        """Look at the seeds of each test together; strict mode fails the run for what they show."""
        yield
        self.settled = together.settled(self.records)
        pairs = zip(self.records, self.settled, strict=True)
        self.together = [after for before, after in pairs if after is not before]
        self.together += together.suspect(self.settled)
        if self.strict:
            session.testsfailed += len(self.together)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Record the remaining tests, and deliver the run."""
        if os.getpid() != self._pid:  # a child that a test forked, and that didn't exit
            return
        for test in self._open.values():
            test.outcome.end("error", "the run ended in the middle of this test")
            self._done(test)
        self._open.clear()
        if self.to is not None and self.requested:
            self._deliver(self.to)

    def pytest_unconfigure(self) -> None:
        """Close the spool of a session that broke off, and keep its file."""
        self._close(keep=True)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write the hollow passes by test, and where the numbers are."""
        lines = summary.strict_lines(
            self.hollow, self.together, len(self.records), is_strict=self.strict
        )
        summary.write(terminalreporter, self.settled or self.records, [*lines, *self.ended])

    def _done(self, test: _Test) -> None:
        record = test.record()
        record.repeat = self._repeats[record.name, record.seed]
        self._repeats[record.name, record.seed] += 1
        if test.hollow:
            self.hollow.append(record)
        self._add(record, test.node)

    def _add(self, record: Record, node: str | None = None) -> None:
        self.requested = self.requested or bool(record.comparisons)
        self._keep(lambda spool: spool.write_record(node, record, done=True))
        self.records.append(record)

    def _keep(self, do: Callable[[Spool], None]) -> None:
        """Write to the spool.

        A file that can't be written must not stop the tests; the summary says so.
        """
        if self.to is None or not self.requested or not self._spools:
            return
        try:
            if self._spool is None:
                self._spool = Spool(self.root, self.run, self.to, self.header)
                for record in self.records:  # from before the first comparison
                    self._spool.write_record(None, record, done=True)
            do(self._spool)
        except OSError as problem:
            self._spools = False
            self.ended.append(
                f"the run can't be stored in {self.root} until it is delivered: {problem}"
            )

    def _close(self, *, keep: bool) -> None:
        if self._spool is not None:
            self._spool.close(keep=keep)
            self._spool = None

    def _deliver(self, to: str) -> None:
        """Deliver this run, then earlier ones for the same destination."""
        ended, worked = _now(), True
        if self.records:
            self._keep(lambda spool: spool.ended(ended))
            try:
                places = deliver(SpooledRun(self.run, to, self.header, self.records, ended))
                self.ended += [f"numbers: {place}" for place in places]
            except Undelivered as problem:
                worked = False
                self._undelivered(problem)
        self._close(keep=not worked)
        for done, words in catch_up(self.root, only=to, but=self.run) if worked else ():
            self.ended.append(f"{'delivered, too' if done else 'not delivered'}: {words}")

    def _undelivered(self, problem: Undelivered) -> None:
        self.ended.append(f"not delivered: {problem}")
        if self._spool is None:
            return
        if problem.refused:
            self.ended.append(f"numbers: {self._spool.refused().name}")
        else:
            later = "the next run delivers them, or `python -m gonogo.pytest_plugin`"
            self.ended.append(f"numbers: {self._spool.path.name}; {later}")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class _Test:
    """A test whose teardown has not been reported yet."""

    def __init__(self, nodeid: str) -> None:
        self.node = nodeid
        self.outcome = TestPhases()
        self.identity: dict[str, Any] = {"name": nodeid, "seed": None}
        self.comparisons: list[Any] = []
        self.place: tuple[str | None, int | None] = (None, None)
        self.worker: str | None = None
        self.hollow = False  # whether --gonogo-strict turns its green call red

    def add(self, report: pytest.TestReport) -> bool:
        """Fold a phase in; return whether it had a seed or a comparison.

        A test that only strict mode failed counts as green.
        """
        content = gathered(report)
        has_content = bool(content)
        self.comparisons += content.pop("comparisons", [])
        self.identity |= content
        self.worker = getattr(report, "worker_id", None)
        path, line, _ = report.location
        self.place = (path, None if line is None else line + 1)
        if getattr(report, HOLLOW, False):
            self.hollow = True
            report = copy.copy(report)
            report.outcome, report.longrepr = "passed", None
        if report.when not in ("setup", "call", "teardown"):
            self.outcome.end("crash", report.longreprtext)
        else:
            self.outcome.add(report)
        return has_content

    def record(self) -> Record:
        """Return the record of the test so far."""
        file, line = self.place
        return Record(
            **self.identity,
            **self.outcome.to_json(),
            file=file,
            line=line,
            worker=self.worker,
            comparisons=self.comparisons,
        )
