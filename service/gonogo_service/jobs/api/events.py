"""Streams of events (SSE): a job's progress, verdicts and states, and those of a bisection."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException

from gonogo_service.jobs.api.jobs import JOBS
from gonogo_service.jobs.events import Event, Progress, SeedVerdict, StateChange
from gonogo_service.jobs.live_events import Hub
from gonogo_service.kit.database.encoding import encode
from gonogo_service.kit.database.records import schema_of
from gonogo_service.kit.resource import Resource
from gonogo_service.people.context import Context, Ctx, Reader

RETRY_MS = 1000
MAX_NUMBER = 2**31 - 1


After = Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Number of the last known event")]
LastEventId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=MAX_NUMBER,
        description="Sent by browsers when they reconnect; overrides `after`",
    ),
]


def add_stream(
    resource: Resource[Any],
    hub_of: Callable[[Context], Hub],
    last_of: Callable[[Any], int],
    data: Any,
    doc: str,
) -> None:
    """Add the stream of a noun's events to its routes.

    hub_of: returns the hub that follows them. last_of: returns the number of a row's last event.
    data: their types. It answers 204 when no event will follow, which tells an EventSource not to
    reconnect.
    """
    one = resource.noun.one
    identity: Any = Path(alias=f"{one}_id")

    # a sync function, so that its database read runs in a thread
    def start(
        context: Ctx,
        who: Reader,
        key: str = identity,
        after: After = 0,
        last_event_id: LastEventId = None,
    ) -> int:
        after = after if last_event_id is None else last_event_id
        with context.reading() as session:
            row: Any = resource.require(session, who, key)
        if row.state.final and after >= last_of(row):
            raise HTTPException(204)
        return after

    async def follow(
        context: Ctx, who: Reader, key: str = identity, after: int = Depends(start)
    ) -> AsyncIterator[AsyncIterator[Event[Any]]]:
        # a client may leave while an event is on its way: unless it is closed, the stream would be
        # counted, and its source polled, until the garbage collector finds the answer
        source = hub_of(context).follow(key, after)
        async with aclosing(source) as read, aclosing(context.live.while_valid(who, read)) as valid:
            yield valid

    async def events(
        stored: AsyncIterator[Event[Any]] = Depends(follow),
    ) -> AsyncIterator[ServerSentEvent]:
        yield ServerSentEvent(retry=RETRY_MS)  # also sends the headers at once
        async for event in stored:
            text = encode(event.data)
            yield ServerSentEvent(id=str(event.number), event=event.type, raw_data=text)

    content = {"text/event-stream": {"schema": schema_of(data)}}
    words = "Events; the schema is that of an event's data"
    over = f"The {one} is over, and every event is known"
    resource.router.add_api_route(
        f"{resource.noun.address}/{{{one}_id}}/events",
        events,
        response_class=EventSourceResponse,
        responses={200: {"content": content, "description": words}, 204: {"description": over}},
        summary=f"Stream {resource.noun.words}'s events",
        description=inspect.cleandoc(doc),
        name=f"events_{resource.noun.name}",
    )


add_stream(
    JOBS,
    lambda context: context.hub,
    lambda job: int(job.last_event),
    Progress | SeedVerdict | StateChange,
    """Stream events of three types: progress, verdict and state.

    `progress` has {"done", "total", "verdicts"}, `verdict` {"seed", "repeat", "verdict",
    "explanation"}, and `state` {"state", "verdict"}. A `state` also has `reason`, in words, with
    `stop` when sequential seeds were decided, or with `suspects` when suspect seeds added more. An
    event's ID is its number. Comments keep the connection alive. The stream ends with the job.
    """,
)
