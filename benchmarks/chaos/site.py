"""The place of a chaos run: a service in production's form, with several workers on two hosts.

Database and broker are private servers. The API's listening socket is this process's, as systemd
holds it in production: an API that is replaced refuses nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets as random_secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import redis
from sqlalchemy.exc import DBAPIError

import forked
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
from running_service import Process, answers, clean_environment, family, until
from servers import PostgresServer, RedisServer, administer
from webhook_receiver import Receiver

HOSTS = {"lab-1": 2, "lab-2": 1}
"""The workers of each host."""
HOSTILE = "mallory"
"""A host that has joined, with a token of its own, for queues of its own."""
QUEUES = ("witness.wormhole.n150", "emulator.wormhole.n150")
BACKGROUNDS = 2
LEASE_S = 4.0
SETTINGS = {
    "GONOGO_HEARTBEAT_S": "0.5",
    "GONOGO_HEARTBEAT_TIMEOUT_S": str(LEASE_S),
    "GONOGO_POLL_S": "0.5",
    "GONOGO_CHUNK_SECONDS": "4",
    "PYTHONFAULTHANDLER": "1",
}
"""Short leases: what takes half a minute in production takes 4 s here."""
PARTS = ("api", "background", "broker", "database", "receiver", "workers")
"""The parts of which a fault has some for itself while it lasts."""
_PR_SET_CHILD_SUBREAPER = 36


class Site:
    """Every process of the run, and the clients with which it is watched."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        # a server dies with the thread that started it: this one lives as long as the run
        self._starter = ThreadPoolExecutor(1, "servers")
        self.broker = RedisServer()
        self.postgres = PostgresServer() if database == "postgres" else None
        url = f"sqlite:///{folder / 'gonogo.sqlite'}"
        self.database_url = url if self.postgres is None else self.postgres.url("chaos")
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self._key = random_secrets.token_urlsafe(32)
        self.webhook_secret = secrets.new_secret()
        self.receivers = [Receiver()]
        """Receivers of webhooks, one after the other, at one address."""
        self.engine = make_engine(self.database_url, pool_size=5)
        self.redis = redis.Redis.from_url(self.broker.url, socket_timeout=5)
        self.locks = {part: threading.Lock() for part in PARTS}
        self.problems: list[str] = []
        """Trouble that no check at the end would see."""
        self.ended: Counter[str] = Counter()
        """Processes that ended by themselves, and were started again."""
        self.released_at = time.monotonic()
        """When the last fault was over."""
        common = clean_environment(**SETTINGS, GONOGO_BROKER_URL=self.broker.url)
        self.server_environment = common | {
            "GONOGO_DATABASE_URL": self.database_url,
            "GONOGO_SECRET_KEY": self._key,
            "GONOGO_VAR_DIR": str(folder / "var"),
            "GONOGO_WEBHOOK_PRIVATE": "127.0.0.0/8",
            "GONOGO_QUOTA_REQUESTS": "0",
            "GONOGO_QUOTA_DEVICE_S": "0",
        }
        api = Process(["serve"], self.server_environment, folder / "api.log", self.listener)
        backgrounds = [
            Process(["background"], self.server_environment, folder / f"background-{number}.log")
            for number in range(BACKGROUNDS)
        ]
        workers = []
        for host, number in ((host, n) for host, count in HOSTS.items() for n in range(count)):
            variables = {
                "GONOGO_VAR_DIR": str(folder / host),
                "GONOGO_EXECUTORS": "witness=benchmarks.chaos.witness:Witness",
                "GONOGO_CHILD_VARIABLES": "CHAOS_*",
                "CHAOS_WITNESS": str(self.witness(host)),
            }
            words, log = ["worker", "--executor", "witness,emulator"], f"{host}-{number}.log"
            workers.append(Process(words, common | variables, folder / log))
        self.children = {"api": [api], "background": backgrounds, "workers": workers}

    def witness(self, host: str) -> Path:
        """Return the file in which a host's kernels write down what they ran."""
        return self.folder / f"{host}.witness"

    def start(self) -> None:
        """Start everything, and wait until the service answers."""
        # whatever our children leave behind when they are killed becomes ours: nothing escapes
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.start_server(self.broker)
        if self.postgres is not None:
            self.start_server(self.postgres)
            administer(self.postgres.url(), "CREATE DATABASE chaos")
            # the tests' server commits without waiting for its disk: after a kill it would lose
            # what it has confirmed
            administer(self.postgres.url(), "ALTER DATABASE chaos SET synchronous_commit = on")
        schema.upgrade(self.engine)
        for host in HOSTS:
            Host(self.url, host, joined(self.engine, host, self._key)).save(self.folder / host)
        self.hostile_token = joined(self.engine, HOSTILE, self._key, ["mallory.*.*"])
        keys = Keys(self._key)
        with session(self.engine) as current:
            self.token = issue_token(current, "chaos", ["admin"], actor="chaos", keys=keys)
            webhooks.create(
                current,
                kind=WebhookKind.standard,
                url=self.receivers[0].url,
                events=["*"],
                description="chaos",
                secret=Box(keys).close(self.webhook_secret),
                actor="chaos",
            )
        for child in (child for children in self.children.values() for child in children):
            child.start()

        # an API that is ready before the first heartbeat knows no job of this executor
        def is_ready() -> bool:
            with reading(self.engine) as current:
                return answers(self.url) and "witness" in queue_estimate.executors(current)[1]

        until(is_ready, what="the service")

    def start_server(self, server: RedisServer | PostgresServer) -> None:
        """Start a database server or a broker; wait until it answers."""
        self._starter.submit(server.start).result()

    def client(self, token: str = "", timeout_s: float = 20.0) -> httpx.Client:
        """Return a client of the API; its token is an admin's where none is given."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        url = f"{self.url}/api/v1"
        return httpx.Client(
            base_url=url, headers=headers, timeout=timeout_s, trust_env=False, verify=False
        )

    @property
    def is_held(self) -> bool:
        """Return whether a fault is held now: a stall is its own, not the service's."""
        return any(lock.locked() for lock in self.locks.values())

    def restart_ended(self) -> None:
        """Start what has ended by itself, as systemd does; what a fault holds is left alone."""
        for part, children in self.children.items():
            if not self.locks[part].acquire(blocking=False):
                continue
            try:
                for child in children:
                    if not child.runs():
                        self.ended[child.log.stem] += 1
                        child.start()
            finally:
                self.locks[part].release()

    def stop_all(self) -> list[psutil.Process]:
        """Stop the service in order; return what then still runs."""
        for child in (one for part in reversed(self.children) for one in self.children[part]):
            child.stop()
        deadline = time.monotonic() + 5
        while (left := self._left_over()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _left_over(self) -> list[psutil.Process]:
        """Return what runs below this process, apart from the servers; reap what has ended."""
        known, left = set(forked.server_pids()), []
        for server in (self.broker, self.postgres):
            if server is not None and server.process is not None:
                known |= {process.pid for process in family(server.process.pid)}
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(process.pid, os.WNOHANG)
                elif process.pid not in known:
                    left.append(process)
        return left

    def close(self) -> None:
        """Kill what still runs, by id, and remove the servers."""
        self.receivers[-1].close()
        self.redis.close()
        self.engine.dispose()
        left = self._left_over()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=5)
        for server in (self.broker, self.postgres):
            if server is not None:
                self._starter.submit(server.close).result()
        self._starter.shutdown()
        self.listener.close()


class Repeated(threading.Thread):
    """Does one step after the other until it is closed; one that breaks is a problem of the run."""

    def __init__(self, site: Site, name: str, pause_s: float, step: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._site, self._pause_s, self._step = site, pause_s, step
        self.is_over = threading.Event()

    def run(self) -> None:
        """Repeat until `close`."""
        while not self.is_over.wait(self._pause_s):
            try:
                self._step()
            except (DBAPIError, httpx.TransportError, redis.RedisError, OSError):
                continue  # a fault has the service, the database or the broker
            except Exception as problem:
                self._site.problems.append(f"{self.name} broke: {problem!r:.300}")

    def close(self) -> None:
        """End the thread after its step."""
        self.is_over.set()
        self.join()
