"""Selections that a command runs without a server."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gonogo.spec.selections import Selection
from gonogo_workers.executors.base import KernelCrash
from gonogo_workers.local import reports
from gonogo_workers.local.child import Patience


class Dead:
    """A kernel host whose process ends as soon as it gets a request."""

    host_run = "the-run"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, _: Any) -> None:
        raise KernelCrash("it ended")

    def kill(self) -> None:
        """Do nothing: there is no process."""


def test_a_crash_says_how_many_milliseconds_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarters = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(quarters) * 0.25, monotonic=time.monotonic)
    monkeypatch.setattr(reports, "time", clock)
    monkeypatch.setattr(reports.LocalReporter, "_open", lambda _: Dead(tmp_path))
    build: Any = SimpleNamespace(executor=SimpleNamespace(name="gtest"))
    local = reports.LocalReporter(build, "mine", patience=Patience(9.0))
    row = local.run(Selection.parse({"selection": {}}), 0)
    assert (row["verdict"], row["duration_ms"]) == ("crash", 250.0)
