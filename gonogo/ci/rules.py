"""Rules: which events of which repositories start which suites and gauges, on which builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gonogo.ci.events import CommitEvent
from gonogo.ci.patterns import fits, fits_any
from gonogo.spec.arithmetic_names import canonical

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
OF_THE_COMMIT = ("{sha}", "{short}")
SHORT = 12
MAX_NAME = 200
_PLACE = re.compile(r"\{([^{}]*)\}")
_UNFIT = re.compile(r"[^A-Za-z0-9._+/@-]")


@dataclass(frozen=True)
class Registration:
    """The fields with which an unregistered commit's build is registered.

    Nothing in it can be executed.
    """

    executor: str
    branch: str = "default"
    arithmetic: str | None = None
    outputs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Rule:
    """A rule as it is stored. See `concerns` and `refusal`."""

    name: str
    events: tuple[str, ...]
    repositories: tuple[str, ...]
    actions: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    conclusions: tuple[str, ...] = ("success",)
    forks: bool = False
    enabled: bool = True
    base: bool = True
    """True if the commit that the head is compared with is run, too, unless it has run already."""
    pull_requests: bool = True
    """True if a push is also answered at the open pull requests of its commit that no delivery
    mentioned."""
    head_build: str | None = None
    base_build: str | None = None
    register: Registration | None = None
    suites: tuple[str | Mapping[str, Any], ...] = ()
    gauges: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Rule:
        """Return the rule in the JSON that the API checked and stored.

        Missing fields have their defaults.
        """
        builds, register = content.get("builds") or {}, content.get("register")
        if register is not None:
            outputs = register.get("outputs")
            register = Registration(
                **{
                    **register,
                    "arithmetic": canonical(register.get("arithmetic"), "register.arithmetic"),
                    "outputs": None if outputs is None else tuple(outputs),
                }
            )
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in content.items()
            if name in cls.__dataclass_fields__ and value is not None
        }
        values |= {"head_build": builds.get("head"), "base_build": builds.get("base")}
        return cls(**{**values, "register": register})

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


def problem_of(template: str) -> str | None:
    """Return what is wrong with a build's name that may contain `{...}`; None: nothing."""
    unknown = [place for place in _PLACE.findall(template) if place not in PLACES]
    if unknown:
        return f"{{{unknown[0]}}} is not among " + ", ".join(f"{{{place}}}" for place in PLACES)
    is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+/@-]*", _PLACE.sub("x", template))
    return None if is_name else "has a character that builds' names can't have"


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
