"""A push says nothing of pull requests: the open ones of its commit are asked for, and each is
taken as if a delivery had told of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog
from sqlalchemy.orm import Session

from gonogo.ci.rules import Rule
from gonogo_service.github.client import GitHub
from gonogo_service.github.problems import Refused
from gonogo_service.kit.background_context import BackgroundContext
from gonogo_storage.automation import ci_rules, commit_checks
from gonogo_storage.automation.commit_checks import CommitCheck
from gonogo_storage.db.encoding import encode
from gonogo_storage.db.states import HookSource
from gonogo_storage.messages import incoming

log = structlog.get_logger("gonogo.github")
EVENT = "pull_request"


def find(context: BackgroundContext, github: GitHub, commit_check: CommitCheck, *, over: bool) -> bool:
    """Ask for the open pull requests of a commit_check's commit, and store what nothing told of yet.
    Raises GitHubError.

    Whether to ask again later: people push first, and open the pull request then. While it runs
    nobody is asked where the rule speaks of pull requests itself: GitHub may tell of it yet.
    """
    if commit_check.pull_request is not None:
        return False
    stored = context.reading(lambda session: ci_rules.get(session, commit_check.rule))
    rule = None if stored is None else Rule.of(stored["content"])
    if (
        rule is None
        or not (rule.enabled and rule.pull_requests)
        or (EVENT in rule.events and not over)
    ):
        return False
    try:
        found = github.pulls_of(commit_check.repository, commit_check.head_sha)
    except (
        Refused
    ) as problem:  # a token that may set statuses and read no pull requests is one all the same
        log.warning(
            "the pull requests of a commit are not known",
            repository=commit_check.repository,
            error=str(problem),
        )
        return False
    for each in found:
        context.session(partial(_keep, commit_check=commit_check, told=each))
    return not found


def _keep(session: Session, commit_check: CommitCheck, told: Mapping[str, Any]) -> None:
    """One delivery per pull request, commit and rule, however often it is found."""
    number = int(told["number"])
    if commit_checks.for_pull_request(
        session, commit_check.repository, commit_check.head_sha, number, commit_check.rule
    ):
        return
    body = {
        "rule": commit_check.rule,
        "head_build": commit_check.head_build,
        "push": commit_check.delivery_id,
        "pull_request": {
            name: told[name] for name in ("number", "updated_at", "head", "base") if name in told
        },
        "repository": {"full_name": commit_check.repository},
        "installation": {"id": commit_check.installation},
    }
    name = f"{commit_check.repository}#{number}@{commit_check.head_sha} {commit_check.rule}"
    incoming.store(session, HookSource.pull_request_lookup, name, EVENT, encode(body).encode())
