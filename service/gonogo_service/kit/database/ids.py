"""UUIDv7 identifiers (RFC 9562), which sort by time."""

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
    """Return a new UUIDv7 as canonical text, larger than all earlier ids of this process.

    Layout: 48 bits of Unix milliseconds, version, a 12-bit counter, variant, 62 random bits. The
    counter is method 1 of RFC 9562, 6.2: it starts at zero in each new millisecond. It carries into
    the time when it is full or the clock steps back.
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
    """Return the smallest possible id of the moment's millisecond.

    It bounds "newer than" queries.
    """
    return str(UUID(int=int(moment.timestamp() * 1000) << 80))


def made_at(identifier: str) -> datetime:
    """Return when an id was created, in UTC, to the millisecond."""
    return datetime.fromtimestamp((UUID(identifier).int >> 80) / 1000, UTC)


def is_id(text: str) -> bool:
    """Return whether a text is an id in canonical form.

    Queries check text from outside with it and return None instead of a database error.
    """
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
