"""Counts of a minute: exact with threads, bounded in memory, and without a thread of their own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gonogo.settings import Settings
from gonogo_service.kit import minute_counts
from gonogo_service.kit.minute_counts import MinuteCounts
from gonogo_service.people.failures import FailureLimits
from gonogo_service.people.quotas import RequestQuota


def test_a_key_has_so_many_in_a_minute_from_its_first_one() -> None:
    counts = MinuteCounts()
    assert [counts.hit(2, "a", now=100.0) for _ in range(3)] == [0.0, 0.0, 60.0]
    assert counts.hit(2, "b", now=100.0) == 0.0
    assert counts.hit(2, "a", now=159.0) == 1.0
    assert [counts.hit(2, "a", now=160.0) for _ in range(3)] == [0.0, 0.0, 60.0]


def test_counts_of_requests_and_failures_start_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests that failed at once started one timer twice, and one of them was a 500."""

    def refuse(*_parts: object) -> None:
        raise AssertionError("a timer for a count")

    monkeypatch.setattr(threading, "Timer", refuse)
    # neither reads the database here, so it gets no context
    failures, quota = FailureLimits(None), RequestQuota(Settings())  # type: ignore[arg-type]
    for _ in range(2):
        failures.rejected_signature("192.0.2.1")
        quota.hit("id", "name")


def test_threads_that_count_at_once_count_exactly() -> None:
    counts, start = MinuteCounts(), threading.Barrier(8)

    def play(_number: int) -> list[float]:
        start.wait()
        return [counts.hit(100, "a") for _ in range(500)]

    with ThreadPoolExecutor(8) as pool:
        waits = [wait for waits in pool.map(play, range(8)) for wait in waits]
    assert waits.count(0.0) == 100


def test_many_keys_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minute_counts, "MOST_KEYS", 3)
    counts = MinuteCounts()
    for number in range(10):
        counts.hit(1, str(number))
    assert [counts.hit(1, name) > 0 for name in ("9", "8", "7", "6")] == [True, True, True, False]
