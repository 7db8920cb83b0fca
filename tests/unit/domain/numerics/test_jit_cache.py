"""Compiled code is kept, and never for longer than the sources stay as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gonogo.judging.judging import judge
from gonogo.numerics import jit
from numeric_cases import Case, spec
from patience import WAIT_S

pytestmark = pytest.mark.skipif(not jit.HAVE_NUMBA, reason="numba: not installed")

INNER = """
from gonogo.numerics.jit import jit

FACTOR = {factor}

@jit
def inner(x):
    return {offset} + x
"""
OUTER = """
from gonogo.numerics import inner
from gonogo.numerics.jit import jit

FACTOR, add = inner.FACTOR, inner.inner

@jit
def outer(x):
    return FACTOR * add(x)

if __name__ == "__main__":
    from gonogo.numerics.outer import outer
    print(outer(1.0), sum(outer.dispatcher.stats.cache_hits.values()))
"""


class Copy:
    """A small package with the real `jit`: one compiled function uses another file's function and
    constant."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        numerics = folder / "gonogo" / "numerics"
        numerics.mkdir(parents=True)
        (folder / "gonogo" / "tensix").mkdir()
        for package in (numerics, numerics.parent):
            (package / "__init__.py").touch()
        shutil.copyfile(Path(jit.__file__), numerics / "jit.py")
        (numerics / "outer.py").write_text(OUTER)
        self.edit(factor=2, offset=10)

    def edit(self, *, factor: int, offset: int) -> None:
        """Change the other file only."""
        (self.folder / "gonogo" / "numerics" / "inner.py").write_text(
            INNER.format(factor=factor, offset=offset)
        )

    def run(self, **environment: str) -> tuple[float, int]:
        """Return outer(1) of a fresh process, and how many compilations came from the cache."""
        clean = {
            name: value
            for name, value in os.environ.items()
            if "NUMBA" not in name and name != "XDG_CACHE_HOME"
        }
        clean |= {
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.folder / "home"),
        }
        words = [sys.executable, "-m", "gonogo.numerics.outer"]
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=clean | environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=True,
        )
        value, hits = done.stdout.split()
        return float(value), int(hits)

    def compiled_folders(self, place: Path) -> list[Path]:
        """Return the folders of compiled code in a place."""
        return [path for path in place.glob("gonogo-*-*") if any(path.rglob("*.nbi"))]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path / "copy")


def test_an_edit_of_another_file_is_seen_by_what_uses_it_and_old_code_is_removed(
    copy: Copy,
) -> None:
    beside = copy.folder / "gonogo" / "__pycache__"
    assert copy.run() == (22.0, 0)
    assert copy.run() == (22.0, 1)
    before = copy.compiled_folders(beside)
    copy.edit(factor=3, offset=20)
    assert copy.run()[0] == 63.0  # 42 with the old constant, 33 with the old function
    after = copy.compiled_folders(beside)
    assert len(before) == len(after) == 1
    assert before != after


def test_the_folder_is_a_setting_and_what_others_keep_there_stays(
    copy: Copy, tmp_path: Path
) -> None:
    place = tmp_path / "cache"
    (place / "gonogo-ffffffff-0123456789abcdef").mkdir(parents=True)  # another checkout's
    (place / "numpy-thing").mkdir()
    assert copy.run(NUMBA_CACHE_DIR=str(place)) == (22.0, 0)
    # numba's own variable and ours name the same place
    assert copy.run(GONOGO_NUMBA_CACHE_DIR=str(place)) == (22.0, 1)
    assert len(copy.compiled_folders(place)) == 1
    assert {path.name for path in place.iterdir()} > {
        "gonogo-ffffffff-0123456789abcdef",
        "numpy-thing",
    }
    assert not (copy.folder / "gonogo" / "__pycache__").exists()


def test_sources_that_can_not_be_written_beside_use_the_users_cache_or_none(
    copy: Copy, tmp_path: Path
) -> None:
    (copy.folder / "gonogo" / "__pycache__").touch()  # permissions would not stop root
    user = tmp_path / "user"
    assert copy.run(XDG_CACHE_HOME=str(user)) == (22.0, 0)
    assert copy.run(XDG_CACHE_HOME=str(user)) == (22.0, 1)
    assert len(copy.compiled_folders(user / "gonogo")) == 1
    assert copy.run(XDG_CACHE_HOME="/dev/null") == (22.0, 0)


def test_the_stamp_is_of_names_and_contents(tmp_path: Path) -> None:
    def stamp_of(name: str, text: str) -> str:
        folder = tmp_path / "numerics"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / name).write_text(text)
        return jit.stamp((folder,))

    assert stamp_of("a.py", "1") == stamp_of("a.py", "1")
    assert len({stamp_of("a.py", "1"), stamp_of("a.py", "2"), stamp_of("b.py", "1")}) == 3


def test_what_is_read_only_or_of_another_order_needs_no_code_of_its_own() -> None:
    """numba compiles code for read-only arrays separately: half a minute for a tensor mapped from a
    file."""
    from gonogo.kernels.layernorm.fused import backward_rows

    case = Case.of(spec("layernorm_bw", (32, 64)))
    outputs = case.emulated()
    judge(case.test, case.raw, case.given, outputs, arithmetic="tt-train")
    before = len(backward_rows.backward_block.dispatcher.signatures)
    for arrays in (case.raw, case.given, outputs):
        for array in arrays.values():
            array.flags.writeable = False
    again = judge(case.test, case.raw, case.given, outputs, arithmetic="tt-train")
    judge(
        case.test,
        {**case.raw, "x": np.asfortranarray(case.raw["x"])},
        case.given,
        outputs,
        arithmetic="tt-train",
    )
    assert len(backward_rows.backward_block.dispatcher.signatures) == before == 1
    assert again.verdict == "pass"
