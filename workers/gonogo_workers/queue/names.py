"""The names of tasks, queues and Redis keys, and how long each kind of message is good for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

RUN_CHUNK: Final = "gonogo.run_chunk"
STARTED: Final = "gonogo.started"
HEARTBEAT: Final = "gonogo.heartbeat"
RESULTS: Final = "gonogo.results"
FINISHED: Final = "gonogo.finished"
HEALTH: Final = "gonogo.health"
HELLO: Final = "gonogo.hello"
"""A host asks for the service's time; the reply also shows that its key is known."""
ENROLL: Final = "gonogo.enroll"
ROTATE: Final = "gonogo.rotate"
REPLY: Final = "gonogo.reply"
"""The service's answer to the three tasks before: the value of a key, not of a queue."""
CANCEL: Final = "gonogo.cancel"
ORDER: Final = "gonogo.order"

BACKGROUND_QUEUE: Final = "background"
"""Results, `finished` and changes of a device's health, in the order in which they were made."""
HEARTBEAT_QUEUE: Final = "heartbeat"
"""Heartbeats, `started`, and what a host waits for an answer to.

They have a separate queue, so that a backlog of results never makes a live worker look dead.
"""

BROKER_GENERATION_KEY: Final = "gonogo:broker_generation"
DISPATCH_NOTIFICATION_KEY: Final = "gonogo:dispatch"
CANCEL_PREFIX: Final = "gonogo:cancel:"
DEVICE_PREFIX: Final = "gonogo:device:"
REPLY_PREFIX: Final = "gonogo:reply:"
REPLY_S: Final = 60
"""A reply that nobody fetches is deleted after this time."""

CLOCK_SKEW_S: Final = 60.0
"""The largest difference between the clocks of a host and the service.

A worker on a host that differs more doesn't start. Messages from further in the future are refused.
"""
MAX_AGE_S: Final = 24 * 3600.0
"""An older `run_chunk` is dropped: its job was decided long ago."""


MAX_MESSAGE_BYTES: Final = 16 * 2**20
"""The largest sealed message. The broker's `proto-max-bulk-len` is the same."""
MAX_SMALL_BYTES: Final = 256 * 2**10


@dataclass(frozen=True)
class Limits:
    """The size of a kind of message, and the times between which it is good."""

    max_age_s: float
    future: bool = False
    """Whether it may come from the future: true where a replay or a wrong clock changes nothing."""
    max_bytes: int = MAX_SMALL_BYTES


WEEK_S: Final = 7 * 24 * 3600.0
LIMITS: Final = {
    RUN_CHUNK: Limits(MAX_AGE_S, max_bytes=MAX_MESSAGE_BYTES),
    CANCEL: Limits(MAX_AGE_S),
    # the service signs each order again every minute
    ORDER: Limits(120.0),
    # its nonce says what it answers, and the asking host may have a wrong clock
    REPLY: Limits(float("inf"), future=True),
    # a worker keeps what it can't send: a broker may be away for days. Each of these is stored
    # once, for an attempt of its own host
    STARTED: Limits(WEEK_S, future=True),
    RESULTS: Limits(WEEK_S, future=True, max_bytes=MAX_MESSAGE_BYTES),
    FINISHED: Limits(WEEK_S, future=True, max_bytes=MAX_MESSAGE_BYTES),
    # the next one comes soon
    HEARTBEAT: Limits(60.0),
    HEALTH: Limits(MAX_AGE_S),
    # a host with a wrong clock has to be able to ask for the time
    HELLO: Limits(float("inf"), future=True),
    # a code works once, whenever it comes
    ENROLL: Limits(float("inf"), future=True),
    # the same key again changes nothing
    ROTATE: Limits(WEEK_S, future=True),
}


def chunk_queue(executor: str, arch: str, board: str) -> str:
    """Return the queue of chunks for an executor and a kind of chip: `emulator.wormhole.n150`."""
    return f"{executor}.{arch}.{board}"


def cancel_key(attempt: str) -> str:
    """Return the Redis key of the service's request to stop this attempt (SET with an expiry)."""
    return CANCEL_PREFIX + attempt


def device_key(device: str) -> str:
    """Return the Redis key of the service's order for a device.

    It holds a sealed {"device", "order": "work" | "drain" | "maintenance", "asked": n}. The name is
    hashed: a host's name may have dots, and the names of the queues of chunks are the only ones
    with two dots, so that an account of Redis can be limited to them.
    """
    return DEVICE_PREFIX + hashlib.sha256(device.encode()).hexdigest()[:32]


def reply_key(nonce: str) -> str:
    """Return the Redis key of the list with the service's reply to the message with this nonce."""
    return REPLY_PREFIX + nonce
