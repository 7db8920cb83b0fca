"""The GoogleTest programs of tests/gtest, built once with g++ and Debian's libgtest, and a builds
file that names them."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from checkout import ROOT
from patience import WAIT_S
from servers import Missing

SOURCES = ROOT / "tests" / "gtest"
PROGRAMS = ("behaviours", "layernorm")
HEADERS = ROOT / "workers" / "gonogo_workers" / "include"
FLAGS = ("-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{HEADERS}")
LINKED = ("-lgtest", "-lgtest_main", "-lpthread")

BEHAVIOURS, LAYERNORM = "behaviours-main", "layernorm-main"
"""The names of the two builds."""


def compiler() -> str:
    """The path of g++, which has GoogleTest. Raises Missing without either."""
    program = shutil.which("g++")
    if program is None:
        raise Missing("gtest: g++ is not installed (apt-get install g++ libgtest-dev)")
    probe = [program, "-x", "c++", "-E", "-", "-o", "/dev/null"]
    tried = subprocess.run(
        probe, input="#include <gtest/gtest.h>\n", text=True, capture_output=True
    )
    if tried.returncode:
        raise Missing("gtest: GoogleTest is not installed (apt-get install libgtest-dev)")
    return program


def build(folder: Path) -> dict[str, Path]:
    """Name -> program, in `folder`, which several processes may share. Raises Missing without a
    compiler or GoogleTest."""
    program = compiler()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        programs = {name: folder / name for name in PROGRAMS}
        for name, path in programs.items():
            if not path.exists():
                source = str(SOURCES / f"{name}.cpp")
                command = [program, *FLAGS, source, "-o", f"{path}.new", *LINKED]
                done = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S)
                assert done.returncode == 0, done.stderr
                Path(f"{path}.new").rename(path)
    return programs


def builds_file(folder: Path, programs: dict[str, Path]) -> Path:
    """A builds file with both programs and suites of theirs."""
    suites: dict[str, dict[str, Any]] = {
        "plain": {"filter": "Plain.*-*Throws"},
        "in-order": {"order": ["Order.First", "Order.NeedsFirst"]},
        "backwards": {"order": ["Order.NeedsFirst", "Order.First"]},
        "with-a-new-one": {"order": ["Order.First", "Order.NotYetWritten"]},
        "alone": {"filter": "Order.*", "isolated": True},
        "quick": {"filter": "BadHang.*", "timeout_s": 1.5},
    }
    lines = [
        f'[builds."{BEHAVIOURS}"]',
        'executor = "gtest"',
        f"command = {json.dumps([str(programs['behaviours'])])}",
    ]
    for name, suite in suites.items():
        lines += [
            f'[builds."{BEHAVIOURS}".suites."{name}"]',
            *(f"{key} = {json.dumps(value)}" for key, value in suite.items()),
        ]
    lines += [
        f'[builds."{LAYERNORM}"]',
        'executor = "gtest"',
        f"command = {json.dumps([str(programs['layernorm'])])}",
    ]
    lines += [f'[builds."{LAYERNORM}".suites.nightly]', 'filter = "LayerNormBackward.*"']
    lines += ['[builds."gone"]', 'executor = "gtest"', 'command = ["/nowhere/ttml_tests"]']
    path = folder / "builds.toml"
    path.write_text("\n".join(lines) + "\n")
    return path
