"""The conformance suite of reporters: gtest and pytest pass it, and a reporter that breaks every
promise fails it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gonogo_workers.executors.base import Reporter
from gonogo_workers.executors.conformance import Check
from gonogo_workers.executors.registry import CHILD
from gonogo_workers.reports.conformance import checks
from patience import WAIT_S
from pytest_projects import Project

TESTS = """
    import pytest
    @pytest.mark.parametrize("n", [1, 2])
    def test_passes(n): pass
    def test_fails(): assert 0
    def test_skips(): pytest.skip("not here")
"""


def suite(make: Callable[[], Reporter], **words: Any) -> dict[str, Check]:
    """Return the checks by name."""
    return {str(check): check for check in checks(make, **words)}


NAMES = tuple(suite(lambda: None, narrow="", nothing=""))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("name", NAMES)
def test_gtest_conforms(
    name: str, gtest_programs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(CHILD)
    from gtest_executor import GtestExecutor

    table = {
        "name": "b",
        "command": [str(gtest_programs["behaviours"])],
        "options": {},
        "suites": {"plain": {"filter": "Plain.*"}},
    }
    monkeypatch.setenv("GONOGO_BUILD", json.dumps(table))
    monkeypatch.setenv("GONOGO_PER_SEED_DEADLINE_S", str(WAIT_S))
    suite(
        lambda: GtestExecutor("b"),
        narrow="Plain.P*",
        nothing="Plain.Nothing*",
        whole={"suite": "plain"},
    )[name]()


@pytest.mark.parametrize("name", NAMES)
def test_pytest_conforms(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project = Project(tmp_path, monkeypatch)
    project.write(test_some=TESTS)
    suite(
        lambda: project.executor({"all": {}}),
        narrow="passes",
        nothing="nothing_4711",
        whole={"suite": "all"},
    )[name]()


class Rude:
    """A reporter that breaks every promise."""

    calls = 0

    def report(
        self, selection: Mapping[str, Any], *, iteration: int, seed: int | None
    ) -> list[dict[str, Any]]:
        """Report a test under another name each time, and leave a process behind."""
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        Rude.calls += 1
        if isinstance(selection, dict):
            selection["spoiled"] = True
        return [{"name": f"test {Rude.calls}", "outcome": "passed"}] * 2


@pytest.mark.parametrize("name", NAMES)
def test_a_rude_reporter_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda words: started.append(popen(words)))
    try:
        with pytest.raises(AssertionError):
            suite(Rude, narrow="x", nothing="y")[name]()
    finally:
        for process in started:
            process.kill()
            process.wait()
