"""A chunk's message, as a worker gets it."""

from __future__ import annotations

from typing import Any

from gonogo_workers.messages.chunk import Chunk

BODY: dict[str, Any] = {
    "attempt": "a1",
    "chunk": "c1",
    "job": "j1",
    "test": {"kernel": "layernorm_bw", "shape": [2, 3, 64]},
    "work": [[0, 0], [7, 1]],
    "build": "correct",
    "target": {"executor": "emulator", "arch": "wormhole", "board": "n150"},
    "context": "isolated",
}


def parse(**changes: Any) -> Chunk:
    """Return a chunk from BODY with changes."""
    return Chunk.parse({**BODY, **changes}, max_elements=2**20, seed_deadline_s=600.0)
