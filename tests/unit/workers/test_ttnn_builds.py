"""The ttnn executor and the service know the same builds, and the kernel sources that a build
compiles are there to be installed."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from checkout import PYTHONPATH
from gonogo.spec.builds import known_build, own_builds
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.test_spec import KERNELS
from gonogo_workers.executors import registry
from gonogo_workers.executors.base import HostUnavailable
from gonogo_workers.local.runner import load
from patience import WAIT_S

CHILD = Path(registry.CHILD)


def variants() -> dict[str, set[str]]:
    """Return the kernels of each variant in the executor's VARIANTS.

    The source is parsed, because importing it needs ttnn.
    """
    for node in ast.parse((CHILD / "ttnn_executor.py").read_text()).body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == "VARIANTS"
        ):
            assert isinstance(node.value, ast.Dict)
            kernels_by_variant = {}
            for name, kernels in zip(node.value.keys, node.value.values, strict=True):
                assert isinstance(name, ast.Constant)
                assert isinstance(kernels, ast.Dict)
                kernels_by_variant[str(name.value)] = {
                    str(key.value) for key in kernels.keys if isinstance(key, ast.Constant)
                }
            return kernels_by_variant
    raise AssertionError("ttnn_executor.py has no VARIANTS")


def test_the_executor_runs_exactly_the_builds_that_the_service_knows() -> None:
    assert list(variants()) == list(own_builds("ttnn"))


def test_a_build_s_outputs_are_those_of_the_kernels_that_it_runs() -> None:
    for name, kernels in variants().items():
        if not any(kernel.startswith("layernorm") for kernel in kernels):
            continue
        build = known_build(name, "ttnn")
        assert build is not None
        for kernel in (
            candidate for candidate in KERNELS.values() if candidate.name.startswith("layernorm")
        ):  # others have outputs of the same names
            assert any(build.produces(output) for output in kernel.outputs) == (
                kernel.name in kernels
            ), f"{name} {kernel.name}"


def test_the_default_build_is_one_of_them() -> None:
    assert EXECUTORS["ttnn"].default_build in own_builds("ttnn")


def test_the_kernels_know_every_buffer_by_the_name_that_python_gives_it() -> None:
    text = "".join(
        path.read_text() for path in sorted((CHILD / "kernels").glob("layernorm_bw_*.cpp"))
    )
    source = ast.parse((CHILD / "ttnn_generic.py").read_text())
    (buffers,) = (
        node.value
        for node in source.body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "BUFFERS"
    )
    assert isinstance(buffers, ast.Dict)
    used = {
        word
        for word in text.replace("(", " ").replace(")", " ").replace(",", " ").split()
        if word.startswith("BUFFER_")
    }
    assert used == {
        f"BUFFER_{key.value.upper()}" for key in buffers.keys if isinstance(key, ast.Constant)
    }


def test_the_child_s_modules_need_nothing_of_ours() -> None:
    """They run in the build's interpreter, where GoNoGo isn't installed."""
    allowed = {"ttnn", "numpy", *(path.stem for path in CHILD.glob("ttnn_*.py"))}
    for path in CHILD.glob("ttnn_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                assert module.split(".")[0] in allowed | set(sys.stdlib_module_names), (
                    f"{path.name} imports {module}"
                )


def test_check_without_a_build_asks_for_one_where_there_is_no_default() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gonogo.cli", "check", "--executor", "gtest"],
        env={"PYTHONPATH": PYTHONPATH, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "build" in done.stderr
    assert "GONOGO_BUILDS" in done.stderr


@pytest.mark.skipif(find_spec("ttnn") is not None, reason="ttnn is installed here")
def test_an_interpreter_without_ttnn_says_where_to_name_another() -> None:
    with pytest.raises(HostUnavailable) as problem:
        load("ttnn", "ttnn")
    assert f"{sys.executable} has no ttnn (No module named 'ttnn')" in str(problem.value)
    assert "python = ... under [executors.ttnn] in the builds file" in str(problem.value)
