"""The queue between the service and the device hosts: Celery app, queue and task names, signed
messages (imports Celery only).

This is all of `workers` that the service imports, so it must stay free of device code, NumPy and
the domain.

A message is one JSON text and its HMAC-SHA256 under `GONOGO_WORKER_KEY`: `seal` makes the pair,
`unseal` checks it. Who may write to the broker can therefore not run anything on a device host, and
can't forge a result. Bodies above 8 KiB travel as `{"z": base64(zlib(JSON))}`.
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

if (
    TYPE_CHECKING
):  # redis comes with celery[redis]; importing it here would only slow the API's start
    from redis import Redis

APP_NAME: Final = "gonogo"

RUN_CHUNK: Final = "gonogo.run_chunk"
STARTED: Final = "gonogo.started"
HEARTBEAT: Final = "gonogo.heartbeat"
RESULTS: Final = "gonogo.results"
FINISHED: Final = "gonogo.finished"
HEALTH: Final = "gonogo.health"

BACKGROUND_QUEUE: Final = "background"
"""Results, `finished` and changes of a device's health: every message of one attempt in the order
in which it was made."""
HEARTBEAT_QUEUE: Final = "heartbeat"
"""Heartbeats and `started`: a queue of its own, so that a backlog of results never makes a live
worker look dead."""

EPOCH_KEY: Final = "gonogo:epoch"
DOORBELL_KEY: Final = "gonogo:doorbell"
CANCEL_PREFIX: Final = "gonogo:cancel:"
DEVICE_PREFIX: Final = "gonogo:device:"

MESSAGE_VERSION: Final = 1
MAX_AGE_S: Final = 24 * 3600.0
"""An older `run_chunk` is dropped: its job has long been decided otherwise."""
CLOCK_SKEW_S: Final = 300.0
"""A message may seem to come from the future by this much (hosts' clocks differ)."""
COMPRESS_FROM_BYTES: Final = 8 * 1024
MAX_BODY_BYTES: Final = 64 * 2**20
"""A compressed body that unpacks to more is refused: a broker's content must not exhaust our
memory."""


class MessageRefused(Exception):
    """A message that must not be acted on: wrong signature, wrong task, too old, or unreadable.
    Drop it with a log line.
    """


def chunk_queue(executor: str, arch: str, board: str) -> str:
    """The name of the queue of chunks that need this executor on this kind of chip, such as
    `emulator.wormhole.n150`.
    """
    return f"{executor}.{arch}.{board}"


def cancel_key(attempt: str) -> str:
    """The Redis key whose existence tells a worker to stop this attempt (SET with an expiry)."""
    return CANCEL_PREFIX + attempt


def device_key(device: str) -> str:
    """The Redis key of what the service wants of a device: JSON {"order": "work" | "drain" |
    "maintenance", "asked": n}; none: work.
    """
    return DEVICE_PREFIX + device


def pack(body: Mapping[str, Any]) -> str:
    """A JSON object as message text, compressed when that pays. Raises ValueError for NaN and
    infinity (they are null in our JSON).
    """
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    if len(text) <= COMPRESS_FROM_BYTES:
        return text
    # Level 1: these are digits; level 6 takes five times as long for a tenth less
    squeezed = base64.b64encode(zlib.compress(text.encode(), 1)).decode()
    return json.dumps({"z": squeezed})


def unpack(text: str) -> dict[str, Any]:
    """The JSON object of a message text. Raises MessageRefused when it isn't one, or is larger than
    MAX_BODY_BYTES unpacked.
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
        raise MessageRefused(f"the message is no JSON object but {type(body).__name__}")
    return body


def sign(key: str, message: str) -> str:
    """Hex HMAC-SHA256 of the message text. Raises ValueError for an empty key: an unsigned queue
    would be a remote shell.
    """
    if not key:
        raise ValueError(
            "GONOGO_WORKER_KEY is not set: messages between service and workers must be signed"
        )
    return hmac.new(key.encode(), message.encode(), hashlib.sha256).hexdigest()


def seal(
    key: str, task: str, body: Mapping[str, Any], *, now: float | None = None
) -> tuple[str, str]:
    """The message text and its signature for `task`; version, task name and time are put into the
    signed text.
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
    """The body of a message meant for `task`. Raises MessageRefused unless signature, task, version
    and age are right.

    `max_age_s=None` accepts any age: results that a worker had to spool to disk may be days old and
    are still true.
    """
    if not isinstance(message, str) or not isinstance(signature, str):
        raise MessageRefused("message and signature must be texts")
    if not hmac.compare_digest(sign(key, message).encode(), signature.encode()):
        raise MessageRefused(
            "the signature is wrong (do service and worker have the same GONOGO_WORKER_KEY?)"
        )
    body = unpack(message)
    if body.get("v") != MESSAGE_VERSION:
        raise MessageRefused(f"version {body.get('v')!r} is not {MESSAGE_VERSION}")
    if body.get("task") != task:
        raise MessageRefused(f"the message is for {body.get('task')!r}, not {task!r}")
    sent_at = body.get("sent_at")
    if not isinstance(sent_at, int | float):
        raise MessageRefused("the message has no time")
    age = (time.time() if now is None else now) - sent_at
    if age < -CLOCK_SKEW_S or (max_age_s is not None and age > max_age_s):
        raise MessageRefused(f"the message is {age:.0f} s old")
    return body


def celery_url(broker_url: str) -> str:
    """The broker's URL as Celery spells it: a unix socket (`unix://path?db=0`) is
    `redis+socket://path?virtual_host=0` there.
    """
    if not broker_url.startswith("unix://"):
        return broker_url
    return "redis+socket://" + broker_url.removeprefix("unix://").replace("db=", "virtual_host=")


class PatientConnection(Connection):
    """A consumer that has lost its broker looks for it often: a restarted Redis is back within
    seconds, not half a minute.
    """

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """As kombu's, with shorter pauses between the trials unless the caller names its own."""
        pauses = {"interval_start": 0.2, "interval_step": 0.3, "interval_max": 2.0}
        return super().ensure_connection(*args, **(pauses | options if len(args) < 3 else options))  # type: ignore[no-untyped-call]


def make_app(broker_url: str, *, visibility_timeout_s: int = 3600) -> Celery:
    """The Celery app for this broker: JSON only, no result backend, and a publish that fails within
    seconds when the broker is away.

    Callers own the retry (the outbox of the service, the postman of a worker): only they know what
    may be lost. `visibility_timeout_s` is how long an unacknowledged message stays invisible to
    others (late-acking consumers choose it).
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
        # a consumer waits for its broker for as long as it takes
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
        # Unacknowledged tasks of a lost connection come again anyway; this says so to Celery, which
        # would warn
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
    """Put one sealed message on a queue. Raises kombu.exceptions.OperationalError within seconds
    when the broker is away.
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
    """A plain Redis client of the same broker, whichever way its URL is spelled, with short
    timeouts.
    """
    from redis import Redis

    url = broker_url
    if url.startswith("redis+socket://"):
        url = "unix://" + url.removeprefix("redis+socket://").replace("virtual_host=", "db=")
    client: Redis = Redis.from_url(url, socket_timeout=5.0, socket_connect_timeout=2.0)
    return client
