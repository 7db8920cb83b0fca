"""Finds the open pull requests of a pushed commit.

A push event doesn't name them. Each pull request is stored as if it had come with a delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog
from sqlalchemy.orm import Session

from gonogo.ci.rules import Rule
from gonogo_service.ci import commit_checks, incoming
from gonogo_service.ci import rules as ci_rules
from gonogo_service.ci.commit_checks import CommitCheck
from gonogo_service.ci.github.client import GitHub
from gonogo_service.ci.github.problems import Refused
from gonogo_service.kit.background_context import BackgroundContext
from gonogo_service.kit.database.encoding import encode
from gonogo_service.kit.database.states import HookSource

log = structlog.get_logger("gonogo.github")
EVENT = "pull_request"


def find(
    context: BackgroundContext, github: GitHub, commit_check: CommitCheck, *, over: bool
) -> bool:
    """Read the open pull requests of a commit check's commit, and store the new ones.

    Returns whether to read them again later: people push first, and then open the pull request.
    While the run is not over, rules for pull requests read nothing, because GitHub may still send a
    delivery. Raises GitHubError.
    """
    if commit_check.pull_request is not None:
        return False
    stored = context.reading(lambda session: ci_rules.get(session, commit_check.rule))
    rule = None if stored is None else Rule.of(stored.content)
    if (
        rule is None
        or not (rule.enabled and rule.pull_requests)
        or (EVENT in rule.events and not over)
    ):
        return False
    try:
        pull_requests = github.pulls_of(commit_check.repository, commit_check.head_sha)
    except Refused as problem:  # a token may set statuses without reading pull requests
        log.warning(
            "the pull requests of a commit are unknown",
            repository=commit_check.repository,
            error=str(problem),
        )
        return False
    for pull_request in pull_requests:
        context.session(partial(_store, commit_check=commit_check, pull_request=pull_request))
    return not pull_requests


def _store(session: Session, commit_check: CommitCheck, pull_request: Mapping[str, Any]) -> None:
    """Store one delivery per pull request, commit and rule, however often it is found."""
    number = int(pull_request["number"])
    if commit_checks.for_pull_request(
        session, commit_check.repository, commit_check.head_sha, number, commit_check.rule
    ):
        return
    body = {
        "rule": commit_check.rule,
        "head_build": commit_check.head_build,
        "push": commit_check.delivery,
        "pull_request": {
            name: pull_request[name]
            for name in ("number", "updated_at", "head", "base")
            if name in pull_request
        },
        "repository": {"full_name": commit_check.repository},
        "installation": {"id": commit_check.installation},
    }
    name = f"{commit_check.repository}#{number}@{commit_check.head_sha} {commit_check.rule}"
    incoming.store(session, HookSource.pull_request_lookup, name, EVENT, encode(body).encode())
