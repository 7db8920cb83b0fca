"""Delivery of the outbox: passes each message to the handler of its topic.

A message and what its handler stores are one transaction, so it is handled exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from gonogo_service.background.dispatcher import TOPICS as DISPATCHED
from gonogo_service.kit.background_context import BackgroundContext
from gonogo_storage.history.assessment_requests import ASSESS
from gonogo_storage.messages import outbox

Handler = Callable[[Session, Mapping[str, Any]], None]


@dataclass(frozen=True)
class OutboxDelivery:
    """The role; `handlers` maps topics to what handles their messages.

    Messages of other topics are marked delivered, because nobody subscribes to them.
    """

    context: BackgroundContext
    handlers: Mapping[str, Handler]

    def run_once(self) -> int:
        """Deliver the due messages; return the number of delivered ones."""
        messages = self.context.reading(partial(outbox.due, exclude=(*DISPATCHED, ASSESS)))
        keys = [message.id for message in messages]
        return self.context.handle_each("message", keys, self._deliver, outbox.postponed)

    def _deliver(self, message_id: str) -> bool:
        def work(session: Session) -> bool:
            message = outbox.lock(session, message_id)
            if message is None:
                return False
            if (handler := self.handlers.get(message.topic)) is not None:
                handler(session, message.payload)
            outbox.delivered(session, [message_id])
            return True

        return self.context.session(work)
