"""Device workers, as their heartbeats describe them."""

from __future__ import annotations

from fastapi import Response
from pydantic import BaseModel

from service.api.answers import answer, make_router
from service.context import Ctx, Reader
from storage import workers as stored
from storage.states import WorkerState

router = make_router("workers")


class WorkerOut(BaseModel):
    """A worker and what it is doing."""

    name: str
    host: str | None
    device: str | None
    queues: list[str]
    state: WorkerState
    attempt: str | None
    seed: int | None
    stage: str | None
    first_heard_at: str
    heard_at: str


class WorkerPage(BaseModel):
    """All workers of the last week; there is always one page."""

    items: list[WorkerOut]
    next: None


@router.get("/workers", responses={200: {"model": WorkerPage}}, response_class=Response, summary="List device workers")
def workers(context: Ctx, _who: Reader) -> Response:
    """By name."""
    with context.reading() as session:
        return answer({"items": stored.list_(session, timeout_s=context.settings.heartbeat_timeout_s), "next": None})
