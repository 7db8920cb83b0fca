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

from sqlalchemy import Text, cast, func, select
from sqlalchemy.orm import Session

from gonogo.settings import Settings
from gonogo_service.ci import answers
from gonogo_service.ci.answering import Answerer
from gonogo_service.ci.github import GitHub, client_of
from gonogo_service.ci.model import AnswerRow, IncomingDeliveryRow
from gonogo_service.ci.processor import Processor, changed_paths
from gonogo_service.kit.background_context import AWAY, BackgroundContext, first_line, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox.model import DueWorkRow, OutboxRow
from gonogo_service.people import auth
from gonogo_service.tests.assessments import ASSESS
from gonogo_service.webhooks import messages, sending
from gonogo_service.webhooks.model import DeliveryRow
from gonogo_service.webhooks.secrets import Box

MAX_DUE = 500
"""Work that is read at once."""
MAX_RECEIVERS = 8
"""Webhooks that are served at once; each other kind of work is a receiver of its own."""
TURN_S, STOP_S = 30.0, 1.0
"""Maximum time for a receiver, before its other work waits for its turn; and at the end."""
RECEIVER = func.coalesce(cast(DeliveryRow.webhook, Text), DueWorkRow.kind)
Handle = Callable[[str], bool]
"""Handles work by its id; returns whether its receiver may get more now."""


@dataclass
class Deliver:
    """The role. `clients` are closed at the end."""

    context: BackgroundContext
    handlers: Mapping[type[DueWorkRow], Handle]
    clients: Sequence[GitHub] = ()
    _busy: dict[str, threading.Thread] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _lost: threading.Event = field(default_factory=threading.Event)

    def run_once(self) -> int:
        """Start what is due; return the number of active receivers. Raises the AWAY errors."""
        self._lost.clear()
        with self._lock:
            busy = set(self._busy)
        by_receiver = self.context.reading(partial(self._due, busy=busy))
        with self._lock:
            for receiver, (work, ids) in by_receiver.items():
                others = self._busy.keys() - {kind.KIND for kind in self.handlers}
                if receiver != work.KIND and len(others) >= MAX_RECEIVERS:
                    continue
                # daemon: a receiver that doesn't answer must not block the process's end
                thread = threading.Thread(
                    target=self._serve,
                    args=(work, receiver, ids),
                    name=f"deliver-{receiver}",
                    daemon=True,
                )
                self._busy[receiver] = thread
                thread.start()
            return len(self._busy)

    def _due(
        self, session: Session, busy: Collection[str]
    ) -> dict[str, tuple[type[DueWorkRow], list[str]]]:
        """Return receiver -> its due work, the longest due first, without busy receivers."""
        row, kinds = DueWorkRow, {work.KIND: work for work in self.handlers}
        query = (
            select(row.id, row.kind, RECEIVER)
            .where(row.due_at <= utcnow(), row.kind.in_(kinds), RECEIVER.not_in(busy))
            .where(row.topic != ASSESS)  # another role has these
            .order_by(row.due_at, row.id)
            .limit(MAX_DUE)
        )
        by_receiver: dict[str, tuple[type[DueWorkRow], list[str]]] = {}
        for key, kind, receiver in session.execute(query):
            by_receiver.setdefault(receiver, (kinds[kind], []))[1].append(key)
        return by_receiver

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

    def _serve(self, work: type[DueWorkRow], receiver: str, ids: Sequence[str]) -> None:
        until = time.monotonic() + TURN_S
        try:
            for key in ids:
                if self.stopped() or not self._handle(work, key) or time.monotonic() > until:
                    return
        except AWAY as problem:
            error = first_line(problem)
            log.warning("database unavailable; work waits", receiver=receiver, error=error)
        finally:
            with self._lock:
                del self._busy[receiver]

    def _handle(self, work: type[DueWorkRow], key: str) -> bool:
        try:
            return self.handlers[work](key)
        except AWAY:
            raise
        except Exception as problem:
            log.exception("could not be handled; trying again later", work=key)
            error = f"{type(problem).__name__}: {problem}"
            self.context.session(partial(work.put_off, key=key, reason=error))
            return True


def events(
    context: BackgroundContext,
    by_topic: Mapping[str, Callable[[Session, Mapping[str, Any]], None]],
) -> Handle:
    """Return the handler of the outbox.

    A message and what the function of its topic stores are one transaction. Messages of other
    topics are done, because nobody subscribes to them.
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

    return handle


def make_deliver(context: BackgroundContext) -> Deliver:
    """Return the role with every handler that the settings allow."""
    settings = context.settings
    by_topic = {type_: _subscriber(type_, settings) for type_ in messages.TYPES}
    box = Box(auth.keys_of(settings))
    clients: list[GitHub] = []
    try:
        # a client each: they are used in different threads
        both = [client_of(settings), client_of(settings)]
        clients = [client for client in both if client is not None]
    except ValueError as problem:  # everything else must go on; answers wait for the right setting
        log.error("nothing is sent to GitHub or read from it", error=str(problem))
    paths = partial(changed_paths, clients[0]) if clients else None
    handlers: dict[type[DueWorkRow], Handle] = {
        OutboxRow: events(context, by_topic),
        IncomingDeliveryRow: Processor(context, paths).handle,
        DeliveryRow: sending.Sender(context, box).send,
    }
    role = Deliver(context, handlers, clients)
    if clients:
        handlers[AnswerRow] = Answerer(context, clients[1], role.stopped).handle
    return role


def _subscriber(type_: str, settings: Settings) -> Callable[[Session, Mapping[str, Any]], None]:
    """Return the function that tells subscribers, and GitHub, about an event."""

    def tell(session: Session, reference: Mapping[str, Any]) -> None:
        sending.fan_out(session, type_, reference, settings.url)
        if type_ == "run.finished":
            answers.run_ended(session, reference["run"])

    return tell
