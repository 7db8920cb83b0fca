"""Works off deliveries: one at a time, each in one transaction, so that a process that dies in the
middle has done nothing or all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from gonogo.ci.events import CommitEvent, Ignored, Rerequest, from_asked, from_ci, from_github
from gonogo.ci.rules import Rule
from gonogo.errors import FieldError
from gonogo_service.hooks.rerequest import Outcome, once_more, outcome
from gonogo_service.hooks.runs import Cause, start
from gonogo_service.kit.background_context import AWAY, Core, log
from gonogo_settings import Settings
from gonogo_storage.automation import ci_rules, commit_checks
from gonogo_storage.db.encoding import decode, utcnow
from gonogo_storage.db.states import HookSource, InboundState
from gonogo_storage.messages import incoming
from gonogo_storage.messages.incoming import Inbound

BACKOFF_S = (5, 60, 300, 1800, 3600)
"""Seconds until the next try after a bug in a pass; the last one repeats."""
MOST_TRIES = 20
PURGE_EVERY = timedelta(hours=1)

Paths = Callable[[CommitEvent], tuple[str, ...] | None]
"""Asks the sender which paths an event is about; None: nobody knows."""


class Worker:
    """The role: works off what is due, and forgets old bodies now and then."""

    def __init__(
        self, core: Core, paths: Paths | None = None, clock: Callable[[], datetime] = utcnow
    ) -> None:
        self._core, self._paths, self._clock = core, paths, clock
        self._purged: datetime | None = None

    def run_once(self) -> int:
        """One pass; how many deliveries started something. Raises core.AWAY errors: what was not
        done is found by the next pass.
        """
        started = 0
        for inbound_id in self._core.reading(partial(incoming.due, now=self._clock())):
            if self._core.stop.is_set():
                break
            started += self._one(inbound_id)
        if started:
            self._core.ring()
        if self._purged is None or self._clock() - self._purged > PURGE_EVERY:
            self._core.session(partial(incoming.purge, now=self._clock()))
            self._purged = self._clock()
        return started

    def _one(self, inbound_id: str) -> bool:
        try:
            known = self._known_paths(inbound_id)
            state = self._core.session(
                partial(work, inbound_id=inbound_id, settings=self._core.settings, paths=known)
            )
        except AWAY:
            raise
        except Exception as problem:  # one delivery must not keep the others from theirs
            log.exception("a delivery could not be worked off; trying again", delivery=inbound_id)
            self._core.session(
                partial(
                    self._put_off,
                    inbound_id=inbound_id,
                    reason=f"{type(problem).__name__}: {problem}",
                )
            )
            return False
        if state is not None:
            log.info("delivery worked off", delivery=inbound_id, state=state.value)
        return state is InboundState.started

    def _put_off(self, session: Session, inbound_id: str, reason: str) -> None:
        waiting = incoming.lock(session, inbound_id)
        if waiting is None:
            return
        if waiting.tries + 1 >= MOST_TRIES:
            incoming.ended(
                session, inbound_id, InboundState.failed, reason=reason, now=self._clock()
            )
        else:
            wait = timedelta(seconds=BACKOFF_S[min(waiting.tries, len(BACKOFF_S) - 1)])
            incoming.postponed(session, inbound_id, reason, self._clock() + wait)

    def _known_paths(self, inbound_id: str) -> tuple[str, ...] | None:
        """What changed, from the sender's API, where a rule wants to know and the payload does not
        say; before any lock is taken.
        """
        if self._paths is None:
            return None

        def wanted(session: Session) -> CommitEvent | None:
            waiting = incoming.read(session, inbound_id)
            event = None if waiting is None else understood(waiting)
            if (
                not isinstance(event, CommitEvent)
                or event.paths is not None
                or event.rule is not None
            ):
                return None
            rules = (Rule.of(rule["content"]) for rule in ci_rules.in_use(session))
            asks = any(
                rule.paths and rule.concerns(event) and rule.refusal(event) is None
                for rule in rules
            )
            return event if asks else None

        try:
            event = self._core.reading(wanted)
        except FieldError:
            return None
        return None if event is None else self._paths(event)


def understood(waiting: Inbound) -> CommitEvent | Rerequest | Ignored:
    """What a delivery says. Raises FieldError."""
    try:
        payload: Any = decode(waiting.body)
    except ValueError as problem:
        raise FieldError("body", None, f"is not JSON: {problem}") from problem
    match waiting.source:
        case HookSource.ci:
            return from_ci(payload)
        case HookSource.asked:
            return from_asked(payload)
    return from_github(waiting.event, payload)


def work(
    session: Session, inbound_id: str, settings: Settings, paths: tuple[str, ...] | None = None
) -> InboundState | None:
    """Work off one delivery in the caller's transaction; None when it is worked off already."""
    waiting = incoming.lock(session, inbound_id)
    if waiting is None:
        return None
    try:
        event = understood(waiting)
    except FieldError as problem:
        incoming.ended(
            session, inbound_id, InboundState.failed, reason=f"can't be understood: {problem}"
        )
        return InboundState.failed
    found: list[Outcome] | CommitEvent | Ignored
    found = once_more(session, event, waiting, settings) if isinstance(event, Rerequest) else event
    if isinstance(found, Ignored):
        incoming.ended(
            session,
            inbound_id,
            InboundState.ignored,
            reason=found.reason,
            repository=found.repository,
        )
        return InboundState.ignored
    if isinstance(found, CommitEvent):
        found = _by_the_rules(
            session,
            found if found.paths is not None else replace(found, paths=paths),
            waiting,
            settings,
        )
    ran = [each for each in found if each["commit_checks"]]
    state = InboundState.ignored
    if ran:
        state = (
            InboundState.started if any(each["started"] for each in ran) else InboundState.failed
        )
    reason = None
    if not ran:
        refusals = "; ".join(f"{each['rule']}: {each['reason']}" for each in found)
        reason = refusals or f"no rule speaks of {waiting.event} of {event.repository}"
    elif state is InboundState.failed:
        reason = "; ".join(f"{each['rule']}: {each['reason']}" for each in ran)
    incoming.ended(
        session, inbound_id, state, reason=reason, repository=event.repository, outcome=found
    )
    return state


def _by_the_rules(
    session: Session, event: CommitEvent, waiting: Inbound, settings: Settings
) -> list[Outcome]:
    """What each rule that concerns an event made of it."""
    told: list[Outcome] = []
    for stored in ci_rules.in_use(session):
        rule = Rule.of(stored["content"])
        if rule.concerns(event):
            refusal = rule.refusal(event) or _overtaken(session, event, rule)
            # what GitHub was asked for is its own as well, and is answered there
            source = HookSource.github if waiting.source is HookSource.asked else waiting.source
            cause = Cause(waiting.id, source, waiting.received_at, stored["owner"])
            told.append(
                outcome(
                    rule.name,
                    [] if refusal else start(session, event, rule, cause, settings),
                    refusal,
                )
            )
    return told


def _overtaken(session: Session, event: CommitEvent, rule: Rule) -> str | None:
    """Deliveries may come in any order: of a pull request that has a newer head, the older one is
    of no use to anyone.
    """
    if event.pull_request is None or event.occurred_at is None:
        return None
    newest = commit_checks.newest_head(session, event.repository, event.pull_request, rule.name)
    if (
        newest is None
        or newest.head_sha == event.head_sha
        or newest.occurred_at <= event.occurred_at
    ):
        return None
    return f"the pull request has a newer head, {newest.head_sha[:12]}"
