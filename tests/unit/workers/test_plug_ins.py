"""Executors by name: plug-ins of a variable, which ones a worker of all serves, and what a child's
process loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import PYTHONPATH
from gonogo.errors import FieldError
from gonogo_workers.executors import registry
from patience import WAIT_S


def test_plug_ins_are_read_from_their_variable() -> None:
    plug_ins = registry.parse("one=pkg.mod:Factory@/opt/a b/bin/python, two=mod:make")
    one = registry.ExecutorSpec("one", "pkg.mod", "Factory", "/opt/a b/bin/python")
    assert (plug_ins["one"], plug_ins["two"].python) == (one, None)
    assert registry.parse("") == {}


@pytest.mark.parametrize(
    "text",
    [
        *("one", "one=mod", "one=mod:", "One=mod:F", "one=mod.:F", "one=m:F@"),
        *("a=m:F,a=m:G", "emulator=m:F", "torch=m:F"),
    ],
)
def test_a_plug_in_entry_that_makes_no_sense_is_named(text: str) -> None:
    with pytest.raises(FieldError, match="GONOGO_EXECUTORS"):
        registry.parse(text)


def test_a_worker_of_all_serves_torch_where_the_builds_file_speaks_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = registry.known("mine=m:F")
    for package, in_builds_file, served in (
        ("no_such_package", (), ["emulator", "mine"]),
        ("no_such_package", ("torch", "other"), ["emulator", "torch", "mine"]),
        ("json", (), ["emulator", "torch", "mine"]),
    ):
        monkeypatch.setattr(registry, "NEEDS", {"torch": package})
        assert registry.ready(names, in_builds_file) == served


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *words],
        env={"PATH": "", "PYTHONPATH": PYTHONPATH, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_check_without_a_build_asks_for_one_where_there_is_no_default() -> None:
    done = run("-m", "gonogo.cli", "check", "--executor", "gtest")
    assert done.returncode == 2
    assert "build" in done.stderr
    assert "GONOGO_BUILDS" in done.stderr


START = """
import sys
from gonogo_workers.executors.emulator_executor import EmulatorExecutor
from gonogo.kernels.registry import loaded
EmulatorExecutor("correct")
heavy = {"pydantic_settings", "gonogo.settings", "redis", "celery", "httpx"}
print(*loaded(), sorted(heavy & set(sys.modules)))
"""
QUEUE = """
import sys, gonogo_workers.queue
ours = {name for name in sys.modules if name.startswith(("gonogo_workers.", "numpy"))}
print(sorted(name for name in ours if not name.startswith("gonogo_workers.queue")))
"""


def test_a_child_has_its_worker_s_kernels_and_none_of_its_settings_and_the_service_no_device_code(
    example_site: Path,
) -> None:
    kernels = {"GONOGO_KERNELS": "l2norm_fw, l2norm_gradients,"}
    path = os.pathsep.join((PYTHONPATH, str(example_site)))
    child = run("-c", START, PYTHONPATH=path, **kernels)
    assert child.stdout == "l2norm_fw l2norm_gradients []\n", child.stderr
    service = run("-c", QUEUE)
    assert service.stdout == "[]\n", service.stderr
