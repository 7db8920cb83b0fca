"""Roll-ups: counts the seeds that ingest has not counted.

Ingest counts what it stores. Processes of an older version, while they are being replaced, may
store seeds without counting them.
"""

from __future__ import annotations

from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_storage.rollups import rebuild

EVERY_S = 300.0


def run_once(context: BackgroundContext) -> int:
    """Run one pass; return the number of counted seeds."""
    seeds = rebuild.catch_up(context.engine, keep_going=lambda: not context.stop.is_set())
    if seeds:
        log.info("roll-ups caught up", seeds=seeds)
    return seeds
