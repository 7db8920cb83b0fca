"""Processes incoming webhooks, one at a time, each in one transaction.

A process that dies in between has done all of a delivery or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from gonogo_service.ci.model import CommitCheckRow, IncomingDeliveryRow, RuleOutcome
from gonogo_service.ci.started_runs import start
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.kit.database.states import HookSource, IncomingState
from gonogo_service.suites import runs

Paths = Callable[[CommitEvent], tuple[str, ...] | None]
"""Reads from the sender's API the paths that an event changes; None if unknown."""
MAX_FILES = 3000
"""GitHub lists at most this many files of a pull request: the other paths are unknown."""
_OF_CHECK = "event repository head_sha base_sha branch pull_request fork head_build base_build"


@dataclass
class Processor:
    """Handles due deliveries."""

    context: BackgroundContext
    paths: Paths | None = None

    def handle(self, incoming_id: str) -> bool:
        """Process a delivery, unless another process has done so."""
        paths = self._paths_for(incoming_id)
        state = self.context.session(
            partial(process, incoming_id=incoming_id, settings=self.context.settings, paths=paths)
        )
        if state is not None:
            log.info("delivery processed", delivery=incoming_id, state=state.value)
        if state is IncomingState.started:
            self.context.notify()
        return True

    def _paths_for(self, incoming_id: str) -> tuple[str, ...] | None:
        """Return the changed paths from the sender's API, if a rule needs them.

        They are not read if the payload has them. This runs before any lock is acquired.
        """
        if self.paths is None:
            return None

        def event_without_paths(session: Session) -> CommitEvent | None:
            row = incoming.get(session, incoming_id)
            event = None if row is None or row.due_at is None else parse(row)
            if not isinstance(event, CommitEvent) or event.paths is not None or event.rule:
                return None
            rules = (row.rule for row in ci_rules.in_use(session))
            needs_paths = any(
                rule.paths and rule.concerns(event) and rule.refusal(event) is None
                for rule in rules
            )
            return event if needs_paths else None

        try:
            event = self.context.reading(event_without_paths)
        except FieldError:
            return None
        return None if event is None else self.paths(event)


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
    result = _run_again(session, event, row, settings) if isinstance(event, Rerequest) else event
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
    outcomes: list[RuleOutcome] = []
    for stored in ci_rules.in_use(session):
        rule = stored.rule
        if rule.concerns(event):
            refusal = rule.refusal(event) or _overtaken(session, event, rule)
            outcomes.append(
                RuleOutcome.refused(rule.name, refusal)
                if refusal
                else start(session, event, rule, row, stored.owner, settings)
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


# --- requests from GitHub to run a check again


def _run_again(
    session: Session, request: Rerequest, row: IncomingDeliveryRow, settings: Settings
) -> list[RuleOutcome] | CommitEvent | Ignored:
    """Start the requested checks again: the same rule, suite and builds.

    A check suite without a stored run is an event like any other. Only checks of the settings' App
    count, because the runs of others are unknown here.
    """
    app_id = settings.github_app_id
    if app_id is not None and app_id not in request.app:
        reason = f"the check belongs to the App {request.slug[:100]!r}, which runs it again itself"
        return Ignored(reason, request.repository)
    # the signature covers only the body: another delivery ID doesn't make a new request
    before = incoming.same_before(session, row, request.repository)
    if before is not None:
        return Ignored(f"the same request came before, as delivery {before}", request.repository)
    checks = [] if app_id is None else _requested(session, request)
    if checks:
        return [_start_again(session, check, request, row, settings) for check in checks]
    reason = "this check was not created here, or is of another commit"
    if app_id is None:
        reason = "GONOGO_GITHUB_APP_ID is not set, so GitHub's checks can't be matched to runs here"
    return request.otherwise or Ignored(reason, request.repository)


def _requested(session: Session, request: Rerequest) -> list[CommitCheckRow]:
    """Return the newest requested commit checks per rule, suite, event type and pull request."""
    newest: dict[tuple[Any, ...], CommitCheckRow] = {}
    chosen: tuple[Any, ...] | None = None
    for check in commit_checks.of_head(session, request.repository, request.head_sha):
        if check.source == HookSource.github:
            key = (check.rule, check.suite, check.event, check.pull_request)
            newest[key] = check
            chosen = key if check.id == request.check else chosen
    if request.check is None:
        return list(newest.values())
    return [] if chosen is None else [newest[chosen]]


def _start_again(
    session: Session,
    check: CommitCheckRow,
    request: Rerequest,
    row: IncomingDeliveryRow,
    settings: Settings,
) -> RuleOutcome:
    stored = ci_rules.get(session, check.rule)
    if stored is None:
        return RuleOutcome.refused(check.rule, "the rule is no longer in use")
    rule = stored.rule
    names = [suite if isinstance(suite, str) else suite["name"] for suite in rule.suites]
    suites = [suite for suite, name in zip(rule.suites, names, strict=True) if name == check.suite]
    narrowed = {"suites": suites, "gauges": rule.gauges if check.suite is None else []}
    refusal = rule.closed(fork=check.fork) or _under_way(session, check)
    if refusal is None and not any(narrowed.values()):
        refusal = f"the rule no longer names {check.suite or 'gauges'}"
    if refusal is not None:
        return RuleOutcome.refused(rule.name, refusal)
    event = CommitEvent(
        **{name: getattr(check, name) for name in _OF_CHECK.split()},
        # an old commit that runs again isn't the newest of its pull request
        occurred_at=check.occurred_at,
        installation=request.installation or check.installation,
        again=True,
        again_base=request.both,
        rule=rule.name,
    )
    narrow = rule.model_copy(update=narrowed)
    return start(session, event, narrow, row, stored.owner, settings)


def _under_way(session: Session, check: CommitCheckRow) -> str | None:
    """Return a refusal if the check is still running, so that a second click changes nothing."""
    for run_id in (check.run, check.base_run):
        stored = None if run_id is None else runs.get(session, run_id)
        if stored is not None and not stored[0].state.final:
            return f"it is already running: run {run_id}"
    for gauge_id in check.gauges:
        gauge = session.get(GaugeRow, gauge_id)
        if gauge is not None and not gauge.state.final:
            return f"it is already running: gauge {gauge_id}"
    return None
