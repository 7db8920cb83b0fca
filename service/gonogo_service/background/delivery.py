"""Delivery of the outbox: hands each letter to whoever is registered for its topic; a failed one
comes back, later every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from gonogo_service.background.dispatcher import TOPICS as DISPATCHED
from gonogo_service.kit.background_context import Core, log
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.history.assessment_requests import ASSESS
from gonogo_storage.messages import outbox

Handler = Callable[[Core, Mapping[str, Any]], None]

# Seconds until the next try after the n-th failure; the last one repeats.
BACKOFF_S = (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)

# topic -> who delivers it; a topic without anyone is ticked off: nobody has subscribed to it
HANDLERS: dict[str, Handler] = {}


def run_once(core: Core) -> int:
    """Deliver what is due; the number of letters ticked off."""
    letters = core.reading(lambda session: outbox.due(session, but=(*DISPATCHED, ASSESS)))
    done: list[str] = []
    for letter in letters:
        handler = HANDLERS.get(letter.topic)
        try:
            if handler is not None:
                handler(core, letter.payload)
        except Exception as problem:
            until = utcnow() + timedelta(seconds=BACKOFF_S[min(letter.tries, len(BACKOFF_S) - 1)])
            log.warning(
                "not delivered",
                topic=letter.topic,
                letter=letter.id,
                tries=letter.tries + 1,
                error=str(problem),
            )
            core.session(
                partial(outbox.postponed, letter_id=letter.id, error=str(problem), until=until)
            )
        else:
            done.append(letter.id)
    if done:
        core.session(lambda session: outbox.delivered(session, done))
    return len(done)
