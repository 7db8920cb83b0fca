"""The broker: the Celery app of a consumer, a sender of sealed messages, and Redis clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from celery import Celery
from kombu.connection import Connection

from gonogo_workers.queue.envelope import seal
from gonogo_workers.queue.keys import PrivateKey
from gonogo_workers.queue.names import BACKGROUND_QUEUE, HEARTBEAT_QUEUE

# redis comes with celery[redis]; importing it at run time would only slow the API's start
if TYPE_CHECKING:
    from redis import Redis

    from gonogo_workers.queue.transport import Transport

APP_NAME: Final = "gonogo"


def celery_url(broker_url: str) -> str:
    """Return the broker's URL in Celery's spelling.

    Celery writes a Unix socket, `unix://path?db=0`, as `redis+socket://path?virtual_host=0`. With
    `rediss://` alone kombu would take any certificate, unlike redis-py, so it is named.
    """
    if broker_url.startswith("rediss://") and "ssl_cert_reqs=" not in broker_url:
        return f"{broker_url}{'&' if '?' in broker_url else '?'}ssl_cert_reqs=required"
    if not broker_url.startswith("unix://"):
        return broker_url
    return "redis+socket://" + broker_url.removeprefix("unix://").replace("db=", "virtual_host=")


class PatientConnection(Connection):
    """A connection of our transport that retries a lost broker every second or two.

    A restarted Redis is back within seconds; kombu's pauses grow to half a minute.
    """

    def get_transport_cls(self) -> type[Transport]:
        """Return our transport, whatever the URL says."""
        from gonogo_workers.queue.transport import Transport

        return Transport

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        """Connect as kombu does, with shorter pauses unless the caller names its own."""
        pauses = {"interval_start": 0.2, "interval_step": 0.3, "interval_max": 2.0}
        return super().ensure_connection(*args, **(pauses | options if len(args) < 3 else options))  # type: ignore[no-untyped-call]


def make_app(broker_url: str, *, visibility_timeout_s: int | None = None) -> Celery:
    """Return the Celery app of a consumer: sealed messages only, no result backend.

    Nothing is published with it, but with `publish`. `visibility_timeout_s` is how long an
    unacknowledged message stays invisible to other consumers, for consumers that acknowledge late.
    Without it nothing is kept for another consumer: a worker acknowledges before it runs a chunk,
    and its account in Redis needs no access to messages of others.
    """
    from gonogo_workers.queue.transport import SERIALIZER

    app = Celery(APP_NAME, broker=celery_url(broker_url), set_as_current=False)
    app.conf.update(
        accept_content=[SERIALIZER],
        task_ignore_result=True,
        task_create_missing_queues=True,
        task_default_queue=BACKGROUND_QUEUE,
        task_publish_retry=False,
        broker_connection_timeout=2.0,
        broker_connection_retry_on_startup=True,
        # None: a consumer waits for its broker without limit
        broker_connection_max_retries=None,
        broker_transport_options={
            "ack_emulation": visibility_timeout_s is not None,
            "visibility_timeout": visibility_timeout_s or 0,
            # kombu looks every ten seconds, and by itself acts on every tenth look only
            "unacked_restore_throttle": 1,
            "restorable": frozenset({BACKGROUND_QUEUE, HEARTBEAT_QUEUE}),
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


def publish(client: Redis, queue: str, text: str) -> None:
    """Put one sealed message on a queue.

    Raises redis.RedisError within seconds when the broker is down.
    """
    client.lpush(queue, text)


def send(
    client: Redis,
    key: PrivateKey,
    queue: str,
    task: str,
    body: Mapping[str, Any],
    number: int | None = None,
) -> None:
    """Seal and publish in one step. Raises as `seal` and `publish` do."""
    publish(client, queue, seal(key, task, body, number))


def redis_client(broker_url: str) -> Redis:
    """Return a Redis client of the broker, for either spelling of its URL, with short timeouts."""
    from redis import Redis

    url = broker_url
    if url.startswith("redis+socket://"):
        url = "unix://" + url.removeprefix("redis+socket://").replace("virtual_host=", "db=")
    client: Redis = Redis.from_url(url, socket_timeout=5.0, socket_connect_timeout=2.0)
    return client
