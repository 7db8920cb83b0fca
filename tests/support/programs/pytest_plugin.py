"""Somebody's pytest with our plug-in: in this process where that shows the same, else in one of its
own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from checkout import PYTHONPATH
from gonogo.public.recorded import Comparison
from gonogo.pytest_plugin import plugin as plug_in
from gonogo.pytest_plugin.collecting import Collector
from gonogo.pytest_plugin.records import Record
from patience import WAIT_S

OPTIONS = ("-q", "-p", "no:cacheprovider", "--tb=no")
Run = Callable[..., list[str]]
"""(folder, *options, status=1) -> the lines that pytest writes; `status` is what it must end
with."""


def environment() -> dict[str, str]:
    """Return the environment of a shell on no CI.

    Other installed plug-ins take a second to load and are left out.
    """
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GITHUB_", "CI_", "PYTEST_"))
    }
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**clean, **plain, "PYTHONPATH": PYTHONPATH}


def in_a_process(folder: Path, *options: str, status: int = 1) -> list[str]:
    """pytest in a process of its own: what it takes for pytest-xdist, and for a kill."""
    named = ("-m", "pytest", "-p", "gonogo.pytest_plugin.plugin")
    command = [sys.executable, *named, *OPTIONS, *options]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> Run:
    """pytest within the test that runs: it needs no second to start, and the kernels' compiled code
    is there already."""
    for name in set(os.environ) - set(environment()) - {"PYTEST_CURRENT_TEST"}:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(folder: Path, *options: str, status: int = 1) -> list[str]:
        monkeypatch.chdir(folder)
        outside = ("--capture=no", "-p", "no:faulthandler", "--import-mode=importlib")
        outside += (f"--rootdir={folder}",)
        known = set(sys.modules)
        written = io.StringIO()
        with redirect_stdout(written), warnings.catch_warnings():
            warnings.simplefilter("default")  # here they are errors
            ended = pytest.main([*OPTIONS, *outside, *options], plugins=[plug_in])
        for name in set(sys.modules) - known:  # other folders have modules of the same names
            if name.rpartition(".")[2].startswith("test_"):
                del sys.modules[name]
        assert ended == status, written.getvalue()
        return written.getvalue().splitlines()

    return run


def finished(folder: Path, to: str, **header: str) -> Collector:
    """A run with one test at its end."""
    about = {"format": "gonogo", "version": 1, "suite": "s", **header}
    collector = Collector(lambda: about, root=folder, to=to, requested=True)
    comparisons = [Comparison(outputs={"actual": {"max_abs": 1.0}})]
    collector._add(Record("t.py::test", "passed", seed=1, comparisons=comparisons))
    collector.pytest_sessionfinish()
    return collector
