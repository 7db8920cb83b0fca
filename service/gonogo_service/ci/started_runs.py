"""Starts the runs and gauges of a rule for an event.

It names or registers the builds, starts head and base, and stores the commit checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo.ci.events import CommitEvent
from gonogo.ci.rules import Rule, build_name
from gonogo.errors import FieldError, JobError
from gonogo.settings import Settings
from gonogo.spec.builds import known_build
from gonogo.spec.canonical import key_of
from gonogo_service.builds import store as builds
from gonogo_service.ci import commit_checks
from gonogo_service.ci.commit_checks import CommitCheck
from gonogo_service.gauges import submission as gauges
from gonogo_service.jobs.bodies import GaugeIn
from gonogo_service.kit import audit
from gonogo_service.kit.database.states import HookSource
from gonogo_service.kit.problems import Problem
from gonogo_service.people import quotas
from gonogo_service.suites import submission as suites
from gonogo_service.suites.submission import Order

RULE_LABEL = "ci-rule"


@dataclass(frozen=True)
class Cause:
    """The delivery behind a run, and the owner of the jobs that its rule starts."""

    delivery: str
    source: HookSource
    received_at: datetime
    owner: str


def start(
    session: Session, event: CommitEvent, rule: Rule, cause: Cause, settings: Settings
) -> list[CommitCheck]:
    """Start the rule's suites and gauges in the caller's transaction.

    A suite that can't be started gives a commit check with an error, never an exception.
    """
    started = [_suite(session, event, rule, cause, settings, suite) for suite in rule.suites]
    if rule.gauges:
        started.append(_gauges(session, event, rule, cause, settings))
    return started


def _suite(
    session: Session,
    event: CommitEvent,
    rule: Rule,
    cause: Cause,
    settings: Settings,
    suite: str | Mapping[str, Any],
) -> CommitCheck:
    known = {"suite": suite if isinstance(suite, str) else str(suite["name"])}
    head, base = (
        _Side(session, event, rule, cause, settings, "head"),
        _Side(session, event, rule, cause, settings, "base"),
    )
    try:
        content, version = suite, None
        if isinstance(suite, str):
            stored = suites.usable(session, suite)
            content, version = stored.content, stored.version
        assert not isinstance(content, str)
        known["suite_key"] = key_of(dict(content))
    except JobError as problem:
        return _commit_check(session, event, rule, cause, {**known, "error": str(problem)})
    head.start(content, known["suite_key"], version)
    if head.run is not None and rule.base and event.base_sha is not None:
        base.start(content, known["suite_key"], version)
    errors = [f"{side.name}: {side.error}" for side in (head, base) if side.error is not None]
    values = {
        **known,
        "run": head.run,
        "head_build": head.build,
        "base_run": base.run,
        "base_build": base.build,
        "error": "; ".join(errors) or None,
    }
    return _commit_check(session, event, rule, cause, values)


@contextmanager
def _within_quota(session: Session, settings: Settings, owner: str) -> Iterator[None]:
    """Take back what the block adds beyond the quotas of the rule's owner.

    Whoever may send events of a rule, such as everybody with a fork, must not get past them.
    Raises Problem.
    """
    with session.begin_nested(), quotas.guard(session, settings, owner):
        yield


class _Side:
    """The head or the base of an event: its commit, its build, its run."""

    def __init__(
        self,
        session: Session,
        event: CommitEvent,
        rule: Rule,
        cause: Cause,
        settings: Settings,
        name: str,
    ) -> None:
        self._session, self._event, self._rule, self._cause, self._settings = (
            session,
            event,
            rule,
            cause,
            settings,
        )
        self.name = name
        self.build: str | None = None
        self.run: str | None = None
        self.error: str | None = None

    @property
    def _sha(self) -> str:
        return str(self._event.head_sha if self.name == "head" else self._event.base_sha)

    def start(self, content: Mapping[str, Any], suite_key: str, version: int | None) -> None:
        """Submit the run, or reuse the rule's earlier one for this commit, suite and build."""
        event = self._event
        try:
            self.build = self._build_name()
            if not (event.again_base if self.name == "base" else event.again):
                before = commit_checks.started(
                    self._session,
                    event.repository,
                    self._sha,
                    rule=self._rule.name,
                    suite_key=suite_key,
                    build=self.build,
                )
                if before is not None:
                    self.run = before
                    return
            commit: dict[str, Any] = {
                "repository": event.repository,
                "sha": self._sha,
                "pull_request": None,
            }
            if self.name == "head":
                commit["pull_request"] = event.pull_request
            order = Order(
                [self.build],
                {**self._rule.labels, RULE_LABEL: self._rule.name},
                commit,
                version,
                actor=f"rule:{self._rule.name}",
            )
            owner = self._cause.owner
            with _within_quota(self._session, self._settings, owner):
                self.run = suites.submit(self._session, content, order, self._settings, owner).id
        except (JobError, Problem) as problem:
            self.run = None
            self.error = str(problem)

    def _build_name(self) -> str:
        """Return the build of the commit. Raises FieldError when there is none."""
        event, rule, head = self._event, self._rule, self.name == "head"
        template = rule.head_build if head else rule.base_build or rule.head_build
        given = event.head_build if head else event.base_build
        name = given or (None if template is None else build_name(template, self._sha, event))
        if name is None:
            name = builds.of_commit(self._session, self._sha)
            if name is None:
                raise FieldError(
                    "builds",
                    self._sha,
                    "no build of this commit is registered",
                    limit="a build with this commit",
                )
        elif (
            rule.register is not None
            and known_build(name) is None
            and builds.get(self._session, name) is None
        ):
            self._register(name)
        return name

    def _register(self, name: str) -> None:
        how, event = self._rule.register, self._event
        assert how is not None
        # a pull request's builds must not appear in the branch's history
        branch = (
            f"{how.branch}/pull-{event.pull_request}"
            if self.name == "head" and event.pull_request is not None
            else how.branch
        )
        values: dict[str, Any] = {
            "executor": how.executor,
            "branch": branch,
            "sequence": builds.next_sequence(self._session, branch),
            "commit": self._sha,
            "arithmetic": how.arithmetic,
            "outputs": None if how.outputs is None else list(how.outputs),
        }
        builds.add(self._session, name=name, **values)
        audit.record(
            self._session,
            actor=f"rule:{self._rule.name}",
            action="build.registered",
            subject=name,
            detail=values,
        )


def _gauges(
    session: Session, event: CommitEvent, rule: Rule, cause: Cause, settings: Settings
) -> CommitCheck:
    started: list[str] = []
    errors: list[str] = []
    for number, gauge in enumerate(rule.gauges):
        try:
            body = GaugeIn.parse(gauge)
            with _within_quota(session, settings, cause.owner):
                created = gauges.submit(session, body, settings, cause.owner).id
                audit.record(
                    session, actor=f"rule:{rule.name}", action="gauge.created", subject=created
                )
            started.append(created)
        except (JobError, Problem) as problem:
            errors.append(f"gauges.{number}: {problem}")
    return _commit_check(
        session, event, rule, cause, {"gauges": started, "error": "; ".join(errors) or None}
    )


def _commit_check(
    session: Session, event: CommitEvent, rule: Rule, cause: Cause, values: Mapping[str, Any]
) -> CommitCheck:
    empty = dict.fromkeys(
        ("suite", "suite_key", "run", "base_run", "head_build", "base_build", "error")
    )
    about = {
        "delivery": cause.delivery,
        "source": cause.source.value,
        "event": event.event,
        "rule": rule.name,
        "repository": event.repository,
        "installation": event.installation,
        "branch": event.branch,
        "pull_request": event.pull_request,
        "fork": event.fork,
        "head_sha": event.head_sha,
        "base_sha": event.base_sha,
        "occurred_at": event.occurred_at or cause.received_at,
    }
    return commit_checks.add(session, {**empty, "gauges": (), **about, **values})
