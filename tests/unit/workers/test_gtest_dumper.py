"""gonogo_dump.hpp by itself: it writes arrays only on request, and a problem fails no test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gtest_programs import ROOT
from patience import WAIT_S

ALONE = """
#include "gonogo_dump.hpp"
#include "gonogo_dump.hpp"
#include <array>
#include <list>

int main() {
    const std::array<double, 4> x{1.0, -0.5, 2.0, 0.25};
    const std::list<int> gamma{1, 1};
    const float beta[] = {0.0f, 0.5f};
    const bool written = gonogo::Dump("layernorm_fw", "By.Hand")
                             .shape({1, 2, 2})
                             .epsilon(1e-5)
                             .json("program", "\\"legacy\\"")
                             .name("with \\"quotes\\" and a\\ttab")
                             .input("x", x)
                             .input("gamma", gamma)
                             .input("beta", beta, 2)
                             .output("mean", std::vector<float>{0.25f, 1.125f})
                             .write();
    return written ? 0 : 3;
}
"""
KINDS = ("all", "extra", "pedantic", "shadow", "conversion", "sign-conversion", "error")
WARNINGS = [f"-W{kind}" for kind in KINDS]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, gtest_programs: dict[str, Path]) -> Path:
    """A program without GoogleTest, compiled with every warning an error."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "alone.cpp").write_text(ALONE)
    compiler = shutil.which("g++")
    assert compiler is not None
    include = f"-I{ROOT / 'workers/gonogo_workers/include'}"
    command = [compiler, "-std=c++17", *WARNINGS, include, "alone.cpp", "-o", "alone"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return folder / "alone"


def run(*words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program, which writes its arrays into `folder` where one is given."""
    dumps = {} if folder is None else {"GONOGO_DUMP_DIR": str(folder)}
    return subprocess.run(
        words,
        env={"PATH": os.environ["PATH"], **dumps},
        cwd=Path(words[0]).parent,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@pytest.mark.slow
def test_any_container_becomes_float32_that_numpy_reads_and_unasked_nothing_is_written(
    alone: Path, tmp_path: Path
) -> None:
    before = set(alone.parent.iterdir())
    assert run(str(alone)).returncode == 0
    assert set(alone.parent.iterdir()) == before
    assert run(str(alone), folder=tmp_path).returncode == 0
    (place,) = tmp_path.iterdir()
    assert json.loads((place / "manifest.json").read_text()) == {
        "test": "By.Hand",
        "name": 'with "quotes" and a\ttab',
        "arithmetic": None,
        "kernel": "layernorm_fw",
        "fields": {"epsilon": 1e-5, "program": "legacy", "shape": [1, 2, 2]},
        "tensors": {name: f"{name}.npy" for name in ("beta", "gamma", "mean", "x")},
        "raw": {},
    }
    arrays = {file.stem: np.load(file, allow_pickle=False) for file in place.glob("*.npy")}
    shapes = {"x": (1, 2, 2), "gamma": (2,), "beta": (2,), "mean": (1, 2)}
    assert {name: array.shape for name, array in arrays.items()} == shapes
    assert {array.dtype.str for array in arrays.values()} == {"<f4"}
    assert arrays["x"].ravel().tolist() == [1.0, -0.5, 2.0, 0.25]
    assert all(array.flags.c_contiguous for array in arrays.values())
    assert all(file.stat().st_size % 4 == 0 for file in place.glob("*.npy"))


def test_what_cannot_be_written_is_told_fails_no_test_and_looks_like_nothing(
    alone: Path, gtest_programs: dict[str, Path], tmp_path: Path
) -> None:
    done = run(str(alone), folder=tmp_path / "nowhere")
    assert done.returncode == 3
    assert "gonogo_dump: layernorm_fw: " in done.stderr
    assert "nowhere" in done.stderr
    program, test = str(gtest_programs["layernorm"]), "--gtest_filter=Dumper.RoundsRawInputs"
    of_a_user = run(program, test, folder=tmp_path / "nowhere")
    assert of_a_user.returncode == 0
    assert "gonogo_dump: layernorm_bw" in of_a_user.stderr
    full = run("/bin/bash", "-c", f"ulimit -f 0; trap '' XFSZ; exec {alone}", folder=tmp_path)
    assert full.returncode == 3
    assert "File too large" in full.stderr
    assert [path for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
