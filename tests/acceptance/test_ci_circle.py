"""The circle of a CI with real processes: a push comes in, base and head run, GitHub and a
subscriber are told, once, over a kill -9."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

import documented
from github import APP, REPOSITORY, TOKEN, GitHubServer
from gonogo.cli.kit.client import Client
from hook_payloads import BEFORE, HEAD, SECRET, deliver, pull_request, push
from running_service import Service, until
from servers import RedisServer
from webhook_receiver import Receiver

EVENTS = ["job.finished", "run.finished", "flag.opened", "flag.resolved"]
SEEDS = 24
TEST = {"kernel": "layernorm_bw", "tolerance": {"rtol": 1e-3, "atol": 0.5}}
DEFAULTS = {"test": TEST, "seeds": {"count": SEEDS}}
ENTRIES = [
    {"name": "wide", "test": {"shape": [1, 1, 32, 1024]}},
    {"name": "small", "test": {"shape": [1, 1, 33, 64]}},
]
RULE: dict[str, Any] = {
    "name": "kernels",
    "events": ["push", "pull_request"],
    "repositories": [REPOSITORY],
    "paths": ["ttnn/*"],
    "builds": {"head": "tt-train-2025", "base": "correct"},
    "suites": [{"name": "nightly", "defaults": DEFAULTS, "entries": ENTRIES}],
}


@pytest.fixture
def github() -> Iterator[GitHubServer]:
    server = GitHubServer()
    server.commits, server.pull_requests = {HEAD, BEFORE}, {7}
    yield server
    server.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    new_receiver = Receiver()
    yield new_receiver
    new_receiver.close()


@pytest.fixture
def service(
    tmp_path: Path, migrated_postgres_url: str, private_redis: RedisServer, github: GitHubServer
) -> Iterator[Service]:
    key = tmp_path / "app.pem"
    key.write_text(github.pem)
    extra = {
        "GITHUB_URL": github.url,
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_APP_ID": APP,
        "GITHUB_APP_KEY": str(key),
        "GITHUB_WEBHOOK_SECRET": SECRET,
        "WEBHOOK_PRIVATE": "127.0.0.0/8",
        "CHUNK_SECONDS": "0.3",
    }
    variables = {f"GONOGO_{name}": value for name, value in extra.items()}
    new_service = Service(tmp_path, migrated_postgres_url, private_redis.url, **variables)
    for process in (new_service.api, new_service.background):
        process.environment["GONOGO_URL"] = new_service.url
    try:
        new_service.start()
        yield new_service
    finally:
        new_service.close()


def test_a_push_ends_in_a_comment_that_names_the_new_hollow_pass_whatever_is_killed_between(
    service: Service, github: GitHubServer, receiver: Receiver
) -> None:
    with (
        service.client() as client,
        httpx.Client(event_hooks=documented.HOOKS, base_url=service.url) as sender,
    ):
        client.call("POST", "/rules", body=RULE)
        webhook = client.call("POST", "/webhooks", body={"url": receiver.url, "events": EVENTS})
        first = deliver(sender, "push", push(), delivery="push-1")
        assert first.status_code == 202, first.text
        forged = deliver(sender, "push", push(), delivery="forged", secret="another one")
        assert forged.status_code in (401, 403)

        def head() -> bool:
            jobs = client.call("GET", "/jobs?build=tt-train-2025")["items"]
            return any(0 < job["done"] < SEEDS for job in jobs)

        wait(service, head, "a job of head in its middle")
        service.background.kill()
        # stored while nobody works it off
        request = deliver(sender, "pull_request", pull_request(), delivery="request-7")
        assert request.status_code == 202
        again = deliver(sender, "push", push(), delivery="push-1")  # GitHub's button "redeliver"
        assert again.status_code in (200, 202)
        service.background.start()

        def checks_completed() -> bool:
            states = [check["status"] for check in github.checks]
            return bool(github.comments) and states == ["completed"] * 2

        wait(service, checks_completed, "GitHub's answers")
        _github_was_told_once(github, service.url)
        _every_event_arrived(client, webhook, receiver)


def wait(service: Service, condition: Callable[[], Any], what: str) -> None:
    """Wait with `until`; add the logs of the processes to its error when it takes too long."""
    try:
        until(condition, what=what)
    except AssertionError as problem:
        raise AssertionError(f"{problem}\n{service.logs()}") from None


def _github_was_told_once(github: GitHubServer, url: str) -> None:
    events = ("push", "pull_request")
    failed = {f"gonogo/kernels/nightly ({event})": "failure" for event in events}
    assert github.status_of(HEAD) == failed
    assert github.status_of(BEFORE) == {}
    assert {check["conclusion"] for check in github.checks} == {"failure"}
    assert all("s1 is subtracted twice" in str(check["annotations"]) for check in github.checks)
    (comment,) = github.comments
    assert "**New hollow pass** (2)" in comment["body"]
    assert "s1 is subtracted twice" in comment["body"]
    assert f"]({url}/jobs/" in comment["body"]


def _every_event_arrived(client: Client, webhook: dict[str, Any], receiver: Receiver) -> None:
    """Check that every due event arrived: one per job, run and flag. A message that arrives twice
    has one id."""
    events = {"jobs": "job.finished", "runs": "run.finished", "flags": "flag.opened"}
    due = Counter(
        {event: len(client.call("GET", f"/{noun}")["items"]) for noun, event in events.items()}
    )
    assert (due["job.finished"], due["run.finished"]) == (4, 2)

    def arrived() -> dict[str, Any]:
        verifier = Webhook(webhook["secret"])
        return {
            got.headers["webhook-id"]: verifier.verify(got.body, dict(got.headers))
            for got in receiver.got
        }

    until(lambda: len(arrived()) >= due.total(), what=f"{due}")
    assert Counter(message["type"] for message in arrived().values()) == due
    known = client.call("GET", f"/webhooks/{webhook['id']}/deliveries", limit=100)["items"]
    assert {delivery["id"] for delivery in known} == set(arrived())
    assert {delivery["state"] for delivery in known} == {"delivered"}
