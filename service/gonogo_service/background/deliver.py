"""The loop that handles due work: events, incoming deliveries, messages, answers to GitHub.

Each receiver with due work has its own thread, so that a slow one delays nobody else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from gonogo.settings import Settings
from gonogo_service.background.dispatcher import TOPICS as DISPATCHED
from gonogo_service.ci import answers
from gonogo_service.ci.answering import Answerer
from gonogo_service.ci.github import GitHub, client_of
from gonogo_service.ci.model import AnswerRow, IncomingDeliveryRow
from gonogo_service.ci.processor import Processor, changed_paths
from gonogo_service.kit.background_context import AWAY, BackgroundContext, log
from gonogo_service.kit.outbox.model import DueWorkRow, OutboxRow
from gonogo_service.kit.principals import Keys
from gonogo_service.tests.assessments import ASSESS
from gonogo_service.webhooks import messages, sending
from gonogo_service.webhooks.model import DeliveryRow
from gonogo_service.webhooks.signing import Box

MAX_RECEIVERS = 8
"""Receivers of one kind of work that are served at once."""
TURN_S, STOP_S = 30.0, 1.0
"""Maximum time for a receiver, before its other work waits for its turn; and at the end."""


@dataclass(frozen=True)
class Handler:
    """How one kind of work is handled."""

    work: type[DueWorkRow]
    handle: Callable[[str], bool]
    """Handles one by its id; returns whether its receiver may get more now."""
    where: tuple[ColumnElement[bool], ...] = ()
    """The part of the kind that it handles."""


@dataclass
class Deliver:
    """The role. `clients` are closed at the end."""

    context: BackgroundContext
    handlers: Sequence[Handler]
    clients: Sequence[GitHub] = ()
    _busy: dict[tuple[type[DueWorkRow], str], threading.Thread] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _lost: threading.Event = field(default_factory=threading.Event)

    def run_once(self) -> int:
        """Start what is due; return the number of active receivers. Raises the AWAY errors."""
        self._lost.clear()
        for handler in self.handlers:
            with self._lock:
                busy = {receiver for work, receiver in self._busy if work is handler.work}
            due = self.context.reading(partial(_due, handler=handler, busy=busy))
            free = [receiver for receiver in due if receiver not in busy]
            with self._lock:
                for receiver in free[: MAX_RECEIVERS - len(busy)]:
                    # daemon: a receiver that doesn't answer must not block the process's end
                    thread = threading.Thread(
                        target=self._serve,
                        args=(handler, receiver, due[receiver]),
                        name=f"deliver-{receiver}",
                        daemon=True,
                    )
                    self._busy[handler.work, receiver] = thread
                    thread.start()
        with self._lock:
            return len(self._busy)

    def lost(self) -> None:
        """Stop after the current work, because another process may do the rest now."""
        self._lost.set()

    def stopped(self) -> bool:
        """Return whether nothing more may be begun."""
        return self.context.stop.is_set() or self._lost.is_set()

    def join(self, timeout_s: float) -> None:
        """Wait for the threads."""
        until = time.monotonic() + timeout_s
        with self._lock:
            threads = list(self._busy.values())
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Wait for the current requests, and close the connections to GitHub."""
        self.join(STOP_S)
        for client in self.clients:
            client.close()

    def _serve(self, handler: Handler, receiver: str, ids: Sequence[str]) -> None:
        until = time.monotonic() + TURN_S
        try:
            for key in ids:
                if self.stopped() or not self._handle(handler, key) or time.monotonic() > until:
                    return
        except AWAY as problem:
            error = (str(problem).splitlines() or [type(problem).__name__])[0]
            log.warning("database unavailable; work waits", receiver=receiver, error=error)
        finally:
            with self._lock:
                del self._busy[handler.work, receiver]

    def _handle(self, handler: Handler, key: str) -> bool:
        try:
            return handler.handle(key)
        except AWAY:
            raise
        except Exception as problem:
            log.exception("could not be handled; trying again later", work=key)
            error = f"{type(problem).__name__}: {problem}"

            def postpone(session: Session) -> None:
                row = handler.work.locked(session, key)
                if row is not None:
                    row.postpone(error)

            self.context.session(postpone)
            return True


def _due(session: Session, handler: Handler, busy: Collection[str]) -> dict[str, list[str]]:
    return handler.work.due_by_receiver(session, busy, *handler.where)


def events(
    context: BackgroundContext,
    by_topic: Mapping[str, Callable[[Session, Mapping[str, Any]], None]],
) -> Handler:
    """Return the handler of the outbox.

    A message and what the function of its topic stores are one transaction. Messages of other
    topics are done, because nobody subscribes to them; some are for other roles.
    """

    def handle(message_id: str) -> bool:
        def work(session: Session) -> None:
            row = OutboxRow.locked(session, message_id)
            if row is not None:
                row.finish("done")
                if (handler := by_topic.get(row.topic)) is not None:
                    handler(session, row.payload)

        context.session(work)
        return True

    return Handler(OutboxRow, handle, (OutboxRow.topic.not_in((*DISPATCHED, ASSESS)),))


def make_deliver(context: BackgroundContext) -> Deliver:
    """Return the role with every handler that the settings allow."""
    settings = context.settings
    by_topic = {type_: _subscriber(type_, settings) for type_ in messages.TYPES}
    assert settings.secret_key is not None
    box = Box(Keys(settings.secret_key.get_secret_value()))
    clients: list[GitHub] = []
    try:
        # a client each: they are used in different threads
        both = [client_of(settings), client_of(settings)]
        clients = [client for client in both if client is not None]
    except ValueError as problem:  # everything else must go on; answers wait for the right setting
        log.error("nothing is sent to GitHub or read from it", error=str(problem))
    paths = partial(changed_paths, clients[0]) if clients else None
    role = Deliver(
        context,
        [
            events(context, by_topic),
            Handler(IncomingDeliveryRow, Processor(context, paths).handle),
            Handler(DeliveryRow, sending.Sender(context, box).send),
        ],
        clients,
    )
    if clients:
        answerer = Answerer(context, clients[1], role.stopped)
        role.handlers = [*role.handlers, Handler(AnswerRow, answerer.handle)]
    return role


def _subscriber(type_: str, settings: Settings) -> Callable[[Session, Mapping[str, Any]], None]:
    """Return the function that tells subscribers, and GitHub, about an event."""

    def tell(session: Session, reference: Mapping[str, Any]) -> None:
        sending.fan_out(session, type_, reference, settings.url)
        if type_ == "run.finished":
            answers.run_ended(session, reference["run"])

    return tell
