"""Leases under a database clock that the test sets."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from gonogo_service.kit.database.engine import session
from gonogo_service.kit.outbox import leases

DUTY, OTHER = "scheduler", "retention"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The database's time, which the test may change."""
    now = [1000.0]
    monkeypatch.setattr(leases, "database_time", lambda _: now[0])
    return now


def test_a_lease_is_its_holder_s_through_its_last_moment(
    engine: Engine, clock: list[float]
) -> None:
    with session(engine) as current:
        assert leases.acquire(current, DUTY, "one", 10)
        assert not leases.acquire(current, DUTY, "two", 10)
        clock[0] += 5
        assert leases.acquire(current, DUTY, "one", 10)  # renewed
        clock[0] += 10
        assert leases.holders(current) == {DUTY: "one"}
        assert not leases.acquire(current, DUTY, "two", 10)
        clock[0] += 0.25
        assert leases.holders(current) == {}
        assert leases.acquire(current, DUTY, "two", 10)
        assert not leases.acquire(current, DUTY, "one", 10)


def test_a_release_ends_the_holder_s_own_leases_only(engine: Engine, clock: list[float]) -> None:
    with session(engine) as current:
        assert leases.acquire(current, DUTY, "one", 10)
        assert leases.acquire(current, OTHER, "two", 10)
        leases.release(current, "one")
        assert leases.holders(current) == {OTHER: "two"}
        assert leases.holders(current, "ret") == {OTHER: "two"}
        assert leases.holders(current, "sch") == {}


def test_leases_that_ended_a_day_ago_are_forgotten(engine: Engine, clock: list[float]) -> None:
    with session(engine) as current:
        for name, seconds in ((DUTY, 10.0), (OTHER, 11.0)):
            assert leases.acquire(current, name, "one", seconds)
        clock[0] += 10 + leases.FORGET_S + 1
        leases.forget(current)
        clock[0] = 1000.0
        assert leases.holders(current) == {OTHER: "one"}
