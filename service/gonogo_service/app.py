"""create_app(): the composition root of the HTTP service."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Concatenate, ParamSpec, TypeVar

import anyio
from anyio import to_thread
from fastapi import FastAPI
from sqlalchemy.orm import Session
from starlette.middleware.gzip import GZipMiddleware

from gonogo import settings as configuration
from gonogo import urls
from gonogo.kernels import registry as kernels
from gonogo.settings import Settings
from gonogo.settings.release import release
from gonogo_dashboards import pages
from gonogo_service import login, refusals, triage_form
from gonogo_service.bisections import store as bisections
from gonogo_service.edge import Edge
from gonogo_service.jobs import events as stored_events
from gonogo_service.jobs.live_events import Hub
from gonogo_service.kit import openapi
from gonogo_service.kit.body_limits import BodyLimits, LimitBodies
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.notifier import DispatchNotifier
from gonogo_service.kit.principals import Keys
from gonogo_service.operate import health_api as health
from gonogo_service.operate import metrics
from gonogo_service.operate.presence import present
from gonogo_service.operate.readiness import PATIENCE_S, Readiness, check
from gonogo_service.people import auth
from gonogo_service.people import store as tokens
from gonogo_service.people.context import Context
from gonogo_service.people.failures import FailureLimits
from gonogo_service.people.live_principals import LivePrincipals
from gonogo_service.routers import routers

P = ParamSpec("P")
T = TypeVar("T")
GZIP_FROM = 2_000
"""Bytes; shorter answers fit into two packets. Event streams and precompressed files are sent as
they are. The length of a compressed page can't leak the CSRF token: the cookie is SameSite=Strict,
so no other site gets such a page."""
GZIP_LEVEL = 3
"""Half the time of level 5, and 5 % more bytes."""
THREADS = 8
"""Requests that compute at once. They share one interpreter: more would only slow each other down,
and the event loop, which answers probes."""
UNPACKED_AT_ONCE = 4
"""Large bodies of hosts in memory at once: each may take 700 MB."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the app with the API and the pages.

    It doesn't connect yet: the database and the broker may start later. Raises ValueError when
    GONOGO_DATABASE_URL is missing, or GONOGO_SECRET_KEY outside of embedded mode, and FieldError
    for a kernel in GONOGO_KERNELS that can't be loaded.
    """
    settings = settings or configuration.load()
    kernels.load(settings.kernels)
    context = make_context(settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        with present(context.engine):
            yield
        context.end_streams()
        context.notifier.close()
        context.engine.dispose()
        context.probe.dispose()

    app = FastAPI(
        title=openapi.TITLE,
        version=release(),
        openapi_url=urls.OPENAPI,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.context = context
    # health first: addresses are matched in turn, and probes are asked most often
    all_routers = [health.router, *routers(), login.router, triage_form.router]
    # not by include_router, which makes each route's schemas a second time at the first request
    # (a quarter of a second) and matches the address twice
    routes = [route for router in all_routers for route in router.routes]
    routes += pages.make_routes(context)
    app.router.routes.extend(routes)
    openapi.install(app, routes)
    limits = BodyLimits.of_settings(settings)
    refusals.install(app, limits=limits, routes=routes)
    # the middleware that is added last is the outermost
    app.add_middleware(GZipMiddleware, minimum_size=GZIP_FROM, compresslevel=GZIP_LEVEL)
    app.add_middleware(LimitBodies, limits=limits)
    app.add_middleware(Edge, context=context, limits=FailureLimits(context), bodies=limits)
    return app


def make_context(settings: Settings) -> Context:
    """Create the shared resources of an app."""
    if settings.database_url is None:
        raise ValueError("GONOGO_DATABASE_URL is not set")
    if settings.secret_key is None and settings.embedded:
        # nobody logs in on loopback; tokens would not outlive the process
        keys = Keys(secrets.token_hex(32))
    else:
        keys = auth.keys_of(settings)
    engine = engines.make_engine(settings.database_url)

    def reading(function: Callable[Concatenate[Session, P], T]) -> Callable[P, T]:
        """Return the function with a read transaction of its own."""

        def read(*args: P.args, **kwargs: P.kwargs) -> T:
            with engines.reading(engine) as session:
                return function(session, *args, **kwargs)

        return read

    def living(session: Session, token_ids: Collection[str], logins: Collection[str]) -> set[str]:
        return tokens.living(session, token_ids, logins, utcnow())

    def state(session: Session) -> metrics.State:
        return metrics.read(session, heartbeat_timeout_s=settings.heartbeat_timeout_s)

    notifier = DispatchNotifier(settings.broker_url)
    probe = engines.make_engine(settings.database_url, pool_size=1, patience_s=PATIENCE_S)
    hub = Hub(reading(stored_events.positions), reading(stored_events.after))
    bisection_hub = Hub(reading(bisections.positions), reading(bisections.after))
    return Context(
        settings=settings,
        engine=engine,
        probe=probe,
        readiness=Readiness(lambda: check(probe, notifier)),
        keys=keys,
        notifier=notifier,
        hub=hub,
        bisections=bisection_hub,
        live=LivePrincipals(reading(living)),
        unpacking=anyio.Semaphore(UNPACKED_AT_ONCE),
        metrics=metrics.Metrics(
            reading(state),
            reading(metrics.totals),
            lambda: hub.streams + bisection_hub.streams,
        ),
    )
