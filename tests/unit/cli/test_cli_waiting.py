"""A command that follows a job: it asks until the job ends, and outlives a server that is away for
a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest

from gonogo.cli.kit import waiting
from gonogo.cli.kit.client import Client
from gonogo.errors import InfrastructureError


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(waiting, "time", fake_clock)
    return fake_clock


def follow(answers: Iterable[int | None], clock: Clock, *, takes_s: float = 0.0) -> list[int]:
    """Return the answers that are shown; None is a server that is away, and 9 is the end."""
    coming, shown = iter(answers), []

    def ask() -> dict[str, Any]:
        clock.now += takes_s
        answer = next(coming)
        if answer is None:
            raise InfrastructureError("away")
        return {"answer": answer}

    last_reply = waiting.until(
        ask, lambda reply: reply["answer"] == 9, lambda reply: shown.append(reply["answer"])
    )
    assert last_reply == {"answer": 9}
    return shown


@pytest.mark.parametrize(
    ("takes_s", "pause_s"), [(0.0, waiting.POLL_S), (2.0, 2.0 * waiting.SHARE)]
)
def test_every_answer_is_shown_and_a_slow_server_is_asked_less_often(
    clock: Clock, takes_s: float, pause_s: float
) -> None:
    assert follow([1, 2, 9], clock, takes_s=takes_s) == [1, 2, 9]
    assert clock.slept == [pause_s] * 2


def test_a_server_that_is_away_is_waited_for_each_time_anew_and_not_for_ever(clock: Clock) -> None:
    most = int(waiting.PATIENCE_S)
    assert follow([*[None] * most, 1, *[None] * most, 9], clock) == [1, 9]
    with pytest.raises(InfrastructureError, match="away"):
        follow([None] * (most + 5), clock)
    assert sum(clock.slept) == pytest.approx(3 * most + 2, abs=2)


class Breaking(httpx.SyncByteStream):
    """A stream of events that is silent for fifty seconds, and breaks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __iter__(self) -> Iterator[bytes]:
        self._clock.now += 50.0
        raise httpx.ReadError("the server was restarted")
        yield b""


def test_a_server_that_answers_without_an_event_and_breaks_off_again_is_not_away(
    clock: Clock,
) -> None:
    ended = httpx.Response(200, content=b'id: 1\nevent: state\ndata: {"state": "finished"}\n\n')
    answers = iter([*(httpx.Response(200, stream=Breaking(clock)) for _ in range(4)), ended])
    client = Client("http://127.0.0.1:1")
    client._http = httpx.Client(
        base_url=client.url, transport=httpx.MockTransport(lambda _: next(answers))
    )
    assert list(client.follow("job")) == [("state", {"state": "finished"})]
    assert clock.now > 100.0 + 4 * 50.0
