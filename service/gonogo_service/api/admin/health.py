"""Health, readiness and metrics: /healthz, /readyz, /metrics (not below /api/v1)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import lru_cache

import structlog
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from redis import RedisError
from sqlalchemy.exc import SQLAlchemyError

from gonogo_service.access.context import Context, Ctx, Reader
from gonogo_service.kit.problems import Problem
from gonogo_storage.ops import schema

router = APIRouter(tags=["health"])
_log = structlog.get_logger("gonogo.service")


@dataclass(frozen=True)
class Healthy:
    """The answer of a running process."""

    status: str


@dataclass(frozen=True)
class Ready:
    """The answer of a process whose parts all answer."""

    database: str
    schema: str
    broker: str


@router.get("/healthz", summary="Does the process answer?")
async def healthz() -> Healthy:
    """Answer without any check."""
    return Healthy("ok")


@router.get(
    "/readyz",
    responses={503: {"description": "The parts that are not ready"}},
    response_description="Database, schema and broker are ready",
    summary="Is the service ready?",
)
async def readyz(context: Ctx) -> Ready:
    """Check that the database and the broker answer, and that the schema is current.

    The schema of the next release is allowed, too.
    """
    # a thread and a connection of its own: a probe must not wait for other requests
    return await to_thread.run_sync(_ready, context, limiter=_thread(asyncio.get_running_loop()))


@lru_cache(maxsize=1)
def _thread(_loop: asyncio.AbstractEventLoop) -> CapacityLimiter:
    return CapacityLimiter(1)


def _ready(context: Context) -> Ready:
    status = {"database": "ok", "schema": "unknown", "broker": "ok"}
    problems = []
    try:
        state = _schema(context)
    except (SQLAlchemyError, OSError) as problem:
        _log.warning("not ready", database=str(problem).splitlines()[0])
        status["database"] = "unreachable"
        problems.append("the database can't be reached")
    else:
        status["schema"] = state.value
        if state not in schema.READY:
            problems.append(f"the database's schema is {state.value}: run `gonogo db upgrade`")
    try:
        context.notifier.ping()
    except (RedisError, OSError) as problem:
        _log.warning("not ready", broker=str(problem))
        status["broker"] = "unreachable"
        problems.append("the broker can't be reached")
    if problems:
        errors = [
            {"field": name, "value": value, "limit": "ok", "message": f"{name}: {value}"}
            for name, value in status.items()
            if value != "ok"
        ]
        raise Problem(
            503,
            "Not ready: " + "; ".join(problems) + ".",
            slug="not-ready",
            errors=[error for error in errors if error["value"] not in {"head", "ahead"}],
        )
    return Ready(**status)


@router.get(
    "/metrics",
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {}}}},
    response_class=Response,
    summary="Metrics for Prometheus",
)
def metrics(context: Ctx, _who: Reader) -> Response:
    """Return this process's request metrics, and the service's state from the database."""
    return Response(context.metrics.expose(), media_type=CONTENT_TYPE_LATEST)


def _schema(context: Context) -> schema.SchemaState:
    # a read transaction on SQLite as well: a probe must not wait for the write lock
    return schema.state(context.probe.execution_options(gonogo_read=True))
