"""Checks without effect: `POST /<noun>:validate` runs what creates one, and rolls it back.

A form asks while one types, and its checks are those of the request that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_service.bisections import api as bisections
from gonogo_service.gauges import api as gauges
from gonogo_service.jobs.bodies import GaugeIn
from gonogo_service.kit.answers import make_router
from gonogo_service.kit.notifier import DispatchNotifier
from gonogo_service.people.context import Context, Ctx, Submitter

router = make_router("rehearsals")


@dataclass(frozen=True)
class Checked:
    """The answer where every check passed; nothing was created."""

    valid: bool


class _RolledBack(Exception):
    """Ends a transaction that must leave nothing."""


class _Silent:
    """A notifier of nothing."""

    def notify(self) -> None:
        """Do nothing: there is no new work."""


@dataclass(frozen=True)
class RehearsalContext(Context):
    """The resources of the app, whose write transactions leave nothing behind."""

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a write transaction that is rolled back at its end."""
        try:
            with super().session() as session:
                yield session
                raise _RolledBack
        except _RolledBack:
            pass


def rehearse(context: Context, create: Callable[[Context], Any]) -> Checked:
    """Run a creation without effect; its refusals are raised."""
    resources = {**vars(context), "notifier": cast(DispatchNotifier, _Silent())}
    create(RehearsalContext(**resources))
    return Checked(valid=True)


@router.post("/gauges:validate", summary="Check a gauge")
def gauge(context: Ctx, who: Submitter, request: Request, body: GaugeIn) -> Checked:
    """Make all checks of `POST /gauges` without creating a gauge."""
    return rehearse(context, lambda dry: gauges.submit(dry, who, request, body, None))


@router.post("/bisections:validate", summary="Check a bisection")
def bisection(
    context: Ctx, who: Submitter, request: Request, body: bisections.BisectionIn
) -> Checked:
    """Make all checks of `POST /bisections` without creating a bisection."""
    return rehearse(context, lambda dry: bisections.submit(dry, who, request, body, None))
