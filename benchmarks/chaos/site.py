"""The place of a chaos run: a service in production's form, with several workers on two hosts.

Database and broker are private servers. The API's listening socket is this process's, as systemd
holds it in production: an API that is replaced refuses nobody.
"""

from __future__ import annotations

import contextlib
import os
import secrets as random_secrets
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import redis
from sqlalchemy import Engine

from benchmarks.chaos import processes
from benchmarks.chaos.processes import Child, wait_until
from benchmarks.simulated import joined
from gonogo_service.jobs import queue_estimate
from gonogo_service.kit.database.engine import make_engine, reading, session
from gonogo_service.kit.database.states import WebhookKind
from gonogo_service.kit.principals import Keys
from gonogo_service.operate import schema
from gonogo_service.people.issuing import issue_token
from gonogo_service.webhooks import secrets
from gonogo_service.webhooks import store as webhooks
from gonogo_service.webhooks.secrets import Box
from gonogo_workers.server.host_file import Host
from running_service import clean_environment, gonogo
from servers import PostgresServer, RedisServer, administer

HOSTS = {"lab-1": 2, "lab-2": 1}
"""The workers of each host."""
HOSTILE = "mallory"
"""A host that has joined, with a token of its own, for queues of its own."""
QUEUES = ("witness.wormhole.n150", "emulator.wormhole.n150")
BACKGROUNDS = 2
LEASE_S = 4.0
QUICK = {
    "GONOGO_HEARTBEAT_S": "0.5",
    "GONOGO_HEARTBEAT_TIMEOUT_S": str(LEASE_S),
    "GONOGO_POLL_S": "0.2",
    "GONOGO_CHUNK_SECONDS": "2",
}
"""Short leases: what takes half a minute in production takes 4 s here."""
LIGHT = {"GONOGO_POLL_S": "0.5", "GONOGO_CHUNK_SECONDS": "4"}
"""The same for the tests: a background process of ten roles that look for work five times a second
takes a sixth of a processor, and each chunk a new process for its kernels."""
EXTRA_SEED_S = "0.4"
"""Seconds by which a slow seed takes longer in the tests: with a third of the seeds, a fault still
meets as many workers in the middle of a chunk."""
READY_S = 60.0
PARTS = ("api", "background", "broker", "database", "receiver", "workers")
"""The parts of which a fault has some for itself while it lasts."""

T = TypeVar("T")


class Site:
    """Every process of the run, and the clients with which it is watched."""

    def __init__(
        self, folder: Path, database: str, say: Callable[[str], None], *, is_forked: bool = False
    ) -> None:
        self.folder, self.say, self.is_light = folder, say, is_forked
        self.is_postgres = database == "postgres"
        # a server dies with the thread that started it: this one lives as long as the run
        self._starter = ThreadPoolExecutor(1, "servers")
        self.broker = RedisServer()
        self.postgres = PostgresServer() if self.is_postgres else None
        self.database_url = (
            f"sqlite:///{folder / 'gonogo.sqlite'}"
            if self.postgres is None
            else self.postgres.url("chaos")
        )
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.key, self.webhook_secret = random_secrets.token_urlsafe(32), secrets.new_secret()
        self.hostile_token = self.token = ""
        self.engine: Engine = make_engine(self.database_url, pool_size=5)
        self.redis = redis.Redis.from_url(self.broker.url, socket_timeout=5)
        self.locks = {part: threading.Lock() for part in PARTS}
        self.problems: list[str] = []
        """Trouble that no check at the end would see."""
        self.ended: Counter[str] = Counter()
        """Processes that ended by themselves, and were started again."""
        self._faults_held, self._fault_lock = 0, threading.Lock()
        self.released_at = time.monotonic()
        self._make_children(is_forked)

    def _make_children(self, is_forked: bool) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            receiver_port = int(probe.getsockname()[1])
        self.received = self.folder / "received"
        self.receiver_url = f"http://127.0.0.1:{receiver_port}/gonogo"
        common = clean_environment(
            **QUICK, GONOGO_BROKER_URL=self.broker.url, PYTHONFAULTHANDLER="1"
        )
        server = common | {
            "GONOGO_DATABASE_URL": self.database_url,
            "GONOGO_SECRET_KEY": self.key,
            "GONOGO_VAR_DIR": str(self.folder / "var"),
            "GONOGO_WEBHOOK_PRIVATE": "127.0.0.0/8",
            "GONOGO_QUOTA_REQUESTS": "0",
            "GONOGO_QUOTA_DEVICE_S": "0",
        }
        worker = common
        if is_forked:
            server |= LIGHT
            worker = common | {"CHAOS_EXTRA_SEED_S": EXTRA_SEED_S}
        self.server_environment = server
        self.api = Child(
            "api", gonogo("serve"), server, self.folder, self.listener, is_forked=is_forked
        )
        self.backgrounds = [
            Child(
                f"background-{number}",
                gonogo("background"),
                server,
                self.folder,
                is_forked=is_forked,
            )
            for number in range(BACKGROUNDS)
        ]
        self.workers = [
            Child(
                f"worker-{host}-{number}",
                gonogo("worker", "--executor", "witness,emulator"),
                worker
                | {
                    "GONOGO_VAR_DIR": str(self.folder / host),
                    "GONOGO_EXECUTORS": "witness=benchmarks.chaos.witness:Witness",
                    "GONOGO_CHILD_VARIABLES": "CHAOS_*",
                    "CHAOS_WITNESS": str(self.witness(host)),
                },
                self.folder,
                is_forked=is_forked,
            )
            for host, count in HOSTS.items()
            for number in range(count)
        ]
        self.receiver = Child(
            "receiver",
            [
                sys.executable,
                "-m",
                "benchmarks.chaos.receiver",
                str(receiver_port),
                str(self.received),
            ],
            common | {"CHAOS_SECRET": self.webhook_secret},
            self.folder,
        )
        self.children = [self.api, *self.backgrounds, *self.workers, self.receiver]

    def witness(self, host: str) -> Path:
        """Return the file in which a host's kernels write down what they ran."""
        return self.folder / f"{host}.witness"

    def start(self) -> None:
        """Start everything, and wait until the service answers."""
        processes.adopt_orphans()
        self.start_server(self.broker)
        if self.postgres is not None:
            self.start_server(self.postgres)
            administer(self.postgres.url(), "CREATE DATABASE chaos")
            # the tests' server commits without waiting for its disk: after a kill it would lose
            # what it has confirmed
            administer(self.postgres.url(), "ALTER DATABASE chaos SET synchronous_commit = on")
        schema.upgrade(self.engine)
        for host in HOSTS:
            token = joined(self.engine, host, self.key)
            Host(self.url, host, token).save(self.folder / host)
        self.hostile_token = joined(self.engine, HOSTILE, self.key, ["mallory.*.*"])
        self._make_token_and_webhook()
        self.received.touch()
        for child in self.children:
            child.start()
        self.wait_ready()
        # an API that is ready before the first heartbeat knows no job of this executor
        wait_until(self._serves_witness, READY_S, "a worker")

    def _serves_witness(self) -> bool:
        with reading(self.engine) as current:
            _, served = queue_estimate.executors(current)
        return "witness" in served

    def _make_token_and_webhook(self) -> None:
        keys = Keys(self.key)
        with session(self.engine) as current:
            self.token = issue_token(current, "chaos", ["admin"], actor="chaos", keys=keys)
            webhooks.create(
                current,
                kind=WebhookKind.standard,
                url=self.receiver_url,
                events=["*"],
                description="chaos",
                secret=Box(keys).close(self.webhook_secret),
                actor="chaos",
            )

    def start_server(self, server: RedisServer | PostgresServer) -> None:
        """Start a database server or a broker; wait until it answers."""
        self._starter.submit(server.start).result()

    def client(self) -> httpx.Client:
        """Return a client of the API with an admin's token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers=headers,
            timeout=20,
            trust_env=False,
            verify=False,
        )

    def wait_ready(self, seconds: float = READY_S) -> None:
        """Wait for /readyz. Raises TimeoutError."""

        def is_ready() -> bool:
            try:
                return client.get(f"{self.url}/readyz").is_success
            except httpx.TransportError:
                return False

        # without TLS's certificates, whose loading takes longer than an answer
        with httpx.Client(timeout=5, trust_env=False, verify=False) as client:
            wait_until(is_ready, seconds, f"the API ({self.api.log})")

    def writers(self) -> list[int]:
        """Return the processes that write the database's files."""
        if self.postgres is None:
            return [child.pid for child in (self.api, *self.backgrounds) if child.runs()]
        assert self.postgres.process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            return [process.pid for process in psutil.Process(self.postgres.process.pid).children()]
        return []

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Say that a fault is held: a stall now is the fault's, not the service's."""
        with self._fault_lock:
            self._faults_held += 1
        try:
            yield
        finally:
            with self._fault_lock:
                self._faults_held -= 1
                self.released_at = time.monotonic()

    @property
    def is_held(self) -> bool:
        """Return whether a fault is held now."""
        return self._faults_held > 0

    def stop(self, child: Child) -> None:
        """Stop a process in order; one that doesn't end in time is a problem of the run."""
        if child.runs() and not child.stop():
            self.problems.append(f"{child.name} did not stop within {processes.STOP_S:.0f} s")

    def restart_ended(self) -> None:
        """Start what has ended by itself, as systemd does; what a fault holds is left alone."""
        groups = {
            "api": [self.api],
            "background": self.backgrounds,
            "workers": self.workers,
            "receiver": [self.receiver],
        }
        for part, children in groups.items():
            if not self.locks[part].acquire(blocking=False):
                continue
            try:
                for child in children:
                    if child.process is not None and (code := child.process.poll()) is not None:
                        self.ended[f"exit code {code}: {child.last_words()}"] += 1
                        child.start()
            finally:
                self.locks[part].release()

    def close(self) -> None:
        """Kill what still runs, by id, and remove the servers."""
        for child in self.children:
            if child.runs():
                child.kill()
        self.redis.close()
        self.engine.dispose()
        for server in (self.broker, self.postgres):
            if server is not None:
                self._starter.submit(server.close).result()
        processes.end(processes.left_over([os.getpid()]))
        self._starter.shutdown()
        self.listener.close()


def pause(chance: Any, least: float, most: float) -> None:
    """Sleep for a random time."""
    time.sleep(chance.uniform(least, most))
