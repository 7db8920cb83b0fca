"""Checks that nothing is left after a chaos run: no message, no process, no lock."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time

import psutil
from sqlalchemy import text

from benchmarks.chaos import processes
from benchmarks.chaos.result import Result
from benchmarks.chaos.site import HOSTS, QUEUES, Site
from gonogo_service.kit.database.engine import reading
from gonogo_service.kit.outbox import leases

EMPTY_S = 60.0


def of_queues(site: Site, result: Result) -> None:
    """Nothing is left in the broker's queues."""

    def left() -> dict[str, int]:
        counts = {name: int(site.redis.llen(name)) for name in QUEUES}
        return {name: count for name, count in counts.items() if count}

    deadline = time.monotonic() + EMPTY_S
    while (messages := left()) and time.monotonic() < deadline:
        time.sleep(0.2)
    if messages:
        result.wrong(f"the broker still has {messages}")


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
