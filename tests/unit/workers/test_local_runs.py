"""A run without a server: how long a command waits for a child, what it says meanwhile, and what it
prints and measures."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gonogo.judging.inputs import generate, quantise
from gonogo.pytest_plugin.lines import Outcome
from gonogo.spec.selections import Selection
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors import host
from gonogo_workers.executors.base import KernelCrash, KernelHang
from gonogo_workers.executors.log import ChildLog
from gonogo_workers.local import child, reports
from gonogo_workers.local.child import Patience
from gonogo_workers.local.runner import load

TEST = TestSpec.parse({"kernel": "layernorm_fw", "shape": [4, 64]})


@pytest.mark.parametrize(
    ("executor", "elements", "limits"),
    [
        ("emulator", 32 * 64, (150.0, 30.0)),
        ("torch", 10**8, (320.06, 200.06)),
        ("ttnn", 32 * 64, (600.0, 600.0)),
        ("mine", 32 * 64, (600.0, 600.0)),
        ("pytest", None, (600.0, 600.0)),
    ],
)
def test_the_limit_of_a_run_follows_its_size(
    executor: str, elements: int | None, limits: tuple[float, float]
) -> None:
    most, given = Patience(None, 600.0), Patience(7.0, 600.0)
    for is_first, limit_s in zip((True, False), limits, strict=True):
        assert most.limit_s(executor, elements, is_first=is_first) == pytest.approx(limit_s)
        assert given.limit_s(executor, elements, is_first=is_first) == 7.0


def test_a_run_that_takes_long_is_told_with_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "TELL_AFTER_S", 0.0)
    messages: list[str] = []
    with (
        load("emulator", "hang", deadline_s=2.0, tell=messages.append) as runner,
        pytest.raises(KernelHang),
    ):
        runner.run(TEST, quantise(TEST, generate(TEST, 3)), seed=3)
    assert messages == ["waiting for seed 3 of build hang: it is a hang after 2 s (--deadline)"]


def test_the_tail_of_a_log_holds_all_that_was_printed_before_it_is_asked_for() -> None:
    log = ChildLog()
    writer = os.dup(log.writer)
    log.start()
    try:
        for number in range(300):
            os.write(writer, b"line %d\n" % number)
            assert log.tail().endswith(f"line {number}\n")
    finally:
        os.close(writer)
        log.finish()
    assert log.tail().endswith("line 299\n")


class Quarter:
    """An executor that takes a quarter of a second."""

    def __init__(self) -> None:
        self.clock = 10.0

    def run(self, *_: object) -> dict[str, Any]:
        self.clock += 0.25
        return {}

    def report(self, *_: object, **__: object) -> list[Any]:
        self.clock += 0.25
        return []


class Dead:
    """A kernel host whose process ends as soon as it gets a request."""

    host_run = "the-run"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, _: Any) -> None:
        raise KernelCrash("it ended")

    def kill(self) -> None:
        """Do nothing: there is no process."""


def test_durations_are_in_milliseconds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel_host, executor = host.Host(), Quarter()
    kernel_host.executor = executor
    monkeypatch.setattr(host, "time", SimpleNamespace(perf_counter=lambda: executor.clock))
    monkeypatch.setenv(host.DEADLINE_VARIABLE, "")
    kernel = {"test": {"kernel": "k"}, "inputs": {}, "outputs": {}, "seed": 1}
    tests = {"selection": {}, "iteration": 0, "deadline_s": 9, "file": str(tmp_path / "reports")}
    assert kernel_host.run(kernel)["ms"] == kernel_host.report({**tests, "seed": 1})["ms"] == 250.0
    outcome = Outcome()
    for when, seconds in (("setup", 9.0), ("call", 0.25), ("teardown", 9.0)):
        usual = {"outcome": "passed", "failed": False, "skipped": False, "user_properties": []}
        phase: Any = SimpleNamespace(when=when, duration=seconds, **usual)
        outcome.add(phase)
    assert outcome.duration_ms == 250.0
    quarters = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(quarters) * 0.25, monotonic=time.monotonic)
    monkeypatch.setattr(reports, "time", clock)
    monkeypatch.setattr(reports.LocalReporter, "_open", lambda _: Dead(tmp_path))
    build: Any = SimpleNamespace(executor=SimpleNamespace(name="gtest"))
    row = reports.LocalReporter(build, "own", patience=Patience(9.0)).run(
        Selection.parse({"selection": {}}), 0
    )
    assert (row["verdict"], row["duration_ms"]) == ("crash", 250.0)
