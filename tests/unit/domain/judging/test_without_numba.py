"""Everything works where numba isn't installed, with the same verdicts and statistics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import judge_everything
from gonogo.numerics.jit import HAVE_NUMBA
from patience import WAIT_S

BLOCKED = """
import runpy, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
module = sys.argv.pop(1)
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
finally:
    assert not {"numba", "llvmlite"} & set(sys.modules)
"""
PLUG_IN = """
import numpy as np

def test_y(gonogo):
    x = np.random.default_rng(0).normal(size=(8, 96)).astype("float32")
    gamma = np.ones(96, "float32")
    y = x / np.sqrt((x * x).mean(1, keepdims=True) + np.float32(1e-6))
    numerics = {"input": "fp32", "output": "fp32"}
    tolerance = {"rtol": 1e-2, "atol": 1e-2}
    gonogo.compare("rmsnorm_fw", x=x, gamma=gamma, y=y, numerics=numerics, tolerance=tolerance)
"""


def run(folder: Path, module: str, *words: str) -> str:
    """Return the stdout of a module that runs where numba can't be imported."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, module, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_same(plain: Any, compiled: Any, *path: str) -> None:
    if isinstance(plain, dict):
        assert plain.keys() == compiled.keys(), path
        for key in plain:
            assert_same(plain[key], compiled[key], *path, key)
    elif isinstance(plain, float) and isinstance(compiled, float):
        room = 0.05 if path[-1].endswith(("_z", "_z_max")) else 1e-6  # ties of float64's last bit
        assert np.isclose(plain, compiled, rtol=room, atol=1e-9), path
    elif path[-1] != "worst_index":
        assert plain == compiled, path


@pytest.mark.skipif(not HAVE_NUMBA, reason="numba: not installed")
def test_verdicts_and_statistics_are_those_of_the_compiled_code(tmp_path: Path) -> None:
    plain = json.loads(run(tmp_path, "judge_everything"))
    compiled = json.loads(json.dumps(judge_everything.everything()))
    assert {json.dumps(build["verdict"]) for case in plain.values() for build in case.values()} > {
        '"pass"'
    }
    assert_same(plain, compiled)


def test_the_gauge_works(tmp_path: Path) -> None:
    words = "gauge --kernel layernorm_fw --shape 4,64 --rtol 0.01 --atol 0.01 --json"
    answer = json.loads(run(tmp_path, "gonogo_cli", *words.split()))
    assert answer


def test_the_plug_in_works(tmp_path: Path) -> None:
    (tmp_path / "test_kernel.py").write_text(PLUG_IN)
    words = ("-q", "-p", "gonogo_pytest.plugin", "-p", "no:cacheprovider", "--gonogo", "off")
    assert "1 passed" in run(tmp_path, "pytest", *words)
