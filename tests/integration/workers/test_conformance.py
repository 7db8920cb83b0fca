"""The conformance suites: our executors of kernels and reporters pass them, and those that break a
promise fail."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gonogo_workers.executors import conformance
from gonogo_workers.executors.base import KernelError
from gonogo_workers.executors.emulator_executor import EmulatorExecutor
from gonogo_workers.executors.registry import CHILD
from gonogo_workers.reports.conformance import checks as report_checks
from patience import WAIT_S
from pytest_projects import Project

SMALL: dict[str, Any] = {"shapes": ((2, 33), (5,))}


def test_the_emulator_conforms() -> None:
    for check in conformance.checks(EmulatorExecutor, "correct", **SMALL):
        check()


@pytest.mark.usefixtures("examples_installed")
def test_the_suite_runs_what_an_installed_executor_says_that_it_offers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from numpy_executor import NumpyExecutor

    def run(*words: str) -> tuple[int, str]:
        code = conformance.main([*words])
        return code, " ".join("".join(capsys.readouterr()).split())

    assert run("numpy", "float32")[0] == 0
    code, output = run("numpy", "no-s2", "--wrong", "--kernel", "layernorm_bw")
    assert (code, "layernorm_fw" in output) == (0, False)
    for words, expected, phrase in (
        (["numpy_executor:NumpyExecutor", "no-s2"], 1, "FAIL it is a LayerNorm: layernorm_bw"),
        (["--help"], 0, "the name by which a package offers it"),
        (["numpy_executor"], 2, "required: build"),
        (["numpy_executor:NumpyExecuter", "float32"], 2, "has no attribute 'NumpyExecuter'"),
        (["nowhere.to:Be", "float32"], 2, "executor: No module named 'nowhere'"),
        (["numpy", "float32", "--kernel", "l2nrm_fw"], 2, "did you mean 'l2norm_fw'?"),
    ):
        code, output = run(*words)
        assert (code, phrase in output) == (expected, True), output
    for kernels, expected, phrase in (
        (("l2norm_fw", "groupnorm_fw"), 1, "it is the kernel l2norm_fw: l2norm_fw [7]"),
        (("l2nrm",), 2, "no installed package has this kernel; did you mean 'l2norm'?"),
    ):
        monkeypatch.setattr(NumpyExecutor, "kernels", kernels)
        code, output = run("numpy", "float32")
        assert (code, phrase in output) == (expected, True), output
    kernels = ("l2norm_fw", "l2norm_gradients")
    for check in conformance.checks(EmulatorExecutor, "correct", kernels=kernels, **SMALL):
        check()


class Rude:
    """An executor that breaks every promise of the suite, one per build."""

    def __init__(self, build: str) -> None:
        self.build = build
        self.buffer = np.zeros(10_000, np.float32)

    def run(self, test: Any, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        """Run the emulator, and break the promise that the build names."""
        copies = {name: array.copy() for name, array in inputs.items()}
        outputs = dict(EmulatorExecutor("correct").run(test, copies))
        dx = outputs["dx"]
        if self.build == "writes":
            inputs["x"][...] = 0
        elif self.build == "varies":
            outputs["dx"] = dx + np.float32(np.random.default_rng().random())
        elif self.build == "shape":
            outputs["dx"] = dx.T
        elif self.build == "wrong":
            outputs["dbeta"] = outputs["dbeta"] * 2
        elif self.build == "reuses":
            self.buffer[: dx.size] = dx.ravel()
            outputs["dx"] = self.buffer[: dx.size].reshape(dx.shape)
        return outputs


@pytest.mark.parametrize(
    ("build", "broken"),
    [
        ("accepts-everything", "an unknown build is refused"),
        ("writes", "inputs are left alone"),
        ("varies", "the same inputs give the same bits"),
        ("shape", "outputs have names, shapes and types"),
        ("wrong", "it is a LayerNorm"),
        ("reuses", "results stay as they were returned"),
    ],
)
def test_the_suite_finds_each_broken_promise(build: str, broken: str) -> None:
    failures = set()
    for check in conformance.checks(Rude, build, kernels=("layernorm_bw",), **SMALL):
        try:
            check()
        except (AssertionError, KernelError):
            failures.add(check.name.split(":")[0])
    assert broken in failures


def test_gtest_conforms_to_the_suite_of_reporters(
    gtest_programs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(CHILD)
    from gtest_executor import GtestExecutor

    command = [str(gtest_programs["behaviours"])]
    table = {"name": "b", "command": command, "options": {}}
    table["suites"] = {"plain": {"filter": "Plain.*"}}
    monkeypatch.setenv("GONOGO_BUILD", json.dumps(table))
    monkeypatch.setenv("GONOGO_PER_SEED_DEADLINE_S", str(WAIT_S))
    selections: dict[str, Any] = {"narrow": "Plain.P*", "nothing": "Plain.Nothing*"}
    for check in report_checks(lambda: GtestExecutor("b"), **selections, whole={"suite": "plain"}):
        check()


TESTS = """
    import pytest
    @pytest.mark.parametrize("n", [1, 2])
    def test_passes(n): pass
    def test_fails(): assert 0
    def test_skips(): pytest.skip("not here")
"""


def test_pytest_conforms_to_the_suite_of_reporters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project = Project(tmp_path, monkeypatch)
    project.write(test_some=TESTS)
    selections: dict[str, Any] = {"narrow": "passes", "nothing": "nothing_4711"}
    make = partial(project.executor, {"all": {}})
    for check in report_checks(make, **selections, whole={"suite": "all"}):
        check()


class RudeReporter:
    """A reporter that breaks every promise."""

    numbers = itertools.count()

    def report(
        self, selection: Mapping[str, Any], *, iteration: int, seed: int | None
    ) -> list[dict[str, Any]]:
        """Report a test under another name each time, and leave a process behind."""
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        if isinstance(selection, dict):
            selection["spoiled"] = True
        return [{"name": f"test {next(self.numbers)}", "outcome": "passed"}] * 2


@pytest.fixture
def _processes_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the processes that the test starts."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda words: started.append(popen(words)))
    yield
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("_processes_end")
def test_a_rude_reporter_conforms_in_nothing() -> None:
    suite = partial(report_checks, RudeReporter, narrow="x", nothing="y")
    for number in range(len(suite())):
        with pytest.raises(AssertionError):
            suite()[number]()
