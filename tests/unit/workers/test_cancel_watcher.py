"""The watcher of cancel keys: a cancel stops its own attempt, and no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gonogo_workers import queue
from gonogo_workers.messages.cancel import CancelWatcher
from gonogo_workers.messages.sealing import Sealer
from worker_process import IDENTITY, SERVICE_KEY

PATIENCE_S = 10.0


class SlowBroker:
    """A broker whose answer about the first attempt waits until the test lets it go."""

    def __init__(self) -> None:
        self.request, self.answer = threading.Event(), threading.Event()

    def getrange(self, key: str, start: int, end: int) -> bytes:
        """Return the service's request: every attempt is canceled."""
        first = key == queue.cancel_key("first")
        if first:
            self.request.set()
            assert self.answer.wait(PATIENCE_S)
        body = {"attempt": "first" if first else "second"}
        return queue.seal(SERVICE_KEY, queue.CANCEL, body).encode()[start : end + 1]

    def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowBroker]:
    """The broker that the watcher asks."""
    slow = SlowBroker()
    monkeypatch.setattr(queue, "redis_client", lambda _url: slow)
    yield slow
    slow.answer.set()


def test_a_late_cancel_does_not_reach_the_next_attempt_which_is_still_watched(
    broker: SlowBroker, tmp_path: Path
) -> None:
    IDENTITY.save(tmp_path)
    watcher = CancelWatcher("redis://unused", Sealer(tmp_path), every_s=0.01)
    stopped: list[str] = []
    second = threading.Event()
    watcher.watch("first", lambda: stopped.append("first"))
    assert broker.request.wait(PATIENCE_S)
    watcher.forget()
    watcher.watch("second", second.set)
    broker.answer.set()
    assert second.wait(PATIENCE_S)
    assert stopped == []
    watcher.close()
