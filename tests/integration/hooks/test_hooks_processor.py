"""The processing of a delivery: paths that are read for it, events that are overtaken, its end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api import Api
from gonogo.ci.events import CommitEvent
from gonogo_service.ci import incoming
from gonogo_service.ci.processor import process
from gonogo_service.kit.background_context import BackgroundContext
from gonogo_service.kit.database.states import HookSource
from hook_payloads import (
    HEAD,
    NEXT,
    REPOSITORY,
    REPOSITORY_RECORD,
    check_suite,
    deliver,
    pull_request,
    push,
)
from hook_service import came, commit_checks, handled, store_rule, work

NEEDS_PATHS: dict[str, Any] = {"paths": ["ttnn/**"]}
FOR_RULE = {"rule": "r0", "head_build": "tt-train-2025", **pull_request("any")}
TWELVE, LATER = "2026-01-31T12:00:00Z", "2026-01-31T12:05:00Z"
EARLIER = {**REPOSITORY_RECORD, "pushed_at": REPOSITORY_RECORD["pushed_at"] - 60}
TIMELESS = {
    "type": "commit",
    "data": {"repository": REPOSITORY, "sha": HEAD, "pull_request": 7, "branch": "main"},
}
PULLED = "pull_request"


def store(api: Api, source: HookSource, event: str, payload: Any) -> None:
    """Store a delivery that isn't GitHub's."""
    body = json.dumps(payload).encode()
    with api.context.session() as session:
        incoming.store(session, source, f"delivery {event}", event, body)


@pytest.mark.parametrize(
    ("rules", "event", "payload", "lookups", "started"),
    [
        ([NEEDS_PATHS], "pull_request", pull_request(), 1, ["r0"]),
        ([{}, NEEDS_PATHS], "pull_request", pull_request(), 1, ["r0", "r1"]),
        ([{}], "pull_request", pull_request(), 0, ["r0"]),
        ([{**NEEDS_PATHS, "repositories": ["a/*"]}, {}], "pull_request", pull_request(), 0, ["r1"]),
        ([NEEDS_PATHS], "pull_request", pull_request(fork=True), 0, []),
        ([NEEDS_PATHS], "push", push(), 0, ["r0"]),
        ([NEEDS_PATHS], "check_suite", check_suite("rerequested"), 0, ["r0"]),
        ([NEEDS_PATHS], "lookup", FOR_RULE, 0, ["r0"]),
    ],
)
def test_paths_are_asked_for_only_where_a_rule_decides_by_them(
    lite: Api,
    rules: list[dict[str, Any]],
    event: str,
    payload: Any,
    lookups: int,
    started: list[str],
) -> None:
    for number, changes in enumerate(rules):
        store_rule(lite, **changes, name=f"r{number}")
    if event == "lookup":
        store(lite, HookSource.pull_request_lookup, event, payload)
    else:
        deliver(lite.client, event, payload)
    events: list[CommitEvent] = []

    def paths(event: CommitEvent) -> tuple[str, ...]:
        events.append(event)
        return ("ttnn/layernorm.cpp",)

    work(lite, paths=paths)
    assert len(events) == lookups
    (delivery,) = came(lite)
    assert [rule["rule"] for rule in delivery["outcome"] if rule["started"]] == started
    assert {check["source"] for check in commit_checks(lite)} <= {"github"}


def test_paths_that_nobody_can_ask_for_fit_every_rule(lite: Api) -> None:
    store_rule(lite, **NEEDS_PATHS)
    assert handled(lite, "pull_request", pull_request()) == 1


@pytest.mark.parametrize(
    ("deliveries", "heads"),
    [
        # the times of two pushes say nothing: each is a commit of its own
        ([("push", push(after=NEXT)), ("push", push(repository=EARLIER))], [NEXT, HEAD]),
        ([(PULLED, pull_request(head=NEXT, at=TWELVE)), (PULLED, pull_request())], [NEXT, HEAD]),
        ([(PULLED, pull_request(at=LATER)), (PULLED, pull_request())], [HEAD, HEAD]),
        ([(PULLED, pull_request(head=NEXT, at=LATER)), ("commit", TIMELESS)], [NEXT, HEAD]),
        ([(PULLED, pull_request(head=NEXT, at=LATER)), (PULLED, pull_request())], [NEXT]),
    ],
    ids=["pushes", "same second", "same head", "without a time", "older"],
)
def test_only_an_older_head_of_a_pull_request_is_overtaken(
    lite: Api, deliveries: list[tuple[str, Any]], heads: list[str]
) -> None:
    store_rule(lite)
    for event, payload in deliveries:
        if event == "commit":
            store(lite, HookSource.ci, event, payload)
        else:
            deliver(lite.client, event, payload)
    work(lite)
    assert [check["head_sha"] for check in commit_checks(lite)] == heads
    reason = came(lite)[1]["reason"] or ""
    assert ("newer head" in reason) == (len(heads) == 1)


def test_a_delivery_ends_as_the_best_of_its_rules_and_says_why_it_started_nothing(
    lite: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[bool] = []
    monkeypatch.setattr(BackgroundContext, "notify", lambda _: woken.append(True))
    tag = push(ref="refs/tags/v1")
    nobody = f"no rule is for push of {REPOSITORY}"
    steps: list[tuple[dict[str, Any], Any, str, str | None]] = [
        ({"repositories": ["other/*"]}, push(), "ignored", nobody),
        ({"enabled": False}, push(), "ignored", "kernels: the rule is switched off"),
        ({}, tag, "ignored", "a push to refs/tags/v1, which is not a branch"),
        ({}, {"ref": "refs/heads/x"}, "failed", "can't be parsed"),
        ({"builds": {"head": "nobody-{short}"}}, push(), "failed", "kernels: "),
        ({"name": "good"}, push(after=NEXT), "started", None),
    ]
    for changes, payload, state, reason in steps:
        store_rule(lite, **changes)
        deliver(lite.client, "push", payload)
        assert work(lite) == (state == "started"), came(lite)[-1]
        assert bool(woken) == (state == "started")
        delivery = came(lite)[-1]
        assert delivery["state"] == state
        assert (delivery["reason"] is None) == (reason is None)
        assert (reason or "") in (delivery["reason"] or "")
    assert [rule["started"] for rule in came(lite)[-1]["outcome"]] == [True, False]


def test_a_delivery_that_another_process_has_done_meanwhile_is_left_alone(lite: Api) -> None:
    store_rule(lite)
    deliver(lite.client, "push", push())
    (before,) = came(lite)
    assert work(lite) == 1
    with lite.context.session() as session:
        assert process(session, before["id"], lite.settings) is None
    (after,) = came(lite)
    assert (after["state"], after["tries"], len(commit_checks(lite))) == ("started", 1, 1)
