"""pytest as an executor: runs a build's suite in a separate process and reports each test.

See docs/pytest.md. It runs in the build's interpreter, like everything in this folder: standard
library only, and pytest in the tests' process. The builds file (GONOGO_BUILD) says what may run. A
job names a suite, stages and a filter, which never become paths or options.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from child_reports import OUT_OF_TIME, ProgramExecutor, Report, deadline_s, environment, row
from pytest_lines import reports
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
MIN_S = 1.0


class PytestExecutor(ProgramExecutor):
    """Runs a build's pytest suites; one `report` is one iteration."""

    def __init__(self, build: str) -> None:
        """Raise ValueError for a build that this host's builds file doesn't describe.

        Raises RuntimeError without pytest.
        """
        super().__init__("pytest", build)
        self.suites = suites(build, self.options, self.tables)
        if importlib.util.find_spec("pytest") is None:
            raise RuntimeError(f"{sys.executable} has no pytest")
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
        suite: Suite = self.suite(selection.get("suite"))
        shuffle = selection.get("shuffle")
        order = None
        if shuffle is not None and shuffle is not False:
            order = seed if seed is not None else iteration if shuffle is True else int(shuffle)
        processes = _Run(self, suite, iteration, seed, order)
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
        self.deadline = time.monotonic() + deadline_s()
        self.folder = executor.iteration_folder(iteration)
        self.environment = environment(iteration, seed, ("PYTEST_CURRENT_TEST",))
        self.names: set[str] = set()

    def tests(
        self, paths: tuple[str, ...], filters: list[str], timeout_s: float | None, part: str = "all"
    ) -> list[Report]:
        """Run one process of pytest and return its reports."""
        folder = self.folder / part
        (folder / "dumps").mkdir(parents=True)
        lines, traces = folder / "lines.jsonl", folder / "traces"
        command = [sys.executable, str(SESSION), str(self.executor.folder / "copy"), str(traces)]
        command += ["-p", "no:cacheprovider", "--continue-on-collection-errors", "--color=no"]
        command += [f"--rootdir={self.suite.root}", f"--gonogo-report={lines}"]
        command += _chosen(filters, folder)
        if self.order is not None:
            command.append(f"--gonogo-shuffle={self.order}")
        seconds = max(MIN_S, min(self.deadline - time.monotonic(), timeout_s or self.deadline))
        ended = run(
            [*command, *self.executor.command, *paths],
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
                blocker = OUT_OF_TIME
            if blocker:
                message = f"not run: blocked by {blocker}"
                blocked = row(f"{stage.name}: blocked", "skipped", message, blocked_by=blocker)
                stage_reports = [blocked]
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
        stage_reports = []
        if existing:
            timeout_s = stage.timeout_s or self.suite.timeout_s
            stage_reports = self.tests(existing, [], timeout_s, f"stage-{stage.number}")
        if not stage_reports:
            stage_reports.append(row(f"{stage.name}: tests", "not_run", "no test was found"))
        # Checked after the tests, which may make the required files
        files = (*(file.partition("::")[0] for file in stage.files), *stage.requires)
        for file in dict.fromkeys(files):
            if not (root / file).exists():
                name, message = f"{stage.name}: requires {file}", "a required file is missing"
                stage_reports.append(row(name, "not_run", message, requires=file))
        return stage_reports


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
