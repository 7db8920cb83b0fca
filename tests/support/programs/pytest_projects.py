"""Small projects with pytest tests, and the pytest executor's reports of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from gonogo_workers.executors.registry import CHILD


class Project:
    """A folder with tests, and the builds file's table of suites for it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._monkeypatch = monkeypatch

    def write(self, **files: str) -> None:
        """Write modules: `test_a="..."` is test_a.py; `__` in a name is a folder."""
        for name, text in files.items():
            path = self.root / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))

    def executor(
        self, suites: Mapping[str, Any], command: tuple[str, ...] = (), **options: Any
    ) -> Any:
        """The executor as the kernel host makes it, in this process; its own runs of pytest are
        processes all the same."""
        table = {
            "name": "build",
            "command": command,
            "options": {"root": str(self.root), **options},
            "suites": suites,
        }
        self._monkeypatch.setenv("GONOGO_BUILD", json.dumps(table))
        if CHILD not in sys.path:
            self._monkeypatch.syspath_prepend(CHILD)
        from pytest_executor import PytestExecutor

        return PytestExecutor("build")

    @contextmanager
    def running(
        self, suites: Mapping[str, Any], command: tuple[str, ...] = (), **options: Any
    ) -> Iterator[Any]:
        executor = self.executor(suites, command, **options)
        try:
            yield executor
        finally:
            executor.close()

    def reports(
        self, selection: Mapping[str, Any], suite: Mapping[str, Any], **more: Any
    ) -> list[dict[str, Any]]:
        """The reports of one iteration of a suite named `all`."""
        with self.running({"all": suite}) as executor:
            results: list[dict[str, Any]] = executor.report(
                {"suite": "all", **selection}, **{"iteration": 0, **more}
            )
            return results


def outcomes(reports: list[dict[str, Any]]) -> dict[str, str]:
    return {report["name"]: report["outcome"] for report in reports}
