"""Facts about a run: suite, build and commit, from the options, the CI's environment or git."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

GIT_S = 5.0
SHOWN = 12
REPOSITORY = r"[A-Za-z0-9._/-]{1,200}"
SHA = r"[0-9a-fA-F]{7,64}"


def header(
    root: Path, suite: str | None, build: str | None, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the first line of format "gonogo" for a run of these tests, without its time."""
    commit = commit_of(os.environ)
    sha = commit["sha"] if commit else git_head(root)
    fields = {
        "format": "gonogo",
        "version": 1,
        "suite": suite or (commit["repository"] if commit else root.name) or "pytest",
        "build": build or (sha[:SHOWN] if sha else None),
        "tool": f"pytest {pytest.__version__}, Python {platform.python_version()}",
        "commit": commit,
        "labels": dict(labels) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def commit_of(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return {"repository", "sha", "pull_request"} from GitHub Actions or GitLab CI.

    None elsewhere. For a pull request GitHub's GITHUB_SHA is a merge that nobody pushed; the
    event's file has the pushed commit.
    """
    if environment.get("GITHUB_SHA"):
        repository, sha, number = (
            environment.get("GITHUB_REPOSITORY", ""),
            environment["GITHUB_SHA"],
            None,
        )
        pull = _event(environment.get("GITHUB_EVENT_PATH")).get("pull_request")
        if isinstance(pull, dict):
            number, sha = pull.get("number"), (pull.get("head") or {}).get("sha") or sha
    elif environment.get("CI_COMMIT_SHA"):
        repository, sha = environment.get("CI_PROJECT_PATH", ""), environment["CI_COMMIT_SHA"]
        number = (
            int(iid) if (iid := environment.get("CI_MERGE_REQUEST_IID", "")).isdecimal() else None
        )
    else:
        return None
    if not re.fullmatch(REPOSITORY, repository) or not re.fullmatch(SHA, str(sha)):
        return None
    return {
        "repository": repository,
        "sha": sha,
        "pull_request": number if isinstance(number, int) and number > 0 else None,
    }


def git_head(root: Path) -> str | None:
    """Return the checked-out commit; None outside of a repository."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, timeout=GIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    sha = done.stdout.strip()
    return sha if done.returncode == 0 and re.fullmatch(SHA, sha) else None


def _event(path: str | None) -> dict[str, Any]:
    try:
        event = json.loads(Path(path or "").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return event if isinstance(event, dict) else {}
