"""Retention: removes what is older than the settings allow, a few times a day."""

from __future__ import annotations

import time

from gonogo.settings import Settings
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.operate import retention
from gonogo_service.operate.retention import Policy, Tier

EVERY_S = 6 * 3600.0
PASS_S = 30.0
"""A pass ends after this time, and the next one continues."""
POLL_S = 60.0


def policy_of(settings: Settings) -> Policy:
    """Return the policy in the settings."""
    days = {tier: int(getattr(settings, f"keep_{tier}_days")) for tier in Tier}
    return Policy(days, settings.keep_builds)


class Pruner:
    """The role; it remembers when the next pass is due."""

    def __init__(self, context: BackgroundContext) -> None:
        self.context = context
        self._next = 0.0

    def run_once(self) -> int:
        """Run one pass if it is due; return the number of jobs that lost something."""
        began = time.monotonic()
        if began < self._next:
            return 0
        context = self.context
        removed = retention.prune(
            context.engine,
            policy_of(context.settings),
            now=retention.current_time(context.engine),
            actor="background",
            keep_going=lambda: not context.stop.is_set() and time.monotonic() - began < PASS_S,
        )
        if removed.complete:
            self._next = time.monotonic() + EVERY_S
        if removed:
            log.info("retention removed", **removed.to_json())
        return sum(amount.jobs for amount in removed.tiers.values())
