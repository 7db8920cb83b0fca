"""A pytest that has collected its tests, and forks a child for each mutant.

Importing and collecting takes longer than most tests. So one process does both once, with the right
code. Each child puts a mutant's functions in the place of the right ones, and runs the tests that
call the changed one: those that noticed an earlier mutant first, then the quick ones.

It reads requests as lines of JSON, and answers each with a line: pytest's exit code (null where the
tests took too long), the tests (where the right code fails, the last one), and the float edges.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TextIO

import pytest

from benchmarks.mutants.edges import Place, SeenComparisons, float_edges
from benchmarks.mutants.functions import (
    COMPARER,
    RECORDER,
    first_line,
    functions_of,
    put_in_place,
    recording,
)
from gonogo.numerics import jit

NO_TESTS = int(pytest.ExitCode.NO_TESTS_COLLECTED)
OTHER_WAY = 97
"""The answer where a mutant can't be put in place: imports called its function, for instance."""
HOMES = ("", "dashboards", "migrations", "service", "workers")
"""The folders that packages lie in."""
PATIENCE = 5.0
"""A mutant may take this many times as long as the right code; then it hangs, and is killed."""
PATIENCE_S = 30.0
POLL_S = 0.01


class Collected:
    """The plug-in that answers requests in the place of pytest's loop."""

    def __init__(
        self, requests: TextIO, answers: TextIO, seen: Path, modules: Sequence[str]
    ) -> None:
        self._requests = requests
        self._answers = answers
        self._seen = seen
        """The tests that a child ran, with their times, and what they called."""
        self._calls: set[tuple[str, int]] = set()
        self._comparisons = SeenComparisons()
        self._compared: dict[Place, int] = defaultdict(int)
        self._modules = modules
        self._paths = {_path(module) for module in modules}
        self._while_collecting: frozenset[tuple[str, int]] = frozenset()
        self._functions: list[FunctionType] = []
        self._seconds: dict[str, float] = {}
        self._callers: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._killers: list[str] = []
        self._watch(True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Fork for each request; a child returns None, and goes on to pytest's own loop."""
        self._watch(False)
        self._while_collecting = frozenset(self._calls)
        _load_compiler()
        for module in self._modules:
            _import(module)
        self._functions = functions_of(self._paths)
        for line in self._requests:
            request = json.loads(line)
            tests = self._tests(session, request)
            code: int | None = NO_TESTS
            if self._called(request) in self._while_collecting:
                code = OTHER_WAY
            elif tests:
                self._seen.write_text("")
                if (child := os.fork()) == 0:
                    os.setsid()
                    session.items[:] = tests
                    session.testscollected = len(tests)
                    self._change(request)
                    return None
                code = _exit_code(child, self._limit_s(tests) if "changed" in request else None)
                self._learn(request, code)
            names = [item.nodeid for item in tests]
            if "changed" not in request and code:
                names = [json.loads(line)[0] for line in self._seen.read_text().splitlines()[-1:]]
            edges = sorted(float_edges(self._compared)) if "changed" not in request else []
            print(json.dumps((code, names, edges)), file=self._answers, flush=True)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Write down the time of a test, and the functions that it called."""
        self._calls.clear()
        self._comparisons.seen.clear()
        began = time.monotonic()
        result = yield
        took, compared = time.monotonic() - began, list(self._comparisons.seen.items())
        seen = (item.nodeid, took, sorted(self._calls), compared)
        with self._seen.open("a") as file:
            print(json.dumps(seen), file=file)
        return result

    @staticmethod
    def _called(request: dict[str, Any]) -> tuple[str, int]:
        """Return the module and the first line of the function that a request changes."""
        if "changed" not in request:
            return "", 0
        module, right = request["module"], request["right"].encode()
        return _path(module), first_line(module, right, request["line"])

    def _tests(self, session: pytest.Session, request: dict[str, Any]) -> Sequence[pytest.Item]:
        if "changed" not in request:
            return session.items
        callers = self._callers[self._called(request)]
        files: dict[str, float] = defaultdict(float)
        for test in callers:
            files[_file(test)] += self._seconds[test]

        def order(item: pytest.Item) -> tuple[object, ...]:
            test = item.nodeid
            killer = self._killers.index(test) if test in self._killers else len(self._killers)
            return killer, files[_file(test)], _file(test), self._seconds[test]

        return sorted((item for item in session.items if item.nodeid in callers), key=order)

    def _change(self, request: dict[str, Any]) -> None:
        """Put a mutant in place, or functions that say that they are called."""
        if "changed" not in request:
            setattr(builtins, RECORDER, lambda file, line: self._calls.add((file, line)))
            setattr(builtins, COMPARER, self._comparisons.compare)
            for module in self._modules:
                source = Path(module).read_bytes()
                recorded = recording(_path(module), source)
                put_in_place(_compiled(module, source), recorded, self._functions)
            return
        module, right, changed = request["module"], request["right"], request["changed"]
        new = _compiled(module, changed)
        if not put_in_place(_compiled(module, right), new, self._functions):
            os._exit(OTHER_WAY)

    def _watch(self, on: bool) -> None:
        """Note which functions of the modules are called, or stop that."""
        threading.settrace(self._note if on else None)
        sys.settrace(self._note if on else None)

    def _note(self, frame: FrameType, _event: str, _argument: object) -> None:
        if frame.f_code.co_filename in self._paths:
            self._calls.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    def _limit_s(self, tests: Sequence[pytest.Item]) -> float:
        return PATIENCE * sum(self._seconds[item.nodeid] for item in tests) + PATIENCE_S

    def _learn(self, request: dict[str, Any], code: int | None) -> None:
        seen = [json.loads(line) for line in self._seen.read_text().splitlines()]
        if "changed" not in request:
            for test, seconds, calls, compared in seen:
                self._seconds[test] = seconds
                for (file, start, end), kinds in compared:
                    self._compared[file, start, end] |= kinds
                for module, line in calls:
                    self._callers[module, line].add(test)
        elif code == pytest.ExitCode.TESTS_FAILED:
            killer = seen[-1][0]
            self._killers = [killer, *(test for test in self._killers if test != killer)]


def _load_compiler() -> None:
    """Load once what the tests of numerics load when they run.

    Compiled code is that of the right sources: a mutant in a module of kernels must not make all of
    it be compiled anew. The mutants' modules have no compiled functions of their own.
    """
    jit.cache_folder()
    with suppress(ImportError):
        import_module("numba")


def _path(module: str) -> str:
    """Return the full path of a module, as its code has it."""
    return str(Path(module).resolve())


def _compiled(module: str, source: str | bytes) -> CodeType:
    return compile(source, _path(module), "exec")


def _import(module: str) -> None:
    """Import a module by its path: tests may import it only when they run."""
    parts = Path(module).with_suffix("").parts
    import_module(".".join(parts[parts[0] in HOMES :]).removesuffix(".__init__"))


def _file(test: str) -> str:
    return test.partition("::")[0]


def _exit_code(child: int, limit_s: float | None) -> int | None:
    """Wait for a child; None where it had to be killed."""
    began = time.monotonic()
    while limit_s is None or time.monotonic() < began + limit_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(POLL_S)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main(seen: str, modules: str, tests: Sequence[str]) -> int:
    """Collect tests, then answer requests from the standard input on the standard output."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    return pytest.main(
        ["-x", "-q", "-o", "timeout=0", *tests],
        [Collected(requests, answers, Path(seen), modules.split(","))],
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
