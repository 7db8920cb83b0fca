"""A real worker runs pytest suites: rows with every test, arrays judged in full, tables of stages;
nothing outlives it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import psutil
import pytest

from gonogo import emulator
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.stages import StageTable
from gonogo.spec.test_spec import TestSpec
from patience import WAIT_S, scaled
from running_service import until
from servers import RedisServer
from worker_process import Answer, Workplace

TEST = TestSpec.parse({"kernel": "layernorm_bw", "shape": [1, 32, 1024]})
BUILDS = """
[builds.ops]
executor = "pytest"
arithmetic = "tt-train"
environment = {{ PYTEST_DISABLE_PLUGIN_AUTOLOAD = "1" }}
options = {{ root = "{root}" }}
[builds.ops.suites.numbers]
paths = ["test_numbers.py"]
[builds.ops.suites.slow]
paths = ["test_slow.py"]
[builds.ops.suites.staged]
stages = [
    {{ name = "api", files = ["test_api.py"] }},
    {{ name = "stubs", files = ["test_numbers.py"], requires = ["stubs.log"] }},
    {{ name = "kernels", files = ["test_slow.py"], timeout_s = {limit_s} }},
    {{ name = "launch", files = ["test_api.py"] }},
]
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
    """A repository with tests, arrays of a right and of a wrong kernel beside them, and its builds
    file."""
    root = tmp_path_factory.mktemp("project")
    given = quantise(TEST, generate(TEST, 0))
    for build in ("correct", "double-subtract"):
        tensors = {**given, "dx": emulator.run(TEST, given, build)["dx"]}
        np.savez(
            root / f"{build}.npz",
            **{
                name: np.asarray(array).reshape(TEST.shape_of(name))
                for name, array in tensors.items()
            },
        )
    for name, text in (
        ("test_numbers", NUMBERS),
        ("test_slow", SLOW),
        ("test_api", "def test_api(): pass\n"),
    ):
        (root / f"{name}.py").write_text(dedent(text))
    (root / "builds.toml").write_text(BUILDS.format(root=root, limit_s=scaled(8)))
    return root


@pytest.fixture
def place(tmp_path: Path, redis_server: RedisServer, project: Path) -> Iterator[Workplace]:
    place = Workplace(redis_server.url.removesuffix("/0") + "/6", tmp_path)
    place.start("pytest", GONOGO_BUILDS=str(project / "builds.toml"))
    yield place
    place.close()


def run(place: Workplace, iterations: int, **selection: Any) -> Answer:
    """Run iterations of a suite and return what the worker sent."""
    return place.run(
        "ops",
        iterations,
        executor="pytest",
        test={"selection": selection},
        seed_deadline_s=scaled(60),
    )


def test_green_red_and_arrays_are_judged_each_as_what_it_is(place: Workplace) -> None:
    answer = run(place, 2, suite="numbers")
    assert set(answer.verdicts.values()) == {"pass_by_tolerance"}
    row = min(answer.rows, key=lambda row: row["seed"])
    outputs = row["outputs"]
    assert {
        name: (output["verdict"], output.get("outcome")) for name, output in outputs.items()
    } == {
        "test_numbers.py::test_kernel[correct]": ("pass", "passed"),
        "test_numbers.py::test_kernel[correct]/dx": ("pass", None),
        "test_numbers.py::test_kernel[double-subtract]": ("pass_by_tolerance", "passed"),
        "test_numbers.py::test_kernel[double-subtract]/dx": ("pass_by_tolerance", None),
        "test_numbers.py::test_red": ("not_judged", "failed"),
        "test_numbers.py::test_green": ("not_judged", "passed"),
    }
    assert outputs["test_numbers.py::test_kernel[correct]"]["measurements"] == {"iteration": 0.0}
    assert "assert 0" in outputs["test_numbers.py::test_red"]["message"]
    wrong = outputs["test_numbers.py::test_kernel[double-subtract]/dx"]
    assert "s1 is subtracted twice" in wrong["fault"]
    assert {artifact["kind"] for artifact in answer.artifacts} == {"error_map"}
    mapped = {artifact["output"] for artifact in answer.artifacts if artifact["seed"] == 0}
    assert mapped == {"test_numbers.py::test_kernel[double-subtract]/dx"}


def test_a_filter_narrows_and_what_isn_t_there_is_absent(place: Workplace) -> None:
    answer = run(place, 1, suite="numbers", filter="test_numbers.py::test_green")
    assert list(answer.rows[0]["outputs"]) == ["test_numbers.py::test_green"]
    answer = run(place, 1, suite="numbers", filter="test_purple")
    assert answer.verdicts == {0: "not_run"}
    answer = run(place, 1, suite="weekly")
    assert answer.verdicts == {0: "error"}
    assert "no suite 'weekly'; it has: numbers, slow, staged" in answer.rows[0]["message"]


@pytest.mark.slow
def test_every_iteration_of_a_staged_suite_has_its_table(place: Workplace) -> None:
    answer = run(place, 1, suite="staged")
    assert answer.verdicts == {0: "hang"}
    (stages_artifact,) = [artifact for artifact in answer.artifacts if artifact["kind"] == "stages"]
    table = StageTable.parse(stages_artifact["content"])
    assert (stages_artifact["seed"], stages_artifact["repeat"]) == (0, 0)
    assert [(stage.name, stage.status.value) for stage in table.stages] == [
        ("api", "passed"),
        ("stubs", "partial"),
        ("kernels", "hung"),
        ("launch", "blocked"),
    ]
    assert (
        table.stages[1].reason
        == "1 of 4 tests failed, first test_numbers.py::test_red: assert 0; missing: stubs.log"
    )
    assert "it hung at test_slow.py:6 in test_stuck" in table.stages[2].reason
    assert table.blocker is table.stages[2]
    assert (
        answer.rows[0]["outputs"]["test_slow.py::test_first"]["outcome"] == "passed"
    )  # what finished before the hang is kept


def test_the_tests_of_a_killed_worker_die_with_it(place: Workplace, project: Path) -> None:
    stuck = project / "stuck"
    stuck.unlink(missing_ok=True)
    place.publish(
        "ops",
        1,
        executor="pytest",
        test={"selection": {"suite": "slow"}},
        seed_deadline_s=10 * WAIT_S,
    )
    until(lambda: stuck.exists() and stuck.read_text(), what=place.log)
    tests = psutil.Process(int(stuck.read_text()))
    os.kill(place.workers[0].pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs([tests], timeout=WAIT_S)
    assert (len(gone), alive) == (1, [])
