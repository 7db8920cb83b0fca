"""The broker as an attacker sees it: every message is recorded, repeated, reordered and forged."""

from __future__ import annotations

import codecs
import contextlib
import json
import random
import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import redis
from redis import Redis

from benchmarks.chaos.site import HOSTILE, Site
from gonogo_workers import queue
from gonogo_workers.queue import Numbers

MAX_MESSAGES = 3000
FORGED_MS = 666.0
"""The duration in every forged row: no honest seed has it."""
_ARGUMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_PUSHED = (b"LPUSH", b"lpush")


@dataclass(frozen=True)
class Recorded:
    """A message that went over the broker."""

    at: float
    queue: str
    text: str


class Recorder(threading.Thread):
    """Keeps the latest messages of all queues, as somebody can who reads the broker."""

    def __init__(self, site: Site) -> None:
        super().__init__(name="recorder", daemon=True)
        self._site = site
        self._stop_event = threading.Event()
        self.messages: deque[Recorded] = deque(maxlen=MAX_MESSAGES)

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
                self._keep(line if isinstance(line, bytes) else str(line).encode())
        finally:
            connection.disconnect()  # type: ignore[no-untyped-call]
            client.close()

    def _keep(self, line: bytes) -> None:
        words = _ARGUMENT.findall(line)
        if len(words) != 3 or words[0] not in _PUSHED:
            return
        text = codecs.decode(words[2], "unicode_escape")
        if queue.task_of(text) is not None:
            self.messages.append(Recorded(time.monotonic(), words[1].decode(), text))

    def some(
        self, chance: random.Random, count: int, *, older_than_s: float = 0.0
    ) -> list[Recorded]:
        """Return a random choice of messages that are at least this old."""
        latest = time.monotonic() - older_than_s
        choice = [message for message in list(self.messages) if message.at <= latest]
        return chance.sample(choice, min(count, len(choice)))

    def attempts(self) -> list[dict[str, Any]]:
        """Return what the latest messages say of attempts: anybody can read it there."""
        by_attempt = {}
        for message in list(self.messages)[-600:]:
            if queue.task_of(message.text) == queue.RUN_CHUNK:
                body = _body(message.text)
                by_attempt[body["attempt"]] = body
        return list(by_attempt.values())


def _body(text: str) -> dict[str, Any]:
    from gonogo_workers.queue.envelope import unpack

    head, _, payload = text.partition("\n")
    return unpack(head.split(" ")[-1], payload)


def push(client: Redis, messages: list[Recorded]) -> None:
    """Put messages on their queues again."""
    for message in messages:
        client.lpush(message.queue, message.text)


def attack(site: Site, recorder: Recorder, chance: random.Random) -> int:
    """Send what a host with a valid key may try against others; return the number of messages."""
    forger = _Forger(site, chance)
    for attempt in recorder.attempts()[-8:]:
        forger.against_attempt(attempt)
    for worker in site.workers:
        forger.against_host(worker.name.removeprefix("worker-").rsplit("-", 1)[0])
    forger.garbage()
    return forger.sent


class _Forger:
    """Seals with the hostile host's own key, in its own name and in that of others."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self._redis, self._key, self._chance = site.redis, site.hostile_key, chance
        self._numbers = Numbers()
        self.sent = 0

    def against_attempt(self, attempt: dict[str, Any]) -> None:
        """Claim an attempt, its results and its end; cancel it; repeat it."""
        victim = self._chance.choice(["lab-1", "lab-2", HOSTILE])
        place = {
            "attempt": attempt["attempt"],
            "worker": f"{victim}/worker-1",
            "device": f"{victim}/witness:0",
        }
        rows = [
            {
                "seed": seed,
                "repeat": repeat,
                "verdict": "fail",
                "explanation": "unexplained",
                "device": place["device"],
                "host_run": "forged",
                "position": 0,
                "duration_ms": FORGED_MS,
                "outputs": {},
                "message": "forged",
            }
            for seed, repeat in attempt["work"]
        ]
        batch = {**place, "batch": 0, "rows": rows, "artifacts": []}
        end = {**place, "outcome": "done", "sent": attempt["work"], "batches": 1}
        self._say(queue.HEARTBEAT_QUEUE, queue.STARTED, {**place, "host": victim})
        self._say(queue.BACKGROUND_QUEUE, queue.RESULTS, batch)
        self._say(queue.BACKGROUND_QUEUE, queue.FINISHED, end)
        target = attempt["target"]
        to = queue.chunk_queue(target["executor"], target["arch"], target["board"])
        self._say(to, queue.RUN_CHUNK, {**attempt, "attempt": f"{attempt['attempt'][:-4]}beef"})
        cancel = queue.seal(self._key, queue.CANCEL, {"attempt": attempt["attempt"]})
        self._redis.set(queue.cancel_key(attempt["attempt"]), cancel, ex=60)
        self.sent += 1

    def against_host(self, victim: str) -> None:
        """Call a device bad, take it out of work, and let it seem alive elsewhere."""
        device, worker = f"{victim}/witness:0", f"{victim}/worker-1"
        report = {"worker": worker, "device": device, "health": "bad", "reason": "forged"}
        self._say(queue.BACKGROUND_QUEUE, queue.HEALTH, {**report, "evidence": {}})
        beat: dict[str, Any] = {"worker": worker, "device": device, "attempt": None}
        beat |= {"queues": [], "devices": []}
        self._say(queue.HEARTBEAT_QUEUE, queue.HEARTBEAT, beat)
        order = {"device": device, "order": "drain", "asked": 0}
        text = queue.seal(self._key, queue.ORDER, order, self._numbers.next())
        self._redis.set(queue.device_key(device), text, ex=60)
        self.sent += 1

    def garbage(self) -> None:
        """Send what is no message at all, to every queue."""
        for to in (queue.BACKGROUND_QUEUE, queue.HEARTBEAT_QUEUE, "witness.wormhole.n150"):
            junk = bytes(self._chance.randrange(256) for _ in range(64))
            self._redis.lpush(to, junk, json.dumps({"task": "celery.ping", "body": []}), b"")
            self.sent += 3

    def _say(self, to: str, task: str, body: dict[str, Any]) -> None:
        queue.publish(self._redis, to, queue.seal(self._key, task, body, self._numbers.next()))
        self.sent += 1
