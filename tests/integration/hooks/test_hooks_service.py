"""Incoming deliveries are verified, stored once and turned into runs of head and base, even when
they come twice, late or from strangers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from sqlalchemy import text
from standardwebhooks import Webhook

from api import Api, in_process, refusal
from gonogo_service.ci import incoming
from gonogo_service.kit.database.encoding import utcnow
from hook_payloads import BEFORE, HEAD, NEXT, REPOSITORY, check_suite, deliver, pull_request, push
from hook_service import (
    CI_SECRET,
    SETTINGS,
    SMALL,
    came,
    commit_checks,
    handled,
    prepared,
    store_rule,
    work,
)
from patience import scaled
from records import pick
from suite_runs import SUITE


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    with prepared(database_url) as service:
        yield service


def test_a_push_starts_the_suite_on_head_and_base_and_says_for_whom(api: Api) -> None:
    store_rule(api)
    began = time.perf_counter()
    answers = [deliver(api.client, "push", push(), delivery="first") for _ in range(2)]
    assert time.perf_counter() - began < scaled(1)
    assert [(answer.status_code, answer.json()["new"]) for answer in answers] == [
        (202, True),
        (202, False),
    ]
    assert (work(api), work(api)) == (1, 0)
    (delivery,), (check,) = came(api), commit_checks(api)
    assert answers[1].json()["id"] == answers[0].json()["id"] == delivery["id"]
    assert pick(delivery, "state", "repository", "tries") == ("started", REPOSITORY, 1)
    (outcome,) = delivery["outcome"]
    started = {"rule": "kernels", "commit_checks": [check["id"]], "started": True, "reason": None}
    assert outcome == started
    expected = {"rule": "kernels", "suite": "nightly", "head_sha": HEAD, "base_sha": BEFORE}
    assert expected.items() <= check.items()
    assert pick(check, "pull_request", "error") == (None, None)
    head, base = (api.get(f"/runs/{check[name]}") for name in ("run", "base_run"))
    assert (head["builds"], head["commit"]["sha"]) == (["tt-train-2025"], HEAD)
    assert (base["builds"], base["commit"]["sha"]) == (["correct"], BEFORE)
    assert head["labels"] == {"team": "kernels", "ci-rule": "kernels"}
    assert head["jobs"]["total"] == 1
    assert api.get(f"/hooks/deliveries/{delivery['id']}")["payload"] == push()
    assert replay(api, delivery) == 422


def replay(api: Api, delivery: dict[str, Any]) -> int:
    return api.client.post(f"/api/v1/hooks/deliveries/{delivery['id']}:replay").status_code


def test_what_ran_for_a_commit_is_not_run_again_but_on_request(lite: Api) -> None:
    store_rule(lite, builds={"head": "correct"}, base=False)
    store_rule(lite, builds={"head": "correct", "base": "correct"}, base=True)
    for name, payload in (
        ("push", push()),
        ("push", push(before=HEAD, after=NEXT)),
        ("pull_request", pull_request("opened", head=NEXT)),
        ("check_suite", check_suite("rerequested", head_sha=NEXT, before=HEAD)),
    ):
        assert deliver(lite.client, name, payload).status_code == 202
        work(lite)
    first, second, opened, again = commit_checks(lite)
    assert second["base_run"] == first["run"]  # the head of before
    expected = (second["run"], first["base_run"], 7)
    assert pick(opened, "run", "base_run", "pull_request") == expected
    assert again["run"] != second["run"]
    assert again["base_run"] == first["run"]
    # the same body under another id
    handled(lite, "check_suite", check_suite("rerequested", head_sha=NEXT, before=HEAD))
    assert (len(commit_checks(lite)), "came before" in came(lite)[-1]["reason"]) == (4, True)
    assert lite.client.post(f"/api/v1/runs/{first['run']}:cancel").is_success
    handled(lite, "push", push(before=HEAD, after="d4" * 20))
    # a canceled run says nothing about its commit
    assert commit_checks(lite)[-1]["base_run"] not in {None, first["run"]}


def test_a_pull_request_from_a_fork_starts_nothing_unless_a_rule_says_so(lite: Api) -> None:
    store_rule(lite)
    assert handled(lite, "pull_request", pull_request(fork=True)) == 0
    (refused,) = came(lite)
    assert refused["state"] == "ignored"
    assert "fork" in refused["reason"]
    assert lite.rows()["jobs"] == 0
    store_rule(lite, forks=True)
    assert replay(lite, refused) == 202
    assert work(lite) == 1
    assert commit_checks(lite)[0]["fork"] is True


def test_a_stranger_s_events_get_a_rule_s_owner_past_no_quota(database_url: str) -> None:
    """Everybody may open pull requests from a fork: each push would start device time."""
    gauge = {"test": {"kernel": "layernorm_bw", "shape": [32, 64]}}
    with prepared(database_url, quota_open_jobs=2) as api:
        store_rule(api, forks=True, gauges=[gauge])
        assert handled(api, "pull_request", pull_request(fork=True)) == 1
        (first,) = came(api)
        assert (first["state"], api.rows()["jobs"]) == ("started", 2)  # head and base
        assert "gauges.0: quota.open_jobs" in first["outcome"][0]["reason"]
        assert handled(api, "pull_request", pull_request("synchronize", head=NEXT, fork=True)) == 0
        later = came(api)[-1]
        assert later["state"] == "failed"
        assert "head: quota.open_jobs" in later["reason"]
        assert "GONOGO_QUOTA_OPEN_JOBS" in commit_checks(api)[-2]["error"]
        assert (api.rows()["jobs"], api.rows()["gauges"]) == (2, 0)
        assert api.get("/audit?action=gauge.created")["items"] == []


def test_a_process_that_dies_in_the_middle_has_done_nothing(
    lite: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_rule(lite, name="a")
    store_rule(lite, name="b")
    deliver(lite.client, "push", push())

    def the_power_went(*_args: Any, **_options: Any) -> None:
        raise RuntimeError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(incoming, "ended", the_power_went)
        assert work(lite) == 0
    assert (lite.rows()["runs"], lite.rows()["commit_checks"]) == (0, 0)
    (waiting,) = came(lite)
    expected = ("waiting", 1, "RuntimeError: the power went")
    assert pick(waiting, "state", "tries", "reason") == expected
    assert work(lite) == 0  # not yet
    with time_machine.travel(utcnow() + timedelta(seconds=6)):
        assert work(lite) == 1
    assert lite.rows()["runs"] == 4


def test_what_can_t_be_started_is_said_and_can_be_tried_again(lite: Api) -> None:
    gauges = [{"test": {"kernel": "layernorm_bw", "shape": [32, 64]}}]
    store_rule(lite, builds={"head": "tt-{short}"}, gauges=gauges)
    assert handled(lite, "push", push(), delivery="x") == 1  # the gauge
    suite, gauge = commit_checks(lite)
    assert suite["run"] is None
    assert f"tt-{HEAD[:12]}" in suite["error"]
    assert pick(gauge, "suite", "run") == (None, None)
    assert len(gauge["gauges"]) == 1
    store_rule(lite, builds={"head": "tt-{short}"})
    assert handled(lite, "push", push(after=NEXT)) == 0
    failed = came(lite)[1]
    assert (failed["state"], len(commit_checks(lite))) == ("failed", 3)
    store_rule(lite)
    assert replay(lite, failed) == 202
    assert work(lite) == 1
    builds = [check["head_build"] for check in commit_checks(lite)]
    assert builds == [f"tt-{HEAD[:12]}", None, "tt-train-2025"]


def test_a_commit_s_build_is_the_one_that_is_registered_with_it_or_is_registered_by_the_rule(
    lite: Api,
) -> None:
    defaults = {**SUITE["defaults"], "target": {"executor": "ttnn"}}
    suites = [{**SMALL, "name": "chip", "builds": [], "defaults": defaults}]
    build = {"name": "by-hand", "executor": "ttnn", "commit": HEAD[:10]}
    assert lite.client.post("/api/v1/builds", json=build).is_success
    store_rule(lite, suites=suites, builds={}, base=False)
    assert handled(lite, "push", push()) == 1
    assert commit_checks(lite)[0]["head_build"] == "by-hand"
    assert handled(lite, "push", push(after=NEXT)) == 0
    assert "builds: no build of this commit is registered" in commit_checks(lite)[1]["error"]
    register = {"executor": "ttnn", "branch": "main"}
    store_rule(lite, suites=suites, builds={"head": "metal-{short}"}, register=register)
    assert handled(lite, "pull_request", pull_request(head=NEXT)) == 1
    registered = {
        build["name"]: build
        for build in lite.get("/builds?executor=ttnn")["items"]
        if build["name"].startswith("metal-")
    }
    about = {name: pick(build, "branch", "commit", "author") for name, build in registered.items()}
    assert about == {
        f"metal-{NEXT[:12]}": ("main/pull-7", NEXT, "ada"),
        f"metal-{BEFORE[:12]}": ("main", BEFORE, None),
    }


def test_another_ci_is_verified_by_the_public_library_s_signatures(lite: Api) -> None:
    store_rule(lite)
    data = {"repository": REPOSITORY, "sha": HEAD, "base": BEFORE, "builds": {"head": "drop-s1"}}
    event_body = json.dumps({"type": "commit", "timestamp": "2026-01-31T12:00:00Z", "data": data})

    def send(body: str, number: str, secret: str = CI_SECRET, at: datetime | None = None) -> Any:
        moment = at or datetime.now(UTC)
        headers = {
            "webhook-id": number,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": Webhook(secret).sign(number, moment, body),
        }
        return lite.client.post("/api/v1/hooks/ci", content=body, headers=headers)

    assert [send(event_body, "msg_1").json()["new"] for _ in range(2)] == [True, False]
    other = "whsec_" + "QSBzZWNyZXQgb2YgYW5vdGhlciBzZXJ2aWNlIGVudGlyZWx5"
    old = datetime.now(UTC) - timedelta(minutes=10)
    assert send(event_body, "msg_2", secret=other).status_code == 401
    assert send(event_body, "msg_3", at=old).status_code == 401
    assert refusal(send(event_body.replace(HEAD, "HEAD"), "msg_4")) == (422, "data.sha")
    assert work(lite) == 1
    (check,) = commit_checks(lite)
    expected = ("ci", "drop-s1", "correct")
    assert pick(check, "source", "head_build", "base_build") == expected


@pytest.mark.parametrize(
    ("changes", "status", "slug"),
    [
        ({"secret": "another secret than ours"}, 401, "signature"),
        ({"X-Hub-Signature-256": "sha256=\u00e9"}, 401, "signature"),
        ({"X-Hub-Signature-256": "sha1=00"}, 401, "signature"),
        ({"X-GitHub-Delivery": "x" * 300}, 401, "signature"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "not-json"),
        ({"secret": "the secret that comes next"}, 202, None),
    ],
)
def test_only_what_is_signed_is_taken(
    shared: Api, changes: dict[str, str], status: int, slug: str | None
) -> None:
    before = shared.rows()["due_work"]
    headers: dict[str, Any] = {
        name: value.encode() if name[0] == "X" else value for name, value in changes.items()
    }
    answer = deliver(shared.client, "ping", {"zen": "x"}, **headers)
    assert answer.status_code == status, answer.text
    assert shared.rows()["due_work"] == before + (status == 202)
    assert slug is None or answer.json()["type"].endswith(slug)


def test_a_delivery_needs_no_token_and_may_be_as_large_as_github_s(
    migrated_sqlite_url: str,
) -> None:
    with in_process(migrated_sqlite_url, embedded=False, **SETTINGS) as api:
        stranger = api.visitor()
        assert stranger.get("/api/v1/hooks/deliveries").status_code == 401
        large = push(padding="x" * (2 * 2**20))
        assert deliver(stranger, "push", large).status_code == 202
        beyond = {"Content-Length": str(25 * 2**20 + 1)}  # refused before it is read
        assert refusal(deliver(stranger, "push", push(), **beyond)) == (413, "body")
        guess = {"secret": "a guess of sixteen"}
        guesses = [deliver(stranger, "push", {}, **guess).status_code for _ in range(31)]
        assert (guesses[0], guesses[-1]) == (401, 429)
        assert deliver(stranger, "push", {}).status_code == 202
    with in_process(migrated_sqlite_url) as api:
        answer = deliver(api.client, "push", push())
        assert answer.status_code == 403
        assert "GONOGO_GITHUB_WEBHOOK_SECRET" in answer.json()["detail"]


def test_a_busy_database_is_answered_within_a_second(lite: Api) -> None:
    with lite.context.session() as session:
        session.execute(text("SELECT 1"))  # begins, and so takes SQLite's only write lock
        began = time.perf_counter()
        answer = deliver(lite.client, "push", push(), delivery="busy")
        took = time.perf_counter() - began
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert took < scaled(1.5)
    assert deliver(lite.client, "push", push(), delivery="busy").status_code == 202
