"""Notifies the dispatcher of new work, in a separate thread.

A dead broker must neither fail nor slow down a request.
"""

from __future__ import annotations

import contextlib
import threading

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
        self._requested = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def notify(self) -> None:
        """Send a notification soon; returns at once and never raises."""
        if self._redis is None or self._closing:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="dispatch-notifier", daemon=True
                )
                self._thread.start()
        self._requested.set()

    def ping(self) -> None:
        """Raise redis.RedisError or OSError when the broker doesn't answer.

        Raises ConnectionError without a broker URL.
        """
        if self._redis is None:
            raise ConnectionError("GONOGO_BROKER_URL is not set")
        self._redis.ping()

    def close(self) -> None:
        """Stop the thread and the connection."""
        self._closing = True
        self._requested.set()
        if self._thread is not None:
            self._thread.join(5.0)
        if self._redis is not None:
            with contextlib.suppress(RedisError, OSError):
                self._redis.close()

    def _run(self) -> None:
        assert self._redis is not None
        while True:
            self._requested.wait()
            self._requested.clear()
            if self._closing:
                return
            try:
                notify_dispatcher(self._redis)
            except (RedisError, OSError) as problem:
                _log.warning(
                    "dispatcher not notified; it will find the work at its next poll",
                    error=str(problem),
                )
