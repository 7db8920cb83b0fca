"""The table of faults. Each is a context: it holds inside, and everything runs again at its end."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sqlite3
import subprocess
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import psutil
import redis

from benchmarks.chaos.site import HOSTS, LEASE_S, QUEUES, Repeated, Site
from gonogo_service.kit.outbox import leases
from running_service import Process, family, gonogo
from webhook_receiver import Receiver, Reply

FORGED_MS = 666.0
"""The duration in every forged row: no honest seed has it."""
_PUSHED = re.compile(rb'"lpush" "([a-z0-9._]+)" "([0-9a-f-]{36})"', re.IGNORECASE)
_Request = tuple[str, str, dict[str, Any]]


class Recorder(Repeated):
    """Keeps the latest wakes of all queues, as somebody can who reads the broker."""

    def __init__(self, site: Site) -> None:
        super().__init__(site, "recorder", 0.1, self._listen)
        self.wakes: deque[tuple[float, str, str]] = deque(maxlen=3000)
        """The moment, the queue and the attempt of each."""

    def _listen(self) -> None:
        """Read until the broker is away, or silent for a second."""
        client = redis.Redis.from_url(self._site.broker.url, socket_timeout=1)
        connection = client.connection_pool.get_connection()
        try:
            connection.send_command("MONITOR")  # type: ignore[no-untyped-call]
            connection.read_response()
            while not self.is_over.is_set():
                for name, attempt in _PUSHED.findall(bytes(connection.read_response())):
                    self.wakes.append((time.monotonic(), name.decode(), attempt.decode()))
        finally:
            connection.disconnect()  # type: ignore[no-untyped-call]

    def send_again(self, chance: random.Random, older_than_s: float) -> None:
        """Put some wakes that are at least this old on their queues again, in any order."""
        latest = time.monotonic() - older_than_s
        known = [wake for wake in list(self.wakes) if wake[0] <= latest]
        for _, queue, attempt in chance.sample(known, min(60, len(known))):
            self._site.redis.lpush(queue, attempt)


@dataclass(frozen=True)
class Chaos:
    """The site and the wakes that a fault acts on; `scale` shortens the time that it holds."""

    site: Site
    recorder: Recorder
    chance: random.Random
    scale: float = 1.0

    def one(self, part: str) -> Process:
        """Return a process of a part at random."""
        return self.chance.choice(self.site.children[part])


Act = Callable[[Chaos, str], AbstractContextManager[None]]
"""A fault of a part, which is the first of the fault's parts."""


def once(do: Callable[[Chaos], object]) -> Act:
    """Return the fault that is over at once."""

    @contextmanager
    def act(chaos: Chaos, part: str) -> Iterator[None]:
        do(chaos)
        yield

    return act


@contextmanager
def killed(chaos: Chaos, part: str, *, everyone: bool = False) -> Iterator[None]:
    """Kill a process of a part with -9, or all of them at once: nobody takes over."""
    children = chaos.site.children[part] if everyone else [chaos.one(part)]
    for child in children:
        if child.runs():
            child.kill()
    yield
    for child in children:
        child.start()


@contextmanager
def paused(chaos: Chaos, part: str) -> Iterator[None]:
    """SIGSTOP a process, sometimes with its kernels; beyond its lease others have its work."""
    child = chaos.one(part)
    kernels = family(child.pid)[1:] if chaos.chance.random() < 0.5 else []
    with child.paused():
        _signal(kernels, signal.SIGSTOP)
        yield
        _signal(kernels, signal.SIGCONT)


@contextmanager
def stopped(chaos: Chaos, part: str) -> Iterator[None]:
    """Stop a process in order, and start it again."""
    child = chaos.one(part)
    child.stop()
    yield
    child.start()


@contextmanager
def replaced(chaos: Chaos, part: str) -> Iterator[None]:
    """Replace the processes of a part in order, one after the other."""
    for child in chaos.site.children[part]:
        child.stop()
        child.start()
        time.sleep(chaos.chance.uniform(0.5, 2) * chaos.scale)
    yield


@contextmanager
def skewed(chaos: Chaos, part: str, by_s: list[float]) -> Iterator[None]:
    """Start a process on a clock that is wrong by one of these; it works as the others do."""
    child = chaos.one(part)
    child.stop()
    child.start(chaos.chance.choice(by_s))
    yield


def kill_kernel(chaos: Chaos) -> None:
    """Kill a process that runs kernels with -9."""
    if kernels := family(chaos.one("workers").pid)[1:]:
        _signal([chaos.chance.choice(kernels)], signal.SIGKILL)


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


@contextmanager
def receiver_away(chaos: Chaos, part: str) -> Iterator[None]:
    """Let nobody listen where the webhooks go."""
    old = chaos.site.receivers[-1]
    old.close()
    yield
    receiver = Receiver(httpx.URL(old.url).port or 0)
    receiver.replies = [Reply(503)]  # so that a message comes twice
    chaos.site.receivers.append(receiver)


@contextmanager
def broker_away(chaos: Chaos, part: str, data: str) -> Iterator[None]:
    """Restart the broker "with" its data, "without" them, or with those from "before" its end."""
    broker = chaos.site.broker
    stored = broker.folder / "dump.rdb"
    stored.unlink(missing_ok=True)
    if data != "without":
        chaos.site.redis.save()
    if data == "before":
        time.sleep(chaos.chance.uniform(1, 6) * chaos.scale)
    broker.stop(signal.SIGINT if data == "with" else signal.SIGKILL)
    yield
    chaos.site.start_server(broker)
    stored.unlink(missing_ok=True)


@contextmanager
def broker_full(chaos: Chaos, part: str) -> Iterator[None]:
    """Leave the broker no memory: it refuses every message."""
    chaos.site.redis.config_set("maxmemory", "1")
    yield
    chaos.site.redis.config_set("maxmemory", "0")


def kill_database_process(chaos: Chaos) -> None:
    """Kill a process of PostgreSQL with -9: it drops every connection and recovers."""
    server: Any = chaos.site.postgres
    deadline = time.monotonic() + 30
    if victims := family(server.process.pid)[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chaos.chance.choice(victims).pid, signal.SIGKILL)
    while time.monotonic() < deadline:
        if server.process.poll() is not None:  # it has given up
            chaos.site.start_server(server)
        with contextlib.suppress(Exception), chaos.site.engine.connect():
            return
        time.sleep(0.1)


@contextmanager
def postgres_away(chaos: Chaos, part: str) -> Iterator[None]:
    """Stop PostgreSQL."""
    assert chaos.site.postgres is not None
    chaos.site.postgres.stop()
    yield
    chaos.site.start_server(chaos.site.postgres)


@contextmanager
def sqlite_locked(chaos: Chaos, part: str) -> Iterator[None]:
    """Hold SQLite's write lock from another program."""
    lock = sqlite3.connect(chaos.site.folder / "gonogo.sqlite", timeout=30, isolation_level=None)
    with contextlib.closing(lock):
        with contextlib.suppress(sqlite3.OperationalError):  # the service wrote without a gap
            lock.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def wakes_reordered(chaos: Chaos, part: str) -> Iterator[None]:
    """Keep what waits in the queues for a moment, and put it back in another order."""
    withheld = [(name, chaos.site.redis.rpop(name)) for name in QUEUES for _ in range(50)]
    yield
    chaos.chance.shuffle(withheld)
    for name, item in withheld:
        if isinstance(item, bytes):
            chaos.site.redis.lpush(name, item)


@contextmanager
def upgraded(chaos: Chaos, part: str) -> Iterator[None]:
    """Upgrade as operations.md says: migrate, then replace every process, while jobs run."""
    site, words = chaos.site, gonogo("db", "upgrade")
    done = subprocess.run(
        words, env=site.server_environment, capture_output=True, text=True, cwd=site.folder
    )
    if done.returncode:
        site.problems.append(f"gonogo db upgrade: {done.stderr.strip()[-300:]}")
    for name in site.children:
        with replaced(chaos, name):
            pass
    yield


def attack(chaos: Chaos) -> None:
    """Try what a host with a token may try against others; any success is a problem."""
    site, chance = chaos.site, chaos.chance
    attempts = dict.fromkeys(attempt for *_, attempt in list(chaos.recorder.wakes)[-8:])
    requests = [request for name in attempts for request in _against_attempt(name, chance)]
    requests += [request for victim in HOSTS for request in _against_host(victim)]
    with site.client(site.hostile_token, 5) as client:
        for method, path, body in requests:
            with contextlib.suppress(httpx.TransportError):
                if client.request(method, path, json=body).is_success:
                    site.problems.append(f"{method} {path} of a hostile host was taken")
    for name in QUEUES:
        site.redis.lpush(
            name, chance.randbytes(64), str(uuid.UUID(bytes=chance.randbytes(16))), b""
        )


def _against_attempt(attempt: str, chance: random.Random) -> list[_Request]:
    """Claim an attempt, store rows of it, and end it."""
    victim = chance.choice([*HOSTS])
    device = f"{victim}/witness:0"
    row = {"seed": 0, "repeat": 0, "device": device, "host_run": "forged", "position": 0}
    row |= {"verdict": "fail", "explanation": "unexplained", "outputs": {}, "message": "forged"}
    body = {"rows": [row | {"duration_ms": FORGED_MS}], "artifacts": []}
    end = {"outcome": "done", "sent": [[0, 0]], "log_tail": "", "error": None, "batches": 1}
    return [
        ("POST", f"/attempts/{attempt}:claim", {"worker": f"{victim}/worker-1", "device": device}),
        ("PUT", f"/attempts/{attempt}/results/0", body),
        ("POST", f"/attempts/{attempt}:finish", end),
    ]


def _against_host(victim: str) -> list[_Request]:
    """Call a device bad, and let it seem alive elsewhere."""
    place = {"worker": f"{victim}/worker-1", "device": f"{victim}/witness:0"}
    report = {**place, "health": "bad", "reason": "forged", "evidence": {}}
    beat: dict[str, Any] = {**place, "attempt": None, "queues": [], "devices": []}
    return [("POST", "/hosts/self/health", report), ("PUT", "/hosts/self", beat)]


@dataclass(frozen=True)
class Fault:
    """A kind of fault: it holds for a time between `seconds`, of which `scale` leaves the least.

    parts: those that no other fault may touch meanwhile.
    """

    act: Act
    parts: tuple[str, ...]
    seconds: tuple[float, float] = (0.0, 0.0)
    weight: float = 1.0
    databases: tuple[str, ...] = ("postgres", "sqlite")


POSTGRES, SQLITE = ("postgres",), ("sqlite",)
FAULTS = {
    "kill api": Fault(killed, ("api",), (0, 3)),
    "kill background": Fault(killed, ("background",), (0, 3), 2),
    "kill all backgrounds": Fault(partial(killed, everyone=True), ("background",), (1, 6)),
    "kill worker": Fault(killed, ("workers",), (0, 3), 2),
    "kill kernel": Fault(once(kill_kernel), ("workers",)),
    "kill database process": Fault(once(kill_database_process), ("database",), databases=POSTGRES),
    "stop receiver": Fault(receiver_away, ("receiver",), (0, 3)),
    "pause worker": Fault(paused, ("workers",), (1.2 * LEASE_S, 12), 2),
    "pause background": Fault(paused, ("background",), (1.2 * leases.LEASE_S, 16)),
    "pause api": Fault(paused, ("api",), (1, 5)),
    "stop api": Fault(stopped, ("api",), (5, 60), 0.5),
    "flush broker": Fault(once(lambda chaos: chaos.site.redis.flushall()), ("broker",)),
    "restart broker": Fault(partial(broker_away, data="with"), ("broker",), (0.5, 5)),
    "empty broker": Fault(partial(broker_away, data="without"), ("broker",), (0.5, 5)),
    "restore old broker": Fault(partial(broker_away, data="before"), ("broker",)),
    "fill broker": Fault(broker_full, ("broker",), (1, 5)),
    "stop postgres": Fault(postgres_away, ("database",), (2, 20), 0.7, POSTGRES),
    "lock database": Fault(sqlite_locked, ("database",), (1, 15), 0.7, SQLITE),
    "skew worker": Fault(partial(skewed, by_s=[-300, -20, 20, 300]), ("workers",)),
    "skew background": Fault(partial(skewed, by_s=[-1, 1]), ("background",), weight=0.7),
    "duplicate wakes": Fault(
        once(lambda chaos: chaos.recorder.send_again(chaos.chance, 0)), ("broker",), weight=2
    ),
    "old wakes": Fault(
        once(lambda chaos: chaos.recorder.send_again(chaos.chance, 10)), ("broker",)
    ),
    "reorder wakes": Fault(wakes_reordered, ("broker",), (0.5, 2)),
    "hostile host": Fault(once(attack), ("broker",), weight=2),
    "restart api": Fault(replaced, ("api",)),
    "restart workers": Fault(replaced, ("workers",)),
    "upgrade": Fault(upgraded, ("api", "background", "workers", "database"), weight=0.7),
}


def do(chaos: Chaos, fault: Fault) -> bool:
    """Do a fault when its parts are free; return whether it happened."""
    least, most = fault.seconds
    with contextlib.ExitStack() as stack:
        for part in sorted(fault.parts):
            stack.enter_context(chaos.site.locks[part])
        try:
            with fault.act(chaos, fault.parts[0]):
                time.sleep(least + chaos.chance.uniform(0, most - least) * chaos.scale)
        except redis.RedisError:  # the broker didn't take it: no such fault
            return False
        finally:
            chaos.site.released_at = time.monotonic()
    return True
