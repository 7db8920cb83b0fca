"""Readiness: probes share one check, and what isn't ready is never kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

import event_loop
from gonogo_service.kit.problems import Problem
from gonogo_service.operate import readiness
from gonogo_service.operate.readiness import Readiness, Ready

READY = Ready("ok", "head", "ok")


class Checks:
    """Checks that take until `go` is set; one after the other raises its outcome."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.go = threading.Event()
        self.go.set()

    def __call__(self) -> Ready:
        self.go.wait()
        problem = self.outcomes.pop(0)
        if problem is not None:
            raise problem
        return READY


def play(checks: Checks, script: Callable[[Readiness], object]) -> None:
    async def run() -> None:
        try:
            await script(Readiness(checks))  # type: ignore[misc]
        finally:
            checks.go.set()

    event_loop.run(run())


def test_probes_share_a_check_and_what_it_found_for_a_second() -> None:
    checks = Checks(None, OSError("gone"))

    async def script(parts: Readiness) -> None:
        assert await asyncio.gather(*(parts.state() for _ in range(3))) == [READY] * 3
        assert await parts.state() == READY
        assert len(checks.outcomes) == 1

    play(checks, script)


def test_a_failure_is_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "KEPT_S", 0.0)
    checks = Checks(None, OSError("gone"), OSError("still gone"), None)

    async def script(parts: Readiness) -> None:
        assert await parts.state() == READY
        monkeypatch.setattr(readiness, "KEPT_S", 60.0)
        parts._ready = None
        for words in ("gone", "still gone"):
            with pytest.raises(OSError, match=words):
                await parts.state()
        assert await parts.state() == READY

    play(checks, script)


def test_a_check_that_never_ends_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen part holds the only check."""
    checks = Checks(None)

    async def script(parts: Readiness) -> None:
        checks.go.clear()
        monkeypatch.setattr(readiness, "PATIENCE_S", 0.0)
        for _ in range(2):
            with pytest.raises(Problem, match="did not answer within 0 s"):
                await asyncio.wait_for(parts.state(), 10)
        assert len(checks.outcomes) == 1  # no second thread waits beside the first

    play(checks, script)
