"""The ttnn executor and the service know the same builds, its sources (which are parsed because
importing them needs ttnn) need nothing of ours, and the simulator has known limits."""

from __future__ import annotations

import ast
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gonogo.spec.builds import known_build, own_builds
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.test_spec import KERNELS
from gonogo_workers.executors import registry
from gonogo_workers.executors.base import HostUnavailable
from gonogo_workers.executors.limits import SIMULATED, known
from gonogo_workers.local.runner import load

CHILD = Path(registry.CHILD)


def table(file: str, name: str) -> dict[str, ast.expr]:
    """A module's dictionary of that name, with its values unread."""
    for node in ast.parse((CHILD / file).read_text()).body:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
            assert isinstance(node.value, ast.Dict)
            keys = [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
            return dict(zip(keys, node.value.values, strict=True))
    raise AssertionError(f"{file} has no {name}")


def test_the_executor_and_the_service_know_the_same_builds_and_their_outputs() -> None:
    variants = table("ttnn_executor.py", "VARIANTS")
    assert list(variants) == list(own_builds("ttnn"))
    assert EXECUTORS["ttnn"].default_build in variants
    layernorms = [kernel for kernel in KERNELS.values() if kernel.name.startswith("layernorm")]
    for name, kernels in variants.items():
        assert isinstance(kernels, ast.Dict)
        runs = {key.value for key in kernels.keys if isinstance(key, ast.Constant)}
        build = known_build(name, "ttnn")
        assert build is not None
        for kernel in layernorms if runs & {one.name for one in layernorms} else ():
            produced = any(build.produces(output) for output in kernel.outputs)
            assert produced == (kernel.name in runs), f"{name} {kernel.name}"


def test_the_child_s_modules_need_nothing_of_ours() -> None:
    allowed = {"ttnn", "numpy", *(path.stem for path in CHILD.glob("ttnn_*.py"))}
    for path in CHILD.glob("ttnn_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots = {module.split(".")[0] for module in modules}
            assert roots <= allowed | set(sys.stdlib_module_names), path.name


@pytest.mark.skipif(find_spec("ttnn") is not None, reason="ttnn is installed here")
def test_an_interpreter_without_ttnn_says_where_to_name_another() -> None:
    with pytest.raises(HostUnavailable) as problem:
        load("ttnn", "ttnn")
    assert f"{sys.executable} has no ttnn (No module named 'ttnn')" in str(problem.value)
    assert "python = ... under [executors.ttnn] in the builds file" in str(problem.value)


FORWARD: dict[str, Any] = {"kernel": "layernorm_fw", "shape": [1, 1, 64, 64]}
PRODUCT: dict[str, Any] = {"kernel": "matmul", "shape": [2, 16, 64]}
SUM: dict[str, Any] = {"kernel": "sum", "shape": [32, 64]}
IN_FP32 = {"numerics": {"input": "fp32", "output": "fp32"}}


@pytest.mark.parametrize(
    ("test", "build", "limits"),
    [
        (FORWARD, "ttnn", []),
        (FORWARD | {"program": "welford"}, "ttnn", ["welford"]),
        (FORWARD, "ttnn-welford", ["welford"]),
        (FORWARD, "ttnn-moreh", ["moreh-statistics"]),
        (FORWARD | {"kernel": "layernorm_bw"}, "ttnn-moreh", []),
        (FORWARD | {"numerics": {"input": {"x": "bfp8_b"}}}, "ttnn", ["block-formats"]),
        (FORWARD | {"numerics": {"output": "bfp8_b"}}, "ttnn", ["block-formats"]),
        (FORWARD | {"memory": {"sharded": [1, 2]}}, "ttnn", ["one-row-of-cores"]),
        (FORWARD | {"memory": {"sharded": [2, 2]}}, "ttnn", []),
        (FORWARD | {"memory": {"sharded": [1, 1]}}, "ttnn", []),
        (PRODUCT, "ttnn", ["one-row-of-cores"]),
        (PRODUCT | {"parameters": {"columns": 32}}, "ttnn", []),
        (PRODUCT | {"shape": [2, 32, 64]}, "ttnn", []),
        (SUM | IN_FP32, "ttnn", ["sums-in-fp32"]),
        (SUM | IN_FP32, "ttnn-fast", []),  # on the matrix unit
        (SUM, "ttnn", []),
    ],
)
def test_a_limit_applies_to_the_tests_and_builds_that_meet_it_on_the_simulator_only(
    test: dict[str, Any], build: str, limits: list[str]
) -> None:
    assert [limit.name for limit in known(test, build, {SIMULATED: "/somewhere"})] == limits
    assert known(test, build, {"TT_METAL_HOME": "/somewhere"}) == []
