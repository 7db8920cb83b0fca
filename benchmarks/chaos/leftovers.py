"""Checks that nothing is left after a chaos run: no message, no process, no lock."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time

import psutil  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy import text

from benchmarks.chaos import processes
from benchmarks.chaos.result import Result
from benchmarks.chaos.site import HOSTS, Site
from gonogo_service.kit.background_context import VISIBILITY_TIMEOUT_S
from gonogo_service.kit.database.engine import reading
from gonogo_service.kit.outbox import leases

EMPTY_S = 60.0
LATE_S = 30.0
"""A message of a killed process is delivered again this long after its time at the latest."""


def of_queues(site: Site, result: Result) -> None:
    """Nothing is left in the broker: no queue has a message, and none was forgotten."""
    names = ["background", "heartbeat", "witness.wormhole.n150", "emulator.wormhole.n150"]

    def left() -> dict[str, object]:
        counts = {name: int(site.redis.llen(name)) for name in names}
        messages = {**counts, "unacked": _forgotten(site)}
        return {name: value for name, value in messages.items() if value}

    deadline = time.monotonic() + EMPTY_S
    while (messages := left()) and time.monotonic() < deadline:
        time.sleep(0.2)
    if messages:
        result.wrong(f"the broker still has {messages}")


def _forgotten(site: Site) -> list[str]:
    """Return the messages of dead processes that nobody will deliver again, or should have."""
    # at one moment: heartbeats are delivered and acknowledged meanwhile
    with site.redis.pipeline(transaction=True) as pipe:
        pipe.zrange("unacked_index", 0, -1, withscores=True)
        pipe.hgetall("unacked")
        index, records = pipe.execute()
    delivered = {tag: float(at) for tag, at in index}
    now = time.time()
    forgotten = []
    for tag, record in records.items():
        age = now - delivered[tag] if tag in delivered else None
        if age is None or age > VISIBILITY_TIMEOUT_S + LATE_S:
            when = "at no time" if age is None else f"{age:.0f} s ago"
            forgotten.append(f"{bytes(record[:80]).decode('ascii', 'replace')}, delivered {when}")
    return forgotten


def of_processes(site: Site, result: Result) -> None:
    """Stop everything in order: nothing that was started runs on, and no lock is held."""
    for child in (*site.workers, *site.backgrounds, site.api, site.receiver):
        site.stop(child)
    servers = [
        server.process.pid for server in (site.broker, site.postgres) if server and server.process
    ]
    known = [*servers]
    for pid in servers:
        known += [process.pid for process in psutil.Process(pid).children(recursive=True)]
    left = processes.left_over(known)
    deadline = time.monotonic() + 5
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = processes.left_over(known)
    for process in left:
        result.wrong(f"process {process.pid} is left: {' '.join(process.cmdline())[:200]}")
    processes.end(left)
    _check_locks(site, result)


def _check_locks(site: Site, result: Result) -> None:
    for host in HOSTS:
        for path in (site.folder / host / "locks").glob("*"):
            if path.suffix not in (".lock", ".claim"):
                continue
            handle = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                result.wrong(f"{path.name} of {host} is still locked")
            finally:
                os.close(handle)
    with reading(site.engine) as current:
        if holders := leases.holders(current):
            result.wrong(f"leases are still held: {holders}")
        if site.is_postgres:
            query = text(
                "SELECT count(*) FROM pg_locks WHERE pid <> pg_backend_pid()"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            if count := current.scalar(query):
                result.wrong(f"{count} locks are left in PostgreSQL")
    if not site.is_postgres:
        lock = sqlite3.connect(site.folder / "gonogo.sqlite", timeout=1, isolation_level=None)
        try:
            lock.execute("BEGIN IMMEDIATE")
            lock.execute("ROLLBACK")
        except sqlite3.OperationalError as problem:
            result.wrong(f"the database is still locked: {problem}")
        finally:
            lock.close()
