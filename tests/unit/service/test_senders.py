"""Senders: their networks, the proxies that are believed, and what each of them did in a minute."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from uvicorn.middleware.proxy_headers import _TrustedHosts

from gonogo_service.kit import minute_counts
from gonogo_service.kit.minute_counts import MinuteCounts
from gonogo_service.kit.networks import network_of, of_proxies

PROXIES = ("127.0.0.1", "172.18.0.0/16", "fd00::/8")


@pytest.mark.parametrize(
    ("client", "is_proxy"),
    [
        *((client, True) for client in ("127.0.0.1", "::ffff:127.0.0.1", "::ffff:172.18.3.4")),
        *((client, True) for client in ("172.18.3.4", "fd00::7")),
        *((client, False) for client in ("127.0.0.2", "172.19.0.1", "2001:db8::1", "unknown", "")),
    ],
)
def test_the_headers_of_named_proxies_are_believed_and_nobody_elses(
    client: str, is_proxy: bool
) -> None:
    assert (client in _TrustedHosts(of_proxies(PROXIES))) == is_proxy


def test_what_is_no_address_counts_as_one_sender() -> None:
    assert {network_of(""), network_of("a socket")} == {"unknown"}


def test_a_key_has_so_many_in_a_minute_from_its_first_one() -> None:
    counts = MinuteCounts()
    assert [counts.hit(2, "a", now=100.0) for _ in range(3)] == [0.0, 0.0, 60.0]
    assert counts.hit(2, "b", now=100.0) == 0.0
    assert counts.hit(2, "a", now=159.0) == 1.0
    assert [counts.hit(2, "a", now=160.0) for _ in range(3)] == [0.0, 0.0, 60.0]


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
