"""Readiness: a probe of a busy process is answered by the last check that found it ready."""

from __future__ import annotations

import asyncio
import math
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


def test_a_check_that_takes_long_is_answered_by_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "SOON_S", 0.01)
    checks = Checks(None, None, OSError("gone"), OSError("still gone"))

    async def script(parts: Readiness) -> None:
        assert await parts.state() == READY
        checks.go.clear()
        assert [await parts.state() for _ in range(3)] == [READY] * 3
        assert len(checks.outcomes) == 3  # one check runs, however many probes come
        checks.go.set()
        while parts._running is not None and not parts._running.done():
            await asyncio.sleep(0)
        monkeypatch.setattr(readiness, "SOON_S", 10.0)
        for words in ("gone", "still gone"):
            with pytest.raises(OSError, match=words):
                await parts.state()

    play(checks, script)


def test_a_first_check_and_one_after_a_long_time_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "SOON_S", 0.0)
    monkeypatch.setattr(readiness, "KEPT_S", -1.0)
    monkeypatch.setattr(readiness, "FRESH_S", -1.0)
    checks = Checks(None, OSError("gone"))

    async def script(parts: Readiness) -> None:
        assert await parts.state() == READY
        with pytest.raises(OSError, match="gone"):
            await parts.state()

    play(checks, script)


def test_a_check_that_failed_ends_what_was_kept_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next probe checks again, and isn't told of the time before the failure."""
    monkeypatch.setattr(readiness, "SOON_S", 0.0)
    checks = Checks(None, OSError("gone"), OSError("still gone"))

    async def script(parts: Readiness) -> None:
        assert await parts.state() == READY
        checks.go.clear()
        assert await parts.state() == READY
        checks.go.set()
        assert parts._running is not None
        await asyncio.wait({parts._running})
        with pytest.raises(OSError, match="still gone"):
            await parts.state()

    play(checks, script)


def test_a_check_that_never_ends_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen part holds the only check, whatever was ready before."""
    monkeypatch.setattr(readiness, "SOON_S", 0.0)
    checks = Checks(None, None)

    async def script(parts: Readiness) -> None:
        assert await parts.state() == READY
        checks.go.clear()
        assert await parts.state() == READY
        monkeypatch.setattr(readiness, "PATIENCE_S", 0.0)
        for _ in range(2):
            with pytest.raises(Problem, match="did not answer within 0 s"):
                await asyncio.wait_for(parts.state(), 10)
        assert len(checks.outcomes) == 1  # no second thread waits beside the first

    play(checks, script)


def test_a_probe_of_a_busy_process_waits_for_no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "SOON_S", 60.0)
    checks = Checks(None, OSError("gone"), OSError("still gone"))

    async def script(parts: Readiness) -> None:
        assert await parts.state() == READY
        parts._took = math.inf
        checks.go.clear()
        assert await asyncio.wait_for(parts.state(), 10) == READY
        checks.go.set()
        assert parts._running is not None
        await asyncio.wait({parts._running})
        with pytest.raises(OSError, match="still gone"):
            await parts.state()

    play(checks, script)


def test_an_old_answer_is_none_for_a_busy_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "SOON_S", 60.0)
    monkeypatch.setattr(readiness, "FRESH_S", -1.0)
    checks = Checks(None, OSError("gone"))

    async def script(parts: Readiness) -> None:
        assert await parts.state() == READY
        parts._took = math.inf
        with pytest.raises(OSError, match="gone"):
            await parts.state()

    play(checks, script)


def test_a_busy_process_checks_by_itself_while_somebody_probes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So rare probes have a fresh answer, too; and what fails meanwhile ends what was kept."""
    monkeypatch.setattr(readiness, "SOON_S", -1.0)
    monkeypatch.setattr(readiness, "BUSY_S", 0.0)
    checks = Checks(None, None, OSError("gone"), OSError("still gone"), None)

    async def script(parts: Readiness) -> None:
        assert await parts.state() == READY
        while parts._ready is not None:
            await asyncio.sleep(0)
        assert len(checks.outcomes) == 2
        with pytest.raises(OSError, match="still gone"):
            await parts.state()
        monkeypatch.setattr(readiness, "UNPROBED_S", -1.0)
        parts._go_on()
        assert len(checks.outcomes) == 1

    play(checks, script)
