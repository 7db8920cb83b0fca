"""Tells the dispatcher that there is work, from a thread of its own: a dead broker must neither
fail nor slow a request.
"""

from __future__ import annotations

import contextlib
import threading

import structlog
from redis import RedisError

from gonogo_workers.queue import DOORBELL_KEY, redis_client

_log = structlog.get_logger("gonogo.service")


class Doorbell:
    """Rings by LPUSH on a Redis list that is kept one long; rings that come while one is under way
    become one.

    The outbox in the database is the truth and is polled anyway, so a ring that is lost costs up to
    GONOGO_POLL_S, never a job.
    """

    def __init__(self, broker_url: str | None) -> None:
        self._redis = None if broker_url is None else redis_client(broker_url)
        self._wanted = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Ring soon; returns at once and never raises."""
        if self._redis is None or self._closing:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="doorbell", daemon=True)
                self._thread.start()
        self._wanted.set()

    def ping(self) -> None:
        """Raises redis.RedisError when the broker doesn't answer; OSError likewise. Without a
        broker URL: ConnectionError.
        """
        if self._redis is None:
            raise ConnectionError("GONOGO_BROKER_URL is not set")
        self._redis.ping()

    def close(self) -> None:
        """Stop the thread and the connection."""
        self._closing = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(5.0)
        if self._redis is not None:
            with contextlib.suppress(RedisError, OSError):
                self._redis.close()

    def _run(self) -> None:
        assert self._redis is not None
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closing:
                return
            try:
                with self._redis.pipeline() as pipe:
                    pipe.lpush(DOORBELL_KEY, "1")
                    pipe.ltrim(DOORBELL_KEY, 0, 0)
                    pipe.execute()
            except (RedisError, OSError) as problem:
                _log.warning(
                    "doorbell not rung; the dispatcher will find the work when it next looks",
                    error=str(problem),
                )
