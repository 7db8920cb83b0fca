"""A copy of the checkout in which one mutant after the other is tried against its tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path

from benchmarks.mutants import ROOT
from benchmarks.mutants.collected import HOMES, NO_TESTS, OTHER_WAY, PATIENCE, PATIENCE_S
from servers import Missing, PostgresServer, RedisServer

MARK = ".gonogo-mutants"
"""The file that says that a folder is a copy: files in it may be removed."""
BUILT = "dashboards/gonogo_dashboards/static"


class Outcome(StrEnum):
    """The result of the tests on a mutant."""

    killed = "killed"
    hung = "hung"
    survived = "survived"


class TestsFail(Exception):
    """The tests fail on the right code."""


def check_folder(folder: Path) -> None:
    """Raise ValueError unless the folder is new, empty, or that of an earlier copy."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise ValueError(f"{folder} is neither empty nor an earlier copy: name another folder")


class Copy:
    """The tracked files in a folder of their own, which stand before the installed packages."""

    def __init__(self, folder: Path) -> None:
        """Copy to an empty folder, or to that of an earlier copy. ValueError for any other."""
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARK).touch()
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        self.folder = folder.resolve()
        tracked = {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
        for path in [path for path in self.folder.rglob("*.py") if path.is_file()]:
            if str(path.relative_to(self.folder)) not in tracked:
                path.unlink()  # of an earlier copy
        for name in sorted(tracked):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, self.folder / name)
        if (ROOT / BUILT).is_dir():
            shutil.copytree(ROOT / BUILT, self.folder / BUILT, dirs_exist_ok=True)
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(self.folder / home) for home in HOMES),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self._servers = ExitStack()
        self._serve(RedisServer, "GONOGO_TEST_BROKER_URL")
        self._serve(PostgresServer, "GONOGO_TEST_DATABASE_URL")

    def _serve(self, make: Callable[[], RedisServer | PostgresServer], variable: str) -> None:
        """Start a server for all tests, unless there is one."""
        if variable in self.environment:
            return
        with suppress(Missing):  # then its tests are skipped
            server = make()
            self._servers.callback(server.close)
            server.start()
            self.environment[variable] = server.url() if callable(server.url) else server.url

    def close(self) -> None:
        """Stop the servers."""
        self._servers.close()


class Trial:
    """Tests that are collected once, and run on one mutant of their modules after the other."""

    def __init__(self, copy: Copy, modules: Sequence[str], tests: Sequence[str]) -> None:
        self._copy = copy
        self._tests = tests
        self._limit_s = 0.0
        self._edges: set[tuple[str, int, int]] = set()
        seen = copy.folder.with_name(f"{copy.folder.name}.seen")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.mutants.collected"),
                *(str(seen), ",".join(modules), *tests),
            ],
            cwd=copy.folder,
            env=copy.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process with the collected tests."""
        self._process.communicate()

    def check(self) -> float:
        """Run the tests on the right code; return the seconds. TestsFail where they don't pass."""
        began = time.monotonic()
        code, last, edges = self._ask({})
        if code != 0:
            raise TestsFail(f"pytest exits with {code} on the right code: {', '.join(last)}")
        took = time.monotonic() - began
        self._limit_s = PATIENCE * took + PATIENCE_S
        self._edges = {(file, start, end) for file, start, end in edges}
        return took

    def is_float_edge(self, module: str, start: int, end: int) -> bool:
        """Return whether a comparison is a float edge, as the tests on the right code show."""
        return (str(self._copy.folder / module), start, end) in self._edges

    def try_(self, module: str, right: bytes, changed: bytes, line: int) -> Outcome:
        """Run the tests on a changed module, which is then put back.

        Those that call the changed function are enough. A new process runs them where imports call
        it, too, and all of them where no test does: it may run in a process that they start.
        """
        path = self._copy.folder / module
        path.write_bytes(changed)  # also for the processes that tests start
        try:
            code, tests, _ = self._ask(
                {
                    "module": module,
                    "line": line,
                    "right": right.decode(),
                    "changed": changed.decode(),
                }
            )
            if code in {NO_TESTS, OTHER_WAY}:
                code = self._run(tests or self._tests)
        finally:
            path.write_bytes(right)
        if code is None:
            return Outcome.hung
        return Outcome.survived if code in {0, NO_TESTS} else Outcome.killed

    def _ask(
        self, request: dict[str, object]
    ) -> tuple[int | None, list[str], list[tuple[str, int, int]]]:
        """Return the exit code, the names of the tests and the float edges for a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        if not (answer := self._process.stdout.readline()):
            raise TestsFail(f"pytest collects nothing: {' '.join(self._tests)}")
        code, chosen, edges = json.loads(answer)
        return code, chosen, edges

    def _run(self, tests: Sequence[str]) -> int | None:
        """Run tests in a new process; return pytest's exit code, None after the limit."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-q", *tests],
            cwd=self._copy.folder,
            env=self._copy.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
