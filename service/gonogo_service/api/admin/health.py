"""Is it alive, is it ready, and how is it doing: /healthz, /readyz, /metrics (not below
/api/v1).
"""

from __future__ import annotations

import structlog
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from redis import RedisError
from sqlalchemy.exc import SQLAlchemyError

from gonogo_service.access.context import Context, Ctx, Reader
from gonogo_service.kit.answers import answer
from gonogo_service.kit.problems import Problem
from gonogo_storage.ops import schema

router = APIRouter(tags=["health"])
_log = structlog.get_logger("gonogo.service")


class Healthy(BaseModel):
    """The process answers."""

    status: str


@router.get(
    "/healthz",
    responses={200: {"model": Healthy}},
    response_class=Response,
    summary="Does the process answer?",
)
def healthz() -> Response:
    """Asks nothing and nobody."""
    return answer({"status": "ok"})


@router.get(
    "/readyz",
    responses={
        200: {"description": "Database, schema and broker are in order."},
        503: {"description": "One of them is not; it is named."},
    },
    response_class=Response,
    summary="Can it serve?",
)
def readyz(context: Ctx) -> Response:
    """The database must answer and have this release's schema (or that of the next one), the broker
    must answer.
    """
    found = {"database": "ok", "schema": "unknown", "broker": "ok"}
    wrong = []
    try:
        state = _schema(context)
    except (SQLAlchemyError, OSError) as problem:
        _log.warning("not ready", database=str(problem).splitlines()[0])
        found["database"] = "unreachable"
        wrong.append("the database can't be reached")
    else:
        found["schema"] = state.value
        if state not in schema.READY:
            wrong.append(f"the database's schema is {state.value}: run `gonogo db upgrade`")
    try:
        context.notifier.ping()
    except (RedisError, OSError) as problem:
        _log.warning("not ready", broker=str(problem))
        found["broker"] = "unreachable"
        wrong.append("the broker can't be reached")
    if wrong:
        errors = [
            {"field": name, "value": value, "limit": "ok", "message": f"{name}: {value}"}
            for name, value in found.items()
            if value != "ok"
        ]
        raise Problem(
            503,
            "Not ready: " + "; ".join(wrong) + ".",
            slug="not-ready",
            errors=[e for e in errors if e["value"] not in {"head", "ahead"}],
        )
    return answer(found)


@router.get(
    "/metrics",
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {}}}},
    response_class=Response,
    summary="For Prometheus",
)
def metrics(context: Ctx, _who: Reader) -> Response:
    """Requests of this process, and the state of the service from the database."""
    return Response(context.metrics.expose(), media_type=CONTENT_TYPE_LATEST)


def _schema(context: Context) -> schema.SchemaState:
    # a read transaction on SQLite as well: a probe must not wait for the write lock
    return schema.state(context.engine.execution_options(gonogo_read=True))
