"""In the process that hears of all tests: folds pytest's reports into records, keeps or tells them,
and says at the end what they show.
"""

from __future__ import annotations

import copy
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from gonogo_pytest import summary
from gonogo_pytest.delivery import Undelivered, catch_up, deliver
from gonogo_pytest.gathering import STRICT, told_by
from gonogo_pytest.lines import Outcome
from gonogo_pytest.records import Record, new_id
from gonogo_pytest.spool import Run, Spool


class Collector:
    """One run.

    `to`: the server that is told at its end, or the SQLite file that has it then; None: nobody.
    Until then it is spooled in the folder `root`.

    `asked`: the user named server or file. Otherwise nothing is written before a test has compared
    something.
    """

    def __init__(
        self, header: Callable[[], Mapping[str, Any]], *, root: Path, to: str | None, asked: bool
    ) -> None:
        """header: the first line of format "gonogo" but for `started_at`; asked for when there is
        something to keep.
        """
        self._header_of, self.root, self.to, self.asked = header, root, to, asked
        self.started_at = _now()
        self.run = new_id()
        self.records: list[Record] = []
        self.ended: list[str] = []
        """Where the numbers are, in words, and what went wrong."""
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
        """From here on a test is a running one: if the run is killed, it is known in which."""
        self._open[nodeid] = _Test(nodeid)
        self._keep(lambda spool: spool.began(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown of a test become one record; pytest-xdist tells of a crashed
        process without any phase.
        """
        test = self._open.setdefault(report.nodeid, _Test(report.nodeid))
        told = test.add(report)
        if report.when == "teardown" or report.when not in ("setup", "call"):
            self._done(self._open.pop(report.nodeid))
        elif told:
            self.asked = self.asked or bool(test.comparisons)
            self._keep(lambda spool: spool.heard(report.nodeid, test.record(), done=False))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that can't be imported is an error, one that skips itself is skipped."""
        if report.failed or report.skipped:
            message = (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            )
            outcome = "error" if report.failed else "skipped"
            self._add(
                Record(report.nodeid or "(collection)", outcome, message=str(message)[-2000:])
            )

    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> tuple[str, str, Any] | None:
        """Return a hollow pass isn't counted among the passed."""
        green = report.when == "call" and report.passed and not hasattr(report, "wasxfail")
        if not green or not any(each.hollow for each in told_by(report).get("comparisons", ())):
            return None
        return "hollow", "H", ("HOLLOW", {"yellow": True})

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Keep the rest, and tell the server."""
        if os.getpid() != self._pid:  # a child that a test forked and that runs on into pytest
            return
        for test in self._open.values():
            test.outcome.outcome, test.outcome.message = (
                "error",
                "the run was ended in the middle of this test",
            )
            self._done(test)
        self._open.clear()
        if self.to is not None and self.asked:
            self._deliver(self.to, int(exitstatus))

    def pytest_unconfigure(self) -> None:
        """A session that broke off before its end leaves what it had."""
        if self._spool is not None:
            self._spool.close(keep=True)
            self._spool = None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The hollow passes, by test, and where the numbers are."""
        summary.write(terminalreporter, self.records, self.ended)

    def _done(self, test: _Test) -> None:
        record = test.record()
        record.repeat = self._repeats[record.name, record.seed]
        self._repeats[record.name, record.seed] += 1
        self._add(record, test.node)

    def _add(self, record: Record, node: str | None = None) -> None:
        self.asked = self.asked or bool(record.comparisons)
        self._keep(lambda spool: spool.heard(node, record, done=True))
        self.records.append(record)

    def _keep(self, do: Callable[[Spool], None]) -> None:
        """A file that can't be written is no reason to stop anybody's tests: it is said at the
        end.
        """
        if self.to is None or not self.asked or not self._spools:
            return
        try:
            if self._spool is None:
                self._spool = Spool(self.root, self.run, self.to, self.header)
                for record in (
                    self.records
                ):  # of before the first comparison, which made the run worth keeping
                    self._spool.heard(None, record, done=True)
            do(self._spool)
        except OSError as problem:
            self._spools = False
            self.ended.append(
                f"the run can't be kept in {self.root} until it is delivered: {problem}"
            )

    def _deliver(self, to: str, status: int) -> None:
        """This run, then earlier ones for the same place; what can't be delivered is kept."""
        ended = _now()
        worked = True
        if self.records:
            self._keep(lambda spool: spool.ended(status, ended))
            try:
                told = deliver(Run(self.run, to, self.header, self.records, status, ended))
                self.ended += [f"numbers: {each}" for each in told]
            except Undelivered as problem:
                worked = False
                self._undelivered(problem)
        if self._spool is not None:
            self._spool.close(keep=not worked)
            self._spool = None
        if worked:
            found = catch_up(self.root, only=to, but=self.run)
            self.ended += [
                f"{'delivered, too' if done else 'not delivered'}: {words}" for done, words in found
            ]

    def _undelivered(self, problem: Undelivered) -> None:
        self.ended.append(f"not delivered: {problem}")
        if self._spool is None:
            return
        if problem.refused:
            self.ended.append(f"numbers: {self._spool.refused().name}")
        else:
            self.ended.append(
                f"numbers: {self._spool.path.name}; the next run delivers them, or `python -m gonogo_pytest`"
            )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class _Test:
    """A test whose teardown wasn't reported yet."""

    def __init__(self, nodeid: str) -> None:
        self.node = nodeid
        self.outcome = Outcome()
        self.told: dict[str, Any] = {"name": nodeid, "seed": None}
        self.comparisons: list[Any] = []
        self.place: tuple[str | None, int | None] = (None, None)
        self.worker: str | None = None

    def add(self, report: pytest.TestReport) -> bool:
        """Fold a phase in; what strict mode made red counts as the test's own green.

        Whether it had a seed or a comparison to tell of.
        """
        told = told_by(report)
        something = bool(told)
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
        return something

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
