"""Marks devices as suspect: applies the domain's rule to the last day's outcomes."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial

from gonogo.devices import suspicion
from gonogo_service.devices import changes, outcomes
from gonogo_service.kit.background_context import BackgroundContext, log

LOOK_BACK = timedelta(days=1)


def run_once(context: BackgroundContext, now: datetime) -> int:
    """Run one pass; return the number of devices that became suspect. Raises the AWAY errors."""
    by_device = context.reading(lambda session: outcomes.by_device(session, since=now - LOOK_BACK))
    count = 0
    for suspected in suspicion.suspects(by_device):
        mark = partial(
            changes.suspect,
            device=suspected.device,
            reason=suspected.words,
            evidence=asdict(suspected),
            now=now,
        )
        if context.session(mark):
            log.warning("device suspected", device=suspected.device, reason=suspected.words)
            count += 1
    return count
