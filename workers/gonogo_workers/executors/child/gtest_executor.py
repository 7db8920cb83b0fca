"""GoogleTest as an executor: runs a build's test program with a filter and reports each test.

See docs/gtest.md. The builds file (GONOGO_BUILD) says what may run: the program, its fixed
arguments, and suites. A job names a suite and a filter; a filter is the value of --gtest_filter and
never anything else. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from child_program import Ended, deadline_s, host_folder, run, worker_folder
from gtest_lines import ObservedTest, OutputParser, failures, reason_of_skip

Report = dict[str, Any]

SHARE = 0.95
"""The share of the worker's deadline that we use.

We must end before the worker does, or the results of finished tests are lost.
"""
MIN_S = 0.2
KEPT_RUNS = 2
"""The worker may read the arrays of an iteration while the next one already runs."""
MAX_ARGUMENT = 100_000
"""Characters of a filter: Linux has a limit of 128 KiB for an argument."""
MAX_SEED = 99_999
"""The largest seed that GoogleTest accepts."""
SUITE_FIELDS = ("filter", "order", "isolated", "timeout_s")
OVERRIDDEN = (
    "GTEST_OUTPUT",
    "GTEST_FILTER",
    "GTEST_SHUFFLE",
    "GTEST_RANDOM_SEED",
    "GTEST_REPEAT",
    "GTEST_COLOR",
    "GTEST_BRIEF",
    "GTEST_TOTAL_SHARDS",
    "GTEST_SHARD_INDEX",
    "GTEST_SHARD_STATUS_FILE",
    "GTEST_BREAK_ON_FAILURE",
    "GTEST_LIST_TESTS",
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


class GtestExecutor:
    """Runs a build's tests; one `report` is one iteration."""

    def __init__(self, build: str) -> None:
        """Raise ValueError for a build that this host's builds file doesn't describe.

        Raises OSError for a program that doesn't exist or isn't executable.
        """
        table = json.loads(os.environ.get("GONOGO_BUILD", "{}"))
        command = table.get("command") or []
        if table.get("name") != build or not command:
            raise ValueError(
                f"the builds file of this host names no command for the gtest build {build!r}"
            )
        program = shutil.which(command[0]) or command[0]
        if not os.path.isfile(program):
            raise FileNotFoundError(
                f"the test program {command[0]} of build {build!r} does not exist"
            )
        if not os.access(program, os.X_OK):
            raise PermissionError(
                f"the test program {command[0]} of build {build!r} is not executable"
            )
        self.command = [program, *command[1:]]
        self.options = table.get("options") or {}
        self.suites: dict[str | None, Suite] = {
            None: Suite(isolated=bool(self.options.get("isolated", False)))
        }
        self.suites |= {
            name: _suite(name, fields, self.options)
            for name, fields in (table.get("suites") or {}).items()
        }
        self.folder = worker_folder("gonogo-gtest-", host_folder())
        self._folders: list[Path] = []
        self._listed: dict[str, list[str]] = {}

    def report(
        self, selection: Mapping[str, Any], *, iteration: int, seed: int | None = None
    ) -> list[Report]:
        """Run the selection; return a report per test, an empty list when there is none.

        `seed` is the seed of the order (--gtest_random_seed) and of the tests' data (GONOGO_SEED).
        Raises ValueError for an unknown suite, and for an order that the program can't run.
        """
        selection = selection.get("selection", selection)
        suite = self._suite(selection.get("suite"))
        if selection.get("stages"):
            raise ValueError("a gtest build has no stages")
        shuffled = selection.get("shuffle") not in (None, False)
        if shuffled and (suite.order or suite.isolated):
            raise ValueError(f"the suite {suite.name!r} has a fixed order: it can't be shuffled")
        deadline = time.monotonic() + SHARE * min(deadline_s(), suite.timeout_s or deadline_s())
        names, not_run = self._selected(suite, selection.get("filter"), deadline)
        processes = _Iteration(self, iteration, seed, shuffled, deadline)
        self._keep(processes.folder)
        groups = [[name] for name in names] if suite.isolated else [names] if names else []
        test_reports = processes.run(
            groups, whole=selection.get("filter") or suite.filter if not suite.order else None
        )
        return test_reports + [_row(name, "not_run", NOT_IN_BUILD) for name in not_run]

    def close(self) -> None:
        """Delete all written files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def listed(self, test_filter: str, deadline: float) -> list[str]:
        """Return the program's tests for a filter, in the order of their definition.

        Raises RuntimeError when the program can't list them.
        """
        if test_filter not in self._listed:
            lines: list[str] = []
            ended = run(
                [*self.command, "--gtest_list_tests", f"--gtest_filter={test_filter}"],
                environment=self.environment(),
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

    def environment(self) -> dict[str, str]:
        """Return our environment without the variables that would change what is run."""
        return {name: value for name, value in os.environ.items() if name not in OVERRIDDEN}

    def _suite(self, name: str | None) -> Suite:
        if name not in self.suites:
            known = ", ".join(sorted(suite for suite in self.suites if suite is not None)) or "none"
            raise ValueError(f"this build has no suite {name!r}; it has: {known}")
        return self.suites[name]

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

    def _keep(self, folder: Path) -> None:
        self._folders.append(folder)
        while len(self._folders) > KEPT_RUNS:
            shutil.rmtree(self._folders.pop(0), ignore_errors=True)


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
        self.folder = worker_folder(f"{iteration}-", executor.folder)
        self.environment = executor.environment()
        self.environment["GONOGO_ITERATION"] = str(iteration)
        self.environment.pop("GONOGO_SEED", None)
        self.flags: list[str] = []
        if seed is not None:
            self.environment["GONOGO_SEED"] = str(seed)
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
                hung = "the end of the iteration's time"
            if hung:
                test_reports += [
                    _row(name, "skipped", f"not run: {hung} came before") for name in names
                ]
                continue
            test_reports += self._process(number, names, whole if len(groups) == 1 else None)
            hung = next(
                (
                    f"the hang of {report['name']}"
                    for report in test_reports
                    if report["outcome"] == "hang"
                ),
                "",
            )
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
        seconds = max(MIN_S, self.deadline - time.monotonic())
        ended = run(
            [
                *self.executor.command,
                f"--gtest_filter={filtered}",
                f"--gtest_output=json:{output}",
                "--gtest_color=no",
                *self.flags,
            ],
            environment={**self.environment, "GONOGO_DUMP_DIR": str(dumps)},
            seconds=seconds,
            on_line=parser.add_line,
            folder=self.executor.options.get("root"),
        )
        with contextlib.suppress(OSError):
            parser.read(output.read_text("utf-8", "replace"))
        return reports(parser, names, ended, seconds, dumps)


def reports(
    parser: OutputParser, names: Sequence[str], ended: Ended, seconds: float, dumps: Path
) -> list[Report]:
    """Return one report per selected test in the order of the run.

    The last one may be (exit): a failure outside of any test.
    """
    by_name = {name: _report(test, ended, seconds) for name, test in parser.tests.items()}
    lost = next((name for name, test in parser.tests.items() if test.outcome is None), None)
    for name in names:
        if name not in by_name:
            why = f"the program {ended.words}{f' in {lost}' if lost else ''}"
            by_name[name] = _row(name, "skipped", f"not run: {why} before")
    outside = _outside_report(parser, names, ended, seconds) if lost is None else None
    if outside is not None:
        by_name[outside["name"]] = outside
    for name, dump in _dumps(dumps):
        if name not in by_name:
            by_name[name] = _row(name, "not_run", "arrays were handed over outside of any test")
        by_name[name]["dumps"].append(dump)
    return list(by_name.values())


def _report(test: ObservedTest, ended: Ended, seconds: float) -> Report:
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
            f"no end within {seconds:.3g} s"
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
    row = _row(test.name, outcome, message)
    row |= {
        "duration_ms": test.duration_ms,
        "failures": counted,
        "measurements": numbers,
        "position": test.position,
    }
    more = {"file": test.file, "line": test.line, "properties": texts}
    return row | {name: value for name, value in more.items() if value}


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
    parser: OutputParser, names: Sequence[str], ended: Ended, seconds: float
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
        return _row(where, "hang", f"no end within {seconds:.3g} s; its output ends:\n{tail}")
    if ended.status < 0:
        return _row(where, "crash", f"the program {ended.words}; its output ends:\n{tail}")
    return _row(
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


def _row(name: str, outcome: str, message: str) -> Report:
    return {
        "name": name,
        "outcome": outcome,
        "duration_ms": None,
        "message": message,
        "failures": [],
        "measurements": {},
        "stage": None,
        "dumps": [],
    }


def _dumps(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return every complete handover with its test, in the order in which they were made."""
    dumps = []
    for manifest in sorted(
        folder.glob("[!.]*/manifest.json"), key=lambda path: (path.stat().st_mtime_ns, path)
    ):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            content = json.loads(manifest.read_text("utf-8"))
            dump = {name: content.get(name) for name in ("kernel", "fields", "name", "arithmetic")}
            for kind in ("tensors", "raw"):
                dump[kind] = {
                    str(name): str(manifest.parent / Path(file).name)
                    for name, file in (content.get(kind) or {}).items()
                }
            dumps.append((str(content.get("test") or "(no test)"), dump))
    return dumps


def _suite(name: str, fields: Mapping[str, Any], options: Mapping[str, Any]) -> Suite:
    """Return a suite of the builds file.

    Raises ValueError for a field that is unknown or has a wrong type: a suite that isn't what its
    author meant must not run.
    """
    where = f"suites.{name}"
    if unknown := [field for field in fields if field not in SUITE_FIELDS]:
        raise ValueError(f"{where}.{unknown[0]}: unknown field; allowed: {', '.join(SUITE_FIELDS)}")
    words, order = fields.get("filter"), fields.get("order", [])
    isolated, timeout_s = (
        fields.get("isolated", options.get("isolated", False)),
        fields.get("timeout_s"),
    )
    if words is not None and (not isinstance(words, str) or not words):
        raise ValueError(f"{where}.filter: must be text; got {words!r}")
    if (
        not isinstance(order, list)
        or not all(isinstance(test, str) and "." in test for test in order)
        or len(set(order)) != len(order)
    ):
        raise ValueError(
            f"{where}.order: must be a list of distinct full names such as A.B; got {order!r}"
        )
    if words is not None and order:
        raise ValueError(f"{where}: has a filter and an order; give one of them")
    if not isinstance(isolated, bool):
        raise ValueError(f"{where}.isolated: must be true or false; got {isolated!r}")
    if (
        isinstance(timeout_s, bool)
        or not isinstance(timeout_s, (int, float, type(None)))
        or (timeout_s is not None and timeout_s <= 0)
    ):
        raise ValueError(
            f"{where}.timeout_s: must be a number of seconds above 0; got {timeout_s!r}"
        )
    return Suite(name, words, tuple(order), isolated, timeout_s)
