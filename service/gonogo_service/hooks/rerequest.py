"""Somebody at GitHub wants a check of ours once more: the same rule, suite and builds for that
commit, and for its base where asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from gonogo.ci.events import CommitEvent, Ignored, Rerequest
from gonogo.ci.rules import Rule
from gonogo_service.hooks.runs import Cause, start
from gonogo_settings import Settings
from gonogo_storage.automation import ci_rules, commit_checks, runs
from gonogo_storage.automation.commit_checks import CommitCheck
from gonogo_storage.db.states import JobState
from gonogo_storage.gauges import gauges
from gonogo_storage.messages import incoming
from gonogo_storage.messages.incoming import Inbound

Outcome = dict[str, Any]
"""What one rule made of a delivery: {"rule", "commit_checks", "started", "reason"}."""


def once_more(
    session: Session, asked: Rerequest, waiting: Inbound, settings: Settings
) -> list[Outcome] | CommitEvent | Ignored:
    """Start it in the caller's transaction. A check suite of which nothing was run is an event as
    any other.

    Only checks of the App of the settings count: of others nobody here knows what was run.
    """
    own = settings.github_app_id
    if own is not None and own not in asked.app:
        return Ignored(
            f"the check is of the App {asked.slug[:100]!r}, not of ours: that one runs it again",
            asked.repository,
        )
    before = incoming.same_before(session, waiting, asked.repository)
    if (
        before is not None
    ):  # the signature is of the body alone: another delivery id makes no new request of it
        return Ignored(f"the very same was taken before, as delivery {before}", asked.repository)
    commit_checks = [] if own is None else _wanted(session, asked)
    if commit_checks:
        return [
            _one(session, commit_check, asked, waiting, settings) for commit_check in commit_checks
        ]
    no_app = "no App is set here (GONOGO_GITHUB_APP_ID), so that none of GitHub's checks is ours"
    return asked.otherwise or Ignored(
        no_app if own is None else "this check was not made here, or of another commit",
        asked.repository,
    )


def outcome(rule: str, commit_checks: list[CommitCheck], refusal: str | None = None) -> Outcome:
    """What a rule started, or why it started nothing."""
    errors = [each.error for each in commit_checks if each.error is not None]
    started = any(each.run_id is not None or each.gauges for each in commit_checks)
    return {
        "rule": rule,
        "commit_checks": [each.id for each in commit_checks],
        "started": started,
        "reason": refusal or "; ".join(errors) or None,
    }


def _wanted(session: Session, asked: Rerequest) -> list[CommitCheck]:
    """What was started last of everything that is asked for: of one rule, suite, kind of event and
    pull request.
    """
    newest: dict[tuple[Any, ...], CommitCheck] = {}
    chosen: tuple[Any, ...] | None = None
    for each in sorted(
        commit_checks.of_head(session, asked.repository, asked.head_sha),
        key=lambda each: (each.occurred_at, each.id),
    ):
        if each.source == "github":
            what = (each.rule, each.suite, each.event, each.pull_request)
            newest[what] = each
            chosen = what if each.id == asked.check else chosen
    if asked.check is None:
        return list(newest.values())
    return [] if chosen is None else [newest[chosen]]


def _one(
    session: Session,
    commit_check: CommitCheck,
    asked: Rerequest,
    waiting: Inbound,
    settings: Settings,
) -> Outcome:
    stored = ci_rules.get(session, commit_check.rule)
    if stored is None:
        return outcome(commit_check.rule, [], "the rule is in use no more")
    rule = Rule.of(stored["content"])
    suites = tuple(
        each
        for each in rule.suites
        if commit_check.suite == (each if isinstance(each, str) else each["name"])
    )
    narrow = replace(rule, suites=suites, gauges=rule.gauges if commit_check.suite is None else ())
    refusal = rule.closed(fork=commit_check.fork) or _under_way(session, commit_check)
    if refusal is None and not narrow.suites and not narrow.gauges:
        refusal = f"the rule names {commit_check.suite or 'its gauges'} no more"
    if refusal is not None:
        return outcome(rule.name, [], refusal)
    event = CommitEvent(
        event=commit_check.event,
        repository=commit_check.repository,
        head_sha=commit_check.head_sha,
        base_sha=commit_check.base_sha,
        branch=commit_check.branch,
        pull_request=commit_check.pull_request,
        fork=commit_check.fork,
        # as it was: an old commit that is run again does not become the newest of its pull request
        occurred_at=commit_check.occurred_at,
        installation=asked.installation or commit_check.installation,
        again=True,
        again_base=asked.both,
        rule=rule.name,
        head_build=commit_check.head_build,
        base_build=commit_check.base_build,
    )
    cause = Cause(waiting.id, waiting.source, waiting.received_at, stored["owner"])
    return outcome(rule.name, start(session, event, narrow, cause, settings))


def _under_way(session: Session, commit_check: CommitCheck) -> str | None:
    """A second press of the button while the first one's run is not over changes nothing."""
    for run_id in (commit_check.run_id, commit_check.base_run_id):
        found = None if run_id is None else runs.get(session, run_id)
        if found is not None and not found[0].state.final:
            return f"it runs already: run {run_id}"
    for gauge_id in commit_check.gauges:
        gauge = gauges.get(session, gauge_id)
        if gauge is not None and not JobState(gauge["state"]).final:
            return f"it runs already: gauge {gauge_id}"
    return None
