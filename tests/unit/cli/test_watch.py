"""Commands that submit and follow jobs: their seeds, a server that is away for a while, what was
decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest

from gonogo.cli.kit import waiting
from gonogo.cli.kit.client import Client
from gonogo.errors import FieldError, InfrastructureError
from gonogo_service.cli import suites
from gonogo_service.cli.jobs import decided
from gonogo_service.cli.submit import seeds_of


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

    def show(reply: dict[str, Any]) -> None:
        shown.append(reply["answer"])

    assert waiting.until(ask, lambda reply: reply["answer"] == 9, show) == {"answer": 9}
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
    transport = httpx.MockTransport(lambda _: next(answers))
    client._http = httpx.Client(base_url=client.url, transport=transport)
    assert list(client.follow("job")) == [("state", {"state": "finished"})]
    assert clock.now > 100.0 + 4 * 50.0


def test_a_run_that_waits_for_a_worker_says_so_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(state: str, *reasons: str | None) -> dict[str, Any]:
        counts = {
            "seeds": {"done": 0, "total": 2, "verdicts": {}},
            "jobs": {"ended": 0, "total": 2},
        }
        tests = [{"waiting_reason": reason} for reason in reasons]
        return {"state": state, "suite": {"name": "a"}, "tests": tests, **counts}

    nobody = "no live worker serves the queue q"
    answers = iter([record("running", nobody, None), record("running", nobody, nobody)])
    ended = record("finished", None, None)
    client = Client("http://127.0.0.1:1")
    monkeypatch.setattr(client, "call", lambda *_: next(answers, ended))
    assert suites.follow(client, "run") == ended
    assert capsys.readouterr().err.count(nobody) == 1


def test_seeds_are_a_number_or_sequential() -> None:
    assert seeds_of("64", 7) == {"start": 7, "count": 64}
    sequential = {"policy": "sequential", "max": 500, "start": 3, "stop_on_finding": True}
    assert seeds_of("sequential:500", 3) == sequential
    assert seeds_of("sequential:500", 3, keep_going=True)["stop_on_finding"] is False
    with pytest.raises(FieldError, match="others run all"):
        seeds_of("64", 0, keep_going=True)


@pytest.mark.parametrize(
    "text", ["0", "-1", "many", "sequential", "sequential:0", "bayes:5", "sequential:5:5", ":5", ""]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="such as 64 or sequential:500"):
        seeds_of(text, 0)


def test_the_command_says_what_was_decided_and_what_became_of_suspect_seeds() -> None:
    assert decided({"stop": None, "suspects": None}) == decided({}) == []
    job = {
        "stop": {"decision": "stable", "words": "stopped after 49"},
        "suspects": {"words": "8 seeds added: seed 3 is suspect"},
    }
    assert decided(job) == [
        "seeds: stable, stopped after 49",
        "suspect seeds: 8 seeds added: seed 3 is suspect",
    ]
