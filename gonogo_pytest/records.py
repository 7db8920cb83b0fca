"""One test with one seed, and what it compared."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from gonogo.public.recorded import Comparison

MOST_COMPARISONS = 100
MOST_FAILURES = 20
MOST_MEASUREMENTS = 100
MOST_MESSAGE = 2000
MOST_WORDS = 1000


@dataclass
class Record:
    """What became of a test.

    `outcome` is its own: one that is red only because of --gonogo-strict is `passed`.
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

    def kept(self) -> dict[str, Any]:
        """Return all of it, as `of` reads it."""
        return asdict(self)

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Record:
        """From what `kept` gave. Raises TypeError or KeyError for anything else."""
        return cls(**{**kept, "comparisons": [Comparison(**each) for each in kept["comparisons"]]})

    def to_json(self) -> dict[str, Any]:
        """As a line of format "gonogo"; what a server would refuse for its size is cut."""
        finite = {name: value for name, value in self.measurements.items() if math.isfinite(value)}
        failures = [
            {**each, "message": str(each.get("message", ""))[:MOST_WORDS]}
            for each in self.failures[:MOST_FAILURES]
        ]
        told = {
            "name": self.name,
            "outcome": self.outcome,
            "seed": self.seed,
            "repeat": self.repeat,
            "duration_ms": None if self.duration_ms is None else round(self.duration_ms, 4),
            "message": self.message[:MOST_MESSAGE],
            "failures": failures,
            "measurements": dict(list(finite.items())[:MOST_MEASUREMENTS]),
            "file": self.file,
            "line": self.line,
            "worker": self.worker,
            "comparisons": [each.to_json() for each in self.comparisons[:MOST_COMPARISONS]],
        }
        return {name: value for name, value in told.items() if value is not None}


def encoded(document: object) -> bytes:
    """Return one line of JSON; surrogates that UTF-8 has not are escaped."""
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")


def new_id() -> str:
    """Return a UUIDv7 (RFC 9562): sortable by time."""
    milliseconds, chance = time.time_ns() // 1_000_000, int.from_bytes(os.urandom(10), "big")
    value = (
        milliseconds << 80 | 0x7 << 76 | (chance >> 68) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    )
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
