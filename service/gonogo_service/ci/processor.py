"""Processes incoming webhooks, one at a time, each in one transaction.

A process that dies in between has done all of a delivery or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from gonogo.ci.events import (
    GITHUB,
    CommitEvent,
    Ignored,
    Rerequest,
    from_ci,
    from_github,
    from_polled,
)
from gonogo.ci.rules import Rule
from gonogo.errors import FieldError
from gonogo.settings import Settings
from gonogo.spec import json_text
from gonogo_service.ci import commit_checks, incoming
from gonogo_service.ci import rules as ci_rules
from gonogo_service.ci.github import PER_PAGE, GitHub, GitHubError
from gonogo_service.ci.model import IncomingDeliveryRow, RuleOutcome
from gonogo_service.ci.rerequest import rule_outcome, run_again
from gonogo_service.ci.started_runs import Cause, start
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.kit.database.states import HookSource, IncomingState

Paths = Callable[[CommitEvent], tuple[str, ...] | None]
"""Reads from the sender's API the paths that an event changes; None if unknown."""
MAX_FILES = 3000
"""GitHub lists at most this many files of a pull request: the other paths are unknown."""


class Processor:
    """Handles due deliveries."""

    def __init__(self, context: BackgroundContext, paths: Paths | None = None) -> None:
        self._context, self._paths = context, paths

    def handle(self, incoming_id: str) -> bool:
        """Process a delivery, unless another process has done so."""
        paths = self._paths_for(incoming_id)
        state = self._context.session(
            partial(process, incoming_id=incoming_id, settings=self._context.settings, paths=paths)
        )
        if state is not None:
            log.info("delivery processed", delivery=incoming_id, state=state.value)
        if state is IncomingState.started:
            self._context.notify()
        return True

    def _paths_for(self, incoming_id: str) -> tuple[str, ...] | None:
        """Return the changed paths from the sender's API, if a rule needs them.

        They are not read if the payload has them. This runs before any lock is acquired.
        """
        if self._paths is None:
            return None

        def event_without_paths(session: Session) -> CommitEvent | None:
            row = incoming.get(session, incoming_id)
            event = None if row is None or row.due_at is None else parse(row)
            if not isinstance(event, CommitEvent) or event.paths is not None or event.rule:
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


def changed_paths(github: GitHub, event: CommitEvent) -> tuple[str, ...] | None:
    """Return every path that a pull request changes, also old names of files; None if unknown."""
    if event.pull_request is None or event.event not in GITHUB:
        return None
    path = f"/pulls/{event.pull_request}/files?per_page={PER_PAGE}"
    try:
        files = [file for page in github.pages(event.repository, path) for file in page]
    except GitHubError as problem:
        about = {"repository": event.repository, "error": str(problem)}
        log.warning("the paths of a pull request are not known", **about)
        return None
    if len(files) >= MAX_FILES:
        return None
    names = ("filename", "previous_filename")
    return tuple(str(file[name]) for file in files for name in names if file.get(name))


def parse(row: IncomingDeliveryRow) -> CommitEvent | Rerequest | Ignored:
    """Return the event of a delivery. Raises FieldError."""
    try:
        payload: Any = json_text.loads(incoming.body_of(row) or b"")
    except (ValueError, RecursionError) as problem:
        raise FieldError("body", None, f"is not JSON: {problem}") from problem
    match row.source:
        case HookSource.ci:
            return from_ci(payload)
        case HookSource.pull_request_lookup:
            return from_polled(payload)
    return from_github(row.event, payload)


def process(
    session: Session, incoming_id: str, settings: Settings, paths: tuple[str, ...] | None = None
) -> IncomingState | None:
    """Process one delivery in the caller's transaction; return None if it was processed before."""
    row = IncomingDeliveryRow.locked(session, incoming_id)
    if row is None or row.body is None:
        return None
    try:
        event = parse(row)
    except FieldError as problem:
        incoming.ended(row, IncomingState.failed, reason=f"can't be parsed: {problem}")
        return IncomingState.failed
    result: list[RuleOutcome] | CommitEvent | Ignored
    result = run_again(session, event, row, settings) if isinstance(event, Rerequest) else event
    if isinstance(result, Ignored):
        where = result.repository
        incoming.ended(row, IncomingState.ignored, reason=result.reason, repository=where)
        return IncomingState.ignored
    if isinstance(result, CommitEvent):
        known = result if result.paths is not None else replace(result, paths=paths)
        result = _apply_rules(session, known, row, settings)
    ran = [outcome for outcome in result if outcome.commit_checks]
    if any(outcome.started for outcome in ran):
        state, reason = IncomingState.started, None
    elif ran:
        state, reason = IncomingState.failed, _reasons(ran)
    else:
        state = IncomingState.ignored
        reason = _reasons(result) or f"no rule is for {row.event} of {event.repository}"
    incoming.ended(row, state, reason=reason, repository=event.repository, outcome=result)
    return state


def _reasons(outcomes: Sequence[RuleOutcome]) -> str:
    return "; ".join(f"{outcome.rule}: {outcome.reason}" for outcome in outcomes)


def _apply_rules(
    session: Session, event: CommitEvent, row: IncomingDeliveryRow, settings: Settings
) -> list[RuleOutcome]:
    """Apply each rule that concerns an event; return their outcomes."""
    # events that were read from GitHub's API are answered there, too
    source = HookSource(row.source)
    source = HookSource.github if source is HookSource.pull_request_lookup else source
    outcomes: list[RuleOutcome] = []
    for stored in ci_rules.in_use(session):
        rule = Rule.of(stored.content)
        if rule.concerns(event):
            refusal = rule.refusal(event) or _overtaken(session, event, rule)
            cause = Cause(row.id, source, row.received_at, stored.owner)
            begun = [] if refusal else start(session, event, rule, cause, settings)
            outcomes.append(rule_outcome(rule.name, begun, refusal))
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
