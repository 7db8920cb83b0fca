"""pytest as an executor: runs the tests of a build's suite in a process of their own and reports
each of them (docs/pytest.md).

Runs in the build's interpreter, like everything in this folder: standard library only, and pytest
for the tests' own process. What may be run stands in the builds file (GONOGO_BUILD); a job names a
suite, stages and a filter, which never become paths or options.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_lines import Report, reports
from pytest_process import run
from pytest_suites import Stage, Suite, suites

SESSION = Path(__file__).with_name("pytest_session.py")
PLUGIN_FOLDER = next(
    folder
    for folder in Path(__file__).resolve().parents
    if (folder / "gonogo_pytest" / "plugin.py").is_file()
)
"""The folder of the packages `gonogo_pytest` and `gonogo` that belong to this worker: the checkout,
or site-packages."""
PLUGIN_FILES = (
    "gonogo/__init__.py",
    "gonogo/judging/__init__.py",
    "gonogo/judging/closeness.py",
    "gonogo/public/__init__.py",
    "gonogo/public/dropin.py",
    "gonogo/public/handover.py",
    "gonogo/numerics/__init__.py",
    "gonogo/numerics/distances.py",
    "gonogo/numerics/formats.py",
    "gonogo/public/recorded.py",
    "gonogo/public/tensors.py",
    "gonogo_pytest/__init__.py",
    "gonogo_pytest/dumps.py",
    "gonogo_pytest/lines.py",
    "gonogo_pytest/plugin.py",
)
HOST_FOLDER = "gonogo-host-"
DEADLINE_VARIABLE = "GONOGO_PER_SEED_DEADLINE_S"
DEADLINE_S = 600.0
"""The worker's own default; a worker with another one has it in its environment."""
SHARE = 0.95
"""Of the worker's deadline: we must end before it does, or the tests that did finish are lost."""
MIN_S = 1.0
KEPT_RUNS = 2
"""Arrays handed over are read by the worker while the next iteration may already run."""


class PytestExecutor:
    """Runs a build's pytest suites; one `report` is one iteration."""

    def __init__(self, build: str) -> None:
        """Raises ValueError for a build that this host's builds file doesn't describe, RuntimeError
        without pytest.
        """
        table = json.loads(os.environ.get("GONOGO_BUILD", "{}"))
        if table.get("name") != build:
            raise ValueError(
                f"the builds file of this host says nothing of the pytest build {build!r}"
            )
        self.command = [str(each) for each in table.get("command", ())]
        self.options = table.get("options", {})
        self.suites = suites(build, self.options, table.get("suites", {}))
        if importlib.util.find_spec("pytest") is None:
            raise RuntimeError(f"{sys.executable} has no pytest")
        self.folder = Path(tempfile.mkdtemp(prefix="gonogo-pytest-", dir=_host_folder()))
        self._kept: list[Path] = []
        for file in PLUGIN_FILES:
            copy = self.folder / "copy" / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PLUGIN_FOLDER / file, copy)

    def report(
        self, selection: Mapping[str, Any], *, iteration: int, seed: int | None = None
    ) -> list[Report]:
        """Run what the selection names: a report per test; an empty list when there is none.

        With `seed` the order of a shuffle and the tests' GONOGO_SEED are controlled. Raises
        ValueError for a suite, a stage or a filter that can't be.
        """
        selection = selection.get("selection", selection)
        suite = self._suite(selection.get("suite"))
        shuffle = selection.get("shuffle")
        order = None
        if shuffle is not None and shuffle is not False:
            order = seed if seed is not None else iteration if shuffle is True else int(shuffle)
        this = _Run(self, suite, iteration, seed, order)
        self._kept.append(this.folder)
        while len(self._kept) > KEPT_RUNS:
            shutil.rmtree(self._kept.pop(0), ignore_errors=True)
        wanted, words = selection.get("stages"), selection.get("filter")
        if suite.stages:
            if words:
                raise ValueError(
                    "a staged suite takes no filter: a stage with tests left out would look as if it had failed"
                )
            return this.staged(suite.asked(wanted))
        if wanted:
            raise ValueError(f"the suite {suite.name!r} has no stages")
        if words and not _closed(words):
            raise ValueError(f"the parentheses of the filter don't match: {words!r}")
        return this.tests(
            suite.paths, [*suite.filters, *([words] if words else [])], suite.timeout_s
        )

    def close(self) -> None:
        """Delete what was written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _suite(self, name: str | None) -> Suite:
        if name not in self.suites:
            known = ", ".join(sorted(each for each in self.suites if each is not None)) or "none"
            raise ValueError(f"this build has no suite {name!r}; it has: {known}")
        return self.suites[name]


class _Run:
    """One iteration."""

    def __init__(
        self,
        executor: PytestExecutor,
        suite: Suite,
        iteration: int,
        seed: int | None,
        order: int | None,
    ) -> None:
        self.executor, self.suite, self.order = executor, suite, order
        self.deadline = time.monotonic() + SHARE * _deadline()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{iteration}-", dir=executor.folder))
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
        """The reports of one process of pytest."""
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
        """The reports of the stages in order; what comes after one that blocks isn't run.
        gonogo.spec.stages makes the table of them.
        """
        found: list[Report] = []
        blocker = ""
        for stage in stages:
            if not blocker and self.deadline - time.monotonic() < MIN_S:
                blocker = "the end of the iteration's time"
            if blocker:
                of_stage = [
                    _said(
                        stage,
                        "blocked",
                        "skipped",
                        f"not run: blocked by {blocker}",
                        blocked_by=blocker,
                    )
                ]
            else:
                of_stage = self._stage(stage)
                outcomes = {each["outcome"] for each in of_stage}
                if "hang" in outcomes or "passed" not in outcomes:
                    blocker = stage.name
            for each in of_stage:
                each["stage"] = stage.name
                if each["name"] in self.names or each["name"].startswith(
                    "("
                ):  # a file of two stages; what isn't a test
                    each["name"] = f"{stage.name}: {each['name']}"
                self.names.add(each["name"])
            found += of_stage
        return found

    def _stage(self, stage: Stage) -> list[Report]:
        root = self.suite.root
        there = tuple(
            str(root / file) for file in stage.files if (root / file.partition("::")[0]).exists()
        )
        found = (
            self.tests(there, [], stage.timeout_s or self.suite.timeout_s, f"stage-{stage.number}")
            if there
            else []
        )
        if not found:
            found.append(_said(stage, "tests", "not_run", "no test was found"))
        # after the tests, which may be what makes the artefacts
        for file in dict.fromkeys(
            (*(file.partition("::")[0] for file in stage.files), *stage.requires)
        ):
            if not (root / file).exists():
                found.append(
                    _said(
                        stage,
                        f"requires {file}",
                        "not_run",
                        "a required file is missing",
                        requires=file,
                    )
                )
        return found


def _said(stage: Stage, what: str, outcome: str, message: str, **more: str) -> Report:
    """A report of a stage that is no test's."""
    row: Report = {
        "name": f"{stage.name}: {what}",
        "outcome": outcome,
        "duration_ms": None,
        "message": message,
        "failures": [],
    }
    return {**row, "measurements": {}, "stage": stage.name, "dumps": [], **more}


def _chosen(filters: list[str], folder: Path) -> list[str]:
    """The options that choose among the tests: node ids (one per line) go through a file,
    everything else is an expression of -k.
    """
    words = [each for each in filters if not _names_tests(each)]
    options = [f"-k{' and '.join(f'({each})' for each in words)}"] if words else []
    for number, each in enumerate(each for each in filters if _names_tests(each)):
        file = folder / f"only-{number}.json"
        file.write_text(
            json.dumps([line.strip() for line in each.splitlines() if line.strip()]), "utf-8"
        )
        options.append(f"--gonogo-only={file}")
    return options


def _names_tests(words: str) -> bool:
    return "::" in words or ".py" in words or "/" in words or "\n" in words


def _closed(words: str) -> bool:
    """Whether every parenthesis is closed: else a job's expression could end the one of the suite,
    which it may only narrow.
    """
    depth = 0
    for letter in words:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0 or _names_tests(words)


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
