"""GoogleTest as an executor: runs a build's test program with a filter and reports each test
(docs/gtest.md). Standard library only.

What may be run stands in the builds file (GONOGO_BUILD): the program, its fixed arguments, and
suites. A job names a suite and a filter; a filter is the value of --gtest_filter and never anything
else.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from child_program import Ended, run
from gtest_lines import Story, Told, failures, reason_of_skip

Report = dict[str, Any]

HOST_FOLDER = "gonogo-host-"
DEADLINE_VARIABLE = "GONOGO_PER_SEED_DEADLINE_S"
DEADLINE_S = 600.0
"""Where nobody set one; the kernel host does."""
SHARE = 0.95
"""Of the worker's deadline: we must end before it does, or the tests that did finish are lost."""
MIN_S = 0.2
KEPT_RUNS = 2
"""Arrays that were handed over are read by the worker while the next iteration may already run."""
MAX_ARGUMENT = 100_000
"""Characters of a filter: Linux takes no longer argument than 128 KiB."""
MAX_SEED = 99_999
"""The largest seed that GoogleTest knows."""
SUITE_FIELDS = ("filter", "order", "isolated", "timeout_s")
OURS = ("GTEST_OUTPUT", "GTEST_FILTER", "GTEST_SHUFFLE", "GTEST_RANDOM_SEED", "GTEST_REPEAT", "GTEST_COLOR", "GTEST_BRIEF",
        "GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "GTEST_SHARD_STATUS_FILE", "GTEST_BREAK_ON_FAILURE", "GTEST_LIST_TESTS")  # fmt: skip
"""Variables that would change what is run or reported; those of a build's own environment, too."""
ABSENT = "it is not in this build"


@dataclass(frozen=True)
class Suite:
    """A named selection of the builds file."""

    name: str | None = None
    filter: str | None = None
    order: tuple[str, ...] = ()
    """Tests that run in this order in one process: what ran before is part of what is tested."""
    isolated: bool = False
    """Each test in a process of its own."""
    timeout_s: float | None = None


class GtestExecutor:
    """Runs a build's tests; one `report` is one iteration."""

    def __init__(self, build: str) -> None:
        """Raises ValueError for a build that this host's builds file doesn't describe, OSError for
        a program that isn't there.
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
        self.folder = Path(tempfile.mkdtemp(prefix="gonogo-gtest-", dir=_host_folder()))
        self._kept: list[Path] = []
        self._listed: dict[str, list[str]] = {}

    def report(
        self, selection: Mapping[str, Any], *, iteration: int, seed: int | None = None
    ) -> list[Report]:
        """Run what the selection names: a report per test; an empty list when there is none.

        `seed` is that of the order (--gtest_random_seed) and of the tests' data (GONOGO_SEED).
        Raises ValueError for a suite that isn't there, and an order that the program can't have.
        """
        selection = selection.get("selection", selection)
        suite = self._suite(selection.get("suite"))
        if selection.get("stages"):
            raise ValueError("a gtest build has no stages")
        shuffled = selection.get("shuffle") not in (None, False)
        if shuffled and (suite.order or suite.isolated):
            raise ValueError(
                f"the suite {suite.name!r} has an order of its own: it can't be shuffled"
            )
        deadline = time.monotonic() + SHARE * min(_deadline(), suite.timeout_s or _deadline())
        names, not_run = self._selected(suite, selection.get("filter"), deadline)
        this = _Iteration(self, iteration, seed, shuffled, deadline)
        self._keep(this.folder)
        groups = [[name] for name in names] if suite.isolated else [names] if names else []
        found = this.run(
            groups, whole=selection.get("filter") or suite.filter if not suite.order else None
        )
        return found + [_row(name, "not_run", ABSENT) for name in not_run]

    def close(self) -> None:
        """Delete what was written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def listed(self, words: str, deadline: float) -> list[str]:
        """The tests that the program has for a filter, in the order of their definition. Raises
        RuntimeError when it can't say.
        """
        if words not in self._listed:
            lines: list[str] = []
            ended = run(
                [*self.command, "--gtest_list_tests", f"--gtest_filter={words}"],
                environment=self.environment(),
                seconds=max(MIN_S, deadline - time.monotonic()),
                see=lines.append,
                folder=self.options.get("root"),
                quiet=True,
            )
            if ended.status != 0:
                raise RuntimeError(
                    f"{self.command[0]} can't list its tests: it {ended.words}; its output ends: {ended.tail[-500:]}"
                )
            self._listed[words] = list(_names(lines))
        return self._listed[words]

    def environment(self) -> dict[str, str]:
        """Ours, without what would change the program's mind."""
        return {name: value for name, value in os.environ.items() if name not in OURS}

    def _suite(self, name: str | None) -> Suite:
        if name not in self.suites:
            known = ", ".join(sorted(each for each in self.suites if each is not None)) or "none"
            raise ValueError(f"this build has no suite {name!r}; it has: {known}")
        return self.suites[name]

    def _selected(
        self, suite: Suite, words: str | None, deadline: float
    ) -> tuple[list[str], list[str]]:
        """The tests to run, and those of the suite's order that the program hasn't got. The job's
        filter narrows the suite's.
        """
        wanted = self.listed(suite.filter or "*", deadline)
        narrowed = set(wanted) if words is None else set(self.listed(words, deadline))
        if not suite.order:
            return [name for name in wanted if name in narrowed], []
        defined = self.listed("*", deadline)
        there = [
            name for name in suite.order if name in defined and (words is None or name in narrowed)
        ]
        not_run = [name for name in suite.order if name not in defined] if words is None else []
        if there != sorted(there, key=defined.index):
            right = ", ".join(sorted(there, key=defined.index))
            raise ValueError(
                f"suite {suite.name!r}: a GoogleTest program runs its tests in the order of their definition, which is {right}; "
                "an order must keep to it (or shuffle a filter by a seed instead)"
            )
        return there, not_run

    def _keep(self, folder: Path) -> None:
        self._kept.append(folder)
        while len(self._kept) > KEPT_RUNS:
            shutil.rmtree(self._kept.pop(0), ignore_errors=True)


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
        self.folder = Path(tempfile.mkdtemp(prefix=f"{iteration}-", dir=executor.folder))
        self.environment = executor.environment()
        self.environment["GONOGO_ITERATION"] = str(iteration)
        self.environment.pop("GONOGO_SEED", None)
        self.flags: list[str] = []
        if seed is not None:
            self.environment["GONOGO_SEED"] = str(seed)
        if shuffled and seed is not None:
            # GoogleTest's own rule for seeds beyond its largest; 0 would mean the time of day
            self.flags = ["--gtest_shuffle", f"--gtest_random_seed={(seed - 1) % MAX_SEED + 1}"]

    def run(self, groups: Sequence[Sequence[str]], whole: str | None) -> list[Report]:
        """Each group in a process of its own; after a hang nothing more is run: on a device that
        hangs, all would.
        """
        found: list[Report] = []
        hung = ""
        for number, names in enumerate(groups):
            if not hung and self.deadline - time.monotonic() < MIN_S:
                hung = "the end of the iteration's time"
            if hung:
                found += [_row(name, "skipped", f"not run: {hung} came before") for name in names]
                continue
            found += self._process(number, names, whole if len(groups) == 1 else None)
            hung = next(
                (f"the hang of {each['name']}" for each in found if each["outcome"] == "hang"), ""
            )
        return found

    def _process(self, number: int, names: Sequence[str], whole: str | None) -> list[Report]:
        """The reports of one process. `whole`: a filter that selects just these, shorter than all
        their names.
        """
        output, dumps = self.folder / f"{number}.json", self.folder / f"{number}-dumps"
        dumps.mkdir()
        filtered = ":".join(names)
        if whole is not None and set(self.executor.listed(whole, self.deadline)) == set(names):
            filtered = whole
        if len(filtered) > MAX_ARGUMENT:
            raise ValueError(
                f"{len(names)} tests are too many to name one by one: use a filter of the suite's own"
            )
        story = Story()
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
            see=story.see,
            folder=self.executor.options.get("root"),
        )
        with contextlib.suppress(OSError):
            story.read(output.read_text("utf-8", "replace"))
        return reports(story, names, ended, seconds, dumps)


def reports(
    story: Story, names: Sequence[str], ended: Ended, seconds: float, dumps: Path
) -> list[Report]:
    """One report per selected test in the order of the run, then (exit): what went wrong outside of
    any test.
    """
    found = {name: _report(told, ended, seconds) for name, told in story.tests.items()}
    lost = next((name for name, told in story.tests.items() if told.outcome is None), None)
    for name in names:
        if name not in found:
            why = f"the program {ended.words}{f' in {lost}' if lost else ''}"
            found[name] = _row(name, "skipped", f"not run: {why} before")
    if lost is None and (said := _beside(story, names, ended, seconds)) is not None:
        found[said["name"]] = said
    for test, dump in _dumps(dumps):
        if test not in found:
            found[test] = _row(test, "not_run", "arrays were handed over outside of any test")
        found[test]["dumps"].append(dump)
    return list(found.values())


def _report(told: Told, ended: Ended, seconds: float) -> Report:
    counted = failures(told)
    message = ""
    if told.outcome == "failed":
        message = _failure_words(counted)
    elif told.outcome == "skipped":
        message = reason_of_skip(told)
    outcome = told.outcome
    if outcome is None:
        hung = ended.status is None
        outcome = "hang" if hung else "crash"
        last = "\n".join(told.lines[-8:])
        words = (
            f"no end within {seconds:.3g} s"
            if hung
            else f"the program {ended.words} in the middle of this test"
        )
        message = f"{words}; the last that it printed:\n{last}" if last else words
    message = "\n".join(
        filter(None, (message, *(f"arrays were not handed over: {each}" for each in told.problems)))
    )
    numbers, texts = dict(told.measurements), {}
    for name, value in told.properties.items():
        try:
            numbers[name] = float(value)
        except ValueError:
            texts[name] = value
    row = _row(told.name, outcome, message)
    row |= {
        "duration_ms": told.duration_ms,
        "failures": counted,
        "measurements": numbers,
        "position": told.position,
    }
    more = {"file": told.file, "line": told.line, "properties": texts}
    return row | {name: value for name, value in more.items() if value}


def _failure_words(counted: Sequence[Mapping[str, Any]]) -> str:
    """The first failure, and how many there are of which expression."""
    if not counted:
        return ""
    first = counted[0]
    total = sum(each["count"] for each in counted)
    place = f"{first['file']}:{first['line']}: " if first["line"] else ""
    often = (
        f"{total} failures of {len(counted)} expressions, the first: "
        if len(counted) > 1
        else f"{total} times: "
        if total > 1
        else ""
    )
    return f"{often}{place}{first['message']}"


def _beside(story: Story, names: Sequence[str], ended: Ended, seconds: float) -> Report | None:
    """What no test's own report says: a program that hung or broke before its first test, between
    two or after its last.
    """
    outcomes = {told.outcome for told in story.tests.values()}
    if ended.status == 0 or (ended.status == 1 and "failed" in outcomes):
        return None
    tail = ended.tail[-1000:].strip()
    where = (
        "(exit)"
        if all(name in story.tests for name in names)
        else "(between tests)"
        if story.tests
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
    """Full names out of --gtest_list_tests: suites end with a dot, their tests are indented by two;
    a comment follows "  # ".
    """
    found: list[str] = []
    suite = ""
    for line in lines:
        words = line.partition("  # ")[0].rstrip()
        if line.startswith("  ") and suite and words.strip():
            found.append(f"{suite}{words.strip()}")
        else:
            suite = words if words.endswith(".") and " " not in words else ""
    return found


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
    """Everything that was handed over whole, with the test that did it, in the order in which it
    was made.
    """
    found = []
    for manifest in sorted(
        folder.glob("[!.]*/manifest.json"), key=lambda path: (path.stat().st_mtime_ns, path)
    ):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            told = json.loads(manifest.read_text("utf-8"))
            dump = {name: told.get(name) for name in ("kernel", "fields", "name", "arithmetic")}
            for kind in ("tensors", "raw"):
                dump[kind] = {
                    str(name): str(manifest.parent / Path(file).name)
                    for name, file in (told.get(kind) or {}).items()
                }
            found.append((str(told.get("test") or "(no test)"), dump))
    return found


def _suite(name: str, fields: Mapping[str, Any], options: Mapping[str, Any]) -> Suite:
    """Raises ValueError for a field that isn't known or is of a wrong type: a suite that isn't what
    its author meant must not run.
    """
    where = f"suites.{name}"
    if unknown := [each for each in fields if each not in SUITE_FIELDS]:
        raise ValueError(
            f"{where}.{unknown[0]}: unknown field; there are {', '.join(SUITE_FIELDS)}"
        )
    words, order = fields.get("filter"), fields.get("order", [])
    isolated, timeout_s = (
        fields.get("isolated", options.get("isolated", False)),
        fields.get("timeout_s"),
    )
    if words is not None and (not isinstance(words, str) or not words):
        raise ValueError(f"{where}.filter: must be text; got {words!r}")
    if (
        not isinstance(order, list)
        or not all(isinstance(each, str) and "." in each for each in order)
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


def _host_folder() -> str | None:
    """The kernel host's private folder, which is deleted with it however it ends; None where this
    isn't a kernel host.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = os.path.dirname(os.path.abspath(main)) if main else ""
    return folder if os.path.basename(folder).startswith(HOST_FOLDER) else None


def _deadline() -> float:
    with contextlib.suppress(ValueError):
        return float(os.environ.get(DEADLINE_VARIABLE, "") or DEADLINE_S)
    return DEADLINE_S
