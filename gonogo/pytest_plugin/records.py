"""One test with one seed, and what it compared."""

from __future__ import annotations

import json
import math
import os
import time
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any

from gonogo.public.recorded import Comparison

MAX_COMPARISONS = 100
MAX_FAILURES = 20
MAX_MEASUREMENTS = 100
MAX_MESSAGE = 2000
MAX_WORDS = 1000


@dataclass
class Record:
    """The record of a test with one seed.

    `outcome` is the test's own: a test that is red only because of --gonogo-strict is `passed`.
    """

    name: str
    """The node id without the seed."""
    outcome: str
    seed: int | None = None
    repeat: int = 0
    duration_ms: float | None = None
    message: str = ""
    failures: list[dict[str, Any]] = field(default_factory=list)
    measurements: dict[str, float] = field(default_factory=dict)
    file: str | None = None
    line: int | None = None
    worker: str | None = None
    comparisons: list[Comparison] = field(default_factory=list)

    def stored(self) -> dict[str, Any]:
        """Return the whole record in plain JSON types; `of` reads it back."""
        return asdict(self)

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Record:
        """Return the record that `stored` wrote. Raises TypeError or KeyError otherwise."""
        comparisons = [Comparison(**values) for values in stored["comparisons"]]
        return cls(**{**stored, "comparisons": comparisons})

    def to_json(self) -> dict[str, Any]:
        """Return it as a line of format "gonogo", cut to the sizes that a server accepts."""
        finite = {name: value for name, value in self.measurements.items() if math.isfinite(value)}
        failures = [
            {**failure, "message": str(failure.get("message", ""))[:MAX_WORDS]}
            for failure in self.failures[:MAX_FAILURES]
        ]
        fields = {
            "name": self.name,
            "outcome": self.outcome,
            "seed": self.seed,
            "repeat": self.repeat,
            "duration_ms": None if self.duration_ms is None else round(self.duration_ms, 4),
            "message": self.message[:MAX_MESSAGE],
            "failures": failures,
            "measurements": dict(list(finite.items())[:MAX_MEASUREMENTS]),
            "file": self.file,
            "line": self.line,
            "worker": self.worker,
            "comparisons": [
                comparison.to_json() for comparison in self.comparisons[:MAX_COMPARISONS]
            ],
        }
        return {name: value for name, value in fields.items() if value is not None}


def encoded(document: object) -> bytes:
    """Return one line of JSON; surrogates, which UTF-8 can't encode, are escaped."""
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")


def new_id() -> str:
    """Return a UUIDv7 (RFC 9562), which sorts by time."""
    milliseconds, chance = time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10), "big")
    value = (
        milliseconds << 80 | 0x7 << 76 | (chance >> 68) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    )
    return str(uuid.UUID(int=value))
