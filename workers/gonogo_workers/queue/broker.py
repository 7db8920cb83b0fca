"""The broker: the Celery app of a worker, and Redis clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from celery import Celery
from kombu.connection import Connection

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


def make_app(broker_url: str) -> Celery:
    """Return the Celery app of a worker, which takes ids of attempts; nothing is published with it.

    A message is acknowledged before it runs, and nothing is kept in Redis for another consumer: the
    database knows what is missing, and a worker's account needs no access to messages of others.
    """
    from gonogo_workers.queue.transport import SERIALIZER

    app = Celery(APP_NAME, broker=celery_url(broker_url), set_as_current=False)
    app.conf.update(
        accept_content=[SERIALIZER],
        task_ignore_result=True,
        task_create_missing_queues=True,
        task_publish_retry=False,
        broker_connection_timeout=2.0,
        broker_connection_retry_on_startup=True,
        # None: a worker waits for its broker without limit
        broker_connection_max_retries=None,
        broker_transport_options={
            "ack_emulation": False,
            "socket_connect_timeout": 2.0,
            "socket_timeout": 10.0,
            "socket_keepalive": True,
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
            "interval_max": 0.2,
        },
        worker_disable_prefetch=True,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        # without this setting Celery would warn
        worker_cancel_long_running_tasks_on_connection_loss=False,
        enable_utc=True,
    )
    app.amqp.Connection = PatientConnection
    return app


def redis_client(broker_url: str) -> Redis:
    """Return a Redis client of the broker, with short timeouts."""
    from redis import Redis

    client: Redis = Redis.from_url(broker_url, socket_timeout=5.0, socket_connect_timeout=2.0)
    return client
