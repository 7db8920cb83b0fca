"""Notifies the dispatcher of new work, in a separate thread.

A dead broker must neither fail nor slow down a request.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor

import structlog
from redis import Redis, RedisError

from gonogo_workers.queue import DISPATCH_NOTIFICATION_KEY, redis_client

_log = structlog.get_logger("gonogo.service")


def notify_dispatcher(redis: Redis) -> None:
    """Wake the dispatcher by a list of length one. Raises redis.RedisError or OSError."""
    with redis.pipeline() as pipe:
        pipe.lpush(DISPATCH_NOTIFICATION_KEY, "1")
        pipe.ltrim(DISPATCH_NOTIFICATION_KEY, 0, 0)
        pipe.execute()


class DispatchNotifier:
    """Notifies the dispatcher without waiting.

    Notifications that arrive while one is being sent are merged. The background also polls the
    database, so a lost notification costs some of GONOGO_POLL_S, never a job.
    """

    def __init__(self, broker_url: str | None) -> None:
        self._redis = None if broker_url is None else redis_client(broker_url)
        self._sender = ThreadPoolExecutor(1, "dispatch-notifier")
        self._next: Future[None] | None = None
        """A notification that waits for the one before it."""

    def notify(self) -> None:
        """Send a notification soon; returns at once and never raises."""
        waits = self._next is not None and not (self._next.running() or self._next.done())
        if self._redis is not None and not waits:
            with contextlib.suppress(RuntimeError):  # closed
                self._next = self._sender.submit(self._send, self._redis)

    def ping(self) -> None:
        """Raise redis.RedisError or OSError when the broker doesn't answer.

        Raises ConnectionError without a broker URL.
        """
        if self._redis is None:
            raise ConnectionError("GONOGO_BROKER_URL is not set")
        self._redis.ping()

    def close(self) -> None:
        """Stop the thread and the connection."""
        self._sender.shutdown(cancel_futures=True)
        if self._redis is not None:
            with contextlib.suppress(RedisError, OSError):
                self._redis.close()

    @staticmethod
    def _send(redis: Redis) -> None:
        try:
            notify_dispatcher(redis)
        except (RedisError, OSError) as problem:
            _log.warning(
                "dispatcher not notified; it will find the work at its next poll",
                error=str(problem),
            )
