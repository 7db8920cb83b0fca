"""Roll-ups: counts the seeds that ingest has not counted, and counts anew after a removal.

Ingest counts what it stores. Processes of an older version, while they are being replaced, may
store seeds without counting them.
"""

from __future__ import annotations

from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.results.rollups import rebuild

EVERY_S = 300.0


def run_once(context: BackgroundContext) -> int:
    """Run one pass; return the number of counted seeds."""

    def keep_going() -> bool:
        return not context.stop.is_set()

    seeds = rebuild.catch_up(context.engine, keep_going=keep_going)
    if seeds:
        log.info("roll-ups caught up", seeds=seeds)
    if units := rebuild.run_requested(context.engine, keep_going=keep_going):
        log.info("roll-ups counted anew after a removal", units=units)
    return seeds
