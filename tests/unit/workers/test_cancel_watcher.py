"""The watcher of cancel keys: a cancel stops its own attempt, and no other."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from gonogo_workers import queue
from gonogo_workers.messages.cancel import CancelWatcher
from gonogo_workers.messages.sealing import Sealer
from patience import WAIT_S
from worker_process import IDENTITY, SERVICE_KEY

NEVER_S = 600.0


def order(attempt: str, key: queue.PrivateKey = SERVICE_KEY) -> bytes:
    return queue.seal(key, queue.CANCEL, {"attempt": attempt}).encode()


class Broker:
    """A broker with an answer for each key; it counts how often it was asked for an attempt's."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[], bytes]] = {}
        self.looks: Counter[str] = Counter()
        self.closed = False
        self._request = threading.Condition()

    def getrange(self, key: str, start: int, end: int) -> bytes:
        """Answer as Redis does."""
        attempt = key.removeprefix(queue.CANCEL_PREFIX)
        with self._request:
            self.looks[attempt] += 1
            self._request.notify_all()
        return self.answers.get(attempt, lambda: b"")()[start : end + 1]

    def wait(self, attempt: str, looks: int = 1) -> None:
        """Wait until it was asked for an attempt's key that often."""
        with self._request:
            assert self._request.wait_for(lambda: self.looks[attempt] >= looks, WAIT_S)

    def close(self) -> None:
        """Nobody asks any more."""
        self.closed = True


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """The broker that the watcher asks."""
    broker = Broker()
    monkeypatch.setattr(queue, "redis_client", lambda _url: broker)
    return broker


@pytest.fixture
def sealer(tmp_path: Path) -> Sealer:
    """The messages of an enrolled host."""
    IDENTITY.save(tmp_path)
    return Sealer(tmp_path)


@pytest.fixture
def watcher(broker: Broker, sealer: Sealer) -> Iterator[CancelWatcher]:
    """A watcher that looks all the time."""
    watcher = CancelWatcher("redis://unused", sealer, every_s=0.001)
    yield watcher
    watcher.close()


def test_a_late_cancel_does_not_reach_the_next_attempt_which_is_still_watched(
    broker: Broker, watcher: CancelWatcher
) -> None:
    proceed, second, stopped = threading.Event(), threading.Event(), []

    def late() -> bytes:
        assert proceed.wait(WAIT_S)
        return order("first")

    broker.answers = {"first": late, "second": lambda: order("second")}
    watcher.watch("first", lambda: stopped.append("first"))
    broker.wait("first")
    watcher.forget()
    watcher.watch("second", second.set)
    proceed.set()
    assert second.wait(WAIT_S)
    assert stopped == []


def away() -> bytes:
    raise redis.ConnectionError("no broker")


@pytest.mark.parametrize(
    ("answer", "warning"),
    [
        (lambda: b"", None),
        (away, None),
        (lambda: b"1", "the message isn't sealed"),
        (lambda: order("first", IDENTITY.key), "nobody that may send"),
        (lambda: order("second"), "it is for another attempt"),
    ],
    ids=["no request", "no broker", "not sealed", "of a host", "for another attempt"],
)
def test_only_a_request_of_the_service_cancels_and_another_is_named_once(
    broker: Broker,
    watcher: CancelWatcher,
    caplog: pytest.LogCaptureFixture,
    answer: Callable[[], bytes],
    warning: str | None,
) -> None:
    broker.answers["first"] = answer
    stopped: list[str] = []
    with caplog.at_level(logging.WARNING):
        watcher.watch("first", lambda: stopped.append("first"))
        broker.wait("first", looks=4)
    assert stopped == []
    words = [record.getMessage() for record in caplog.records]
    assert len(words) == (warning is not None)
    assert (warning or "") in "".join(words)


def test_a_new_attempt_is_request_at_at_once_and_the_end_waits_for_no_pause(
    broker: Broker, sealer: Sealer
) -> None:
    before = threading.enumerate()
    watcher = CancelWatcher("redis://unused", sealer, every_s=NEVER_S)
    (thread,) = [thread for thread in threading.enumerate() if thread not in before]
    assert thread.daemon
    names = [f"attempt {number}" for number in range(30)]
    for name in names:
        watcher.watch(name, lambda: None)
        broker.wait(name)
    watcher.close()
    assert broker.looks == dict.fromkeys(names, 1)
    assert broker.closed
    assert not thread.is_alive()
