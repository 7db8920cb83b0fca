"""The names of the task, the queues and the Redis key that the service and the workers share."""

from __future__ import annotations

from typing import Final

RUN_ATTEMPT: Final = "gonogo.run_attempt"
DISPATCH_NOTIFICATION_KEY: Final = "gonogo:dispatch"


def chunk_queue(executor: str, arch: str, board: str) -> str:
    """Return the queue of chunks for an executor and a kind of chip: `emulator.wormhole.n150`."""
    return f"{executor}.{arch}.{board}"
