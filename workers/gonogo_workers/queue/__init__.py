"""The broker's queues, which only wake a worker: each item is the id of an attempt.

The service imports only this package of the workers. It must stay free of device code, NumPy and
the domain. What an attempt has to do, the worker asks the service over HTTPS (docs/protocol.md).
"""

from gonogo_workers.queue.broker import celery_url, make_app, redis_client
from gonogo_workers.queue.names import DISPATCH_NOTIFICATION_KEY, RUN_ATTEMPT, chunk_queue

__all__ = [
    "DISPATCH_NOTIFICATION_KEY",
    "RUN_ATTEMPT",
    "celery_url",
    "chunk_queue",
    "make_app",
    "redis_client",
]
