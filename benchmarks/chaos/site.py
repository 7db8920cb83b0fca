"""The place of a chaos run: a service in production's form, with several workers on two hosts.

Database and broker are private servers. The API's listening socket is this process's, as systemd
holds it in production: an API that is replaced refuses nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets as random_secrets
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from running_service import answers, clean_environment, family, until
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
STOP_S = 15.0
"""A process that was told to stop is killed after this time, and the run fails."""
PARTS = ("api", "background", "broker", "database", "receiver", "workers")
"""The parts of which a fault has some for itself while it lasts."""
_PR_SET_CHILD_SUBREAPER = 36


class Child:
    """A gonogo command with a log, which can be killed, paused and started again.

    listener: handed over at each start, as systemd does.
    """

    def __init__(
        self,
        words: list[str],
        environment: Mapping[str, str],
        log: Path,
        listener: socket.socket | None = None,
    ) -> None:
        self._words, self._environment, self.log = words, environment, log
        self._listener = listener
        self.process: Any = None

    def start(self, ahead_s: float = 0.0) -> None:
        """Start it, in a session of its own; its wall clock is ahead by `ahead_s`."""
        self.process = forked.Forked(
            self._words, self._environment, self.log, listener=self._listener, ahead_s=ahead_s
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return int(self.process.pid)

    def kill(self) -> None:
        """Kill -9 the process alone: what it started is not told."""
        self.process.kill()
        self.process.wait(STOP_S)

    def runs(self) -> bool:
        """Return whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> int:
        """SIGTERM; return the exit code.

        One that doesn't end in time is aborted: its log then has the stack of each thread.
        """
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return int(self.process.wait(STOP_S))
        self.process.send_signal(signal.SIGABRT)
        return int(self.process.wait(STOP_S))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end of the block."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


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
        log = folder / "api.log"
        self.api = Child(["serve"], self.server_environment, log, self.listener)
        self.children: dict[str, list[Child]] = {"api": [self.api], "background": [], "workers": []}
        for number in range(BACKGROUNDS):
            log = folder / f"background-{number}.log"
            child = Child(["background"], self.server_environment, log)
            self.children["background"].append(child)
        for host, number in ((host, n) for host, count in HOSTS.items() for n in range(count)):
            variables = {
                "GONOGO_VAR_DIR": str(folder / host),
                "GONOGO_EXECUTORS": "witness=benchmarks.chaos.witness:Witness",
                "GONOGO_CHILD_VARIABLES": "CHAOS_*",
                "CHAOS_WITNESS": str(self.witness(host)),
            }
            words = ["worker", "--executor", "witness,emulator"]
            log = folder / f"{host}-{number}.log"
            self.children["workers"].append(Child(words, common | variables, log))

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
        for child in self._all():
            child.start()
        # an API that is ready before the first heartbeat knows no job of this executor
        until(lambda: answers(self.url) and self._serves_witness(), what="the service")

    def _all(self) -> Iterator[Child]:
        for children in self.children.values():
            yield from children

    def _serves_witness(self) -> bool:
        with reading(self.engine) as current:
            return "witness" in queue_estimate.executors(current)[1]

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

    def stop(self, child: Child) -> None:
        """Stop a process in order; one that doesn't end in time is a problem of the run."""
        if child.runs() and child.stop() == -signal.SIGABRT:
            self.problems.append(f"{child.log.stem} did not stop within {STOP_S:.0f} s")

    def restart_ended(self) -> None:
        """Start what has ended by itself, as systemd does; what a fault holds is left alone."""
        for part, children in self.children.items():
            if not self.locks[part].acquire(blocking=False):
                continue
            try:
                for child in children:
                    if child.process is not None and not child.runs():
                        lines = child.log.read_text(errors="replace").split("\n")
                        last = next((line for line in reversed(lines) if line.strip()), "")
                        self.ended[f"exit code {child.process.poll()}: {last[:120]}"] += 1
                        child.start()
            finally:
                self.locks[part].release()

    def stop_all(self) -> list[psutil.Process]:
        """Stop the service in order; return what then still runs."""
        for child in (*self.children["workers"], *self.children["background"], self.api):
            self.stop(child)
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
        for child in self._all():
            if child.runs():
                child.kill()
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
