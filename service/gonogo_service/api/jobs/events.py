"""The stream of a job's events (SSE): progress, verdict, state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException

from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.jobs.jobs import found
from gonogo_service.kit.answers import make_router
from gonogo_service.kit.problems import BadField
from gonogo_storage.db.encoding import encode

router = make_router("jobs")
RETRY_MS = 1000
MAX_NUMBER = 2**31 - 1


def start(
    context: Ctx,
    _who: Reader,
    job_id: str,
    after: Annotated[
        int,
        Query(ge=0, le=MAX_NUMBER, description="number of the last event that is known already"),
    ] = 0,
    last_event_id: Annotated[
        str | None,
        Header(description="what a browser sends when it comes back; goes before `after`"),
    ] = None,
) -> int:
    """The number of the event after which the stream starts. Sync: it reads the database, so it
    runs in a thread.

    204 when there is nothing left to come: that tells an EventSource to stop coming back.
    """
    if last_event_id is not None:
        if not (
            last_event_id.isascii()
            and last_event_id.isdigit()
            and len(last_event_id) < 11
            and int(last_event_id) <= MAX_NUMBER
        ):
            raise BadField(
                "Last-Event-ID",
                last_event_id,
                "must be the number of an event",
                limit=f"0 to {MAX_NUMBER}",
            )
        after = int(last_event_id)
    with context.reading() as session:
        job = found(session, job_id)
    if job.state.final and after >= job.last_event:
        raise HTTPException(204)
    return after


@router.get(
    "/jobs/{job_id}/events",
    response_class=EventSourceResponse,
    responses={204: {"description": "The job is over and every event is known already."}},
    summary="Events of a job as they happen",
)
async def events(
    context: Ctx, job_id: str, after: Annotated[int, Depends(start)]
) -> AsyncIterator[ServerSentEvent]:
    """`progress` {"done", "total", "verdicts"}, `verdict` {"seed", "repeat", "verdict",
    "explanation"}, `state` {"state", "verdict"}.

    A `state` has also `reason`, in words, with `stop` when sequential seeds were decided, with
    `suspects` when suspect ones added seeds. An event's id is its number. Comments keep the
    connection alive. The stream ends when the job is over.
    """
    yield ServerSentEvent(retry=RETRY_MS)  # also sends the headers at once
    async for event in context.hub.follow(job_id, after):
        yield ServerSentEvent(
            id=str(event["number"]), event=event["type"], raw_data=encode(event["data"])
        )
