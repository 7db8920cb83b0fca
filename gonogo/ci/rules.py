"""Rules: which events of which repositories start which suites and gauges, on which builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gonogo.ci.events import CommitEvent
from gonogo.ci.patterns import fits, fits_any

ACTIONS: Mapping[str, tuple[str, ...]] = {
    "pull_request": ("opened", "synchronize", "reopened"),
    "workflow_run": ("completed",),
    "check_suite": ("requested", "rerequested"),
}
"""What counts where a rule names no actions: a new head, a finished workflow, a suite that was
asked for. A push has no action."""
PLACES = ("sha", "short", "branch", "number")
"""What `{...}` in the name of a build may be: the commit, its first 12 digits, the branch, the pull
request's number (0: none)."""
OF_THE_COMMIT = ("{sha}", "{short}")
SHORT = 12
MOST_NAME = 200
_PLACE = re.compile(r"\{([^{}]*)\}")
_UNFIT = re.compile(r"[^A-Za-z0-9._+/@-]")


@dataclass(frozen=True)
class Registration:
    """How the build of a commit that nobody has registered is registered; nothing of it can be
    executed.
    """

    executor: str
    branch: str = "default"
    arithmetic: str | None = None
    outputs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Rule:
    """A rule as it is stored; see `fit`."""

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
    """Whether the commit that the head is compared with is run as well, unless it was."""
    pull_requests: bool = True
    """Whether a push is answered at the open pull requests of its commit, too, of which no delivery
    told."""
    head_build: str | None = None
    base_build: str | None = None
    register: Registration | None = None
    suites: tuple[str | Mapping[str, Any], ...] = ()
    gauges: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Rule:
        """From the JSON that the API checked and stored; what it leaves out is as above."""
        lists = (
            "events",
            "repositories",
            "actions",
            "branches",
            "paths",
            "workflows",
            "conclusions",
            "suites",
            "gauges",
        )
        plain = ("name", "forks", "enabled", "base", "pull_requests", "labels")
        builds, register = content.get("builds") or {}, content.get("register")
        if register is not None:
            outputs = register.get("outputs")
            register = Registration(
                **{**register, "outputs": None if outputs is None else tuple(outputs)}
            )
        values: dict[str, Any] = {
            name: tuple(content[name]) for name in lists if content.get(name) is not None
        }
        values |= {name: content[name] for name in plain if name in content}
        return cls(
            **values,
            head_build=builds.get("head"),
            base_build=builds.get("base"),
            register=register,
        )

    def concerns(self, event: CommitEvent) -> bool:
        """Return whether it speaks of such events of that repository at all."""
        if event.rule is not None:
            return event.rule == self.name
        return event.event in self.events and fits(
            self.repositories, event.repository, any_case=True
        )

    def closed(self, *, fork: bool) -> str | None:
        """Why it starts nothing whatever happened; None: it may."""
        if not self.enabled:
            return "the rule is switched off"
        if fork and not self.forks:
            return "the commit comes from a fork, which the rule does not allow"
        return None

    def refusal(self, event: CommitEvent) -> str | None:
        """Why it starts nothing for an event that it concerns; None: it starts what it names.

        Paths that nobody knows fit: a test too many costs time, one too few hides a fault.
        """
        closed = self.closed(fork=event.fork)
        if closed is not None or event.rule is not None:  # it took the push that this goes back to
            return closed
        actions = self.actions or ACTIONS.get(event.event, ())
        if actions and event.action is not None and event.action not in actions:
            return f"the action {event.action} is not among {', '.join(actions)}"
        if (
            event.event == "workflow_run"
            and event.action == "completed"
            and event.conclusion not in self.conclusions
        ):
            return f"the workflow ended with {event.conclusion}, not with {' or '.join(self.conclusions)}"
        named = event.event in ("workflow_run", "check_suite")
        if (
            self.workflows
            and named
            and (event.workflow is None or not fits(self.workflows, event.workflow))
        ):
            return f"the workflow {(event.workflow or '')[:100]!r} fits none of its patterns"
        if self.branches and (event.branch is None or not fits(self.branches, event.branch)):
            return f"the branch {(event.branch or '')[:100]!r} fits none of its patterns"
        if self.paths and event.paths is not None and not fits_any(self.paths, event.paths):
            return f"none of the {len(event.paths)} changed paths fits its patterns"
        return None


def problem_of(template: str) -> str | None:
    """What is wrong with the name of a build with `{...}` in it; None: nothing."""
    unknown = [place for place in _PLACE.findall(template) if place not in PLACES]
    if unknown:
        return f"{{{unknown[0]}}} is not among " + ", ".join(f"{{{place}}}" for place in PLACES)
    rest = _PLACE.sub("x", template)
    return (
        None
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+/@-]*", rest)
        else "holds a character that names of builds can't have"
    )


def build_name(template: str, sha: str, event: CommitEvent) -> str:
    """Return the name of a commit's build.

    Characters of a branch that such names can't have become "-".
    """
    values = {
        "sha": sha,
        "short": sha[:SHORT],
        "branch": event.branch or "none",
        "number": str(event.pull_request or 0),
    }
    return _UNFIT.sub("-", _PLACE.sub(lambda found: values[found[1]], template))[:MOST_NAME]
