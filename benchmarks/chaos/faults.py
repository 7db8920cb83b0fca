"""The table of faults. Each leaves everything running again at its end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import redis

from benchmarks.chaos import post
from benchmarks.chaos.post import Recorder
from benchmarks.chaos.site import LEASE_S, QUEUES, Child, Site
from gonogo_service.kit.outbox import leases
from running_service import family, gonogo
from webhook_receiver import Receiver, Reply


@dataclass(frozen=True)
class Chaos:
    """The site and the wakes that a fault acts on; `scale` shortens the time that it holds."""

    site: Site
    recorder: Recorder
    chance: random.Random
    scale: float = 1.0

    def hold(self, least_s: float, most_s: float) -> None:
        """Sleep for a random time, while the fault is there."""
        time.sleep(self.chance.uniform(least_s, most_s) * self.scale)

    def one(self, part: str) -> Child:
        """Return a process of a part at random."""
        return self.chance.choice(self.site.children[part])


Act = Callable[[Chaos], None]


def kill(part: str, *, everyone: bool = False) -> Act:
    """Return what kills a process of a part with -9, or all of them at once."""

    def act(chaos: Chaos) -> None:
        children = chaos.site.children[part] if everyone else [chaos.one(part)]
        for child in children:
            if child.runs():
                child.kill()
        chaos.hold(0, 6 if everyone else 3)
        for child in children:
            child.start()

    return act


def kill_kernel(chaos: Chaos) -> None:
    """Kill a process that runs kernels with -9."""
    if kernels := family(chaos.one("workers").pid)[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            chaos.chance.choice(kernels).kill()


def stop_receiver(chaos: Chaos) -> None:
    """Let nobody listen where the webhooks go."""
    old = chaos.site.receivers[-1]
    old.close()
    chaos.hold(0, 3)
    receiver = Receiver(httpx.URL(old.url).port or 0)
    receiver.replies = [Reply(503)]  # so that a message comes twice
    chaos.site.receivers.append(receiver)


def pause(part: str, lease_s: float, most_s: float) -> Act:
    """Return what stops a process by SIGSTOP beyond a lease, sometimes with its kernels."""

    def act(chaos: Chaos) -> None:
        child = chaos.one(part)
        kernels = family(child.pid)[1:] if chaos.chance.random() < 0.5 else []
        with contextlib.ExitStack() as stack, child.paused():
            for kernel in kernels:
                with contextlib.suppress(psutil.NoSuchProcess):
                    kernel.suspend()
                    stack.callback(_resume, kernel)
            time.sleep(1.2 * lease_s)
            chaos.hold(0, most_s - lease_s)

    return act


def _resume(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.resume()


def stop_api(chaos: Chaos) -> None:
    """Leave the API away for a minute: workers keep what they have, and lose no attempt by it."""
    chaos.site.stop(chaos.site.api)
    chaos.hold(60, 60)
    chaos.site.api.start()


def flush_broker(chaos: Chaos) -> None:
    """Delete everything in the broker."""
    chaos.site.redis.flushall()


def restart_broker(how: str) -> Act:
    """Return what restarts the broker: with its data, without them, or with those of before."""

    def act(chaos: Chaos) -> None:
        broker = chaos.site.broker
        stored = broker.folder / "dump.rdb"
        stored.unlink(missing_ok=True)
        if how != "without":
            chaos.site.redis.save()
        if how == "before":
            chaos.hold(1, 6)
        broker.stop(signal.SIGINT if how == "with" else signal.SIGKILL)
        chaos.hold(0.5, 5)
        chaos.site.start_server(broker)
        stored.unlink(missing_ok=True)

    return act


def fill_broker(chaos: Chaos) -> None:
    """Leave the broker no memory: it refuses every message."""
    chaos.site.redis.config_set("maxmemory", "1")
    chaos.hold(1, 5)
    chaos.site.redis.config_set("maxmemory", "0")


def kill_database_process(chaos: Chaos) -> None:
    """Kill a process of PostgreSQL with -9: it drops every connection and recovers."""
    if victims := _writers(chaos.site):
        with contextlib.suppress(ProcessLookupError):
            os.kill(chaos.chance.choice(victims), signal.SIGKILL)
    _wait_database(chaos)


def stop_postgres(chaos: Chaos) -> None:
    """Stop PostgreSQL for 20 s."""
    assert chaos.site.postgres is not None
    chaos.site.postgres.stop()
    chaos.hold(20, 20)
    chaos.site.start_server(chaos.site.postgres)


def lock_database(chaos: Chaos) -> None:
    """Hold SQLite's write lock from another program."""
    lock = sqlite3.connect(chaos.site.folder / "gonogo.sqlite", timeout=30, isolation_level=None)
    # an OperationalError: the service wrote for 30 s without a gap
    with contextlib.closing(lock), contextlib.suppress(sqlite3.OperationalError):
        lock.execute("BEGIN IMMEDIATE")
        chaos.hold(5, 15)
        lock.execute("ROLLBACK")


def fill_database_disk(chaos: Chaos) -> None:
    """Leave the database no room for a write: SQLite answers so, PostgreSQL restarts itself."""
    with _no_room(_writers(chaos.site)):
        chaos.hold(2, 6)
    _wait_database(chaos)


def fill_worker_disk(chaos: Chaos) -> None:
    """Leave a worker no room, while the API answers nothing that it sends."""
    child = chaos.one("workers")
    with _no_room(process.pid for process in family(child.pid)):
        pause("api", 0, 5)(chaos)


def _writers(site: Site) -> list[int]:
    """Return the processes that write the database's files."""
    if site.postgres is None:
        return [c.pid for c in (site.api, *site.children["background"]) if c.runs()]
    assert site.postgres.process is not None
    return [process.pid for process in family(site.postgres.process.pid)[1:]]


@contextmanager
def _no_room(pids: Iterable[int]) -> Iterator[None]:
    """Let these processes write no file beyond a page, as on a full disk."""
    limited = list(pids)
    _limit(limited, "4096")
    try:
        yield
    finally:
        _limit(limited, "unlimited")


def _limit(pids: Iterable[int], most_bytes: str) -> None:
    """Set the largest file of processes; only their own user may, not even root for others."""
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            owner = os.stat(f"/proc/{pid}").st_uid
            words = ["prlimit", f"--pid={pid}", f"--fsize={most_bytes}:unlimited"]
            if owner == os.geteuid():
                subprocess.run(words, capture_output=True, check=False)
            else:
                user: dict[str, Any] = {"user": owner, "group": owner, "extra_groups": []}
                subprocess.run(words, capture_output=True, check=False, **user)


def _wait_database(chaos: Chaos) -> None:
    """Wait until the database takes connections; a PostgreSQL that has given up is started."""
    server, deadline = chaos.site.postgres, time.monotonic() + 30
    while server is not None and time.monotonic() < deadline:
        if server.process is None or server.process.poll() is not None:
            chaos.site.start_server(server)
        with contextlib.suppress(Exception), chaos.site.engine.connect():
            return
        time.sleep(0.1)


def skew(part: str, seconds: list[float]) -> Act:
    """Return what starts a process on a clock that is wrong by one of these."""

    def act(chaos: Chaos) -> None:
        child = chaos.one(part)
        chaos.site.stop(child)
        child.start(chaos.chance.choice(seconds))

    return act


def reorder_wakes(chaos: Chaos) -> None:
    """Take what waits in the queues, keep it for a moment, and put it back in another order."""
    withheld: list[tuple[str, bytes]] = []
    until = time.monotonic() + chaos.chance.uniform(0.5, 2) * chaos.scale
    while time.monotonic() < until:
        for name in QUEUES:
            item = chaos.site.redis.rpop(name)
            if isinstance(item, bytes):
                withheld.append((name, item))
        time.sleep(0.01)
    chaos.chance.shuffle(withheld)
    for name, item in withheld:
        chaos.site.redis.lpush(name, item)


def restart(part: str) -> Act:
    """Return what replaces the processes of a part in order, one after the other."""

    def act(chaos: Chaos) -> None:
        for child in chaos.site.children[part]:
            chaos.site.stop(child)
            child.start()
            chaos.hold(0.5, 2)

    return act


def upgrade(chaos: Chaos) -> None:
    """Upgrade as operations.md says: migrate, then replace every process, while jobs run."""
    site, words = chaos.site, gonogo("db", "upgrade")
    done = subprocess.run(
        words, env=site.server_environment, capture_output=True, text=True, cwd=site.folder
    )
    if done.returncode:
        site.problems.append(f"gonogo db upgrade: {done.stderr.strip()[-300:]}")
    for part in site.children:
        restart(part)(chaos)


@dataclass(frozen=True)
class Fault:
    """A kind of fault. `parts` are those that no other fault may touch meanwhile."""

    act: Act
    parts: tuple[str, ...]
    weight: float = 1.0
    databases: tuple[str, ...] = ("postgres", "sqlite")


POSTGRES, SQLITE = ("postgres",), ("sqlite",)
FAULTS = {
    "kill api": Fault(kill("api"), ("api",)),
    "kill background": Fault(kill("background"), ("background",), 2),
    "kill all backgrounds": Fault(kill("background", everyone=True), ("background",)),
    "kill worker": Fault(kill("workers"), ("workers",), 2),
    "kill kernel": Fault(kill_kernel, ("workers",)),
    "kill database process": Fault(kill_database_process, ("database",), 1, POSTGRES),
    "stop receiver": Fault(stop_receiver, ("receiver",)),
    "pause worker": Fault(pause("workers", LEASE_S, 12), ("workers",), 2),
    "pause background": Fault(pause("background", leases.LEASE_S, 16), ("background",)),
    "pause api": Fault(pause("api", 0, 5), ("api",)),
    "stop api": Fault(stop_api, ("api",), 0.5),
    "flush broker": Fault(flush_broker, ("broker",)),
    "restart broker": Fault(restart_broker("with"), ("broker",)),
    "empty broker": Fault(restart_broker("without"), ("broker",)),
    "restore old broker": Fault(restart_broker("before"), ("broker",)),
    "fill broker": Fault(fill_broker, ("broker",)),
    "stop postgres": Fault(stop_postgres, ("database",), 0.7, POSTGRES),
    "lock database": Fault(lock_database, ("database",), 0.7, SQLITE),
    "fill database disk": Fault(fill_database_disk, ("background", "api", "database"), 0.7),
    "fill worker disk": Fault(fill_worker_disk, ("api", "workers"), 0.7),
    "skew worker": Fault(skew("workers", [-300, -20, 20, 300]), ("workers",)),
    "skew background": Fault(skew("background", [-1, 1]), ("background",), 0.7),
    "duplicate wakes": Fault(lambda c: c.recorder.send_again(c.chance, 0), ("broker",), 2),
    "old wakes": Fault(lambda c: c.recorder.send_again(c.chance, 10), ("broker",)),
    "reorder wakes": Fault(reorder_wakes, ("broker",)),
    "hostile host": Fault(lambda c: post.attack(c.site, c.recorder, c.chance), ("broker",), 2),
    "restart api": Fault(restart("api"), ("api",)),
    "restart workers": Fault(restart("workers"), ("workers",)),
    "upgrade": Fault(upgrade, ("api", "background", "workers", "database"), 0.7),
}


def do(chaos: Chaos, fault: Fault) -> bool:
    """Do a fault when its parts are free; return whether it happened."""
    with contextlib.ExitStack() as stack:
        for part in sorted(fault.parts):
            stack.enter_context(chaos.site.locks[part])
        try:
            fault.act(chaos)
        except redis.RedisError:  # the broker didn't take it: no such fault
            return False
        finally:
            chaos.site.released_at = time.monotonic()
    return True
