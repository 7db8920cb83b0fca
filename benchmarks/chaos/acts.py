"""Faults: a small function for each, which leaves everything running again at its end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import time
from dataclasses import dataclass

import psutil

from benchmarks.chaos import post, processes
from benchmarks.chaos.post import Recorder
from benchmarks.chaos.processes import Child
from benchmarks.chaos.site import LEASE_S, QUEUES, Site, pause
from gonogo_service.kit.outbox import leases
from running_service import gonogo
from servers import RedisServer

DUTY_S = leases.LEASE_S


@dataclass(frozen=True)
class Chaos:
    """The site and the wakes that a fault acts on; `scale` shortens the time that it holds."""

    site: Site
    recorder: Recorder
    chance: random.Random
    scale: float = 1.0

    def hold(self, least_s: float, most_s: float) -> None:
        """Sleep for a random time, while the fault is there."""
        pause(self.chance, least_s * self.scale, most_s * self.scale)

    def hold_beyond(self, lease_s: float, most_s: float) -> None:
        """Sleep for longer than a lease lasts."""
        least = 1.2 * lease_s
        pause(self.chance, least, least + (most_s - lease_s) * self.scale)


def _kill(chaos: Chaos, child: Child) -> None:
    if child.runs():
        child.kill()
    chaos.hold(0.0, 3.0)
    child.start()


def kill_api(chaos: Chaos) -> None:
    """Kill the API with -9."""
    _kill(chaos, chaos.site.api)


def kill_background(chaos: Chaos) -> None:
    """Kill one of the background processes with -9."""
    _kill(chaos, chaos.chance.choice(chaos.site.backgrounds))


def kill_all_backgrounds(chaos: Chaos) -> None:
    """Kill every background process with -9 at once: nobody takes over."""
    for child in chaos.site.backgrounds:
        child.kill()
    chaos.hold(1.0, 6.0)
    for child in chaos.site.backgrounds:
        child.start()


def kill_worker(chaos: Chaos) -> None:
    """Kill a worker with -9; its kernel's process has to notice."""
    _kill(chaos, chaos.chance.choice(chaos.site.workers))


def kill_kernel(chaos: Chaos) -> None:
    """Kill a process that runs kernels with -9."""
    kernels = chaos.chance.choice(chaos.site.workers).descendants()
    if kernels:
        with contextlib.suppress(psutil.NoSuchProcess):
            chaos.chance.choice(kernels).kill()


def kill_receiver(chaos: Chaos) -> None:
    """Kill the receiver of webhooks with -9."""
    _kill(chaos, chaos.site.receiver)


def kill_database_process(chaos: Chaos) -> None:
    """Kill a process of PostgreSQL with -9: it drops every connection and recovers."""
    victims = chaos.site.writers()
    if victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chaos.chance.choice(victims), signal.SIGKILL)
    _wait_database(chaos)


def pause_worker(chaos: Chaos) -> None:
    """SIGSTOP a worker beyond its lease, sometimes with its kernel: it comes back as a ghost."""
    child = chaos.chance.choice(chaos.site.workers)
    with contextlib.ExitStack() as stack:
        if chaos.chance.random() < 0.5:
            for kernel in child.descendants():
                with contextlib.suppress(psutil.NoSuchProcess):
                    kernel.suspend()
                    stack.callback(_resume, kernel)
        stack.enter_context(child.paused())
        chaos.hold_beyond(LEASE_S, 12.0)


def pause_background(chaos: Chaos) -> None:
    """SIGSTOP a background process beyond the leases of its duties."""
    with chaos.chance.choice(chaos.site.backgrounds).paused():
        chaos.hold_beyond(DUTY_S, 16.0)


def pause_api(chaos: Chaos) -> None:
    """SIGSTOP the API."""
    with chaos.site.api.paused():
        chaos.hold(1.0, 5.0)


def stop_api(chaos: Chaos) -> None:
    """Leave the API away for a minute: workers keep what they have, and lose no attempt by it."""
    chaos.site.stop(chaos.site.api)
    chaos.hold(60.0, 60.0)
    chaos.site.api.start()


def _resume(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.resume()


def flush_broker(chaos: Chaos) -> None:
    """Delete everything in the broker."""
    chaos.site.redis.flushall()


def restart_broker_with_data(chaos: Chaos) -> None:
    """Stop the broker in order: it saves its data and has them again."""
    chaos.site.redis.save()
    chaos.site.broker.stop()
    chaos.hold(0.5, 5.0)
    _start_broker(chaos, chaos.site.broker)


def restart_broker_without_data(chaos: Chaos) -> None:
    """Kill the broker with -9: its data are gone."""
    (chaos.site.broker.folder / "dump.rdb").unlink(missing_ok=True)
    chaos.site.broker.stop(signal.SIGKILL)
    chaos.hold(0.5, 5.0)
    _start_broker(chaos, chaos.site.broker)


def restore_old_broker(chaos: Chaos) -> None:
    """Kill the broker with -9, and start it with the data of some seconds ago."""
    chaos.site.redis.save()
    chaos.hold(1.0, 6.0)
    chaos.site.broker.stop(signal.SIGKILL)
    _start_broker(chaos, chaos.site.broker)


def _start_broker(chaos: Chaos, broker: RedisServer) -> None:
    chaos.site.start_server(broker)
    (broker.folder / "dump.rdb").unlink(missing_ok=True)


def fill_broker(chaos: Chaos) -> None:
    """Leave the broker no memory: it refuses every message."""
    chaos.site.redis.config_set("maxmemory", "1")
    chaos.hold(1.0, 5.0)
    chaos.site.redis.config_set("maxmemory", "0")


def stop_postgres(chaos: Chaos) -> None:
    """Stop PostgreSQL for 20 s."""
    assert chaos.site.postgres is not None
    chaos.site.postgres.stop()
    chaos.hold(20.0, 20.0)
    chaos.site.start_server(chaos.site.postgres)


def lock_database(chaos: Chaos) -> None:
    """Hold SQLite's write lock from another program."""
    lock = sqlite3.connect(chaos.site.folder / "gonogo.sqlite", timeout=30, isolation_level=None)
    try:
        lock.execute("BEGIN IMMEDIATE")
        chaos.hold(5.0, 15.0)
        lock.execute("ROLLBACK")
    except sqlite3.OperationalError:  # the service wrote for 30 s without a gap
        pass
    finally:
        lock.close()


def fill_database_disk(chaos: Chaos) -> None:
    """Leave the database no room for a write: SQLite answers so, PostgreSQL restarts itself."""
    with processes.no_room(chaos.site.writers()):
        chaos.hold(2.0, 6.0)
    _wait_database(chaos)


def fill_worker_disk(chaos: Chaos) -> None:
    """Leave a worker no room, while the API answers nothing that it sends."""
    child = chaos.chance.choice(chaos.site.workers)
    pids = [child.pid, *(process.pid for process in child.descendants())]
    with processes.no_room(pids):
        pause_api(chaos)


def _wait_database(chaos: Chaos) -> None:
    """Wait until the database takes connections; a PostgreSQL that has given up is started."""
    server = chaos.site.postgres
    if server is None:
        return
    assert server.process is not None
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            chaos.site.start_server(server)
        with contextlib.suppress(Exception), chaos.site.engine.connect():
            return
        time.sleep(0.1)


def skew_worker(chaos: Chaos) -> None:
    """Start a worker on a clock that is wrong, by minutes even: it works as the others do."""
    child = chaos.chance.choice(chaos.site.workers)
    chaos.site.stop(child)
    child.start(chaos.chance.choice([-300.0, -20.0, 20.0, 300.0]))


def skew_background(chaos: Chaos) -> None:
    """Start a background process on a clock that is a second ahead, or behind."""
    child = chaos.chance.choice(chaos.site.backgrounds)
    chaos.site.stop(child)
    child.start(chaos.chance.choice([-1.0, 1.0]))


def duplicate_wakes(chaos: Chaos) -> None:
    """Wake workers for recent attempts once more, in another order."""
    post.push(chaos.site.redis, chaos.recorder.some(chaos.chance, 60))


def old_wakes(chaos: Chaos) -> None:
    """Wake workers for attempts that were sent a while ago."""
    post.push(chaos.site.redis, chaos.recorder.some(chaos.chance, 60, older_than_s=10))


def reorder_wakes(chaos: Chaos) -> None:
    """Take what waits in the queues, keep it for a moment, and put it back in another order."""
    withheld: list[tuple[str, bytes]] = []
    until = time.monotonic() + chaos.chance.uniform(0.5, 2.0) * chaos.scale
    while time.monotonic() < until:
        for name in QUEUES:
            item = chaos.site.redis.rpop(name)
            if isinstance(item, bytes):
                withheld.append((name, item))
        time.sleep(0.01)
    chaos.chance.shuffle(withheld)
    for name, item in withheld:
        chaos.site.redis.lpush(name, item)


def shuffle_posts(chaos: Chaos) -> None:
    """Send every batch and the end of an attempt twice, at once and in any order."""
    post.shuffled(chaos.site, chaos.chance)


def hostile_host(chaos: Chaos) -> None:
    """Try what a host that has a token of its own may try against others."""
    post.attack(chaos.site, chaos.recorder, chaos.chance)


def restart_api(chaos: Chaos) -> None:
    """Replace the API in order: requests wait at its socket."""
    chaos.site.stop(chaos.site.api)
    chaos.site.api.start()


def restart_workers(chaos: Chaos) -> None:
    """Replace the workers in order, one after the other."""
    for child in chaos.site.workers:
        chaos.site.stop(child)
        child.start()
        chaos.hold(0.5, 2.0)


def upgrade(chaos: Chaos) -> None:
    """Upgrade as operations.md says: migrate, then replace every process, while jobs run."""
    done = subprocess.run(
        gonogo("db", "upgrade"),
        env=chaos.site.server_environment,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=chaos.site.folder,
    )
    if done.returncode:
        chaos.site.problems.append(f"gonogo db upgrade: {done.stderr.strip()[-300:]}")
    restart_api(chaos)
    for child in chaos.site.backgrounds:
        chaos.site.stop(child)
        child.start()
        chaos.hold(0.5, 1.5)
    restart_workers(chaos)
