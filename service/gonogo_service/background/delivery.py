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
from gonogo_service.kit.outbox import outbox
from gonogo_service.kit.outbox.outbox import OutboxMessage
from gonogo_service.tests.assessments import ASSESS

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
        due = self.context.reading(partial(outbox.due, exclude=(*DISPATCHED, ASSESS)))
        messages = {message.id: message for message in due}
        return self.context.handle_each(
            "message", messages, lambda key: self._deliver(messages[key]), outbox.postponed
        )

    def _deliver(self, message: OutboxMessage) -> bool:
        def work(session: Session) -> bool:
            if not outbox.delivered(session, [message.id]):
                return False
            if (handler := self.handlers.get(message.topic)) is not None:
                handler(session, message.payload)
            return True

        return self.context.session(work)
