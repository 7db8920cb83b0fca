"""The sender of results keeps every message, in order, while the broker is away and through the end
of its process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from gonogo_workers.messages import result_sender
from gonogo_workers.messages.result_sender import ResultSender
from patience import WAIT_S

SIZE = 300 + 200


class Numbered:
    """Seals messages as their number, which fills 300 characters."""

    def seal(self, _task: str, body: Mapping[str, Any]) -> str:
        """Return the text."""
        return f"{body['number']:0300d}"


class Broker:
    """A broker that is up or away."""

    def __init__(self) -> None:
        self.up = False
        self.accepted: list[int] = []
        self.tries = 0
        self._changed = threading.Condition()

    def publish(self, _client: object, to: str, text: str) -> None:
        """Take a message, or refuse it."""
        assert to == "background"
        with self._changed:
            self.tries += 1
            self._changed.notify_all()
            if not self.up:
                raise redis.ConnectionError("away")
            self.accepted.append(int(text))

    def wait(self, true: Callable[[], bool]) -> None:
        """Wait until something is true after a try."""
        with self._changed:
            assert self._changed.wait_for(true, WAIT_S)


class Hasty(threading.Condition):
    """A condition that writes its pauses down. Those of a sender and of `post` are short."""

    pauses: list[float | None]
    missed: bool
    """Whether somebody waited to the end, and was not notified of a change."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait; for a moment only where `post` waits for room."""
        Hasty.pauses.append(timeout)
        notified = super().wait(0.001 if timeout == 1.0 else timeout)
        Hasty.missed |= timeout is not None and timeout > 1.0 and not notified
        return notified

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Look once."""
        Hasty.pauses.append(timeout)
        super().wait(0.001)
        return predicate()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker that is away, and senders that don't wait long for it."""
    broker = Broker()
    monkeypatch.setattr(result_sender.queue, "publish", broker.publish)
    Hasty.pauses, Hasty.missed = [], False
    hasty = SimpleNamespace(Condition=Hasty, Thread=threading.Thread)
    monkeypatch.setattr(result_sender, "threading", hasty)
    return broker


@pytest.fixture
def start(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., ResultSender]]:
    """Start a worker's sender, with room for three messages in memory and two on disk."""
    senders: list[ResultSender] = []

    def start(spool: str = "worker/spool") -> ResultSender:
        client, sealer, folder = cast("Any", None), cast("Any", Numbered()), tmp_path / spool
        room = {"memory_bytes": 3 * SIZE, "spool_bytes": 2 * SIZE}
        senders.append(ResultSender(client, sealer, folder, **room))
        assert senders[-1]._thread.daemon
        return senders[-1]

    yield start
    broker.up = True
    for sender in senders:
        sender.close(0)
        assert not sender._thread.is_alive()


def post(sender: ResultSender, *numbers: int) -> None:
    for number in numbers:
        sender.post("background", "task", {"number": number})


def test_the_pauses_double_and_each_outage_is_said_once(
    broker: Broker, start: Callable[..., ResultSender], caplog: pytest.LogCaptureFixture
) -> None:
    sender = start()
    for number in range(2):
        broker.up, broker.tries, Hasty.pauses[:] = False, 0, []
        post(sender, number)
        broker.wait(lambda: broker.tries > 8)
        pauses = [pause for pause in Hasty.pauses if pause is not None]
        assert pauses[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
        broker.up = True
        assert sender.flush(WAIT_S)
        assert broker.accepted == list(range(number + 1))
        assert caplog.text.count("does not accept messages") == number + 1
    assert not Hasty.missed


def test_messages_wait_in_order_in_memory_on_disk_and_with_whoever_posts_them(
    broker: Broker,
    start: Callable[..., ResultSender],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stands_still = SimpleNamespace(time_ns=lambda: 10**18, monotonic=time.monotonic)
    monkeypatch.setattr(result_sender, "time", stands_still)
    sender, spool = start(), tmp_path / "worker" / "spool"
    for begin in (0, 10):  # the second outage has as much room as the first one
        broker.up = False
        post(sender, *range(begin, begin + 3))
        assert not spool.exists() or not list(spool.iterdir())
        post(sender, begin + 3, begin + 4)
        assert len(list(spool.iterdir())) == 2
        Hasty.pauses.clear()
        last = threading.Thread(target=post, args=(sender, begin + 5))
        last.start()
        broker.wait(lambda: 1.0 in Hasty.pauses)
        assert last.is_alive()
        broker.up = True
        last.join(WAIT_S)
        assert sender.flush(WAIT_S)
        assert broker.accepted == [*range(begin, begin + 6)]
        assert list(spool.iterdir()) == []
        broker.accepted.clear()


def test_what_a_worker_could_not_send_is_sent_first_by_the_next(
    broker: Broker,
    start: Callable[..., ResultSender],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = start()
    post(first, *range(3))
    assert not first.flush(0)
    assert not first.flush(0.01)
    assert any(pause is not None and 0 < pause <= 0.01 for pause in Hasty.pauses)
    first.close(0)
    assert not first.flush(WAIT_S)  # nobody sends any more
    assert not Hasty.missed
    second = start()
    assert "sending 3 messages that an earlier worker left" in caplog.text
    second.hurry()
    post(second, 3, 4)  # the disk has room for one of them
    second.close(0)
    assert len(list((tmp_path / "worker" / "spool").iterdir())) == 5
    (tmp_path / "worker" / "spool" / "0.json").write_text("{")
    third = start()
    broker.up = True
    assert third.flush(WAIT_S)
    assert broker.accepted == [0, 1, 2, 3, 4]
    assert "is unreadable and was dropped" in caplog.text
    assert list((tmp_path / "worker" / "spool").iterdir()) == []
    post(third, 5)
    third.close(WAIT_S)
    assert broker.accepted[-1] == 5


def test_a_message_too_large_for_memory_waits_there_alone_and_without_a_disk_a_hurried_one_is_lost(
    broker: Broker, start: Callable[..., ResultSender], tmp_path: Path, caplog: Any
) -> None:
    (tmp_path / "file").write_text("")
    sender = start("file/spool")
    sender._memory_bytes = 0
    post(sender, 0)
    assert "can't write" not in caplog.text
    sender.hurry()
    post(sender, 1)
    sender.close(0)
    assert caplog.text.count(f"a message of {SIZE} bytes is lost") == 2
    assert caplog.text.count("can't write a message") == 3
