"""UUIDv7 identifiers (RFC 9562): sortable by time, so that `seed_results` can be partitioned by its
job's id.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime
from uuid import UUID

_lock = threading.Lock()
_last = 0

RANDOM_BITS = 62
COUNTER_BITS = 12


def new_id() -> str:
    """A new UUIDv7 as canonical text, larger than every id that this process made before (even
    within one millisecond).

    Layout: 48 bits of Unix milliseconds, version, a 12-bit counter (RFC 9562, 6.2, method 1: it
    starts at zero in each new millisecond and carries into the time when full or when the clock
    steps back), variant, 62 random bits.
    """
    global _last
    with _lock:
        _last = max((time.time_ns() // 1_000_000) << COUNTER_BITS, _last + 1)
        tick = _last
    random = int.from_bytes(os.urandom(8), "big") >> (64 - RANDOM_BITS)
    return str(
        UUID(
            int=(tick >> COUNTER_BITS) << 80
            | 0x7 << 76
            | (tick & 0xFFF) << 64
            | 0b10 << 62
            | random
        )
    )


def floor(moment: datetime) -> str:
    """The smallest id of that millisecond and all later ones: a bound for partitions and for
    "younger than" queries.
    """
    return str(UUID(int=int(moment.timestamp() * 1000) << 80))


def made_at(identifier: str) -> datetime:
    """The moment an id was made, in UTC, to the millisecond."""
    return datetime.fromtimestamp((UUID(identifier).int >> 80) / 1000, UTC)


def is_id(text: str) -> bool:
    """Whether a text from outside is an id in canonical form; queries answer None for anything else
    instead of a database error.
    """
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
