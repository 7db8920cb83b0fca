"""The stream of a job's events (SSE): progress, verdict, state."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException

from gonogo_service.jobs.api.jobs import require_job
from gonogo_service.jobs.events import Event, Progress, SeedVerdict, StateChange
from gonogo_service.kit.answers import make_router
from gonogo_service.kit.database.encoding import encode
from gonogo_service.kit.database.records import schema_of
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField
from gonogo_service.people.context import Context, Ctx, Reader

router = make_router("jobs")
RETRY_MS = 1000
MAX_NUMBER = 2**31 - 1


After = Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Number of the last known event")]
LastEventId = Annotated[
    str | None, Header(description="Sent by browsers when they reconnect; overrides `after`")
]


def answers(data: Any, over: str) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of a stream's answers: its events' data, and when it is a 204."""
    content = {"text/event-stream": {"schema": schema_of(data)}}
    words = "Events; the schema is that of an event's data"
    return {200: {"content": content, "description": words}, 204: {"description": over}}


@asynccontextmanager
async def while_read(
    context: Context, who: Principal, source: AsyncGenerator[Event[Any]]
) -> AsyncIterator[AsyncIterator[Event[Any]]]:
    """Yield events until the answer is over, or the reader's token ends.

    A client may leave while an event is on its way. Without this, the stream would be counted, and
    its source polled, until the garbage collector finds the answer.
    """
    async with aclosing(source) as events, aclosing(context.live.while_valid(who, events)) as read:
        yield read


async def sent(stored: AsyncIterator[Event[Any]]) -> AsyncIterator[ServerSentEvent]:
    """Yield events as they are sent."""
    yield ServerSentEvent(retry=RETRY_MS)  # also sends the headers at once
    async for event in stored:
        yield ServerSentEvent(id=str(event.number), event=event.type, raw_data=encode(event.data))


def last_known(after: int, last_event_id: str | None) -> int:
    """Return the number of the last event that a client knows. Raises BadField."""
    if last_event_id is None:
        return after
    if (
        last_event_id.isascii()
        and last_event_id.isdigit()
        and len(last_event_id) < 11
        and int(last_event_id) <= MAX_NUMBER
    ):
        return int(last_event_id)
    raise BadField(
        "Last-Event-ID",
        last_event_id,
        "must be the number of an event",
        limit=f"0 to {MAX_NUMBER}",
    )


def start(
    context: Ctx,
    _who: Reader,
    job_id: str,
    after: After = 0,
    last_event_id: LastEventId = None,
) -> int:
    """Return the number of the event after which the stream starts.

    It is a sync function, so that its database read runs in a thread. It answers 204 when no event
    will follow, which tells an EventSource not to reconnect.
    """
    after = last_known(after, last_event_id)
    with context.reading() as session:
        job = require_job(session, job_id)
    if job.state.final and after >= job.last_event:
        raise HTTPException(204)
    return after


async def follow(
    context: Ctx, who: Reader, job_id: str, after: Annotated[int, Depends(start)]
) -> AsyncIterator[AsyncIterator[Event[Any]]]:
    """Yield the job's events as they are stored."""
    async with while_read(context, who, context.hub.follow(job_id, after)) as stored:
        yield stored


@router.get(
    "/jobs/{job_id}/events",
    response_class=EventSourceResponse,
    responses=answers(
        Progress | SeedVerdict | StateChange, "The job is over, and every event is known"
    ),
    summary="Stream a job's events",
)
async def events(
    stored: Annotated[AsyncIterator[Event[Any]], Depends(follow)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream events of three types: progress, verdict and state.

    `progress` has {"done", "total", "verdicts"}, `verdict` {"seed", "repeat", "verdict",
    "explanation"}, and `state` {"state", "verdict"}. A `state` also has `reason`, in words, with
    `stop` when sequential seeds were decided, or with `suspects` when suspect seeds added more. An
    event's ID is its number. Comments keep the connection alive. The stream ends with the job.
    """
    async for event in sent(stored):
        yield event
