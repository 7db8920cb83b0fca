"""Read models of the pages of incoming webhooks: messages, results, and origins of runs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.ci.payloads import without_secrets
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.ci import commit_checks, incoming
from gonogo_service.ci.hooks_api import HOOKS
from gonogo_service.ci.model import CommitCheckRow, IncomingDeliveryRow, RuleOutcome
from gonogo_service.kit.database.encoding import decode, timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import HookSource, IncomingState, RunState

FILTERS: Mapping[str, Collection[str]] = {
    "source": list(HookSource),
    "state": list(IncomingState),
    "event": (),
    "repository": (),
}
"""The filters of the list -> their values; empty: any text."""
MAX_TEXT = 64_000
"""Characters of a payload on a page; the API has the whole payload."""
MAX_READ = 2 * 2**20
"""Maximum bytes of a payload that is read for a page."""
MAX_ORIGINS, MAX_RUNS = 3, 200
AGAIN = (IncomingState.ignored, IncomingState.failed)


@dataclass(frozen=True)
class HookLine:
    """An incoming webhook in a list: the message, and its result."""

    id: str
    url: str
    source: str
    source_words: str
    delivery: str
    """The sender's id."""
    event: str
    repository: str | None
    state: str
    state_words: str
    verdict: str
    reason: str | None
    rules: tuple[str, ...]
    """Rules that started something."""
    tries: int
    size: str
    received_at: str
    age: str
    ended_at: str | None
    due_at: str | None
    due_words: str


@dataclass(frozen=True)
class RunLink:
    """A run that was started or found for a commit."""

    id: str
    url: str
    build: str | None
    sha: str | None
    state: str
    state_words: str
    verdict: str | None


@dataclass(frozen=True)
class StartedLine:
    """A suite (None: the gauges) that a rule started."""

    id: str
    suite: str | None
    pull_request: int | None
    branch: str | None
    head_sha: str
    base_sha: str | None
    head: RunLink | None
    base: RunLink | None
    gauges: tuple[str, ...]
    """Addresses of pages."""
    error: str | None


@dataclass(frozen=True)
class OutcomeLine:
    """The result of one rule for an incoming webhook."""

    rule: str
    started: bool
    reason: str | None
    verdict: str
    commit_checks: tuple[StartedLine, ...]


@dataclass(frozen=True)
class HookView:
    """An incoming webhook.

    `payload` is text, or None where it is not shown: `payload_words` says why, or what is left out.
    """

    hook: HookLine
    outcome: tuple[OutcomeLine, ...]
    push: str | None
    """For a pull request that was looked up at GitHub: the page of the push that led to it."""
    replay: str | None
    payload: str | None
    payload_words: str
    api: str
    at: str | None


@dataclass(frozen=True)
class OriginLine:
    """The origin of a run: the incoming webhook that started it."""

    url: str
    words: str


def hooks(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> ListView:
    """Return a page of incoming webhooks. Raises BadCursor."""
    given = {
        name: filters[name]
        for name, known in FILTERS.items()
        if filters.get(name) and (not known or filters[name] in known)
    }
    page = HOOKS.page(session, **given, limit=limit, cursor=cursor or None)
    return list_view(page, lambda item: _line(item, now), urls.hooks, now, given)


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
    states = commit_checks.run_states(session, list(dict.fromkeys(runs))[:MAX_RUNS])
    payload, payload_words = _payload(body, whole=whole)
    push = None
    if row.source is HookSource.pull_request_lookup and body is not None:
        push = str(decode(body).get("push") or "") or None
    again = whole and body is not None and row.state in AGAIN
    return HookView(
        hook=_line(row, now),
        outcome=tuple(_outcome(item, checks, states) for item in row.outcome),
        push=None if push is None else urls.hook(push),
        replay=urls.replay_hook(incoming_id) if again else None,
        payload=payload,
        payload_words=payload_words,
        api=urls.hook_api(incoming_id),
        at=timestamp(now),
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


def _line(item: IncomingDeliveryRow, now: datetime) -> HookLine:
    state = IncomingState(item.state)
    return from_object(
        HookLine,
        item,
        url=urls.hook(item.id),
        source_words=item.source.label,
        state_words=state.label,
        verdict=state.mark,
        rules=tuple(outcome.rule for outcome in item.outcome if outcome.started),
        size=f"{item.size:,} bytes",
        received_at=timestamp(item.received_at),
        age=words.since(item.received_at, now),
        ended_at=timestamp(item.ended_at),
        due_at=timestamp(item.due_at),
        due_words=words.until(item.due_at, now),
    )


def _outcome(
    item: RuleOutcome,
    checks: Mapping[str, CommitCheckRow],
    states: Mapping[str, tuple[RunState, str | None]],
) -> OutcomeLine:
    def link(run: str | None, build: str | None, sha: str | None) -> RunLink | None:
        if run is None:
            return None
        state, verdict = states.get(run, (None, None))
        label = "" if state is None else state.label
        return RunLink(run, urls.run(run), build, sha, state or "", label, verdict)

    started = tuple(
        from_object(
            StartedLine,
            check,
            head=link(check.run, check.head_build, check.head_sha),
            base=link(check.base_run, check.base_build, check.base_sha),
            gauges=tuple(urls.gauge(gauge) for gauge in check.gauges),
        )
        for check in (checks[key] for key in item.commit_checks if key in checks)
    )
    state = IncomingState.started
    if not item.started:
        state = IncomingState.failed if started else IncomingState.ignored
    return OutcomeLine(item.rule, item.started, item.reason, state.mark, started)


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
