"""Suspects devices: looks at what failed where in the last day, and asks the pure rule."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from gonogo.devices import suspicion
from gonogo_service.kit.background_context import Core, log
from gonogo_storage.devices import devices, outcomes

LOOK_BACK = timedelta(days=1)


def run_once(core: Core, now: datetime) -> int:
    """One look; how many devices became suspect. Raises core.AWAY errors."""
    tried = core.reading(lambda session: outcomes.by_device(session, since=now - LOOK_BACK))
    number = 0
    for found in suspicion.suspects(tried):
        mark = partial(
            devices.suspect,
            identity=found.device,
            reason=found.words,
            evidence=found.to_json(),
            now=now,
        )
        if core.session(mark):
            log.warning("device suspected", device=found.device, reason=found.words)
            number += 1
    return number
