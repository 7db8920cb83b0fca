"""How long browser tests wait for what must come: a limit for a machine with much other work."""

from __future__ import annotations

LONG_MS = 60_000
