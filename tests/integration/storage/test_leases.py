"""Leases under the database's clock, which most tests set."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from database_params import BOTH_ENGINES
from gonogo_service.kit.outbox import leases

DUTY, OTHER = "scheduler", "retention"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The database's time, which the test may change."""
    now = [1000.0]
    monkeypatch.setattr(leases, "database_time", lambda _: now[0])
    return now


@BOTH_ENGINES
def test_a_lease_has_one_holder_until_it_ends(current: Session) -> None:
    assert leases.acquire(current, DUTY, "one", 30)
    assert not leases.acquire(current, DUTY, "two", 30)
    assert leases.acquire(current, DUTY, "one", -1)
    assert leases.acquire(current, DUTY, "two", 30)
    assert leases.holders(current) == {DUTY: "two"}


@BOTH_ENGINES
def test_a_lease_is_its_holder_s_through_its_last_moment(
    current: Session, clock: list[float]
) -> None:
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


def test_a_release_ends_the_holder_s_own_leases_only(current: Session, clock: list[float]) -> None:
    assert leases.acquire(current, DUTY, "one", 10)
    assert leases.acquire(current, OTHER, "two", 10)
    leases.release(current, "one")
    holders = [leases.holders(current, *prefix) for prefix in ((), ("ret",), ("sch",))]
    assert holders == [{OTHER: "two"}, {OTHER: "two"}, {}]
    assert leases.acquire(current, DUTY, "two", 10)


def test_leases_that_ended_a_day_ago_are_forgotten(current: Session, clock: list[float]) -> None:
    for name, seconds in ((DUTY, 10.0), (OTHER, 11.0)):
        assert leases.acquire(current, name, "one", seconds)
    clock[0] += 10 + leases.FORGET_S + 1
    leases.forget(current)
    clock[0] = 1000.0
    assert leases.holders(current) == {OTHER: "one"}
