"""Background processes come back: leases of the dead, and pauses."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import redis
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from background_thread import short
from gonogo.settings import Settings
from gonogo_service.background import roles
from gonogo_service.background.roles import Duties, Role
from gonogo_service.kit import background_context
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_service.kit.database.engine import session
from gonogo_service.kit.outbox import leases
from gonogo_workers import queue

ALIVE, DEAD = os.getpid(), 2**22 + 1
"""Processes; no process has an id as large as the second."""
DUTY = "dispatcher"
SERVER_GONE = OperationalError("SELECT 1", {}, Exception("the server\nclosed the connection"))


class Steps(threading.Event):
    """A stop event that writes down for how long somebody waits, and is set after so many waits."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self.left, self.waits = waits, list[float | None]()

    def wait(self, timeout: float | None = None) -> bool:
        """Go on at once."""
        self.waits.append(timeout)
        self.left -= 1
        if self.left < 0:
            self.set()
        return self.is_set()


class Script:
    """A duty that does one thing after the other: raise an error, or return."""

    def __init__(self, *steps: BaseException | None) -> None:
        self.steps = list(steps)
        self.calls = 0

    def __call__(self, *_: object) -> int:
        """Do the next thing."""
        self.calls += 1
        step = self.steps.pop(0) if self.steps else None
        if step is not None:
            raise step
        return self.calls


@pytest.fixture
def context(migrated_sqlite_url: str, redis_url: str) -> Iterator[BackgroundContext]:
    """A background process that runs none of its parts."""
    context = open_background_context(short(migrated_sqlite_url, redis_url), threading.Event())
    yield context
    context.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The monotonic clock, which the test sets."""
    clock = SimpleNamespace(now=5.0)
    clock.monotonic = lambda: clock.now
    for module in (roles, background_context):
        monkeypatch.setattr(module, "time", clock)
    return clock


def holder(context: BackgroundContext, process: int, host: str | None = None) -> str:
    own_host, _, _ = context.holder.split("/")
    return f"{host or own_host}/{process}/another"


def lease(context: BackgroundContext, name: str, of: str) -> None:
    assert context.session(lambda session: leases.acquire(session, name, of, 60))


@pytest.mark.parametrize(
    ("process", "host", "is_dead"),
    [(DEAD, None, True), (ALIVE, None, False), (DEAD, "elsewhere", False)],
    ids=["dead here", "alive here", "dead elsewhere"],
)
def test_a_dead_process_of_this_host_loses_its_leases_at_once(
    context: BackgroundContext, process: int, host: str | None, is_dead: bool
) -> None:
    duties = Duties(context)
    assert duties.hold("free")
    other = holder(context, process, host)
    for name in (DUTY, "reaper"):
        lease(context, name, other)
    assert duties.hold(DUTY) == is_dead
    assert duties.hold("free")
    left = {} if is_dead else {"reaper": other}
    holders = {"free": context.holder, DUTY: context.holder if is_dead else other, **left}
    assert context.reading(leases.holders) == holders


def test_a_process_of_another_user_is_alive(
    context: BackgroundContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[tuple[int, int]] = []

    def kill(process: int, signal: int) -> None:
        signals.append((process, signal))
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    assert not roles.is_dead(holder(context, DEAD), context.holder)
    assert signals == [(DEAD, 0)]  # a signal that does nothing


def test_a_role_pauses_longer_after_each_failure_and_forgets_what_it_saw(
    context: BackgroundContext,
) -> None:
    bug, away = ValueError("a bug"), redis.ConnectionError("away\nagain")
    work = Script(bug, away, bug, away, bug, away, bug, away, None, None, SERVER_GONE)
    lost, stop = Script(), Steps(12)
    role = Role(replace(context, stop=stop), DUTY, work, every_s=7.0, lost=lost)
    with capture_logs() as logs:
        role.run()
    assert stop.waits == [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 7, 0, 7, 0]
    assert (work.calls, lost.calls) == (10, 8)
    assert [log["log_level"] for log in logs] == ["error", "warning"] * 4
    assert logs[1]["error"] == "away"
    assert role.daemon


def test_a_role_waits_as_its_settings_or_its_pause_say(context: BackgroundContext) -> None:
    for pause, waits in ((None, [0, context.settings.poll_s, 0]), (Script(), [0, 0, 0])):
        stop = Steps(2)
        Role(replace(context, stop=stop), DUTY, Script(), pause=pause).run()
        assert stop.waits == waits
        assert pause is None or pause.calls == 2
    lease(context, "held", holder(context, ALIVE))
    stop, work, lost = Steps(2), Script(), Script()
    with session(context.engine) as current:
        current.connection()  # on SQLite nobody else can write meanwhile
        Role(replace(context, stop=stop), "held", work, lost=lost).run()
    assert stop.waits == [0, context.settings.poll_s, context.settings.poll_s]
    assert (work.calls, lost.calls) == (0, 2)
    lease(context, "left", holder(context, DEAD))
    work = Script()
    Role(replace(context, stop=Steps(1)), "left", work).run()
    assert work.calls == 1


def test_a_lease_is_renewed_every_three_seconds_and_after_a_failure(
    context: BackgroundContext, clock: SimpleNamespace
) -> None:
    duties = Duties(context)

    def is_renewed(second: float) -> bool:
        context.session(lambda session: leases.release(session, context.holder))
        clock.now = second
        assert duties.hold(DUTY)
        return DUTY in context.reading(leases.holders)

    assert [is_renewed(second) for second in (5.0, 7.9, 8.0, 8.5)] == [True, False, True, False]
    duties.forget()
    assert is_renewed(8.6)


def test_a_process_starts_without_its_broker(migrated_sqlite_url: str) -> None:
    settings = short(migrated_sqlite_url, "redis://127.0.0.1:1/0")
    context = open_background_context(settings, threading.Event())
    with capture_logs() as logs:
        context.notify()
    context.close()
    assert [log["log_level"] for log in logs] == ["warning"]


def test_what_is_due_is_handled_until_something_stops_it(
    context: BackgroundContext, clock: SimpleNamespace
) -> None:
    postponed: list[tuple[str, str]] = []

    def handle(key: str) -> bool:
        clock.now += 1
        if key == "bad":
            raise ValueError("a bug")
        return key != "nothing"

    def postpone(_: object, key: str, error: str) -> None:
        postponed.append((key, error))

    with capture_logs() as logs:
        keys = ["a", "bad", "nothing", "b"]
        assert context.handle_each("delivery", keys, handle, postpone) == 2
        assert postponed == [("bad", "ValueError: a bug")]
        assert context.handle_each("delivery", ["bad", "a"], handle) == 1
    assert [log["id"] for log in logs] == ["bad", "bad"]
    assert context.handle_each("delivery", "abcde", handle, max_s=2) == 3
    with pytest.raises(OperationalError):
        context.handle_each("delivery", ["a"], Script(SERVER_GONE))
    context.stop.set()
    assert context.handle_each("delivery", ["a"], handle) == 0


def test_one_notification_waits(context: BackgroundContext) -> None:
    for _ in range(3):
        context.notify()
    assert context.redis.llen(queue.DISPATCH_NOTIFICATION_KEY) == 1


@pytest.mark.parametrize("missing", ["database_url", "broker_url", "secret_key"])
def test_a_missing_setting_is_named(missing: str) -> None:
    settings: Settings = short("sqlite:///x", "redis://x").model_copy(update={missing: None})
    with pytest.raises(ValueError, match=f"^gonogo background needs GONOGO_{missing.upper()}$"):
        open_background_context(settings, threading.Event())
