"""The broker and the routes of hosts as an attacker sees them.

Wakes are recorded, repeated, reordered and invented, and a host with a token of its own tries what
belongs to others.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
import uuid
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import redis
from redis import Redis

from benchmarks.chaos.site import HOSTS, QUEUES, Site
from gonogo_workers.server import host_file

MAX_WAKES = 3000
TRIES, RETRY_S = 40, 0.5
FORGED_MS = 666.0
"""The duration in every forged row: no honest seed has it."""
_PUSHED = re.compile(rb'"lpush" "([a-z0-9._]+)" "([0-9a-f-]{36})"', re.IGNORECASE)


@dataclass(frozen=True)
class Wake:
    """The id of an attempt that went over the broker."""

    at: float
    queue: str
    attempt: str


class Recorder(threading.Thread):
    """Keeps the latest wakes of all queues, as somebody can who reads the broker."""

    def __init__(self, site: Site) -> None:
        super().__init__(name="recorder", daemon=True)
        self._site = site
        self._stop_event = threading.Event()
        self.wakes: deque[Wake] = deque(maxlen=MAX_WAKES)

    def run(self) -> None:
        """Read until `close`; connect again whenever the broker was away."""
        while not self._stop_event.is_set():
            with contextlib.suppress(redis.RedisError, OSError):
                self._listen()
            self._stop_event.wait(0.1)

    def close(self) -> None:
        """End the thread."""
        self._stop_event.set()
        self.join(5)

    def _listen(self) -> None:
        client = Redis.from_url(self._site.broker.url, socket_timeout=1)
        connection = client.connection_pool.get_connection()
        try:
            connection.send_command("MONITOR")  # type: ignore[no-untyped-call]
            connection.read_response()
            while not self._stop_event.is_set():
                try:
                    line = connection.read_response()
                except redis.TimeoutError:
                    return
                for name, attempt in _PUSHED.findall(bytes(line)):
                    wake = Wake(time.monotonic(), name.decode(), attempt.decode())
                    self.wakes.append(wake)
        finally:
            connection.disconnect()  # type: ignore[no-untyped-call]

    def some(self, chance: random.Random, count: int, *, older_than_s: float = 0.0) -> list[Wake]:
        """Return a random choice of wakes that are at least this old."""
        latest = time.monotonic() - older_than_s
        choice = [wake for wake in list(self.wakes) if wake.at <= latest]
        return chance.sample(choice, min(count, len(choice)))


def push(client: Redis, wakes: list[Wake]) -> None:
    """Put wakes on their queues again."""
    for wake in wakes:
        client.lpush(wake.queue, wake.attempt)


def attack(site: Site, recorder: Recorder, chance: random.Random) -> None:
    """Try what a host with a token may try against others; any success is a problem."""
    headers = {"Authorization": f"Bearer {site.hostile_token}"}
    attempts = dict.fromkeys(wake.attempt for wake in list(recorder.wakes)[-8:])
    with httpx.Client(
        base_url=f"{site.url}/api/v1", headers=headers, timeout=5, trust_env=False, verify=False
    ) as client:
        requests = [request for name in attempts for request in _against_attempt(name, chance)]
        requests += [request for victim in HOSTS for request in _against_host(victim)]
        for method, path, body in requests:
            with contextlib.suppress(httpx.TransportError):
                answer = client.request(method, path, json=body)
                if answer.is_success:
                    site.problems.append(f"{method} {path} of a hostile host was taken")
    for name in QUEUES:
        junk = bytes(chance.randrange(256) for _ in range(64))
        site.redis.lpush(name, junk, str(uuid.UUID(int=chance.getrandbits(128))), b"")


_Request = tuple[str, str, dict[str, Any]]


def shuffled(site: Site, chance: random.Random) -> None:
    """Claim an attempt as one of the hosts, and send each of its requests twice, in any order.

    Its rows are errors, as no kernel has run: seeds with numbers are looked up at the kernels.
    """
    attempt = site.redis.rpop(QUEUES[0])
    if not isinstance(attempt, bytes) or len(attempt) != len(str(uuid.UUID(int=0))):
        return
    path, host = f"/attempts/{attempt.decode()}", chance.choice([*HOSTS])
    place = {"worker": f"{host}/worker-0", "device": f"{host}/witness:0"}
    headers = {"Authorization": f"Bearer {host_file.load(site.folder / host).token}"}
    with (
        httpx.Client(base_url=f"{site.url}/api/v1", headers=headers, timeout=30) as client,
        ThreadPoolExecutor(3) as threads,
    ):
        claim = client.post(f"{path}:claim", json=place)
        if not claim.is_success:  # canceled, or another host has it
            return
        work = claim.json()["work"]
        requests: list[_Request] = [
            ("PUT", f"{path}/results/{number}", {"rows": [_lost(pair, place)], "artifacts": []})
            for number, pair in enumerate(work)
        ]
        end = {"outcome": "done", "sent": work, "log_tail": "", "error": None}
        requests.append(("POST", f"{path}:finish", {**end, "batches": len(work)}))
        requests *= 2
        chance.shuffle(requests)
        for problem in threads.map(lambda one: _insist(client, one), requests):
            site.problems += problem


def _lost(pair: list[int], place: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a seed that was lost."""
    row = {"seed": pair[0], "repeat": pair[1], "device": place["device"], "host_run": "shuffled"}
    row |= {"verdict": "error", "explanation": "not_judged", "outputs": {}, "position": 0}
    return row | {"duration_ms": None, "message": "sent twice, in any order"}


def _insist(client: httpx.Client, request: _Request) -> list[str]:
    """Send a request as a worker does; return what is wrong with the answer.

    409 and 410 come once the job is over or canceled.
    """
    method, path, body = request
    for _ in range(TRIES):
        with contextlib.suppress(httpx.TransportError):
            status = client.request(method, path, json=body).status_code
            if status < 500 and status != 429:
                good = status in (200, 409, 410)
                return [] if good else [f"{method} {path} was answered with {status}"]
        time.sleep(RETRY_S)
    return [f"{method} {path} was not taken in {TRIES} tries"]


def _against_attempt(attempt: str, chance: random.Random) -> list[_Request]:
    """Claim an attempt, store rows of it, and end it."""
    victim = chance.choice([*HOSTS])
    device = f"{victim}/witness:0"
    row = {
        "seed": 0,
        "repeat": 0,
        "verdict": "fail",
        "explanation": "unexplained",
        "device": device,
        "host_run": "forged",
        "position": 0,
        "duration_ms": FORGED_MS,
        "outputs": {},
        "message": "forged",
    }
    end = {"outcome": "done", "sent": [[0, 0]], "log_tail": "", "error": None, "batches": 1}
    return [
        ("POST", f"/attempts/{attempt}:claim", {"worker": f"{victim}/worker-1", "device": device}),
        ("PUT", f"/attempts/{attempt}/results/0", {"rows": [row], "artifacts": []}),
        ("POST", f"/attempts/{attempt}:finish", end),
    ]


def _against_host(victim: str) -> list[_Request]:
    """Call a device bad, and let it seem alive elsewhere."""
    device, worker = f"{victim}/witness:0", f"{victim}/worker-1"
    report = {"worker": worker, "device": device, "health": "bad", "reason": "forged"}
    beat: dict[str, Any] = {
        "worker": worker,
        "device": device,
        "attempt": None,
        "queues": [],
        "devices": [],
    }
    return [
        ("POST", "/hosts/self/health", {**report, "evidence": {}}),
        ("PUT", "/hosts/self", beat),
    ]
