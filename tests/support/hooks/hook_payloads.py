"""Payloads as GitHub documents them, small; and how a sender signs them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import httpx

from gonogo_service.webhooks.signing import github_signature

SECRET = "what GitHub signs with in tests"
REPOSITORY = "lab/kernels"
BEFORE, HEAD, NEXT = "a1" * 20, "b2" * 20, "c3" * 20
REPOSITORY_RECORD: dict[str, Any] = {"id": 1, "full_name": REPOSITORY, "pushed_at": 1_780_000_000}
FOREIGN: dict[str, Any] = {"id": 2, "full_name": "someone/kernels"}


def push(*, paths: Mapping[str, list[str]] | None = None, **changes: Any) -> dict[str, Any]:
    """A push of one commit to main."""
    changed = {"added": [], "modified": ["ttnn/layernorm.cpp"], "removed": [], **(paths or {})}
    commit = {"id": HEAD, **changed}
    empty: dict[str, Any] = {"created": False, "deleted": False, "forced": False, "base_ref": None}
    payload = {"ref": "refs/heads/main", "before": BEFORE, "after": HEAD, **empty}
    payload |= {"commits": [commit], "head_commit": commit, "repository": REPOSITORY_RECORD}
    return {**payload, **changes}


def pull_request(
    action: str = "opened",
    *,
    head: str = HEAD,
    at: str = "2026-01-31T12:00:00Z",
    fork: bool = False,
) -> dict[str, Any]:
    request = {
        "number": 7,
        "updated_at": at,
        "user": {"login": "ada"},
        "head": {"sha": head, "ref": "fix", "repo": FOREIGN if fork else REPOSITORY_RECORD},
        "base": {"sha": BEFORE, "ref": "main", "repo": REPOSITORY_RECORD},
    }
    payload = {"action": action, "number": 7, "pull_request": request}
    return {**payload, "repository": REPOSITORY_RECORD, "installation": {"id": 99}}


def check_suite(action: str = "requested", **changes: Any) -> dict[str, Any]:
    """A check suite of a commit on main."""
    empty: dict[str, Any] = {"conclusion": None, "pull_requests": [], "app": {"slug": "actions"}}
    empty["created_at"] = "2026-01-31T12:00:00Z"
    suite = {"head_sha": HEAD, "head_branch": "main", "before": BEFORE, **empty, **changes}
    return {"action": action, "check_suite": suite, "repository": REPOSITORY_RECORD}


def check_run(
    check: Mapping[str, Any],
    *,
    action: str = "rerequested",
    app: int = 4711,
    button: str = "",
    hour: int = 12,
) -> dict[str, Any]:
    """Somebody does something with a check run."""
    names = {name: check.get(name, "") for name in ("id", "head_sha", "external_id")}
    whose = {"id": app, "slug": "gonogo" if app == 4711 else "ours-not", "client_id": f"Iv1.{app}"}
    payload = {
        "action": action,
        "check_run": {**names, "app": whose, "started_at": f"2026-02-01T{hour}:00:00Z"},
        "repository": REPOSITORY_RECORD,
    }
    return {**payload, "requested_action": {"identifier": button}} if button else payload


def workflow_run(action: str = "completed", **changes: Any) -> dict[str, Any]:
    """A workflow run of a commit on main."""
    empty: dict[str, Any] = {"pull_requests": [], "created_at": "2026-01-31T12:00:00Z"}
    named = {"name": "build", "head_sha": HEAD, "head_branch": "main", "conclusion": "success"}
    run = {**named, **empty, "head_repository": REPOSITORY_RECORD, **changes}
    return {"action": action, "workflow_run": run, "repository": REPOSITORY_RECORD}


def deliver(
    client: httpx.Client,
    event: str,
    payload: Any,
    *,
    delivery: str | None = None,
    secret: str = SECRET,
    **headers: str,
) -> httpx.Response:
    """POST a payload as GitHub does."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    named = {
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery or str(uuid.uuid4()),
        "X-Hub-Signature-256": github_signature(secret, body),
    }
    return client.post(
        "/api/v1/hooks/github",
        content=body,
        headers={**named, "Content-Type": "application/json", **headers},
    )
