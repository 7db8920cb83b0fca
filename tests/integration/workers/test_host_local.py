"""Executors without a server: the emulator and plug-ins through `runner.load`, the conformance
suite, and the documented example."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gonogo import emulator
from gonogo.errors import FieldError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Verdict
from gonogo_workers.executors import conformance, registry
from gonogo_workers.executors.base import KernelCrash, KernelError, KernelHang
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.emulator_executor import EmulatorExecutor
from gonogo_workers.local.child import Patience
from gonogo_workers.local.runner import LocalRunner, load

ROOT = Path(__file__).parents[3]
NUMPY_EXECUTOR = ROOT / "examples/numpy_executor"
TEST = TestSpec.parse(
    {"kernel": "layernorm_bw", "shape": [1, 1, 32, 96], "tolerance": {"rtol": 1e-3, "atol": 0.5}}
)
RAW = generate(TEST, 5)
GIVEN = quantise(TEST, RAW)


@pytest.fixture
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare two plug-ins, as an operator would."""
    monkeypatch.setenv("PYTHONPATH", f"{NUMPY_EXECUTOR}:{ROOT / 'tests' / 'plugins'}")
    monkeypatch.setenv(
        "GONOGO_EXECUTORS",
        f"numpy=numpy_executor:NumpyExecutor, troublesome=troublesome:Troublesome@{sys.executable}",
    )


def test_the_emulator_gives_the_same_bits_here_and_in_a_child() -> None:
    with (
        load("emulator", "tt-train-2025") as here,
        load("emulator", "tt-train-2025", isolated=True) as there,
    ):
        assert (here.host_run, here.arithmetic) == (None, "tt-train")
        assert there.host_run
        first, second = here.run(TEST, GIVEN, seed=5), there.run(TEST, GIVEN, seed=5)
        assert {name: array.tobytes() for name, array in first.items()} == {
            name: array.tobytes() for name, array in second.items()
        }
    direct = emulator.run(TEST, GIVEN, "tt-train-2025")
    assert all(np.array_equal(first[name].ravel(), direct[name].ravel()) for name in TEST.outputs)


def test_the_emulator_is_told_its_position() -> None:
    # The build stale-register is right in a process's first run and wrong after another run, here
    # and in a child process
    for isolated in (False, True):
        with load("emulator", "stale-register", isolated=isolated) as runner:
            first, second = (runner.run(TEST, GIVEN, seed=5) for _ in range(2))
            assert any(not np.array_equal(first[name], second[name]) for name in TEST.outputs)
            assert runner.position == 2


def test_the_emulators_hang_and_crash_do_not_take_us_along() -> None:
    with load("emulator", "hang", deadline_s=0.7) as runner, pytest.raises(KernelHang):
        runner.run(TEST, GIVEN)
    with load("emulator", "crash") as runner, pytest.raises(KernelCrash):
        runner.run(TEST, GIVEN)


@pytest.mark.usefixtures("_plugins")
def test_a_plug_in_is_judged_like_any_other() -> None:
    verdicts = {}
    for build in ("float32", "no-s2"):
        with load("numpy", build) as runner:
            outputs = runner.run(TEST, GIVEN, seed=5)
            verdicts[build] = judge(
                TEST, RAW, GIVEN, outputs, arithmetic=runner.arithmetic, produced=runner.produced
            ).verdict
    assert verdicts == {"float32": Verdict.pass_, "no-s2": Verdict.pass_by_tolerance}


@pytest.mark.usefixtures("_plugins")
def test_after_a_crash_the_next_run_gets_a_fresh_child() -> None:
    negative = {**GIVEN, "x": -np.abs(GIVEN["x"])}
    positive = {**GIVEN, "x": np.abs(GIVEN["x"])}
    with load("troublesome", "crash-sometimes") as runner:
        runner.run(TEST, negative)
        before = runner.host_run
        with pytest.raises(KernelCrash):
            runner.run(TEST, positive)
        runner.run(TEST, negative)
        assert runner.host_run not in (None, before)
        assert runner.position == 1


@pytest.mark.usefixtures("_plugins")
def test_one_child_runs_tests_of_several_shapes() -> None:
    with load("numpy", "float32") as runner:
        child = runner.host_run
        for shape in ([4, 64], [33], [2, 3, 40], [4, 64]):
            for kernel in ("layernorm_fw", "layernorm_bw"):
                test = TestSpec.parse({"kernel": kernel, "shape": shape})
                raw = generate(test, 2)
                given = quantise(test, raw)
                assert (
                    judge(test, raw, given, runner.run(test, given), arithmetic=None).verdict
                    is not Verdict.error
                )
        assert runner.host_run == child


@pytest.mark.usefixtures("_plugins")
def test_a_build_needs_to_give_only_the_outputs_that_it_declares() -> None:
    spec = registry.find("troublesome")
    with LocalRunner(
        ResolvedBuild(spec, produced=("dx",)), "missing", patience=Patience(20), isolated=True
    ) as runner:
        assert set(runner.run(TEST, GIVEN)) == {"dx"}
    undeclared = LocalRunner(ResolvedBuild(spec), "missing", patience=Patience(20), isolated=True)
    with undeclared as runner, pytest.raises(KernelError, match="dbeta is missing"):
        runner.run(TEST, GIVEN)


@pytest.mark.usefixtures("_plugins")
def test_unknown_executors_and_builds_are_named() -> None:
    with pytest.raises(FieldError, match=r"emulator, .*numpy, troublesome"):
        load("metal", "main")
    with pytest.raises(FieldError, match="build"):
        load("emulator", "nonsense")
    with pytest.raises(FieldError, match="unknown build 'nonsense'"):
        load("numpy", "nonsense")


SMALL: dict[str, Any] = {"shapes": ((2, 33), (5,))}


@pytest.mark.parametrize("check", conformance.checks(EmulatorExecutor, "correct", **SMALL), ids=str)
def test_the_emulator_conforms(check: conformance.Check) -> None:
    check()


@pytest.mark.usefixtures("examples_installed")
def test_the_suite_runs_what_an_installed_executor_says_that_it_offers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conformance.main(["numpy", "float32"]) == 0
    assert conformance.main(["numpy_executor:NumpyExecutor", "no-s2"]) == 1
    assert "FAIL  it is a LayerNorm: layernorm_bw" in capsys.readouterr().out
    assert conformance.main(["numpy", "no-s2", "--wrong", "--kernel", "layernorm_bw"]) == 0
    assert "layernorm_fw" not in capsys.readouterr().out
    for words, code, phrase in (
        (["--help"], 0, "the name by which a package offers it"),
        (["numpy_executor"], 2, "required: build"),
        (["numpy_executor:NumpyExecuter", "float32"], 2, "has no attribute 'NumpyExecuter'"),
        (["nowhere.to:Be", "float32"], 2, "executor: No module named 'nowhere'"),
        (["numpy", "float32", "--kernel", "l2nrm_fw"], 2, "did you mean 'l2norm_fw'?"),
    ):
        assert conformance.main(words) == code
        assert phrase in " ".join("".join(capsys.readouterr()).split())
    from numpy_executor import NumpyExecutor

    monkeypatch.setattr(NumpyExecutor, "kernels", ("l2norm_fw", "groupnorm_fw"))
    assert conformance.main(["numpy", "float32"]) == 1
    assert "it is the kernel l2norm_fw: l2norm_fw [7]" in capsys.readouterr().out
    monkeypatch.setattr(NumpyExecutor, "kernels", ("l2nrm",))
    assert conformance.main(["numpy", "float32"]) == 2
    assert "no installed package has this kernel; did you mean 'l2norm'?" in capsys.readouterr().err
    for check in conformance.checks(
        EmulatorExecutor, "correct", kernels=("l2norm_fw", "l2norm_gradients"), **SMALL
    ):
        check()


@pytest.mark.usefixtures("examples_installed")
def test_an_installed_executor_is_found_by_its_name_and_offers_what_it_says() -> None:
    with load("numpy", "float32") as runner:
        assert set(runner.run(TEST, GIVEN)) == set(TEST.outputs)
        rms = TestSpec.parse({"kernel": "rmsnorm_fw", "shape": [2, 8]})
        words = "this executor offers layernorm_fw, layernorm_bw, not rmsnorm_fw"
        with pytest.raises(KernelError, match=words):
            runner.run(rms, quantise(rms, generate(rms, 0)))
    assert registry.parse("numpy@/opt/python") == {
        "numpy": registry.ExecutorSpec("numpy", "numpy_executor", "NumpyExecutor", "/opt/python")
    }
    with pytest.raises(FieldError, match=r"no installed package offers it \(allowed: .*, numpy\)"):
        registry.parse("nmpy")
    with pytest.raises(FieldError, match="did you mean 'numpy'"):
        registry.find("nmpy")


class Rude:
    """An executor that breaks every promise of the suite, one per build."""

    def __init__(self, build: str) -> None:
        self.build = build
        self.buffers: dict[tuple[int, ...], np.ndarray[Any, Any]] = {}
        self.calls = 0

    def run(self, test: Any, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        """Run the emulator, and break the promise that the build names."""
        outputs = dict(
            EmulatorExecutor("correct").run(
                test, {name: array.copy() for name, array in inputs.items()}
            )
        )
        if self.build == "writes":
            inputs["x"][...] = 0
        elif self.build == "varies":
            outputs["dx"] = outputs["dx"] + np.float32(np.random.default_rng().random())
        elif self.build == "shape":
            outputs["dx"] = outputs["dx"].T
        elif self.build == "wrong":
            outputs["dbeta"] = outputs["dbeta"] * 2
        elif self.build == "reuses":
            buffer = self.buffers.setdefault((0,), np.zeros(10_000, np.float32))
            flat = outputs["dx"].ravel()
            buffer[: flat.size] = flat
            outputs["dx"] = buffer[: flat.size].reshape(outputs["dx"].shape)
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
