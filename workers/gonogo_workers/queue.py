"""The queue between the service and the device hosts: names, signed messages, the Celery app.

The service imports only this module of the package. It must stay free of device code, NumPy and the
domain.

A message is one JSON text and its HMAC-SHA256 under `GONOGO_WORKER_KEY`: `seal` makes the pair,
`unseal` checks it. Write access to the broker alone lets nobody run code on a device host or forge
a result. Bodies above 8 KiB travel as `{"z": base64(zlib(JSON))}`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from celery import Celery
from kombu.connection import Connection

# redis comes with celery[redis]; importing it at run time would only slow the API's start
if TYPE_CHECKING:
    from redis import Redis

APP_NAME: Final = "gonogo"

RUN_CHUNK: Final = "gonogo.run_chunk"
STARTED: Final = "gonogo.started"
HEARTBEAT: Final = "gonogo.heartbeat"
RESULTS: Final = "gonogo.results"
FINISHED: Final = "gonogo.finished"
HEALTH: Final = "gonogo.health"

BACKGROUND_QUEUE: Final = "background"
"""Results, `finished` and changes of a device's health, in the order in which they were made."""
HEARTBEAT_QUEUE: Final = "heartbeat"
"""Heartbeats and `started`.

They have a separate queue, so that a backlog of results never makes a live worker look dead.
"""

BROKER_GENERATION_KEY: Final = "gonogo:broker_generation"
DISPATCH_NOTIFICATION_KEY: Final = "gonogo:dispatch"
CANCEL_PREFIX: Final = "gonogo:cancel:"
DEVICE_PREFIX: Final = "gonogo:device:"

MESSAGE_VERSION: Final = 1
MAX_AGE_S: Final = 24 * 3600.0
"""An older `run_chunk` is dropped: its job was decided long ago."""
CLOCK_SKEW_S: Final = 300.0
"""The largest time in the future that a message may have: the clocks of hosts differ."""
COMPRESS_FROM_BYTES: Final = 8 * 1024
MAX_BODY_BYTES: Final = 64 * 2**20
"""The largest unpacked body: a message must not exhaust the memory of its reader."""


class MessageRefused(Exception):
    """A message that must not be acted on: drop it with a log line.

    Its signature or task is wrong, or it is too old or unreadable.
    """


def chunk_queue(executor: str, arch: str, board: str) -> str:
    """Return the queue of chunks for an executor and a kind of chip: `emulator.wormhole.n150`."""
    return f"{executor}.{arch}.{board}"


def cancel_key(attempt: str) -> str:
    """Return the Redis key that tells a worker to stop this attempt (SET with an expiry)."""
    return CANCEL_PREFIX + attempt


def device_key(device: str) -> str:
    """Return the Redis key of the service's order for a device.

    It holds the JSON {"order": "work" | "drain" | "maintenance", "asked": n}. Without a key the
    device works.
    """
    return DEVICE_PREFIX + device


def pack(body: Mapping[str, Any]) -> str:
    """Return a JSON object as message text, compressed when that pays.

    Raises ValueError for NaN and infinity, which are null in our JSON.
    """
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    if len(text) <= COMPRESS_FROM_BYTES:
        return text
    # Level 1: these are digits; level 6 takes five times as long for a tenth less
    compressed = base64.b64encode(zlib.compress(text.encode(), 1)).decode()
    return json.dumps({"z": compressed})


def unpack(text: str) -> dict[str, Any]:
    """Return the JSON object of a message text.

    Raises MessageRefused for anything else, or when it unpacks to more than MAX_BODY_BYTES.
    """
    try:
        body = json.loads(text)
        if isinstance(body, dict) and set(body) == {"z"}:
            inflater = zlib.decompressobj()
            raw = inflater.decompress(base64.b64decode(body["z"], validate=True), MAX_BODY_BYTES)
            if not inflater.eof:
                raise MessageRefused(
                    f"the message is cut off or unpacks to more than {MAX_BODY_BYTES} bytes"
                )
            body = json.loads(raw)
    except (ValueError, TypeError, binascii.Error, zlib.error, RecursionError) as problem:
        raise MessageRefused(f"the message is unreadable: {problem}") from problem
    if not isinstance(body, dict):
        raise MessageRefused(f"the message is {type(body).__name__}, not a JSON object")
    return body


def sign(key: str, message: str) -> str:
    """Return the hex HMAC-SHA256 of a message text.

    Raises ValueError for an empty key: an unsigned queue would be a remote shell.
    """
    if not key:
        raise ValueError(
            "GONOGO_WORKER_KEY is not set: messages between service and workers must be signed"
        )
    return hmac.new(key.encode(), message.encode(), hashlib.sha256).hexdigest()


def seal(
    key: str, task: str, body: Mapping[str, Any], *, now: float | None = None
) -> tuple[str, str]:
    """Return the message text for `task` and its signature.

    The signed text includes version, task name and time.
    """
    sent_at = time.time() if now is None else now
    message = pack({"v": MESSAGE_VERSION, **body, "task": task, "sent_at": sent_at})
    return message, sign(key, message)


def unseal(
    key: str,
    task: str,
    message: str,
    signature: str,
    *,
    max_age_s: float | None = None,
    now: float | None = None,
) -> dict[str, Any]:
    """Return the body of a message for `task`.

    Raises MessageRefused unless signature, task, version and age are right. `max_age_s=None`
    accepts any age: results that a worker spooled to disk may be days old and are still true.
    """
    if not isinstance(message, str) or not isinstance(signature, str):
        raise MessageRefused("message and signature must be strings")
    if not hmac.compare_digest(sign(key, message).encode(), signature.encode()):
        raise MessageRefused(
            "the signature is wrong (do service and worker have the same GONOGO_WORKER_KEY?)"
        )
    body = unpack(message)
    if body.get("v") != MESSAGE_VERSION:
        raise MessageRefused(
            f"the message has version {body.get('v')!r}; allowed: {MESSAGE_VERSION}"
        )
    if body.get("task") != task:
        raise MessageRefused(f"the message is for {body.get('task')!r}, not {task!r}")
    sent_at = body.get("sent_at")
    if not isinstance(sent_at, int | float):
        raise MessageRefused("the message has no number in sent_at")
    age = (time.time() if now is None else now) - sent_at
    if age < -CLOCK_SKEW_S or (max_age_s is not None and age > max_age_s):
        raise MessageRefused(f"the message is {age:.0f} s old")
    return body


def celery_url(broker_url: str) -> str:
    """Return the broker's URL in Celery's spelling.

    Celery writes a Unix socket, `unix://path?db=0`, as `redis+socket://path?virtual_host=0`.
    """
    if not broker_url.startswith("unix://"):
        return broker_url
    return "redis+socket://" + broker_url.removeprefix("unix://").replace("db=", "virtual_host=")


class PatientConnection(Connection):
    """A connection that retries a lost broker every second or two.

    A restarted Redis is back within seconds; kombu's pauses grow to half a minute.
    """

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """Connect as kombu does, with shorter pauses unless the caller names its own."""
        pauses = {"interval_start": 0.2, "interval_step": 0.3, "interval_max": 2.0}
        return super().ensure_connection(*args, **(pauses | options if len(args) < 3 else options))  # type: ignore[no-untyped-call]


def make_app(broker_url: str, *, visibility_timeout_s: int = 3600) -> Celery:
    """Return the Celery app for this broker: JSON only, no result backend, no publish retries.

    A publish fails within seconds when the broker is down. Callers retry (the service's outbox, a
    worker's result sender): only they know what may be lost. `visibility_timeout_s` is how long an
    unacknowledged message stays invisible to other consumers; consumers that acknowledge late
    choose it.
    """
    app = Celery(APP_NAME, broker=celery_url(broker_url), set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_ignore_result=True,
        task_create_missing_queues=True,
        task_default_queue=BACKGROUND_QUEUE,
        task_publish_retry=False,
        broker_connection_timeout=2.0,
        broker_connection_retry_on_startup=True,
        # None: a consumer waits for its broker without limit
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": visibility_timeout_s,
            "socket_connect_timeout": 2.0,
            "socket_timeout": 10.0,
            "socket_keepalive": True,
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
            "interval_max": 0.2,
        },
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        # The broker redelivers unacknowledged tasks of a lost connection anyway; without this
        # setting Celery would warn
        worker_cancel_long_running_tasks_on_connection_loss=True,
        enable_utc=True,
    )
    app.amqp.Connection = PatientConnection
    app.Task.Request = "gonogo_workers.messages.requests:LosslessRequest"
    return app


def publish(
    app: Celery,
    queue: str,
    task: str,
    message: str,
    signature: str,
    *,
    expires_s: float | None = None,
) -> None:
    """Put one sealed message on a queue.

    Raises kombu.exceptions.OperationalError within seconds when the broker is down.
    """
    app.send_task(
        task,
        args=(message, signature),
        queue=queue,
        retry=False,
        expires=expires_s,
        ignore_result=True,
    )


def send(
    app: Celery,
    key: str,
    queue: str,
    task: str,
    body: Mapping[str, Any],
    *,
    expires_s: float | None = None,
) -> None:
    """Seal and publish in one step. Raises as `seal` and `publish` do."""
    publish(app, queue, task, *seal(key, task, body), expires_s=expires_s)


def redis_client(broker_url: str) -> Redis:
    """Return a Redis client of the broker, for either spelling of its URL, with short timeouts."""
    from redis import Redis

    url = broker_url
    if url.startswith("redis+socket://"):
        url = "unix://" + url.removeprefix("redis+socket://").replace("virtual_host=", "db=")
    client: Redis = Redis.from_url(url, socket_timeout=5.0, socket_connect_timeout=2.0)
    return client
