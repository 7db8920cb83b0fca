"""Read models of one incoming webhook, and of the origins of runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.ci.payloads import without_secrets
from gonogo_service.ci import commit_checks, incoming
from gonogo_service.ci.hooks_api import DELIVERY
from gonogo_service.ci.model import CommitCheckRow
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import decode, timestamp
from gonogo_service.kit.database.states import HookSource, IncomingState, RunState

MAX_TEXT = 64_000
"""Characters of a payload on a page; the API has the whole payload."""
MAX_READ = 2 * 2**20
"""Maximum bytes of a payload that is read for a page."""
MAX_ORIGINS, MAX_RUNS = 3, 200
AGAIN = (IncomingState.ignored, IncomingState.failed)


@dataclass(frozen=True)
class HookView:
    """An incoming webhook.

    `payload` is text, or None where it is not shown: `payload_words` says why, or what is left out.
    """

    hook: Mapping[str, Any]
    """As the API has it, with the outcome of each rule."""
    checks: Mapping[str, CommitCheckRow]
    """By their ids, as the outcomes name them."""
    runs: Mapping[str, tuple[RunState, str | None]]
    """The state and the verdict of the runs of these checks."""
    push: str | None
    """For a pull request that was looked up at GitHub: the page of the push that led to it."""
    replay: str | None
    payload: str | None
    payload_words: str
    at: str | None


@dataclass(frozen=True)
class OriginLine:
    """The origin of a run: the incoming webhook that started it."""

    url: str
    words: str


def hook(session: Session, incoming_id: str, now: datetime, *, whole: bool) -> HookView | None:
    """Return an incoming webhook; None where there is no such message.

    whole: with its payload, and with the address that processes it again.
    """
    row = incoming.get(session, incoming_id)
    if row is None:
        return None
    body = incoming.body_of(row)
    checks = {check.id: check for check in commit_checks.of_delivery(session, incoming_id)}
    runs = [run for check in checks.values() for run in (check.run, check.base_run) if run]
    push = None
    if row.source is HookSource.pull_request_lookup and body is not None:
        push = str(decode(body).get("push") or "") or None
    again = whole and body is not None and row.state in AGAIN
    return HookView(
        rows.values(DELIVERY, row),
        checks,
        commit_checks.run_states(session, list(dict.fromkeys(runs))[:MAX_RUNS]),
        None if push is None else urls.hook(push),
        urls.replay_hook(incoming_id) if again else None,
        *_payload(body, whole=whole),
        timestamp(now),
    )


def origins(
    session: Session, *, run: str | None = None, job: str | None = None
) -> tuple[OriginLine, ...]:
    """Return the first few incoming webhooks that started a run, or the run of a job."""
    run = commit_checks.run_of_job(session, job) if job is not None else run
    checks = [] if run is None else commit_checks.of_run(session, run, limit=MAX_ORIGINS)
    texts = {check: f"{check.event} to {check.repository}, rule {check.rule}" for check in checks}
    lines = (OriginLine(urls.hook(check.delivery), text) for check, text in texts.items())
    return tuple(dict.fromkeys(lines))


def _payload(body: bytes | None, *, whole: bool) -> tuple[str | None, str]:
    if not whole:
        return None, "Payloads may contain private data, so they need the scope admin."
    if body is None:
        return None, f"Deleted: payloads are stored for {incoming.KEEP_BODIES.days} days."
    if len(body) > MAX_READ:
        return None, f"Too large for a page ({len(body):,} bytes); the API has it."
    try:
        text = json.dumps(without_secrets(decode(body)), indent=2, ensure_ascii=False)
    except ValueError:
        return body[:MAX_TEXT].decode("utf-8", "replace"), "Not JSON; shown as received."
    if len(text) <= MAX_TEXT:
        return text, "As received, without secrets."
    left_out = f"The first {MAX_TEXT:,} of {len(text):,} characters, without secrets;"
    return text[:MAX_TEXT], f"{left_out} the API has all of them."
