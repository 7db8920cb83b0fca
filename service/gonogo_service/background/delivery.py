"""Delivery of the outbox: passes each message to the handler of its topic.

A failed message is retried with a growing delay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from gonogo_service.background.dispatcher import TOPICS as DISPATCHED
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.history.assessment_requests import ASSESS
from gonogo_storage.messages import outbox

Handler = Callable[[BackgroundContext, Mapping[str, Any]], None]

# Seconds until the next try after the n-th failure; the last one repeats.
BACKOFF_S = (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)

# topic -> handler; messages of other topics are marked delivered, because nobody subscribes to them
HANDLERS: dict[str, Handler] = {}


def run_once(context: BackgroundContext) -> int:
    """Deliver the due messages; return the number of delivered ones."""
    messages = context.reading(lambda session: outbox.due(session, exclude=(*DISPATCHED, ASSESS)))
    done: list[str] = []
    for message in messages:
        handler = HANDLERS.get(message.topic)
        try:
            if handler is not None:
                handler(context, message.payload)
        except Exception as problem:
            until = utcnow() + timedelta(seconds=BACKOFF_S[min(message.tries, len(BACKOFF_S) - 1)])
            log.warning(
                "not delivered",
                topic=message.topic,
                message=message.id,
                tries=message.tries + 1,
                error=str(problem),
            )
            context.session(
                partial(outbox.postponed, message_id=message.id, error=str(problem), until=until)
            )
        else:
            done.append(message.id)
    if done:
        context.session(lambda session: outbox.delivered(session, done))
    return len(done)
