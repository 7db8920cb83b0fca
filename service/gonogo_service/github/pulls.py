"""A push says nothing of pull requests: the open ones of its commit are asked for, and each is
taken as if a delivery had told of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog
from sqlalchemy.orm import Session

from gonogo.ci.rules import Rule
from gonogo_service.github.client import GitHub
from gonogo_service.github.problems import Refused
from gonogo_service.kit.background_context import Core
from gonogo_storage.automation import ci_rules, ci_subjects
from gonogo_storage.automation.ci_subjects import CiSubject
from gonogo_storage.db.encoding import encode
from gonogo_storage.db.states import HookSource
from gonogo_storage.messages import incoming

log = structlog.get_logger("gonogo.github")
EVENT = "pull_request"


def find(core: Core, github: GitHub, subject: CiSubject, *, over: bool) -> bool:
    """Ask for the open pull requests of a subject's commit, and store what nothing told of yet.
    Raises GitHubError.

    Whether to ask again later: people push first, and open the pull request then. While it runs
    nobody is asked where the rule speaks of pull requests itself: GitHub may tell of it yet.
    """
    if subject.pull_request is not None:
        return False
    stored = core.reading(lambda session: ci_rules.get(session, subject.rule))
    rule = None if stored is None else Rule.of(stored["content"])
    if (
        rule is None
        or not (rule.enabled and rule.pull_requests)
        or (EVENT in rule.events and not over)
    ):
        return False
    try:
        found = github.pulls_of(subject.repository, subject.head_sha)
    except (
        Refused
    ) as problem:  # a token that may set statuses and read no pull requests is one all the same
        log.warning(
            "the pull requests of a commit are not known",
            repository=subject.repository,
            error=str(problem),
        )
        return False
    for each in found:
        core.session(partial(_keep, subject=subject, told=each))
    return not found


def _keep(session: Session, subject: CiSubject, told: Mapping[str, Any]) -> None:
    """One delivery per pull request, commit and rule, however often it is found."""
    number = int(told["number"])
    if ci_subjects.for_pull_request(
        session, subject.repository, subject.head_sha, number, subject.rule
    ):
        return
    body = {
        "rule": subject.rule,
        "head_build": subject.head_build,
        "push": subject.delivery_id,
        "pull_request": {
            name: told[name] for name in ("number", "updated_at", "head", "base") if name in told
        },
        "repository": {"full_name": subject.repository},
        "installation": {"id": subject.installation},
    }
    name = f"{subject.repository}#{number}@{subject.head_sha} {subject.rule}"
    incoming.store(session, HookSource.asked, name, EVENT, encode(body).encode())
