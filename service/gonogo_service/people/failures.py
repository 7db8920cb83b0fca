"""Limits and traces of refused tokens and failed logins.

Failures are counted in the database, for all processes and by the address that a trusted proxy
names. What comes faster is refused from this process's memory, so that nobody can make us write.
Failures never block a valid token: 190 random bits are guessed by nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.minute_counts import MinuteCounts
from gonogo_service.kit.networks import network_of
from gonogo_service.kit.problems import Problem
from gonogo_service.people import stored_failures as failures

if TYPE_CHECKING:
    from gonogo_service.people.auth import Refusal
    from gonogo_service.people.context import Context

MOST: Final = {"token": 30, "login": 10, "signature": 30}
"""Refused tokens, failed logins and rejected signatures of an address in a minute."""
_log = structlog.get_logger("gonogo.service")


class FailureLimits:
    """Counts failures: in the database for all processes, and in memory before that."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._counts = MinuteCounts()

    def rejected_signature(self, client: str) -> None:
        """Count a rejected signature in memory; raise Problem 429 when there are too many."""
        self._hit("signature", network_of(client))

    def refused(self, kind: str, client: str, refusal: Refusal) -> None:
        """Count a refused "token" or "login"; raise Problem 429 when there are too many."""
        network, now = network_of(client), utcnow()
        self._hit(kind, network, refusal.prefix)
        try:
            with self._context.session() as session:
                count = failures.record(
                    session,
                    kind=kind,
                    client=network,
                    prefix=refusal.prefix,
                    reason=refusal.reason,
                    now=now,
                )
        except SQLAlchemyError as problem:  # a full disk must not become a 500 for a stranger
            _log.warning("a failure can't be stored", error=str(problem).splitlines()[0])
            return
        if count > MOST[kind]:
            raise _too_many(MOST[kind], 60 - now.second)

    def _hit(self, kind: str, *key: str) -> None:
        if wait_s := self._counts.hit(MOST[kind], kind, *key):
            raise _too_many(MOST[kind], round(wait_s))


def _too_many(amount: int, wait_s: int) -> Problem:
    return Problem(
        429,
        f"Too many failures from this address (allowed: {amount} a minute).",
        slug="too-many-failures",
        headers={"Retry-After": str(max(1, wait_s))},
    )
