"""pytest as an executor: runs a build's suite in a separate process and reports each test.

See docs/pytest.md. It runs in the build's interpreter, like everything in this folder: standard
library only, and pytest in the tests' process. The builds file (GONOGO_BUILD) says what may run. A
job names a suite, stages and a filter, which never become paths or options.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from child_program import deadline_s, host_folder, worker_folder
from pytest_lines import Report, reports
from pytest_process import run
from pytest_suites import Stage, Suite, suites

SESSION = Path(__file__).with_name("pytest_session.py")
PLUGIN_FOLDER = next(
    folder
    for folder in Path(__file__).resolve().parents
    if (folder / "gonogo" / "pytest_plugin" / "plugin.py").is_file()
)
"""The folder of this worker's package `gonogo`.

It is the checkout, or site-packages.
"""
PLUGIN_FILES = (
    "gonogo/__init__.py",
    "gonogo/capture/__init__.py",
    "gonogo/capture/calls.py",
    "gonogo/capture/capturing.py",
    "gonogo/capture/numbers.py",
    "gonogo/capture/patches.py",
    "gonogo/capture/weaknesses.py",
    "gonogo/closeness.py",
    "gonogo/public/__init__.py",
    "gonogo/public/arguments.py",
    "gonogo/public/dropin.py",
    "gonogo/public/handover.py",
    "gonogo/public/judgment.py",
    "gonogo/public/recorded.py",
    "gonogo/public/tensors.py",
    "gonogo/pytest_plugin/__init__.py",
    "gonogo/pytest_plugin/capturing.py",
    "gonogo/pytest_plugin/dumps.py",
    "gonogo/pytest_plugin/lines.py",
    "gonogo/pytest_plugin/plugin.py",
)
SHARE = 0.95
"""The share of the worker's deadline that we use.

We must end before the worker does, or the results of finished tests are lost.
"""
MIN_S = 1.0
KEPT_RUNS = 2
"""The worker may read the arrays of an iteration while the next one already runs."""


class PytestExecutor:
    """Runs a build's pytest suites; one `report` is one iteration."""

    def __init__(self, build: str) -> None:
        """Raise ValueError for a build that this host's builds file doesn't describe.

        Raises RuntimeError without pytest.
        """
        table = json.loads(os.environ.get("GONOGO_BUILD", "{}"))
        if table.get("name") != build:
            raise ValueError(f"the builds file of this host has no pytest build {build!r}")
        self.command = [str(argument) for argument in table.get("command", ())]
        self.options = table.get("options", {})
        self.suites = suites(build, self.options, table.get("suites", {}))
        if importlib.util.find_spec("pytest") is None:
            raise RuntimeError(f"{sys.executable} has no pytest")
        self.folder = worker_folder("gonogo-pytest-", host_folder())
        self._folders: list[Path] = []
        for file in PLUGIN_FILES:
            copy = self.folder / "copy" / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PLUGIN_FOLDER / file, copy)

    def report(
        self, selection: Mapping[str, Any], *, iteration: int, seed: int | None = None
    ) -> list[Report]:
        """Run the selection; return a report per test, an empty list when there is none.

        `seed` is the seed of the shuffled order and the tests' GONOGO_SEED. Raises ValueError for
        an unknown suite or stage, or an impossible filter.
        """
        selection = selection.get("selection", selection)
        suite = self._suite(selection.get("suite"))
        shuffle = selection.get("shuffle")
        order = None
        if shuffle is not None and shuffle is not False:
            order = seed if seed is not None else iteration if shuffle is True else int(shuffle)
        processes = _Run(self, suite, iteration, seed, order)
        self._folders.append(processes.folder)
        while len(self._folders) > KEPT_RUNS:
            shutil.rmtree(self._folders.pop(0), ignore_errors=True)
        stages, expression = selection.get("stages"), selection.get("filter")
        if suite.stages:
            if expression:
                raise ValueError(
                    "a staged suite takes no filter: a stage with tests left out would look as if "
                    "it had failed"
                )
            return processes.staged(suite.stages_up_to(stages))
        if stages:
            raise ValueError(f"the suite {suite.name!r} has no stages")
        if expression and not _closed(expression):
            raise ValueError(f"the parentheses of the filter don't match: {expression!r}")
        return processes.tests(
            suite.paths, [*suite.filters, *([expression] if expression else [])], suite.timeout_s
        )

    def close(self) -> None:
        """Delete all written files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _suite(self, name: str | None) -> Suite:
        if name not in self.suites:
            known = ", ".join(sorted(suite for suite in self.suites if suite is not None)) or "none"
            raise ValueError(f"this build has no suite {name!r}; it has: {known}")
        return self.suites[name]


class _Run:
    """The processes of one iteration."""

    def __init__(
        self,
        executor: PytestExecutor,
        suite: Suite,
        iteration: int,
        seed: int | None,
        order: int | None,
    ) -> None:
        self.executor, self.suite, self.order = executor, suite, order
        self.deadline = time.monotonic() + SHARE * deadline_s()
        self.folder = worker_folder(f"{iteration}-", executor.folder)
        self.environment = {
            name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"
        }
        self.environment["GONOGO_ITERATION"] = str(iteration)
        self.environment.pop("GONOGO_SEED", None)
        if seed is not None:
            self.environment["GONOGO_SEED"] = str(seed)
        self.names: set[str] = set()

    def tests(
        self, paths: tuple[str, ...], filters: list[str], timeout_s: float | None, part: str = "all"
    ) -> list[Report]:
        """Run one process of pytest and return its reports."""
        folder = self.folder / part
        (folder / "dumps").mkdir(parents=True)
        lines, traces = folder / "lines.jsonl", folder / "traces"
        arguments = [
            "-p",
            "no:cacheprovider",
            "--continue-on-collection-errors",
            "--color=no",
            f"--rootdir={self.suite.root}",
        ]
        arguments += [f"--gonogo-report={lines}", *_chosen(filters, folder)]
        if self.order is not None:
            arguments.append(f"--gonogo-shuffle={self.order}")
        seconds = max(MIN_S, min(self.deadline - time.monotonic(), timeout_s or self.deadline))
        ended = run(
            [
                sys.executable,
                str(SESSION),
                str(self.executor.folder / "copy"),
                str(traces),
                *arguments,
                *self.executor.command,
                *paths,
            ],
            cwd=self.suite.root,
            environment={**self.environment, "GONOGO_DUMP_DIR": str(folder / "dumps")},
            seconds=seconds,
            traces=traces,
        )
        return reports(lines, folder / "dumps", ended, seconds)

    def staged(self, stages: tuple[Stage, ...]) -> list[Report]:
        """Run the stages in order and return their reports.

        Stages after one that blocks don't run. gonogo.spec.stages makes their table.
        """
        all_reports: list[Report] = []
        blocker = ""
        for stage in stages:
            if not blocker and self.deadline - time.monotonic() < MIN_S:
                blocker = "the end of the iteration's time"
            if blocker:
                stage_reports = [
                    _stage_row(
                        stage,
                        "blocked",
                        "skipped",
                        f"not run: blocked by {blocker}",
                        blocked_by=blocker,
                    )
                ]
            else:
                stage_reports = self._stage(stage)
                outcomes = {report["outcome"] for report in stage_reports}
                if "hang" in outcomes or "passed" not in outcomes:
                    blocker = stage.name
            for report in stage_reports:
                report["stage"] = stage.name
                # A test in two stages, or a report that isn't a test's, such as (exit)
                if report["name"] in self.names or report["name"].startswith("("):
                    report["name"] = f"{stage.name}: {report['name']}"
                self.names.add(report["name"])
            all_reports += stage_reports
        return all_reports

    def _stage(self, stage: Stage) -> list[Report]:
        root = self.suite.root
        existing = tuple(
            str(root / file) for file in stage.files if (root / file.partition("::")[0]).exists()
        )
        stage_reports = (
            self.tests(
                existing, [], stage.timeout_s or self.suite.timeout_s, f"stage-{stage.number}"
            )
            if existing
            else []
        )
        if not stage_reports:
            stage_reports.append(_stage_row(stage, "tests", "not_run", "no test was found"))
        # Checked after the tests, which may make the required files
        for file in dict.fromkeys(
            (*(file.partition("::")[0] for file in stage.files), *stage.requires)
        ):
            if not (root / file).exists():
                stage_reports.append(
                    _stage_row(
                        stage,
                        f"requires {file}",
                        "not_run",
                        "a required file is missing",
                        requires=file,
                    )
                )
        return stage_reports


def _stage_row(stage: Stage, what: str, outcome: str, message: str, **more: str) -> Report:
    """Return a report of a stage that is not a test's."""
    row: Report = {
        "name": f"{stage.name}: {what}",
        "outcome": outcome,
        "duration_ms": None,
        "message": message,
        "failures": [],
    }
    return {**row, "measurements": {}, "stage": stage.name, "dumps": [], **more}


def _chosen(filters: list[str], folder: Path) -> list[str]:
    """Return the options that choose among the tests.

    Node ids (one per line) go through a file; other filters are expressions of -k.
    """
    expressions = [words for words in filters if not _names_tests(words)]
    options = [f"-k{' and '.join(f'({words})' for words in expressions)}"] if expressions else []
    for number, node_ids in enumerate(words for words in filters if _names_tests(words)):
        file = folder / f"only-{number}.json"
        file.write_text(
            json.dumps([line.strip() for line in node_ids.splitlines() if line.strip()]), "utf-8"
        )
        options.append(f"--gonogo-only={file}")
    return options


def _names_tests(words: str) -> bool:
    return "::" in words or ".py" in words or "/" in words or "\n" in words


def _closed(words: str) -> bool:
    """Return whether every parenthesis is closed.

    Otherwise a job's expression could end the suite's, which it may only narrow.
    """
    depth = 0
    for character in words:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0 or _names_tests(words)
