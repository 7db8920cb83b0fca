"""Requests from GitHub to run a check again.

The same rule, suite and builds run for that commit, and for its base if requested.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from gonogo.ci.events import CommitEvent, Ignored, Rerequest
from gonogo.ci.rules import Rule
from gonogo.settings import Settings
from gonogo_service.ci import commit_checks, incoming
from gonogo_service.ci import rules as ci_rules
from gonogo_service.ci.commit_checks import CommitCheck
from gonogo_service.ci.incoming import RuleOutcome, WaitingDelivery
from gonogo_service.ci.started_runs import Cause, start
from gonogo_service.gauges import store as gauges
from gonogo_service.suites import runs


def run_again(
    session: Session, request: Rerequest, waiting: WaitingDelivery, settings: Settings
) -> list[RuleOutcome] | CommitEvent | Ignored:
    """Start the requested checks in the caller's transaction.

    A check suite without a stored run is an event like any other. Only checks of the settings' App
    count, because the runs of others are unknown here.
    """
    app_id = settings.github_app_id
    if app_id is not None and app_id not in request.app:
        return Ignored(
            f"the check belongs to the App {request.slug[:100]!r}, which runs it again itself",
            request.repository,
        )
    before = incoming.same_before(session, waiting, request.repository)
    # the signature covers only the body: another delivery ID doesn't make a new request
    if before is not None:
        return Ignored(f"the same request came before, as delivery {before}", request.repository)
    commit_checks = [] if app_id is None else _requested(session, request)
    if commit_checks:
        return [
            _start_again(session, commit_check, request, waiting, settings)
            for commit_check in commit_checks
        ]
    no_app = "GONOGO_GITHUB_APP_ID is not set, so GitHub's checks can't be matched to runs here"
    return request.otherwise or Ignored(
        no_app if app_id is None else "this check was not created here, or is of another commit",
        request.repository,
    )


def rule_outcome(
    rule: str, commit_checks: list[CommitCheck], refusal: str | None = None
) -> RuleOutcome:
    """Return what a rule started, or why it started nothing."""
    errors = [
        commit_check.error for commit_check in commit_checks if commit_check.error is not None
    ]
    started = any(
        commit_check.run is not None or commit_check.gauges for commit_check in commit_checks
    )
    reason = refusal or "; ".join(errors) or None
    return RuleOutcome(rule, [commit_check.id for commit_check in commit_checks], started, reason)


def _requested(session: Session, request: Rerequest) -> list[CommitCheck]:
    """Return the newest requested commit checks per rule, suite, event type and pull request."""
    newest: dict[tuple[Any, ...], CommitCheck] = {}
    chosen: tuple[Any, ...] | None = None
    for commit_check in sorted(
        commit_checks.of_head(session, request.repository, request.head_sha),
        key=lambda commit_check: (commit_check.occurred_at, commit_check.id),
    ):
        if commit_check.source == "github":
            key = (
                commit_check.rule,
                commit_check.suite,
                commit_check.event,
                commit_check.pull_request,
            )
            newest[key] = commit_check
            chosen = key if commit_check.id == request.check else chosen
    if request.check is None:
        return list(newest.values())
    return [] if chosen is None else [newest[chosen]]


def _start_again(
    session: Session,
    commit_check: CommitCheck,
    request: Rerequest,
    waiting: WaitingDelivery,
    settings: Settings,
) -> RuleOutcome:
    stored = ci_rules.get(session, commit_check.rule)
    if stored is None:
        return rule_outcome(commit_check.rule, [], "the rule is no longer in use")
    rule = Rule.of(stored.content)
    suites = tuple(
        suite
        for suite in rule.suites
        if commit_check.suite == (suite if isinstance(suite, str) else suite["name"])
    )
    narrow = replace(rule, suites=suites, gauges=rule.gauges if commit_check.suite is None else ())
    refusal = rule.closed(fork=commit_check.fork) or _under_way(session, commit_check)
    if refusal is None and not narrow.suites and not narrow.gauges:
        refusal = f"the rule no longer names {commit_check.suite or 'gauges'}"
    if refusal is not None:
        return rule_outcome(rule.name, [], refusal)
    event = CommitEvent(
        event=commit_check.event,
        repository=commit_check.repository,
        head_sha=commit_check.head_sha,
        base_sha=commit_check.base_sha,
        branch=commit_check.branch,
        pull_request=commit_check.pull_request,
        fork=commit_check.fork,
        # unchanged: an old commit that runs again does not become the newest of its pull request
        occurred_at=commit_check.occurred_at,
        installation=request.installation or commit_check.installation,
        again=True,
        again_base=request.both,
        rule=rule.name,
        head_build=commit_check.head_build,
        base_build=commit_check.base_build,
    )
    cause = Cause(waiting.id, waiting.source, waiting.received_at, stored.owner)
    return rule_outcome(rule.name, start(session, event, narrow, cause, settings))


def _under_way(session: Session, commit_check: CommitCheck) -> str | None:
    """Return a refusal if the check is still running, so that a second click changes nothing."""
    for run_id in (commit_check.run, commit_check.base_run):
        stored = None if run_id is None else runs.get(session, run_id)
        if stored is not None and not stored[0].state.final:
            return f"it is already running: run {run_id}"
    for gauge_id in commit_check.gauges:
        gauge = gauges.get(session, gauge_id)
        if gauge is not None and not gauge.state.final:
            return f"it is already running: gauge {gauge_id}"
    return None
