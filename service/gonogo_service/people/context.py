"""The shared resources of every endpoint and page.

Settings, database, keys, the dispatcher's notifier, and the hubs of live events.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, cast

import anyio
from fastapi import Depends, Request
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from gonogo.settings import Settings
from gonogo_service.jobs.live_events import Hub
from gonogo_service.kit.answers import caller, principal_of
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.notifier import DispatchNotifier
from gonogo_service.kit.principals import Keys, Principal
from gonogo_service.operate.metrics import Metrics
from gonogo_service.operate.readiness import Readiness
from gonogo_service.people import quotas
from gonogo_service.people.live_principals import LivePrincipals


@dataclass(frozen=True)
class Context:
    """The shared resources of an app; create_app makes one, as `app.state.context`."""

    settings: Settings
    engine: Engine
    probe: Engine
    """One connection for readiness, which must not wait for the others"""
    readiness: Readiness
    keys: Keys
    notifier: DispatchNotifier
    hub: Hub
    bisections: Hub
    """Live events of bisections, by their versions."""
    metrics: Metrics
    live: LivePrincipals
    """Streams end with the token or the login that opened them."""
    unpacking: anyio.Semaphore
    """Bodies of hosts are unpacked in turns, a few at once."""

    def end_streams(self) -> None:
        """End every stream of live events; new ones end at once."""
        self.hub.close()
        self.bisections.close()

    def session(self) -> AbstractContextManager[Session]:
        """Open a write transaction; it commits at the end, or rolls back on an exception."""
        return engines.session(self.engine)

    def reading(self) -> AbstractContextManager[Session]:
        """Open a read transaction, which never waits for writers."""
        return engines.reading(self.engine, timeout_s=self.settings.read_timeout_s)

    def csrf(self, request: Request) -> str:
        """Return the CSRF token of the request's login, "" without one.

        It belongs in X-CSRF-Token, or in the field `csrf_token` of the logout form.
        """
        principal = principal_of(request)
        return "" if principal is None else principal.csrf

    def quotas(self, session: Session, request: Request) -> list[str]:
        """Return how much of its quotas the request's principal has used, in words."""
        principal = principal_of(request)
        owner = "" if principal is None else principal.name
        return [str(quota) for quota in quotas.of(session, self.settings, owner, utcnow())]

    def token_ends(self, request: Request) -> str:
        """Return the day on which the request's token ends, where that is soon; else ""."""
        principal = principal_of(request)
        end = None if principal is None else principal.soon_over(utcnow())
        return "" if end is None else f"{end:%Y-%m-%d}"

    def reader(self, request: Request) -> str:
        """Return the name of the request's principal, "" without one."""
        principal = principal_of(request)
        return "" if principal is None else principal.name

    def may(self, request: Request, scope: str) -> bool:
        """Return whether the request's principal has a scope, or one that contains it."""
        principal = principal_of(request)
        return principal is not None and principal.may(scope)


def context_of(request: Request) -> Context:
    """Return the context of the app that serves this request."""
    return cast(Context, request.app.state.context)


async def _context(request: Request) -> Context:
    return context_of(request)


Ctx = Annotated[Context, Depends(_context)]
Reader = Annotated[Principal, Depends(caller("read"))]
Submitter = Annotated[Principal, Depends(caller("submit"))]
Admin = Annotated[Principal, Depends(caller("admin"))]
