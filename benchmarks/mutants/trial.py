"""A copy of the checkout in which one mutant after the other is tried against its tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOMES = ("", "dashboards", "migrations", "service", "workers")
BUILT = "dashboards/gonogo_dashboards/static"
PATIENCE = 5.0
"""A mutant may take this many times as long as the right code; then it hangs, and is killed."""
PATIENCE_S = 30.0
NO_TESTS = 5
"""The exit code of pytest where nothing was collected."""


class Outcome(StrEnum):
    """The result of the tests on a mutant."""

    killed = "killed"
    hung = "hung"
    survived = "survived"


class TestsFail(Exception):
    """The tests fail on the right code."""


class Copy:
    """The tracked files in a folder of their own, which stand before the installed packages."""

    def __init__(self, folder: Path) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)
        if (ROOT / BUILT).is_dir():
            shutil.copytree(ROOT / BUILT, folder / BUILT, dirs_exist_ok=True)
        self._folder = folder
        self._limits: dict[tuple[str, ...], float] = {}

    def check(self, tests: Sequence[str]) -> float:
        """Run tests on the right code; return the seconds. TestsFail where they don't pass."""
        began = time.monotonic()
        if (code := self._run(tests, None)) != 0:
            raise TestsFail(f"pytest exits with {code} on the right code: {' '.join(tests)}")
        took = time.monotonic() - began
        self._limits[tuple(tests)] = PATIENCE * took + PATIENCE_S
        return took

    def try_(self, module: str, changed: bytes, tests: Sequence[str]) -> Outcome:
        """Run tests that `check` has run on a changed module, which is then put back."""
        path = self._folder / module
        right = path.read_bytes()
        path.write_bytes(changed)
        try:
            code = self._run(tests, self._limits[tuple(tests)])
        finally:
            path.write_bytes(right)
        if code is None:
            return Outcome.hung
        return Outcome.survived if code in {0, NO_TESTS} else Outcome.killed

    def _run(self, tests: Sequence[str], limit_s: float | None) -> int | None:
        """Return pytest's exit code; None after the limit."""
        process = subprocess.Popen(
            [sys.executable, "-B", "-m", "pytest", "-x", "-q", *tests],
            cwd=self._folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(str(self._folder / home) for home in HOMES),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
