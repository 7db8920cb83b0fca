"""A real worker runs pytest suites: rows with every test, arrays judged in full; nothing outlives
it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import psutil
import pytest

from gonogo import emulator
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from patience import WAIT_S, scaled
from running_service import until
from worker_process import Answer, Workplace

TEST = TestSpec.parse({"kernel": "layernorm_bw", "shape": [1, 32, 1024]})
BUILDS = """
[builds.ops]
executor = "pytest"
arithmetic = "tt-train"
environment = {{ PYTEST_DISABLE_PLUGIN_AUTOLOAD = "1" }}
options = {{ root = "{root}" }}
[builds.ops.suites]
numbers = {{ paths = ["test_numbers.py"] }}
slow = {{ paths = ["test_slow.py"] }}
"""
NUMBERS = """
    import numpy as np
    import pytest
    @pytest.mark.parametrize("build", ["correct", "double-subtract"])
    def test_kernel(gonogo, build):
        gonogo.measure("iteration", gonogo.seed)
        tolerance = {"rtol": 1e-3, "atol": 0.5}
        gonogo.compare("layernorm_bw", **np.load(build + ".npz"), tolerance=tolerance)
    def test_red(): assert 0
    def test_green(): pass
    """
SLOW = """
    import os, time
    def test_first(): pass
    def test_stuck():
        open("stuck", "w").write(str(os.getpid()))
        while True: time.sleep(60)
    """


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with tests, arrays of a right and of a wrong kernel, and its builds file."""
    root = tmp_path_factory.mktemp("project")
    given = quantise(TEST, generate(TEST, 0))
    for build in ("correct", "double-subtract"):
        arrays = {**given, "dx": emulator.run(TEST, given, build)["dx"]}
        shaped: dict[str, Any] = {
            name: array.reshape(TEST.shape_of(name)) for name, array in arrays.items()
        }
        np.savez(root / f"{build}.npz", **shaped)
    for name, text in (("test_numbers", NUMBERS), ("test_slow", SLOW)):
        (root / f"{name}.py").write_text(dedent(text))
    (root / "builds.toml").write_text(BUILDS.format(root=root))
    return root


@pytest.fixture
def at_work(place: Workplace, project: Path) -> Workplace:
    place.start("pytest", GONOGO_BUILDS=str(project / "builds.toml"))
    return place


def run(place: Workplace, iterations: int, **selection: Any) -> Answer:
    """Run iterations of a suite and return what the worker sent."""
    test = {"selection": selection}
    return place.run("ops", iterations, executor="pytest", test=test, seed_deadline_s=scaled(60))


def test_green_red_and_arrays_are_judged_each_as_what_it_is(at_work: Workplace) -> None:
    answer = run(at_work, 2, suite="numbers")
    assert set(answer.verdicts.values()) == {"pass_by_tolerance"}
    row = min(answer.rows, key=lambda row: row["seed"])
    outputs = {name.partition("::")[2]: output for name, output in row["outputs"].items()}
    assert {name: (one["verdict"], one.get("outcome")) for name, one in outputs.items()} == {
        "test_kernel[correct]": ("pass", "passed"),
        "test_kernel[correct]/dx": ("pass", None),
        "test_kernel[double-subtract]": ("pass_by_tolerance", "passed"),
        "test_kernel[double-subtract]/dx": ("pass_by_tolerance", None),
        "test_red": ("not_judged", "failed"),
        "test_green": ("not_judged", "passed"),
    }
    assert outputs["test_kernel[correct]"]["measurements"] == {"iteration": 0.0}
    assert "assert 0" in outputs["test_red"]["message"]
    assert "s1 is subtracted twice" in outputs["test_kernel[double-subtract]/dx"]["fault"]
    assert {(one["kind"], one["output"]) for one in answer.artifacts} == {
        ("error_map", "test_numbers.py::test_kernel[double-subtract]/dx")
    }


def test_the_tests_of_a_killed_worker_die_with_it(at_work: Workplace, project: Path) -> None:
    stuck, test = project / "stuck", {"selection": {"suite": "slow"}}
    at_work.publish("ops", 1, executor="pytest", test=test, seed_deadline_s=10 * WAIT_S)
    until(lambda: stuck.exists() and stuck.read_text(), what=at_work.log)
    tests = psutil.Process(int(stuck.read_text()))
    os.kill(at_work.workers[0].pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs([tests], timeout=WAIT_S)
    assert (len(gone), alive) == (1, [])
