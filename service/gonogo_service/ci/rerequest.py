"""Requests from GitHub to run a check again.

The same rule, suite and builds run for that commit, and for its base if requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from gonogo.ci.events import CommitEvent, Ignored, Rerequest
from gonogo.ci.rules import Rule
from gonogo.settings import Settings
from gonogo_service.ci import commit_checks, incoming
from gonogo_service.ci import rules as ci_rules
from gonogo_service.ci.model import CommitCheckRow, IncomingDeliveryRow, RuleOutcome
from gonogo_service.ci.started_runs import Cause, start
from gonogo_service.gauges import store as gauges
from gonogo_service.kit.database.states import HookSource
from gonogo_service.suites import runs


def run_again(
    session: Session, request: Rerequest, row: IncomingDeliveryRow, settings: Settings
) -> list[RuleOutcome] | CommitEvent | Ignored:
    """Start the requested checks in the caller's transaction.

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


def rule_outcome(
    rule: str, checks: Sequence[CommitCheckRow], refusal: str | None = None
) -> RuleOutcome:
    """Return what a rule started, or why it started nothing."""
    errors = [check.error for check in checks if check.error is not None]
    started = any(check.run is not None or check.gauges for check in checks)
    reason = refusal or "; ".join(errors) or None
    return RuleOutcome(rule, [check.id for check in checks], started, reason)


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
        return rule_outcome(check.rule, [], "the rule is no longer in use")
    rule = Rule.of(stored.content)
    suites = tuple(
        suite
        for suite in rule.suites
        if check.suite == (suite if isinstance(suite, str) else suite["name"])
    )
    narrow = replace(rule, suites=suites, gauges=rule.gauges if check.suite is None else ())
    refusal = rule.closed(fork=check.fork) or _under_way(session, check)
    if refusal is None and not narrow.suites and not narrow.gauges:
        refusal = f"the rule no longer names {check.suite or 'gauges'}"
    if refusal is not None:
        return rule_outcome(rule.name, [], refusal)
    # occurred_at stays: an old commit that runs again isn't the newest of its pull request
    same = (
        "event",
        "repository",
        "head_sha",
        "base_sha",
        "branch",
        "pull_request",
        "fork",
        "occurred_at",
        "head_build",
        "base_build",
    )
    event = CommitEvent(
        **{name: getattr(check, name) for name in same},
        installation=request.installation or check.installation,
        again=True,
        again_base=request.both,
        rule=rule.name,
    )
    cause = Cause(row.id, HookSource(row.source), row.received_at, stored.owner)
    return rule_outcome(rule.name, start(session, event, narrow, cause, settings))


def _under_way(session: Session, check: CommitCheckRow) -> str | None:
    """Return a refusal if the check is still running, so that a second click changes nothing."""
    for run_id in (check.run, check.base_run):
        stored = None if run_id is None else runs.get(session, run_id)
        if stored is not None and not stored[0].state.final:
            return f"it is already running: run {run_id}"
    for gauge_id in check.gauges:
        gauge = gauges.get(session, gauge_id)
        if gauge is not None and not gauge.state.final:
            return f"it is already running: gauge {gauge_id}"
    return None
