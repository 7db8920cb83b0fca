"""The broker and the routes of hosts as an attacker sees them.

Wakes are recorded, repeated, reordered and invented, and a host with a token of its own tries what
belongs to others.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
import uuid
from collections import deque
from typing import Any

import httpx
import redis

from benchmarks.chaos.site import HOSTS, QUEUES, Repeated, Site

MAX_WAKES = 3000
FORGED_MS = 666.0
"""The duration in every forged row: no honest seed has it."""
_PUSHED = re.compile(rb'"lpush" "([a-z0-9._]+)" "([0-9a-f-]{36})"', re.IGNORECASE)
_Request = tuple[str, str, dict[str, Any]]


class Recorder(Repeated):
    """Keeps the latest wakes of all queues, as somebody can who reads the broker."""

    def __init__(self, site: Site) -> None:
        super().__init__(site, "recorder", 0.1, self._listen)
        self.wakes: deque[tuple[float, str, str]] = deque(maxlen=MAX_WAKES)
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


def attack(site: Site, recorder: Recorder, chance: random.Random) -> None:
    """Try what a host with a token may try against others; any success is a problem."""
    attempts = dict.fromkeys(attempt for *_, attempt in list(recorder.wakes)[-8:])
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
