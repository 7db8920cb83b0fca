"""Executors without a server: which one a name means, how long a command waits for a child and what
it says meanwhile, and when a run gets a fresh one."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from checkout import ROOT
from gonogo import emulator
from gonogo.errors import FieldError
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.selections import Selection
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors import registry
from gonogo_workers.executors.base import KernelCrash, KernelError, KernelHang
from gonogo_workers.executors.log import ChildLog
from gonogo_workers.local import child
from gonogo_workers.local.child import Patience
from gonogo_workers.local.reports import reporter
from gonogo_workers.local.runner import load
from patience import scaled

TEST = TestSpec.parse({"kernel": "layernorm_bw", "shape": [1, 1, 32, 96]})
GIVEN = quantise(TEST, generate(TEST, 5))


@pytest.fixture
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare plug-ins, as an operator would."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'examples/numpy_executor'}:{ROOT / 'tests/plugins'}")
    troublesome = f"troublesome=troublesome:Troublesome@{sys.executable}"
    others = f"reporting=reporting:Reporting, numpy=numpy_executor:NumpyExecutor, {troublesome}"
    monkeypatch.setenv("GONOGO_EXECUTORS", others)


def test_the_emulator_gives_the_same_bits_here_and_in_a_child() -> None:
    with (
        load("emulator", "tt-train-2025") as here,
        load("emulator", "tt-train-2025", isolated=True) as there,
    ):
        assert (here.host_run, here.arithmetic) == (None, "tt-train")
        assert there.host_run
        first, second = here.run(TEST, GIVEN, seed=5), there.run(TEST, GIVEN, seed=5)
    direct = emulator.run(TEST, GIVEN, "tt-train-2025")
    for name in TEST.outputs:
        assert first[name].tobytes() == second[name].tobytes() == direct[name].tobytes()


@pytest.mark.parametrize("isolated", [False, True])
def test_the_emulator_is_told_its_position(isolated: bool) -> None:
    # the build stale-register is right in a process's first run and wrong after another run
    with load("emulator", "stale-register", isolated=isolated) as runner:
        first, second = (runner.run(TEST, GIVEN, seed=5) for _ in range(2))
        assert any(not np.array_equal(first[name], second[name]) for name in TEST.outputs)
        assert runner.position == 2


@pytest.mark.usefixtures("_plugins")
def test_one_child_runs_all_until_it_crashes() -> None:
    negative, positive = ({**GIVEN, "x": sign * np.abs(GIVEN["x"])} for sign in (-1, 1))
    other = TestSpec.parse({"kernel": "layernorm_fw", "shape": [33]})
    with load("troublesome", "crash-sometimes") as runner:
        runner.run(TEST, negative)
        before = runner.host_run
        given = quantise(other, generate(other, 2))
        runner.run(other, {**given, "x": -np.abs(given["x"])})
        assert (runner.host_run, runner.position) == (before, 2)
        with pytest.raises(KernelCrash):
            runner.run(TEST, positive)
        runner.run(TEST, negative)
        assert runner.host_run not in (None, before)
        assert runner.position == 1


@pytest.mark.usefixtures("_plugins")
@pytest.mark.parametrize(
    ("executor", "build", "message"),
    [
        ("metal", "main", r"emulator, .*numpy, troublesome"),
        ("emulator", "nonsense", "build"),
        ("numpy", "nonsense", "unknown build 'nonsense'"),
    ],
)
def test_unknown_executors_and_builds_are_named(executor: str, build: str, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        load(executor, build)


@pytest.mark.usefixtures("examples_installed")
def test_an_installed_executor_is_found_by_its_name_and_offers_what_it_says() -> None:
    with load("numpy", "float32") as runner:
        assert set(runner.run(TEST, GIVEN)) == set(TEST.outputs)
        rms = TestSpec.parse({"kernel": "rmsnorm_fw", "shape": [2, 8]})
        message = "this executor offers layernorm_fw, layernorm_bw, not rmsnorm_fw"
        with pytest.raises(KernelError, match=message):
            runner.run(rms, quantise(rms, generate(rms, 0)))
    spec = registry.ExecutorSpec("numpy", "numpy_executor", "NumpyExecutor", "/opt/python")
    assert registry.parse("numpy@/opt/python") == {"numpy": spec}
    with pytest.raises(FieldError, match=r"no installed package offers it \(allowed: .*, numpy\)"):
        registry.parse("nmpy")
    with pytest.raises(FieldError, match="did you mean 'numpy'"):
        registry.find("nmpy")


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
    patient = load("emulator", "hang", deadline_s=1.0, tell=messages.append)
    with patient as runner, pytest.raises(KernelHang):
        runner.run(TEST, GIVEN, seed=3)
    assert messages == ["waiting for seed 3 of build hang: it is a hang after 1 s (--deadline)"]


@pytest.mark.usefixtures("_plugins")
def test_a_suite_that_hangs_ends_at_its_limit_and_says_how_long_it_took() -> None:
    selection = Selection.parse({"selection": {"filter": "hang"}})
    with reporter("reporting", "main", deadline_s=0.3, tell=print) as local_reporter:
        row = local_reporter.run(selection, 0)
    assert row["verdict"] == "hang"
    assert 300 <= row["duration_ms"] < scaled(5_000)


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
