"""Health, readiness and metrics: /healthz, /readyz, /metrics (not below /api/v1)."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from gonogo_service.operate.readiness import Ready
from gonogo_service.people.context import Ctx, Reader

router = APIRouter(tags=["health"])


@dataclass(frozen=True)
class Healthy:
    """The answer of a running process."""

    status: str


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

    The schema of the next release is allowed, too. A busy service answers from its last check.
    """
    return await context.readiness.state()


@router.get(
    "/metrics",
    responses={
        200: {
            "description": "Prometheus text",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
    response_class=Response,
    summary="Metrics for Prometheus",
)
def metrics(context: Ctx, _who: Reader) -> Response:
    """Return this process's request metrics, and the service's state from the database."""
    return Response(context.metrics.expose(), media_type=CONTENT_TYPE_LATEST)
