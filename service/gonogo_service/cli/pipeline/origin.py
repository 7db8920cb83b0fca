"""The commit that a pipeline runs for, as GitHub Actions and GitLab CI tell it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gonogo.errors import FieldError

_FULL = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}|0+", re.IGNORECASE)
"""A full hash of a commit; zeros stand for none."""
GIT_S = 30.0
Provider = Literal["github", "gitlab", "other"]


@dataclass(frozen=True)
class Origin:
    """A commit and what it is compared with."""

    provider: Provider
    commit: str
    branch: str | None = None
    """The branch that it is on; of a pull request the branch that it is to be merged into."""
    base: str | None = None
    """The commit before it; None: there is none."""
    pull_request: int | None = None
    repository: str | None = None

    @property
    def series(self) -> str:
        """Return the branch of its builds: a pull request's stay out of the branch's history."""
        branch = self.branch or "default"
        return branch if self.pull_request is None else f"{branch}/pull-{self.pull_request}"


def read(environment: Mapping[str, str], given: Mapping[str, Any]) -> Origin:
    """Return the commit of a pipeline; the options in `given` come before its variables.

    Raises FieldError where nothing names a commit, or an option names none.
    """
    if environment.get("GITHUB_ACTIONS") == "true":
        provider, facts = "github", _github(environment)
    elif environment.get("GITLAB_CI") == "true":
        provider, facts = "gitlab", _gitlab(environment)
    else:
        provider, facts = "other", {}
    facts |= {name: value for name, value in given.items() if value is not None}
    for name, option in (("commit", "--commit"), ("base", "--base-commit")):
        if given.get(name):
            facts[name] = resolved(given[name], option)
    commit = facts.get("commit")
    if not commit:
        raise FieldError(
            "--commit",
            None,
            "is needed outside of GitHub Actions and GitLab CI",
            limit='a commit, such as "$(git rev-parse HEAD)"',
        )
    if set(facts.get("base") or "0") == {"0"} or facts["base"] == commit:
        facts["base"] = None  # forty zeros: the push made the branch
    return Origin(provider, **facts)  # type: ignore[arg-type]


def resolved(text: str, option: str) -> str:
    """Return the full hash of a commit; git resolves a name such as HEAD in the current folder.

    Raises FieldError where git doesn't know it: the name of a build has the commit in it.
    """
    if _FULL.fullmatch(text):
        return text.lower()
    command = ["git", "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}"]
    reason = "is no option's value"
    if not text.startswith("-"):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_S)
            if done.returncode == 0:
                return done.stdout.strip()
            reason = f"git knows no such commit in {Path.cwd()}"
        except (OSError, ValueError, subprocess.TimeoutExpired) as problem:
            reason = f"can't be resolved: {problem}"
    limit = "a full hash (40 or 64 hexadecimal digits), or a name that git knows in this folder"
    raise FieldError(option, text, reason, limit=limit)


def _github(environment: Mapping[str, str]) -> dict[str, Any]:
    event = _event(environment.get("GITHUB_EVENT_PATH"))
    facts: dict[str, Any] = {
        "commit": environment.get("GITHUB_SHA"),
        "branch": environment.get("GITHUB_REF_NAME"),
        "base": event.get("before"),
        "repository": environment.get("GITHUB_REPOSITORY"),
    }
    if isinstance(pull := event.get("pull_request"), dict):
        # GITHUB_SHA is a merge that GitHub made for this run alone
        facts |= {
            "commit": pull["head"]["sha"],
            "branch": pull["base"]["ref"],
            "base": pull["base"]["sha"],
            "pull_request": pull["number"],
        }
    elif isinstance(group := event.get("merge_group"), dict):
        facts |= {
            "commit": group["head_sha"],
            "branch": str(group["base_ref"]).removeprefix("refs/heads/"),
            "base": group["base_sha"],
        }
    return facts


def _event(path: str | None) -> dict[str, Any]:
    try:
        event = json.loads(Path(path).read_text("utf-8")) if path else {}
    except (OSError, ValueError) as problem:
        raise FieldError("GITHUB_EVENT_PATH", path, f"can't be read: {problem}") from problem
    return event if isinstance(event, dict) else {}


def _gitlab(environment: Mapping[str, str]) -> dict[str, Any]:
    number = environment.get("CI_MERGE_REQUEST_IID")
    facts: dict[str, Any] = {
        "commit": environment.get("CI_COMMIT_SHA"),
        "branch": environment.get("CI_COMMIT_BRANCH") or environment.get("CI_COMMIT_TAG"),
        "base": environment.get("CI_COMMIT_BEFORE_SHA"),
        "repository": environment.get("CI_PROJECT_PATH"),
    }
    if number:
        facts |= {
            # in a pipeline for merged results CI_COMMIT_SHA is a merge that GitLab made for it
            "commit": environment.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or facts["commit"],
            "branch": environment.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME"),
            "base": environment.get("CI_MERGE_REQUEST_DIFF_BASE_SHA"),
            "pull_request": int(number),
        }
    return facts
