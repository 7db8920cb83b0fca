"""Processes incoming webhooks, one at a time, each in one transaction.

A process that dies in between has done all of a delivery or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from gonogo.ci.events import CommitEvent, Ignored, Rerequest, from_ci, from_github, from_polled
from gonogo.ci.rules import Rule
from gonogo.errors import FieldError
from gonogo.settings import Settings
from gonogo.spec import json_text
from gonogo_service.ci import commit_checks, incoming
from gonogo_service.ci import rules as ci_rules
from gonogo_service.ci.incoming import RuleOutcome, WaitingDelivery
from gonogo_service.ci.rerequest import rule_outcome, run_again
from gonogo_service.ci.started_runs import Cause, start
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import HookSource, IncomingState

Paths = Callable[[CommitEvent], tuple[str, ...] | None]
"""Reads from the sender's API the paths that an event changes; None if unknown."""


class Processor:
    """The role that processes due deliveries."""

    def __init__(
        self,
        context: BackgroundContext,
        paths: Paths | None = None,
        clock: Callable[[], datetime] = utcnow,
    ) -> None:
        self._context, self._paths, self._clock = context, paths, clock

    def run_once(self) -> int:
        """Run one pass; return the number of deliveries that started something.

        Raises the AWAY errors. The next pass does what this one did not.
        """
        due = self._context.reading(partial(incoming.due, now=self._clock()))
        started = self._context.handle_each(
            "delivery",
            due,
            self._process,
            lambda session, key, error: incoming.postponed(session, key, error, now=self._clock()),
        )
        if started:
            self._context.notify()
        return started

    def _process(self, incoming_id: str) -> bool:
        paths = self._paths_for(incoming_id)
        state = self._context.session(
            partial(process, incoming_id=incoming_id, settings=self._context.settings, paths=paths)
        )
        if state is not None:
            log.info("delivery processed", delivery=incoming_id, state=state.value)
        return state is IncomingState.started

    def _paths_for(self, incoming_id: str) -> tuple[str, ...] | None:
        """Return the changed paths from the sender's API, if a rule needs them.

        They are not read if the payload has them. This runs before any lock is acquired.
        """
        if self._paths is None:
            return None

        def event_without_paths(session: Session) -> CommitEvent | None:
            waiting = incoming.read(session, incoming_id)
            event = None if waiting is None else parse(waiting)
            if (
                not isinstance(event, CommitEvent)
                or event.paths is not None
                or event.rule is not None
            ):
                return None
            rules = (Rule.of(rule.content) for rule in ci_rules.in_use(session))
            needs_paths = any(
                rule.paths and rule.concerns(event) and rule.refusal(event) is None
                for rule in rules
            )
            return event if needs_paths else None

        try:
            event = self._context.reading(event_without_paths)
        except FieldError:
            return None
        return None if event is None else self._paths(event)


def parse(waiting: WaitingDelivery) -> CommitEvent | Rerequest | Ignored:
    """Return the event of a delivery. Raises FieldError."""
    try:
        payload: Any = json_text.loads(waiting.body)
    except (ValueError, RecursionError) as problem:
        raise FieldError("body", None, f"is not JSON: {problem}") from problem
    match waiting.source:
        case HookSource.ci:
            return from_ci(payload)
        case HookSource.pull_request_lookup:
            return from_polled(payload)
    return from_github(waiting.event, payload)


def process(
    session: Session, incoming_id: str, settings: Settings, paths: tuple[str, ...] | None = None
) -> IncomingState | None:
    """Process one delivery in the caller's transaction; return None if it was processed before."""
    waiting = incoming.lock(session, incoming_id)
    if waiting is None:
        return None
    try:
        event = parse(waiting)
    except FieldError as problem:
        incoming.ended(
            session, incoming_id, IncomingState.failed, reason=f"can't be parsed: {problem}"
        )
        return IncomingState.failed
    result: list[RuleOutcome] | CommitEvent | Ignored
    result = run_again(session, event, waiting, settings) if isinstance(event, Rerequest) else event
    if isinstance(result, Ignored):
        incoming.ended(
            session,
            incoming_id,
            IncomingState.ignored,
            reason=result.reason,
            repository=result.repository,
        )
        return IncomingState.ignored
    if isinstance(result, CommitEvent):
        result = _apply_rules(
            session,
            result if result.paths is not None else replace(result, paths=paths),
            waiting,
            settings,
        )
    ran = [outcome for outcome in result if outcome.commit_checks]
    state = IncomingState.ignored
    if ran:
        any_started = any(outcome.started for outcome in ran)
        state = IncomingState.started if any_started else IncomingState.failed
    reason = None
    if not ran:
        refusals = _reasons(result)
        reason = refusals or f"no rule is for {waiting.event} of {event.repository}"
    elif state is IncomingState.failed:
        reason = _reasons(ran)
    incoming.ended(
        session, incoming_id, state, reason=reason, repository=event.repository, outcome=result
    )
    return state


def _reasons(outcomes: Sequence[RuleOutcome]) -> str:
    return "; ".join(f"{outcome.rule}: {outcome.reason}" for outcome in outcomes)


def _apply_rules(
    session: Session, event: CommitEvent, waiting: WaitingDelivery, settings: Settings
) -> list[RuleOutcome]:
    """Apply each rule that concerns an event; return their outcomes."""
    outcomes: list[RuleOutcome] = []
    for stored in ci_rules.in_use(session):
        rule = Rule.of(stored.content)
        if rule.concerns(event):
            refusal = rule.refusal(event) or _overtaken(session, event, rule)
            # events that were read from GitHub's API are answered there, too
            source = (
                HookSource.github
                if waiting.source is HookSource.pull_request_lookup
                else waiting.source
            )
            cause = Cause(waiting.id, source, waiting.received_at, stored.owner)
            outcomes.append(
                rule_outcome(
                    rule.name,
                    [] if refusal else start(session, event, rule, cause, settings),
                    refusal,
                )
            )
    return outcomes


def _overtaken(session: Session, event: CommitEvent, rule: Rule) -> str | None:
    """Return the reason why an event is outdated, or None.

    Deliveries may arrive in any order. When a pull request has a newer head, nobody needs the older
    one.
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
