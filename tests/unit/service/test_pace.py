"""The pace of strangers: a rate that holds, few that wait, and nothing that waits for nobody."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

import event_loop
from gonogo_service.kit.problems import Problem
from gonogo_service.people import pace
from gonogo_service.people.pace import A_SECOND, AT_ONCE, WAITING, Pace

ALL = 800
STRANGER, OTHER = "192.0.2.1", "192.0.2.2"


def outcomes(parts: Pace, requests: int, now: float) -> list[float]:
    """Return the waits of the requests that are let through."""
    waits = []
    for _ in range(requests):
        with suppress(Problem):
            waits.append(parts.hit(STRANGER, now))
    return waits


def test_an_address_gets_so_many_requests_a_second_and_no_more() -> None:
    """However fast it sends: what is refused doesn't count, so the rate holds as well."""
    parts = Pace(ALL)
    assert max(outcomes(parts, AT_ONCE, 100.0)) <= 0
    waits = outcomes(parts, 1000, 100.0)
    assert waits == pytest.approx([number / A_SECOND for number in range(1, WAITING + 1)])
    through = sum(len(outcomes(parts, 5, 100.0 + step / 100)) for step in range(1, 1001))
    assert through == pytest.approx(10 * A_SECOND, abs=1)
    with pytest.raises(Problem) as refused:
        parts.hit(STRANGER, 100.0)
    assert refused.value.headers == {"Retry-After": "1", "Connection": "close"}
    assert parts.hit(OTHER, 100.0) < 0
    assert parts.hit(STRANGER, 110.0 + (AT_ONCE + WAITING) / A_SECOND) < 0


def test_those_who_wait_hold_a_part_of_the_connections_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind a proxy the connections are the proxy's: who has no place is refused at once."""
    monkeypatch.setattr(pace, "A_SECOND", 1e-6)
    monkeypatch.setattr(pace, "AT_ONCE", 1)
    parts = Pace(3 * pace.WAITING_SHARE)

    async def play() -> list[str]:
        tasks = []
        for number in range(5):
            client = f"192.0.2.{number}"
            parts.hit(client, time.monotonic())
            tasks.append(asyncio.create_task(parts.wait(client), name=client))
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in waiting:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(isinstance(task.exception(), Problem) for task in done)
        assert parts._waiting == 0
        return sorted(task.get_name() for task in done)

    assert event_loop.run(play()) == ["192.0.2.3", "192.0.2.4"]


def test_nobody_waits_for_a_client_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "A_SECOND", 1e-6)
    monkeypatch.setattr(pace, "AT_ONCE", 1)
    parts = Pace(ALL)

    async def play() -> None:
        gone = asyncio.Event()
        assert await parts.wait(STRANGER, gone) == 0.0
        waiting = asyncio.create_task(parts.wait(STRANGER, gone))
        await asyncio.sleep(0)
        assert parts._waiting == 1
        gone.set()
        assert await waiting > 0
        # it has had its turn: who doesn't wait is paced as well
        assert parts.is_spent(STRANGER)

    event_loop.run(play())


def test_the_pace_forgets_addresses_that_owe_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "FORGET_AT", 10)
    parts = Pace(ALL)
    for number in range(100):
        parts.hit(f"192.0.2.{number}", float(number))
    assert len(parts._free_at) <= 11
