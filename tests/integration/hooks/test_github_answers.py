"""From a delivery to GitHub's answer: GitHub learns once that a run started and once that it ended,
whatever breaks in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from pydantic import SecretStr
from sqlalchemy.orm import Session

from api import JOB, Api
from github import APP, TOKEN, GitHubServer, Scripted
from gonogo_service.background.deliver import Deliver, make_deliver
from gonogo_service.ci import answering, incoming, report
from gonogo_service.ci.model import CommitCheckRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import HookSource
from gonogo_service.suites import runs
from hook_payloads import BEFORE, HEAD, NEXT, check_run, check_suite, deliver, pull_request, push
from hook_service import background, came, commit_checks, copied, emptied, store_rule
from patience import WAIT_S
from suite_runs import SUITE, conclude, end_all, finish

TIP, UNKNOWN = "d4" * 20, "e5" * 20
BY_TOKEN: dict[str, Any] = {"github_token": SecretStr(TOKEN)}
LATER = "2026-02-01T12:00:00Z"


@dataclass
class Circle:
    """A service, a GitHub server, and the background's loop between them."""

    api: Api
    github: GitHubServer
    loop: Deliver

    def deliver(self, event: str, payload: dict[str, Any]) -> None:
        """Deliver an event, then `go`."""
        assert deliver(self.api.client, event, payload).status_code == 202
        self.go()

    def go(self) -> None:
        """Process deliveries and send answers, also for the lookups at GitHub."""
        for _ in range(4):
            self.loop.run_once()
            self.loop.join(WAIT_S)

    def end(self, *wrong: str) -> None:
        """End every run, then `go`; the jobs of the builds `wrong` are hollow."""
        with self.api.context.session() as session:
            end_all(session, *wrong)
        self.go()

    def end_run(self, run: str, *, wrong: bool = False) -> None:
        """End one run, then `go`."""
        with self.api.context.session() as session:
            ended = runs.get(session, run)
            for member in ended[1] if ended is not None else ():
                finish(session, member.id, wrong=wrong)
            conclude(session)
        self.go()

    def answers(self) -> dict[str, dict[str, Any]]:
        """Return the answers by their commit checks."""
        items = self.api.get("/github/answers")["items"]
        return {answer["commit_check"]: answer for answer in items}


@pytest.fixture(scope="module")
def server() -> Iterator[GitHubServer]:
    with closing(GitHubServer()) as github_server:
        yield github_server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("answers")
    with copied(sqlite_template, folder, url="https://gonogo.example") as service:
        yield service


@contextmanager
def circle_of(api: Api, server: GitHubServer, **who: Any) -> Iterator[Circle]:
    server.clear()
    server.commits, server.pull_requests = {HEAD, NEXT, BEFORE, TIP}, {7}
    with background(api, github_url=server.url, **who) as core, closing(make_deliver(core)) as loop:
        yield Circle(emptied(api), server, loop)


@pytest.fixture
def circle(shared: Api, server: GitHubServer) -> Iterator[Circle]:
    with circle_of(shared, server, **BY_TOKEN) as token_circle:
        yield token_circle


@pytest.fixture
def app(shared: Api, server: GitHubServer) -> Iterator[Circle]:
    key = SecretStr(server.pem)
    with circle_of(shared, server, **BY_TOKEN, github_app_id=APP, github_app_key=key) as app_circle:
        yield app_circle


def test_a_pull_request_gets_a_status_a_check_and_one_comment_that_names_the_new_hollow_pass(
    app: Circle,
) -> None:
    context, github = "gonogo/kernels/nightly (pull_request)", app.github
    store_rule(app.api, suites=[SUITE])
    app.deliver("pull_request", pull_request())
    (first,) = commit_checks(app.api)
    assert github.status_of(HEAD) == {context: "pending"}
    (check,) = github.checks
    assert (check["status"], check["external_id"]) == ("in_progress", first["id"])
    requests = len(github.requests)
    app.end_run(first["run"], wrong=True)
    assert len(github.requests) == requests  # the base hasn't ended yet
    app.end_run(first["base_run"])
    assert github.status_of(HEAD) == {context: "failure"}
    assert github.statuses[-1]["description"].startswith("3 new hollow pass")
    assert github.statuses[-1]["target_url"].startswith("https://gonogo.example/compare?")
    assert (check["status"], check["conclusion"]) == ("completed", "failure")
    assert len(check["annotations"]) == 3
    (comment,) = github.comments
    command = "gonogo check --kernel layernorm_bw --shape 32,64 --build tt-train-2025"
    for phrase in ("**New hollow pass** (3)", command, "](https://gonogo.example/jobs/"):
        assert phrase in comment["body"]
    assert "s1 is subtracted twice" not in comment["body"]  # these jobs have no diagnosis
    assert app.answers()[first["id"]]["state"] == "told"
    requests = len(github.requests)
    app.go()
    assert len(github.requests) == requests

    # the next commit is right: the comment is written anew
    store_rule(app.api, suites=[SUITE], builds={"head": "correct", "base": "correct"})
    app.deliver("pull_request", pull_request("synchronize", head=NEXT, at=LATER))
    path = f"/api/v1/github/answers/{first['id']}:again"
    assert app.api.client.post(path, json={}).status_code == 202
    app.end()
    assert github.status_of(NEXT) == {context: "success"}
    assert github.comments == [comment]
    assert comment["body"].startswith(report.MARKER)
    assert "nothing new" in comment["body"]
    assert NEXT[:12] in comment["body"]
    # the first commit's answer was sent again, but its words didn't come back
    assert "hollow" not in comment["body"].lower()
    assert {answer["state"] for answer in app.answers().values()} == {"told"}


def test_an_answer_that_is_lost_on_its_way_makes_nothing_twice(
    app: Circle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "MAX_ANNOTATIONS", 2)  # in a request
    github = app.github
    github.most, github.lossy = 1, True
    for number in range(3):
        github.comment(7, f"comment {number}")
    store_rule(app.api, suites=[SUITE])
    app.deliver("pull_request", pull_request())
    with time_machine.travel(utcnow(), tick=False) as clock:
        for ended in (False, True):
            if ended:
                app.end("tt-train-2025")
            for _ in range(8):
                clock.shift(timedelta(hours=13))
                app.go()
    (answer,) = app.answers().values()
    assert answer["state"] == "told"
    posts = [path.rpartition("/")[2] for path in github.paths("POST")]
    assert posts.count(HEAD) == 3  # pending twice: the second replaces the first
    assert posts.count("check-runs") == posts.count("comments") == 1
    (check,) = github.checks
    assert len({note["message"] for note in check["annotations"]}) == len(check["annotations"]) == 3
    bodies = [comment["body"].startswith(report.MARKER) for comment in github.comments]
    assert bodies == [False, False, False, True]
    assert set(github.status_of(HEAD).values()) == {"failure"}


def test_a_limit_is_no_failure_and_what_github_refuses_is_given_up_at_last(app: Circle) -> None:
    api, github = app.api, app.github
    store_rule(api, builds={"head": "nobody-{short}"}, pull_requests=False)
    github.installed = False
    github.script = [Scripted(404), Scripted(403, {"retry-after": "120"})]
    with time_machine.travel(utcnow(), tick=False) as clock:
        app.deliver("pull_request", pull_request())
        app.deliver("push", push(after=UNKNOWN))
        clock.shift(timedelta(seconds=119))
        app.go()
        _, unknown = (check["id"] for check in commit_checks(api))
        assert github.statuses == []
        for answer in app.answers().values():
            assert answer["tries"] == 0
            assert "rate limit" in answer["error"]
        clock.shift(timedelta(seconds=2))
        app.go()
        (status,) = github.statuses
        assert status["state"] == "error"
        assert status["description"].startswith("could not be started: ")
        assert len(github.comments) == 1
        store_rule(api)  # the delivery is tried again, and now it can be started
        path = f"/api/v1/hooks/deliveries/{came(api)[0]['id']}:replay"
        assert api.client.post(path).status_code == 202
        app.go()
        assert github.statuses[-1]["state"] == "pending"
        app.end()
        assert github.statuses[-1]["state"] == "success"
        for _ in range(10):
            clock.shift(timedelta(hours=13))
            app.go()
    (gone,) = api.get("/github/answers?state=failed")["items"]
    assert (gone["commit_check"], gone["tries"], gone["due_at"]) == (unknown, 9, None)
    assert "No commit found" in gone["error"]
    page, again = api.client.get("/answers?state=failed").text, f"/github/answers/{unknown}:again"
    assert "No commit found" in page
    assert f'data-post="/api/v1{again}"' in page
    answer = api.client.post(f"/api/v1{again}", json={})
    assert (answer.status_code, answer.json()["state"]) == (202, "waiting")
    assert answer.json()["accepted_parts"] == []
    assert api.get("/audit?action=answer.again")["items"][0]["subject"] == unknown
    assert api.client.post(f"/api/v1/github/answers/{new_id()}:again").status_code == 404


def test_a_report_that_can_t_be_written_stalls_no_other(
    circle: Circle, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_read = report.read

    def read_or_fail(session: Session, check: CommitCheckRow, url: str | None) -> Any:
        if check.pull_request:
            raise KeyError("a bug")
        return real_read(session, check, url)

    monkeypatch.setattr(report, "read", read_or_fail)
    store_rule(circle.api, builds={"head": "nobody-{short}"}, pull_requests=False)
    circle.deliver("pull_request", pull_request())
    circle.deliver("push", push())
    bad, good = (circle.answers()[check["id"]] for check in commit_checks(circle.api))
    assert (good["state"], good["tries"]) == ("told", 0)
    assert (bad["state"], bad["tries"], bad["error"]) == ("waiting", 1, "KeyError: 'a bug'")


def test_a_token_alone_makes_no_checks_and_of_two_that_ask_the_same_the_later_counts(
    circle: Circle,
) -> None:
    api, github = circle.api, circle.github
    store_rule(api, builds={"head": "correct", "base": "correct"}, pull_requests=False)
    circle.deliver("pull_request", pull_request())
    circle.deliver("push", push())
    data = {"repository": "lab/kernels", "sha": HEAD, "branch": "main"}
    with api.context.session() as session:  # a CI of another kind has its own pages
        body = json.dumps({"type": "commit", "data": data}).encode()
        incoming.store(session, HookSource.ci, "delivery", "commit", body)
    circle.go()
    circle.deliver("pull_request", pull_request("reopened", at=LATER))
    circle.end()
    states = [circle.answers().get(check["id"], {}).get("state") for check in commit_checks(api)]
    assert states == ["superseded", "told", None, "told"]
    contexts = [f"gonogo/kernels/nightly ({event})" for event in ("pull_request", "push")]
    assert github.status_of(HEAD) == dict.fromkeys(contexts, "success")
    assert github.checks == []
    assert github.comments == []  # everything passes, and there was no comment before
    assert {request.headers["authorization"] for request in github.requests} == {f"Bearer {TOKEN}"}


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
    pushed, of_pull_request = commit_checks(api)
    assert (pushed["pull_request"], pushed["base_sha"]) == (None, BEFORE)
    expected = {"pull_request": 7, "base_sha": TIP, "source": "github", "event": "pull_request"}
    assert expected.items() <= of_pull_request.items()
    assert of_pull_request["run"] == pushed["run"]  # a run of the same commit is not repeated
    assert of_pull_request["base_run"] not in {None, pushed["base_run"]}
    lookups = {
        delivery["delivery"].partition("@")[0]: (delivery["state"], delivery["reason"])
        for delivery in came(api)
        if delivery["source"] == "asked"
    }
    assert lookups.keys() == {"lab/kernels#7", "lab/kernels#5"}
    assert lookups["lab/kernels#7"][0] == "started"
    assert lookups["lab/kernels#5"][0] == "ignored"
    assert "fork" in lookups["lab/kernels#5"][1]
    circle.end("tt-train-2025")
    (comment,) = github.comments
    assert comment["pull_request"] == 7
    for phrase in (report.MARKER, "**New hollow pass** (1)", f"against `{TIP[:12]}`"):
        assert phrase in comment["body"]
    contexts = [f"gonogo/kernels/nightly ({event})" for event in ("push", "pull_request")]
    assert github.status_of(HEAD) == dict.fromkeys(contexts, "failure")
    # pull request 4 has had this head from the start, 7 moves to it
    github.pulls[-1]["head"]["sha"] = NEXT
    circle.deliver("push", push(before=HEAD, after=NEXT))
    circle.end()
    assert github.comments == [comment]  # everything passes, so 4 gets no comment
    assert "nothing new" in comment["body"]
    assert NEXT[:12] in comment["body"]


def test_a_pull_request_that_is_opened_after_the_push_was_tested_is_found(circle: Circle) -> None:
    api, github = circle.api, circle.github

    def asks() -> int:
        return sum(path.endswith("/pulls") for path in github.paths("GET"))

    with time_machine.travel(utcnow(), tick=False) as clock:
        store_rule(api, events=["push", "pull_request"])
        circle.deliver("push", push())
        assert asks() == 0  # GitHub may send the event of the pull request itself
        circle.end("tt-train-2025")
        github.open(7, HEAD, BEFORE)
        for seconds, comments in ((59, 0), (2, 1)):
            clock.shift(timedelta(seconds=seconds))
            circle.go()
            assert len(github.comments) == comments
        assert len(commit_checks(api)) == 2
        # GitHub sends that event late: the comment stays the same, and nothing runs
        circle.deliver("pull_request", pull_request(at=LATER))
        clock.shift(timedelta(minutes=3))
        circle.go()
        assert (len(github.comments), api.rows()["runs"]) == (1, 2)
        before = asks()
        store_rule(api, events=["push"], pull_requests=False)
        circle.deliver("push", push(before=HEAD, after=NEXT))
        circle.end()
        assert asks() == before


def test_a_token_that_may_not_read_pull_requests_still_sets_its_status(circle: Circle) -> None:
    store_rule(circle.api, events=["push"])
    circle.deliver("push", push())
    circle.github.forbidden = "/pulls"
    circle.end()
    assert circle.github.status_of(HEAD) == {"gonogo/kernels/nightly (push)": "success"}
    assert [answer["state"] for answer in circle.answers().values()] == ["told"]


SAME = ("rule", "suite", "event", "pull_request", "base_run", "head_build", "base_build")


def test_a_check_that_is_asked_for_again_runs_its_head_once_more_and_a_second_press_nothing(
    app: Circle,
) -> None:
    api, github = app.api, app.github
    store_rule(api, events=["pull_request"])
    app.deliver("pull_request", pull_request())
    app.end("tt-train-2025")
    (check,) = github.checks
    assert check["actions"][0]["identifier"] == "gonogo-both"
    for hour in (12, 13):  # pressed twice
        app.deliver("check_run", check_run(check, hour=hour))
    first, second = commit_checks(api)
    for name in (*SAME, "occurred_at"):
        assert second[name] == first[name]
    assert second["run"] != first["run"]
    assert came(api)[-1]["reason"] == f"kernels: it is already running: run {second['run']}"
    assert [check["status"] for check in github.checks] == ["completed", "in_progress"]
    app.end()
    assert [check["conclusion"] for check in github.checks] == ["failure", "success"]
    (comment,) = github.comments
    assert "nothing new" in comment["body"]
    # the same body under another delivery id is nothing new, and neither is a replay
    app.deliver("check_run", check_run(check))
    button = {"action": "requested_action", "button": "gonogo-both"}
    app.deliver("check_run", check_run(github.checks[-1], **button))
    replayed, both = came(api)[-2:]
    assert "came before" in replayed["reason"]
    assert both["state"] == "started"
    third = commit_checks(api)[-1]
    assert third["run"] not in {first["run"], second["run"]}
    assert third["base_run"] != first["base_run"]


def test_a_suite_that_is_asked_for_again_runs_all_that_its_commit_had(app: Circle) -> None:
    for rule in ("kernels", "other"):
        store_rule(app.api, name=rule, events=["push"])
    app.deliver("push", push())
    app.end()
    app.api.client.delete("/api/v1/rules/other")
    app.deliver("check_suite", check_suite("rerequested", app={"id": int(APP), "slug": "gonogo"}))
    (again,) = [delivery for delivery in came(app.api) if delivery["event"] == "check_suite"]
    outcomes = [(one["rule"], one["started"], one["reason"]) for one in again["outcome"]]
    gone = ("other", False, "the rule is no longer in use")
    assert outcomes == [("kernels", True, None), gone]
    assert [check["event"] for check in commit_checks(app.api)] == ["push", "push", "push"]


def test_of_a_rule_s_suites_only_the_one_runs_that_is_asked_for_again(app: Circle) -> None:
    suites = [SUITE, {**SUITE, "name": "other"}]
    store_rule(app.api, events=["push"], suites=suites)
    app.deliver("push", push())
    app.end()
    shown = {check["external_id"]: check for check in app.github.checks}
    before = {check["id"]: check["suite"] for check in commit_checks(app.api)}
    (chosen,) = (shown[id] for id, suite in before.items() if suite == "other")
    app.deliver("check_run", check_run(chosen))
    again = [check for check in commit_checks(app.api) if check["id"] not in before]
    assert [check["suite"] for check in again] == ["other"]


CHECK = {"id": 1, "head_sha": HEAD, "external_id": "x"}
BUTTON = {"action": "requested_action", "button": "merge"}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (check_run(CHECK, app=99), "'ours-not', which runs it again itself"),
        (
            check_suite("rerequested", app={"id": 99, "slug": "actions"}),
            "'actions', which runs it again itself",
        ),
        (check_run(CHECK), "not created here"),
        (check_run(CHECK, action="created"), "a check run that was created"),
        (check_run(CHECK, **BUTTON), "button 'merge'"),
    ],
)
def test_what_is_not_our_check_is_politely_left_alone(
    app: Circle, payload: dict[str, Any], reason: str
) -> None:
    store_rule(app.api, events=["push", "check_suite"])
    app.deliver("check_run" if "check_run" in payload else "check_suite", payload)
    (ignored,) = came(app.api)
    assert (ignored["state"], reason in ignored["reason"]) == ("ignored", True), ignored


def test_two_pull_requests_of_one_commit_have_a_comment_each(app: Circle) -> None:
    store_rule(app.api, events=["push"])
    for number in (7, 8):
        app.github.open(number, HEAD, TIP)
    app.deliver("push", push())
    app.end("tt-train-2025")
    assert sorted(comment["pull_request"] for comment in app.github.comments) == [7, 8]
    assert {check["status"] for check in app.github.checks} == {"completed"}
    assert {answer["state"] for answer in app.answers().values()} == {"told"}


def test_a_check_that_another_pull_request_outshines_is_closed_once_while_gauges_run(
    app: Circle,
) -> None:
    app.github.pull_requests = {7, 8}
    gauges = [{"test": JOB["test"], "seeds": {"count": 1}}]
    store_rule(app.api, events=["pull_request"], suites=[], gauges=gauges)
    other = pull_request(at=LATER)
    other["pull_request"]["number"] = 8
    with time_machine.travel(utcnow(), tick=False) as clock:
        for payload in (pull_request(), other):
            app.deliver("pull_request", payload)
        for _ in range(3):
            clock.shift(answering.POLL_GAUGES)
            app.go()
    closed, _ = app.github.checks
    assert [check["status"] for check in app.github.checks] == ["completed", "in_progress"]
    changes = [path.rpartition("/")[2] for path in app.github.paths("PATCH")]
    assert changes.count(str(closed["id"])) == 1
