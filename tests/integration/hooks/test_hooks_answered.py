"""From a delivery to GitHub's answer: pushes that belong to a pull request, and checks that are
requested again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from pydantic import SecretStr

from api import JOB, SECRET, Api
from github import APP, TOKEN, GitHubServer
from gonogo_service.background.deliver import Deliver, make_deliver
from gonogo_service.ci import report
from gonogo_service.ci.answering import POLL_GAUGES
from gonogo_service.kit.background_context import open_background_context
from gonogo_service.kit.database.encoding import utcnow
from hook_payloads import BEFORE, HEAD, NEXT, check_run, check_suite, deliver, pull_request, push
from hook_service import came, commit_checks, copied, emptied, store_rule
from patience import WAIT_S
from suite_runs import end_all

TIP = "d4" * 20
WHO: dict[str, Any] = {"github_token": SecretStr(TOKEN)}


@dataclass
class Circle:
    """A service, a GitHub server, and the background's loop between them."""

    api: Api
    github: GitHubServer
    loop: Deliver

    def deliver(self, event: str, payload: dict[str, Any]) -> None:
        assert deliver(self.api.client, event, payload).status_code == 202

    def go(self) -> None:
        """Process deliveries and send answers, also for the lookups at GitHub."""
        for _ in range(4):
            self.loop.run_once()
            self.loop.join(WAIT_S)

    def end(self, *wrong: str) -> None:
        """End every run, then `go`."""
        with self.api.context.session() as session:
            end_all(session, *wrong)
        self.go()


@pytest.fixture(scope="module")
def server() -> Iterator[GitHubServer]:
    github_server = GitHubServer()
    yield github_server
    github_server.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    with copied(sqlite_template, tmp_path_factory.mktemp("answered")) as service:
        yield service


@contextmanager
def circle_of(api: Api, server: GitHubServer, **who: Any) -> Iterator[Circle]:
    server.clear()
    server.commits = {HEAD, NEXT, BEFORE, TIP}
    keys = {
        "broker_url": "redis://127.0.0.1:1/0",
        "secret_key": SecretStr(SECRET),
    }
    core = open_background_context(
        api.settings.model_copy(update={**keys, "github_url": server.url, **(who or WHO)}),
        threading.Event(),
    )
    loop = make_deliver(core)
    yield Circle(emptied(api), server, loop)
    loop.close()
    core.close()


@pytest.fixture
def circle(shared: Api, server: GitHubServer) -> Iterator[Circle]:
    with circle_of(shared, server) as token_circle:
        yield token_circle


@pytest.fixture
def app(shared: Api, server: GitHubServer) -> Iterator[Circle]:
    with circle_of(
        shared, server, **WHO, github_app_id=APP, github_app_key=SecretStr(server.pem)
    ) as app_circle:
        yield app_circle


def test_a_push_is_answered_at_the_open_pull_requests_of_its_commit_and_against_their_base(
    circle: Circle,
) -> None:
    api, github = circle.api, circle.github
    store_rule(api, events=["push"])
    github.open(3, HEAD, TIP, state="closed")
    github.open(4, NEXT, TIP)  # contains the commit, but its head has moved on
    github.open(5, HEAD, TIP, fork=True)
    github.open(6, HEAD, TIP, to="lab/other")
    github.open(7, HEAD, TIP)
    github.most = 2
    circle.deliver("push", push())
    circle.go()
    pushed, pull_request_check = commit_checks(api)
    assert (pushed["pull_request"], pushed["base_sha"]) == (None, BEFORE)
    assert (
        pull_request_check["pull_request"],
        pull_request_check["base_sha"],
        pull_request_check["source"],
        pull_request_check["event"],
    ) == (
        7,
        TIP,
        "github",
        "pull_request",
    )
    assert pull_request_check["run"] == pushed["run"]  # a run of the same commit is not repeated
    assert pull_request_check["base_run"] not in {None, pushed["base_run"]}
    lookups = {
        delivery["delivery"].partition("@")[0]: delivery
        for delivery in came(api)
        if delivery["source"] == "asked"
    }
    assert {name: delivery["state"] for name, delivery in lookups.items()} == {
        "lab/kernels#7": "started",
        "lab/kernels#5": "ignored",
    }
    assert "fork" in lookups["lab/kernels#5"]["reason"]
    circle.end("tt-train-2025")
    (comment,) = github.comments
    assert comment["pull_request"] == 7
    assert comment["body"].startswith(report.MARKER)
    assert "**New hollow pass** (1)" in comment["body"]
    assert f"against `{TIP[:12]}`" in comment["body"]
    assert github.status_of(HEAD) == {
        f"gonogo/kernels/nightly ({event})": "failure" for event in ("push", "pull_request")
    }
    # pull request 4 has had this head from the start, 7 moves to it
    circle.deliver("push", push(before=HEAD, after=NEXT))
    github.pulls[-1]["head"]["sha"] = NEXT
    circle.go()
    circle.end()
    # everything passes, so 4 gets no comment
    assert [comment["pull_request"] for comment in github.comments] == [7]
    assert "nothing new" in comment["body"]
    assert NEXT[:12] in comment["body"]


def test_a_pull_request_that_is_opened_after_the_push_was_tested_is_found(circle: Circle) -> None:
    api, github = circle.api, circle.github
    with time_machine.travel(utcnow(), tick=False) as clock:
        store_rule(api, events=["push", "pull_request"])
        circle.deliver("push", push())
        circle.go()
        # GitHub may send the event of the pull request itself
        assert not [path for path in github.paths("GET") if path.endswith("/pulls")]
        circle.end("tt-train-2025")
        github.open(7, HEAD, BEFORE)
        for seconds, comments in ((59, 0), (2, 1)):
            clock.shift(timedelta(seconds=seconds))
            circle.go()
            assert len(github.comments) == comments
        assert len(commit_checks(api)) == 2
        # GitHub sends that event late: the comment stays the same, and nothing runs
        circle.deliver("pull_request", pull_request(at="2026-02-01T12:00:00Z"))
        circle.go()
        clock.shift(timedelta(minutes=3))
        circle.go()
        assert (len(github.comments), api.rows()["runs"]) == (1, 2)
        asks = len([path for path in github.paths("GET") if path.endswith("/pulls")])
        store_rule(api, events=["push"], pull_requests=False)
        circle.deliver("push", push(before=HEAD, after=NEXT))
        circle.go()
        circle.end()
        assert len([path for path in github.paths("GET") if path.endswith("/pulls")]) == asks


def test_a_token_that_may_not_read_pull_requests_still_sets_its_status(circle: Circle) -> None:
    store_rule(circle.api, events=["push"])
    circle.deliver("push", push())
    circle.go()
    circle.github.forbidden = "/pulls"
    circle.end()
    assert circle.github.status_of(HEAD) == {"gonogo/kernels/nightly (push)": "success"}
    assert circle.api.get("/github/answers")["items"][0]["state"] == "told"


def test_a_check_that_is_asked_for_again_runs_its_head_once_more_and_a_second_press_nothing(
    app: Circle,
) -> None:
    api, github = app.api, app.github
    github.pull_requests = {7}
    store_rule(api, events=["pull_request"])
    app.deliver("pull_request", pull_request())
    app.go()
    app.end("tt-train-2025")
    (first,) = commit_checks(api)
    (check,) = github.checks
    assert check["external_id"] == first["id"]
    assert check["actions"][0]["identifier"] == "gonogo-both"
    app.deliver("check_run", check_run(check))
    app.go()
    app.deliver("check_run", check_run(check, hour=13))  # pressed twice
    app.go()
    _, second = commit_checks(api)
    same = (
        "rule",
        "suite",
        "event",
        "pull_request",
        "base_run",
        "head_build",
        "base_build",
        "occurred_at",
    )
    assert {name: second[name] for name in same} == {name: first[name] for name in same}
    assert second["run"] != first["run"]
    assert came(api)[-1]["reason"] == f"kernels: it is already running: run {second['run']}"
    assert [check["status"] for check in github.checks] == ["completed", "in_progress"]
    app.end()
    assert [check["conclusion"] for check in github.checks] == ["failure", "success"]
    (comment,) = github.comments
    assert "nothing new" in comment["body"]
    # the same body under another delivery id is nothing new, and neither is a replay
    app.deliver("check_run", check_run(check))
    app.deliver(
        "check_run", check_run(github.checks[-1], action="requested_action", button="gonogo-both")
    )
    app.go()
    replayed, both = came(api)[-2:]
    assert "came before" in replayed["reason"]
    assert both["state"] == "started"
    third = commit_checks(api)[-1]
    assert third["run"] not in {first["run"], second["run"]}
    assert third["base_run"] != first["base_run"]


def test_a_suite_that_is_asked_for_again_runs_all_that_its_commit_had(app: Circle) -> None:
    store_rule(app.api, events=["push"])
    store_rule(app.api, name="other", events=["push"])
    app.deliver("push", push())
    app.go()
    app.end()
    app.api.client.delete("/api/v1/rules/other")
    app.deliver("check_suite", check_suite("rerequested", app={"id": int(APP), "slug": "gonogo"}))
    app.go()
    (again,) = [delivery for delivery in came(app.api) if delivery["event"] == "check_suite"]
    assert [
        (outcome["rule"], outcome["started"], outcome["reason"]) for outcome in again["outcome"]
    ] == [
        ("kernels", True, None),
        ("other", False, "the rule is no longer in use"),
    ]
    assert [check["event"] for check in commit_checks(app.api)] == ["push", "push", "push"]


@pytest.mark.parametrize(
    ("event", "payload", "reason"),
    [
        (
            "check_run",
            check_run({"id": 1, "head_sha": HEAD, "external_id": "x"}, app=99),
            "'ours-not', which runs it again itself",
        ),
        (
            "check_suite",
            check_suite("rerequested", app={"id": 99, "slug": "actions"}),
            "'actions', which runs it again itself",
        ),
        (
            "check_run",
            check_run({"id": 1, "head_sha": HEAD, "external_id": "x"}),
            "not created here",
        ),
        (
            "check_run",
            check_run({"id": 1, "head_sha": HEAD}, action="created"),
            "a check run that was created",
        ),
        (
            "check_run",
            check_run({"id": 1, "head_sha": HEAD}, action="requested_action", button="merge"),
            "button 'merge'",
        ),
    ],
)
def test_what_is_not_our_check_is_politely_left_alone(
    app: Circle, event: str, payload: dict[str, Any], reason: str
) -> None:
    store_rule(app.api, events=["push", "check_suite"])
    app.deliver(event, payload)
    app.go()
    (ignored,) = came(app.api)
    assert (ignored["state"], reason in ignored["reason"]) == ("ignored", True), ignored


def test_two_pull_requests_of_one_commit_have_a_comment_each(app: Circle) -> None:
    store_rule(app.api, events=["push"])
    for number in (7, 8):
        app.github.open(number, HEAD, TIP)
    app.deliver("push", push())
    app.go()
    app.end("tt-train-2025")
    assert sorted(comment["pull_request"] for comment in app.github.comments) == [7, 8]
    assert {check["status"] for check in app.github.checks} == {"completed"}
    assert {answer["state"] for answer in app.api.get("/github/answers")["items"]} == {"told"}


def test_a_check_that_another_pull_request_outshines_is_closed_once_while_gauges_run(
    app: Circle,
) -> None:
    api, github = app.api, app.github
    github.pull_requests = {7, 8}
    store_rule(
        api,
        events=["pull_request"],
        suites=[],
        gauges=[{"test": JOB["test"], "seeds": {"count": 1}}],
    )
    with time_machine.travel(utcnow(), tick=False) as clock:
        app.deliver("pull_request", pull_request())
        app.go()
        other = pull_request(at="2026-02-01T12:00:00Z")
        app.deliver(
            "pull_request", {**other, "pull_request": {**other["pull_request"], "number": 8}}
        )
        for _ in range(3):
            clock.shift(POLL_GAUGES)
            app.go()
    assert [check["status"] for check in github.checks] == ["completed", "in_progress"]
    assert (
        len(
            [
                path
                for path in github.paths("PATCH")
                if path.endswith(f"/check-runs/{github.checks[0]['id']}")
            ]
        )
        == 1
    )
