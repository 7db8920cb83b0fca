"""Starts the runs and gauges of a rule for an event.

It names or registers the builds, starts head and base, and stores the commit checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from gonogo.ci.events import CommitEvent
from gonogo.ci.rules import Rule, build_name
from gonogo.errors import FieldError, JobError
from gonogo.settings import Settings
from gonogo.spec.builds import known_build
from gonogo.spec.canonical import key_of
from gonogo_service.builds import store as builds
from gonogo_service.ci import answers, commit_checks
from gonogo_service.ci.model import CommitCheckRow, IncomingDeliveryRow, RuleOutcome
from gonogo_service.gauges import submission as gauges
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.kit import audit
from gonogo_service.kit.database.states import HookSource
from gonogo_service.kit.problems import Problem
from gonogo_service.people import quotas
from gonogo_service.suites import submission as suites
from gonogo_service.suites.submission import Order

RULE_LABEL = "ci-rule"


def start(
    session: Session,
    event: CommitEvent,
    rule: Rule,
    delivery: IncomingDeliveryRow,
    owner: str,
    settings: Settings,
) -> RuleOutcome:
    """Start the rule's suites and gauges in the caller's transaction, as jobs of `owner`.

    A suite that can't be started gives a commit check with an error, never an exception.
    """
    starter = _Starter(session, event, rule, delivery, owner, settings)
    checks = [starter.suite(suite) for suite in rule.suites]
    checks += [starter.gauges()] if rule.gauges else []
    started = any(check.run is not None or check.gauges for check in checks)
    reason = "; ".join(check.error for check in checks if check.error is not None) or None
    return RuleOutcome(rule.name, [check.id for check in checks], started, reason)


class _Side(NamedTuple):
    """The head or the base of an event, as far as it was started."""

    build: str | None = None
    run: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class _Starter:
    session: Session
    event: CommitEvent
    rule: Rule
    delivery: IncomingDeliveryRow
    owner: str
    settings: Settings

    def suite(self, suite: str | Mapping[str, Any]) -> CommitCheckRow:
        """Start a suite on head and base."""
        values: dict[str, Any] = {"suite": suite if isinstance(suite, str) else str(suite["name"])}
        try:
            content, version = suite, None
            if isinstance(suite, str):
                stored = suites.usable(self.session, suite)
                content, version = stored.content, stored.version
            assert not isinstance(content, str)
            values["suite_key"] = key_of(dict(content))
        except JobError as problem:
            return self._commit_check(**values, error=str(problem))
        head, base = self._side(content, values["suite_key"], version, head=True), _Side()
        if head.run is not None and self.rule.base and self.event.base_sha is not None:
            base = self._side(content, values["suite_key"], version, head=False)
        sides = {"head": head, "base": base}
        errors = [f"{name}: {side.error}" for name, side in sides.items() if side.error]
        return self._commit_check(
            **values,
            run=head.run,
            head_build=head.build,
            base_run=base.run,
            base_build=base.build,
            error="; ".join(errors) or None,
        )

    def gauges(self) -> CommitCheckRow:
        """Start the rule's gauges."""
        started: list[str] = []
        errors: list[str] = []
        for number, gauge in enumerate(self.rule.gauges):
            try:
                body = GaugeIn.parse(gauge)
                with self._within_quota():
                    created = gauges.submit(self.session, body, self.settings, self.owner).id
                    self._audit("gauge.created", created)
                started.append(created)
            except (JobError, Problem) as problem:
                errors.append(f"gauges.{number}: {problem}")
        return self._commit_check(suite=None, gauges=started, error="; ".join(errors) or None)

    def _side(
        self, content: Mapping[str, Any], suite_key: str, version: int | None, *, head: bool
    ) -> _Side:
        """Submit the run, or reuse the rule's earlier one for this commit, suite and build."""
        event, rule = self.event, self.rule
        sha = str(event.head_sha if head else event.base_sha)
        build = None
        try:
            build = self._build_of(sha, head=head)
            if not (event.again if head else event.again_base):
                about = {"rule": rule.name, "suite_key": suite_key, "build": build}
                before = commit_checks.started(self.session, event.repository, sha, **about)
                if before is not None:
                    return _Side(build, before)
            pull_request = event.pull_request if head else None
            order = Order(
                [build],
                {**rule.labels, RULE_LABEL: rule.name},
                {"repository": event.repository, "sha": sha, "pull_request": pull_request},
                version,
                actor=self._actor,
            )
            with self._within_quota():
                run = suites.submit(self.session, content, order, self.settings, self.owner)
            return _Side(build, run.id)
        except (JobError, Problem) as problem:
            return _Side(build, error=str(problem))

    def _build_of(self, sha: str, *, head: bool) -> str:
        """Return the build of the commit. Raises FieldError when there is none."""
        event, rule = self.event, self.rule
        template = rule.builds.head if head else rule.builds.base or rule.builds.head
        given = event.head_build if head else event.base_build
        name = given or (None if template is None else build_name(template, sha, event))
        if name is None:
            name = builds.of_commit(self.session, sha)
            if name is None:
                reason, limit = "no build of this commit is registered", "a build with this commit"
                raise FieldError("builds", sha, reason, limit=limit)
        elif (
            rule.register_ is not None
            and known_build(name) is None
            and builds.get(self.session, name) is None
        ):
            self._register(name, sha, head=head)
        return name

    def _register(self, name: str, sha: str, *, head: bool) -> None:
        how, number = self.rule.register_, self.event.pull_request
        assert how is not None
        # a pull request's builds must not appear in the branch's history
        branch = how.branch if number is None or not head else f"{how.branch}/pull-{number}"
        values: dict[str, Any] = {
            "executor": how.executor,
            "branch": branch,
            "commit": sha,
            "author": self.event.author if head else None,
            "arithmetic": how.arithmetic,
            "outputs": how.outputs,
        }
        build = builds.add(self.session, name=name, **values)
        self._audit("build.registered", name, values | {"sequence": build.sequence})

    @property
    def _actor(self) -> str:
        return f"rule:{self.rule.name}"

    def _audit(self, action: str, subject: str, detail: dict[str, Any] | None = None) -> None:
        audit.record(self.session, actor=self._actor, action=action, subject=subject, detail=detail)

    @contextmanager
    def _within_quota(self) -> Iterator[None]:
        """Take back what the block adds beyond the quotas of the rule's owner.

        Everybody with a fork may send events of a rule, and must not get past them.
        Raises Problem.
        """
        guard = quotas.guard(self.session, self.settings, self.owner)
        with self.session.begin_nested(), guard:
            yield

    def _commit_check(self, **values: Any) -> CommitCheckRow:
        event, settings = self.event, self.settings
        # events that were read from GitHub's API are answered there, too
        of_ci = self.delivery.source is HookSource.ci
        same = ("event", "repository", "installation", "branch", "pull_request", "fork")
        unknown = ("suite_key", "run", "base_run", "head_build", "base_build", "error")
        about = {
            **dict.fromkeys(unknown),
            **{name: getattr(event, name) for name in (*same, "head_sha", "base_sha")},
            "delivery": self.delivery.id,
            "source": HookSource.ci if of_ci else HookSource.github,
            "rule": self.rule.name,
            "occurred_at": event.occurred_at or self.delivery.received_at,
        }
        check = commit_checks.add(self.session, {**about, **values})
        if not of_ci and (settings.github_token or settings.github_app_id):
            answers.add(self.session, check.id)
        return check
