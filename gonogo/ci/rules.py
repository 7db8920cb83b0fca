"""Rules: which events of which repositories start which suites and gauges, on which builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field

from gonogo.ci.events import CommitEvent
from gonogo.ci.patterns import fits, fits_any
from gonogo.errors import FieldError
from gonogo.spec.builds import DeclaredBuild
from gonogo.spec.executors import EMULATOR
from gonogo.spec.validation import Model, Refused

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "pull_request": ("opened", "synchronize", "reopened"),
    "workflow_run": ("completed",),
    "check_suite": ("requested", "rerequested"),
}
"""The actions that count if a rule names none: a new head, a finished workflow, a requested
suite. A push has no action."""
PLACES = ("sha", "short", "branch", "number")
"""The names that may stand in `{...}` in a build's name: the commit, its first 12 digits, the
branch, and the pull request's number (0: none)."""
SHORT = 12
MAX_NAME = 200
MAX_PATTERNS = 100
_PLACE = re.compile(r"\{([^{}]*)\}")
_UNFIT = re.compile(r"[^A-Za-z0-9._+/@-]")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._+/@-]*"

Event = Literal["push", "pull_request", "workflow_run", "check_suite", "commit"]
Pattern = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^!?[^!\s]\S*$")]
Patterns = Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)]
Word = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
Words = Annotated[list[Word], Field(max_length=50)]


def problem_of(template: str) -> str | None:
    """Return the problem of a build's name that may contain `{...}`; None where there is none."""
    unknown = [place for place in _PLACE.findall(template) if place not in PLACES]
    if unknown:
        return f"{{{unknown[0]}}} is not among " + ", ".join(f"{{{place}}}" for place in PLACES)
    is_name = re.fullmatch(_NAME, _PLACE.sub("x", template))
    return None if is_name else "has a character that builds' names can't have"


def _is_template(template: str) -> str:
    if problem := problem_of(template):
        raise Refused(FieldError("", template, problem, limit="such as kernels-{short}"))
    return template


Template = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_is_template)]


class BuildsOfRule(Model):
    """The names of the commits' builds.

    `{sha}`, `{short}`, `{branch}` and `{number}` are replaced by parts of the event.
    """

    head: Template | None = Field(
        None, description="null: the build that is registered with the commit"
    )
    base: Template | None = Field(None, description="null: the same template as for head")


class Registration(DeclaredBuild):
    """The registration of unknown builds in `builds`.

    The worker hosts define what a build means.
    """

    branch: str = Field("default", pattern=f"^{_NAME}$", max_length=150)

    def _normalize(self) -> None:
        super()._normalize()
        if self.executor == EMULATOR:
            reason = "the emulator's builds are part of it"
            raise FieldError("executor", EMULATOR, reason, limit="any other executor")


class Rule(Model):
    """A rule: events of repositories that start suites and gauges. Every matching rule applies."""

    name: str
    description: str = Field("", max_length=2000)
    enabled: bool = True
    events: list[Event] = Field(
        min_length=1, max_length=5, description="`commit` is the event of other CI systems"
    )
    repositories: Annotated[list[Pattern], Field(min_length=1, max_length=MAX_PATTERNS)] = Field(
        description="owner/name, or patterns"
    )
    actions: Words = Field(
        [], description="Empty: the actions with a new head, or that request a run"
    )
    branches: Patterns = Field(
        [], description="Branches of pushes, or base branches of pull requests; empty: all"
    )
    paths: Patterns = Field(
        [],
        description="At least one changed path must match; empty or unknown paths: always",
    )
    workflows: Patterns = Field(
        [], description="Names of workflows, or slugs of Apps with check suites; empty: all"
    )
    conclusions: Words = Field(["success"], description="Conclusions of a completed workflow")
    forks: bool = Field(False, description="true: commits of forks run on your devices")
    base: bool = Field(True, description="Also run the commit before the change, unless it has run")
    pull_requests: bool = Field(
        True,
        description=(
            "Answer a push also at the open pull requests of its commit for which there was no "
            "delivery"
        ),
    )
    builds: BuildsOfRule = BuildsOfRule(head=None, base=None)
    register_: Registration | None = Field(None, alias="register")
    suites: list[Any] = Field([])
    gauges: list[Any] = Field([])
    labels: dict[str, str] = Field({})

    def _normalize(self) -> None:
        if not self.suites and not self.gauges:
            reason = "a rule must start something"
            raise FieldError("suites", [], reason, limit="a suite or a gauge")
        head, base = self.builds.head, self.builds.base
        same = head is not None and "{sha}" not in head and "{short}" not in head
        if self.suites and self.base and same and base is None:
            reason = (
                f"is required: {head!r} names the same build for every commit, which would be "
                "compared with itself"
            )
            limit = "a build; {sha} or {short} in builds.head; or base: false"
            raise FieldError("builds.base", None, reason, limit=limit)
        if self.register_ is not None and head is None:
            reason = "there is no name to register"
            raise FieldError("register", self.register_.executor, reason, limit="builds.head")

    def concerns(self, event: CommitEvent) -> bool:
        """Return whether it covers such events of that repository at all."""
        if event.rule is not None:
            return event.rule == self.name
        return event.event in self.events and fits(
            self.repositories, event.repository, any_case=True
        )

    def closed(self, *, fork: bool) -> str | None:
        """Return why it starts nothing for any event; None: it may start something."""
        if not self.enabled:
            return "the rule is switched off"
        if fork and not self.forks:
            return "the commit comes from a fork, which the rule does not allow"
        return None

    def refusal(self, event: CommitEvent) -> str | None:
        """Return why it starts nothing for an event that it concerns; None: it starts its jobs.

        Unknown paths fit: one test too many costs time, one too few hides a fault.
        """
        closed = self.closed(fork=event.fork)
        # An event for one rule follows from a push that the rule has accepted already.
        if closed is not None or event.rule is not None:
            return closed
        actions = self.actions or ACTIONS.get(event.event, ())
        if actions and event.action is not None and event.action not in actions:
            return f"the action {event.action} is not among {', '.join(actions)}"
        is_end = event.event == "workflow_run" and event.action == "completed"
        if is_end and event.conclusion not in self.conclusions:
            allowed = " or ".join(self.conclusions)
            return f"the workflow ended with {event.conclusion}, not with {allowed}"
        named = event.event in ("workflow_run", "check_suite")
        for what, patterns, name in (
            ("workflow", self.workflows if named else (), event.workflow),
            ("branch", self.branches, event.branch),
        ):
            if patterns and (name is None or not fits(patterns, name)):
                return f"the {what} {(name or '')[:100]!r} fits none of its patterns"
        if self.paths and event.paths is not None and not fits_any(self.paths, event.paths):
            return f"none of the {len(event.paths)} changed paths fits its patterns"
        return None


class Origin(Protocol):
    """The branch and pull request that a commit's build may be named after."""

    @property
    def branch(self) -> str | None:
        """Return its branch."""

    @property
    def pull_request(self) -> int | None:
        """Return the number of its pull request."""


def build_name(template: str, sha: str, event: Origin) -> str:
    """Return the name of a commit's build.

    Characters of a branch that such names can't have become "-".
    """
    values = {
        "sha": sha,
        "short": sha[:SHORT],
        "branch": event.branch or "none",
        "number": str(event.pull_request or 0),
    }
    return _UNFIT.sub("-", _PLACE.sub(lambda match: values[match[1]], template))[:MAX_NAME]
