"""GoogleTest as an executor: runs a build's test program with a filter and reports each test.

See docs/gtest.md. The builds file (GONOGO_BUILD) says what may run: the program, its fixed
arguments, and suites. A job names a suite and a filter; a filter is the value of --gtest_filter and
never anything else. Standard library only.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from child_program import Ended, run
from child_reports import (
    OUT_OF_TIME,
    SHARE,
    ProgramExecutor,
    Report,
    add_dumps,
    check_known,
    deadline_s,
    environment,
    row,
    seconds,
)
from gtest_lines import ObservedTest, OutputParser, failures, reason_of_skip

MIN_S = 0.2
MAX_ARGUMENT = 100_000
"""Characters of a filter: Linux has a limit of 128 KiB for an argument."""
MAX_SEED = 99_999
"""The largest seed that GoogleTest accepts."""
SUITE_FIELDS = ("filter", "order", "isolated", "timeout_s")
OVERRIDDEN = tuple(
    f"GTEST_{name}"
    for name in (
        *("OUTPUT", "FILTER", "SHUFFLE", "RANDOM_SEED", "REPEAT", "COLOR", "BRIEF", "LIST_TESTS"),
        *("TOTAL_SHARDS", "SHARD_INDEX", "SHARD_STATUS_FILE", "BREAK_ON_FAILURE"),
    )
)
"""Variables that would change what is run or reported, removed even from a build's environment."""
NOT_IN_BUILD = "it is not in this build"


@dataclass(frozen=True)
class Suite:
    """A named selection of the builds file."""

    name: str | None = None
    filter: str | None = None
    order: tuple[str, ...] = ()
    """Tests that run in this order in one process: earlier tests are part of the test."""
    isolated: bool = False
    """True: each test runs in a separate process."""
    timeout_s: float | None = None


class GtestExecutor(ProgramExecutor):
    """Runs a build's tests; one `report` is one iteration."""

    def __init__(self, build: str) -> None:
        """Raise ValueError for a build that this host's builds file doesn't describe.

        Raises OSError for a program that doesn't exist or isn't executable.
        """
        super().__init__("gtest", build)
        if not self.command:
            raise ValueError(f"the builds file of this host names no command for {build!r}")
        program = shutil.which(self.command[0]) or self.command[0]
        what = f"the test program {program} of build {build!r}"
        if not os.path.isfile(program):
            raise FileNotFoundError(f"{what} does not exist")
        if not os.access(program, os.X_OK):
            raise PermissionError(f"{what} is not executable")
        self.command[0] = program
        isolated = bool(self.options.get("isolated", False))
        self.suites = {None: Suite(isolated=isolated)}
        self.suites |= {name: _suite(name, table, isolated) for name, table in self.tables.items()}
        self._listed: dict[str, list[str]] = {}

    def report(
        self, selection: Mapping[str, Any], *, iteration: int, seed: int | None = None
    ) -> list[Report]:
        """Run the selection; return a report per test, an empty list when there is none.

        `seed` is the seed of the order (--gtest_random_seed) and of the tests' data (GONOGO_SEED).
        Raises ValueError for an unknown suite, and for an order that the program can't run.
        """
        selection = selection.get("selection", selection)
        suite: Suite = self.suite(selection.get("suite"))
        if selection.get("stages"):
            raise ValueError("a gtest build has no stages")
        shuffled = selection.get("shuffle") not in (None, False)
        if shuffled and (suite.order or suite.isolated):
            raise ValueError(f"the suite {suite.name!r} has a fixed order: it can't be shuffled")
        deadline = time.monotonic() + min(deadline_s(), SHARE * (suite.timeout_s or math.inf))
        names, not_run = self._selected(suite, selection.get("filter"), deadline)
        processes = _Iteration(self, iteration, seed, shuffled, deadline)
        groups = [[name] for name in names] if suite.isolated else [names] if names else []
        test_reports = processes.run(
            groups, whole=selection.get("filter") or suite.filter if not suite.order else None
        )
        return test_reports + [row(name, "not_run", NOT_IN_BUILD) for name in not_run]

    def listed(self, test_filter: str, deadline: float) -> list[str]:
        """Return the program's tests for a filter, in the order of their definition.

        Raises RuntimeError when the program can't list them.
        """
        if test_filter not in self._listed:
            lines: list[str] = []
            ended = run(
                [*self.command, "--gtest_list_tests", f"--gtest_filter={test_filter}"],
                environment=environment(0, None, OVERRIDDEN),
                seconds=max(MIN_S, deadline - time.monotonic()),
                on_line=lines.append,
                folder=self.options.get("root"),
                quiet=True,
            )
            if ended.status != 0:
                raise RuntimeError(
                    f"{self.command[0]} can't list its tests: it {ended.words}; "
                    f"its output ends: {ended.tail[-500:]}"
                )
            self._listed[test_filter] = list(_names(lines))
        return self._listed[test_filter]

    def _selected(
        self, suite: Suite, test_filter: str | None, deadline: float
    ) -> tuple[list[str], list[str]]:
        """Return the tests to run, and those of the suite's order that the program doesn't have.

        The job's filter narrows the suite's.
        """
        in_suite = self.listed(suite.filter or "*", deadline)
        narrowed = set(in_suite) if test_filter is None else set(self.listed(test_filter, deadline))
        if not suite.order:
            return [name for name in in_suite if name in narrowed], []
        defined = self.listed("*", deadline)
        runnable = [
            name
            for name in suite.order
            if name in defined and (test_filter is None or name in narrowed)
        ]
        not_run = (
            [name for name in suite.order if name not in defined] if test_filter is None else []
        )
        if runnable != sorted(runnable, key=defined.index):
            possible = ", ".join(sorted(runnable, key=defined.index))
            raise ValueError(
                f"suite {suite.name!r}: a GoogleTest program runs its tests in the order of their "
                f"definition, which is {possible}; an order must follow it (or shuffle a filter by "
                "a seed instead)"
            )
        return runnable, not_run


class _Iteration:
    """The processes of one iteration."""

    def __init__(
        self,
        executor: GtestExecutor,
        iteration: int,
        seed: int | None,
        shuffled: bool,
        deadline: float,
    ) -> None:
        self.executor, self.deadline = executor, deadline
        self.folder = executor.iteration_folder(iteration)
        self.environment = environment(iteration, seed, OVERRIDDEN)
        self.flags: list[str] = []
        if shuffled and seed is not None:
            # GoogleTest's rule for seeds beyond its largest; 0 would mean the time of day
            self.flags = ["--gtest_shuffle", f"--gtest_random_seed={(seed - 1) % MAX_SEED + 1}"]

    def run(self, groups: Sequence[Sequence[str]], whole: str | None) -> list[Report]:
        """Run each group in a separate process.

        After a hang nothing more runs: on a device that hangs, all would.
        """
        test_reports: list[Report] = []
        hung = ""
        for number, names in enumerate(groups):
            if not hung and self.deadline - time.monotonic() < MIN_S:
                hung = OUT_OF_TIME
            if hung:
                message = f"not run: {hung} came before"
                test_reports += [row(name, "skipped", message) for name in names]
                continue
            ran = self._process(number, names, whole if len(groups) == 1 else None)
            hangs = (report["name"] for report in ran if report["outcome"] == "hang")
            hung = next((f"the hang of {name}" for name in hangs), "")
            test_reports += ran
        return test_reports

    def _process(self, number: int, names: Sequence[str], whole: str | None) -> list[Report]:
        """Return the reports of one process.

        `whole`: a filter that selects exactly these tests, shorter than all their names.
        """
        output, dumps = self.folder / f"{number}.json", self.folder / f"{number}-dumps"
        dumps.mkdir()
        filtered = ":".join(names)
        if whole is not None and set(self.executor.listed(whole, self.deadline)) == set(names):
            filtered = whole
        if len(filtered) > MAX_ARGUMENT:
            raise ValueError(
                f"{len(names)} tests are too many to name one by one: give the suite a filter"
            )
        parser = OutputParser()
        limit_s = max(MIN_S, self.deadline - time.monotonic())
        ended = run(
            [
                *self.executor.command,
                f"--gtest_filter={filtered}",
                f"--gtest_output=json:{output}",
                "--gtest_color=no",
                *self.flags,
            ],
            environment={**self.environment, "GONOGO_DUMP_DIR": str(dumps)},
            seconds=limit_s,
            on_line=parser.add_line,
            folder=self.executor.options.get("root"),
        )
        with contextlib.suppress(OSError):
            parser.read(output.read_text("utf-8", "replace"))
        return reports(parser, names, ended, limit_s, dumps)


def reports(
    parser: OutputParser, names: Sequence[str], ended: Ended, limit_s: float, dumps: Path
) -> list[Report]:
    """Return one report per selected test in the order of the run.

    The last one may be (exit): a failure outside of any test.
    """
    by_name = {name: _report(test, ended, limit_s) for name, test in parser.tests.items()}
    lost = next((name for name, test in parser.tests.items() if test.outcome is None), None)
    for name in names:
        if name not in by_name:
            why = f"the program {ended.words}{f' in {lost}' if lost else ''}"
            by_name[name] = row(name, "skipped", f"not run: {why} before")
    outside = _outside_report(parser, names, ended, limit_s) if lost is None else None
    if outside is not None:
        by_name[outside["name"]] = outside
    add_dumps(by_name, dumps)
    return list(by_name.values())


def _report(test: ObservedTest, ended: Ended, limit_s: float) -> Report:
    counted = failures(test)
    message = ""
    if test.outcome == "failed":
        message = _failure_words(counted)
    elif test.outcome == "skipped":
        message = reason_of_skip(test)
    outcome = test.outcome
    if outcome is None:
        hung = ended.status is None
        outcome = "hang" if hung else "crash"
        last = "\n".join(test.lines[-8:])
        words = (
            f"no end within {limit_s:.3g} s"
            if hung
            else f"the program {ended.words} in the middle of this test"
        )
        message = f"{words}; the last that it printed:\n{last}" if last else words
    problems = (f"arrays were not handed over: {problem}" for problem in test.problems)
    message = "\n".join(filter(None, (message, *problems)))
    numbers, texts = dict(test.measurements), {}
    for name, value in test.properties.items():
        try:
            numbers[name] = float(value)
        except ValueError:
            texts[name] = value
    more = {"file": test.file, "line": test.line, "properties": texts}
    return row(
        test.name,
        outcome,
        message,
        duration_ms=test.duration_ms,
        failures=counted,
        measurements=numbers,
        position=test.position,
        **{name: value for name, value in more.items() if value},
    )


def _failure_words(counted: Sequence[Mapping[str, Any]]) -> str:
    """Return a text with the first failure, and the number of failures and expressions."""
    if not counted:
        return ""
    first = counted[0]
    total = sum(failure["count"] for failure in counted)
    place = f"{first['file']}:{first['line']}: " if first["line"] else ""
    often = (
        f"{total} failures of {len(counted)} expressions, the first: "
        if len(counted) > 1
        else f"{total} times: "
        if total > 1
        else ""
    )
    return f"{often}{place}{first['message']}"


def _outside_report(
    parser: OutputParser, names: Sequence[str], ended: Ended, limit_s: float
) -> Report | None:
    """Return the report of a failure outside of all tests, if there is one.

    A program may hang or break before its first test, between two or after its last.
    """
    outcomes = {test.outcome for test in parser.tests.values()}
    if ended.status == 0 or (ended.status == 1 and "failed" in outcomes):
        return None
    tail = ended.tail[-1000:].strip()
    where = (
        "(exit)"
        if all(name in parser.tests for name in names)
        else "(between tests)"
        if parser.tests
        else "(start)"
    )
    if ended.status is None:
        return row(where, "hang", f"no end within {limit_s:.3g} s; its output ends:\n{tail}")
    if ended.status < 0:
        return row(where, "crash", f"the program {ended.words}; its output ends:\n{tail}")
    return row(
        where,
        "error",
        f"the program {ended.words}, though no test failed; its output ends:\n{tail}",
    )


def _names(lines: Sequence[str]) -> list[str]:
    """Return the full names in the output of --gtest_list_tests.

    Suites end with a dot, their tests are indented by two; a comment follows " # ".
    """
    names: list[str] = []
    suite = ""
    for line in lines:
        words = line.partition("  # ")[0].rstrip()
        if line.startswith("  ") and suite and words.strip():
            names.append(f"{suite}{words.strip()}")
        else:
            suite = words if words.endswith(".") and " " not in words else ""
    return names


def _suite(name: str, table: Mapping[str, Any], isolated: bool) -> Suite:
    """Return a suite of the builds file. Raises ValueError for a field that has a wrong type."""
    where = f"suites.{name}"
    check_known(where, table, SUITE_FIELDS)
    words, order = table.get("filter"), table.get("order", [])
    isolated = table.get("isolated", isolated)
    if words is not None and (not isinstance(words, str) or not words):
        raise ValueError(f"{where}.filter: must be text; got {words!r}")
    is_list = isinstance(order, list) and all(isinstance(t, str) and "." in t for t in order)
    if not is_list or len(set(order)) != len(order):
        rule = "must be a list of distinct full names such as A.B"
        raise ValueError(f"{where}.order: {rule}; got {order!r}")
    if words is not None and order:
        raise ValueError(f"{where}: has a filter and an order; give one of them")
    if not isinstance(isolated, bool):
        raise ValueError(f"{where}.isolated: must be true or false; got {isolated!r}")
    return Suite(name, words, tuple(order), isolated, seconds(where, table))
