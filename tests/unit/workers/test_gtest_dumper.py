"""gonogo_dump.hpp by itself: it writes arrays only on request, and a problem fails no
test."""

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


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, gtest_programs: dict[str, Path]) -> Path:
    """A program without GoogleTest, compiled with every warning an error."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "alone.cpp").write_text(ALONE)
    compiler = shutil.which("g++")
    assert compiler is not None
    warnings = (
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Wshadow",
        "-Wconversion",
        "-Wsign-conversion",
        "-Werror",
    )
    command = [
        compiler,
        "-std=c++17",
        *warnings,
        f"-I{ROOT / 'workers/gonogo_workers/include'}",
        str(folder / "alone.cpp"),
        "-o",
        str(folder / "alone"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return folder / "alone"


def run(program: Path, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program, which writes its arrays into `folder` where one is given."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GONOGO_")
    }
    if folder is not None:
        environment["GONOGO_DUMP_DIR"] = str(folder)
    return subprocess.run(
        [str(program), *words],
        env=environment,
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@pytest.mark.slow
def test_any_container_becomes_float32_that_numpy_reads(alone: Path, tmp_path: Path) -> None:
    assert run(alone, folder=tmp_path).returncode == 0
    (place,) = tmp_path.iterdir()
    manifest = json.loads((place / "manifest.json").read_text())
    assert manifest == {
        "test": "By.Hand",
        "name": 'with "quotes" and a\ttab',
        "arithmetic": None,
        "kernel": "layernorm_fw",
        "fields": {"epsilon": 1e-5, "program": "legacy", "shape": [1, 2, 2]},
        "tensors": {name: f"{name}.npy" for name in ("beta", "gamma", "mean", "x")},
        "raw": {},
    }
    arrays = {
        name: np.load(place / file, allow_pickle=False)
        for name, file in manifest["tensors"].items()
    }
    assert {name: (array.dtype.str, array.shape) for name, array in arrays.items()} == {
        "x": ("<f4", (1, 2, 2)),
        "gamma": ("<f4", (2,)),
        "beta": ("<f4", (2,)),
        "mean": ("<f4", (1, 2)),
    }
    assert arrays["x"].ravel().tolist() == [1.0, -0.5, 2.0, 0.25]
    assert all(array.flags.c_contiguous for array in arrays.values())
    assert all(file.stat().st_size % 4 == 0 for file in place.glob("*.npy"))


def test_unasked_it_does_nothing(alone: Path) -> None:
    before = set(alone.parent.iterdir())
    assert run(alone).returncode == 0
    assert set(alone.parent.iterdir()) == before


def test_a_folder_that_cannot_be_written_is_told_and_no_crash(alone: Path, tmp_path: Path) -> None:
    done = run(alone, folder=tmp_path / "nowhere")
    assert done.returncode == 3
    assert "gonogo_dump: layernorm_fw: " in done.stderr
    assert "nowhere" in done.stderr


def test_a_problem_fails_no_test_of_a_user(gtest_programs: dict[str, Path], tmp_path: Path) -> None:
    done = run(
        gtest_programs["layernorm"],
        "--gtest_filter=Dumper.RoundsRawInputs",
        folder=tmp_path / "nowhere",
    )
    assert done.returncode == 0
    assert "gonogo_dump: layernorm_bw" in done.stderr


def test_what_was_not_finished_looks_like_nothing(alone: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    limited = subprocess.run(
        ["bash", "-c", f"ulimit -f 0; trap '' XFSZ; exec {alone}"],
        env={"PATH": os.environ["PATH"], "GONOGO_DUMP_DIR": str(tmp_path / "full")},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert limited.returncode == 3
    assert "File too large" in limited.stderr
    assert [
        path.name for path in (tmp_path / "full").iterdir() if not path.name.startswith(".")
    ] == []
