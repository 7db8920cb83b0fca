"""GitHub learns once that a run started and once that it ended, whatever breaks in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from pydantic import SecretStr
from sqlalchemy.orm import Session

from api import SECRET, Api, in_process
from github import APP, REPOSITORY, TOKEN, GitHubServer, Scripted
from gonogo_service.background.deliver import Deliver, events
from gonogo_service.ci import answers, commit_checks, report
from gonogo_service.ci.answering import Answerer
from gonogo_service.ci.github import client_of
from gonogo_service.ci.model import AnswerRow, CommitCheckRow, IncomingDeliveryRow
from gonogo_service.kit.background_context import open_background_context
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import IncomingState
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.suites import runs
from hook_service import copied, emptied
from patience import WAIT_S
from suite_runs import SUITE, conclude, finish

PUBLIC_URL = "https://gonogo.example"
HEAD, NEXT, BASE = "a" * 40, "c" * 40, "b" * 40


@pytest.fixture(scope="module")
def running() -> Iterator[GitHubServer]:
    github_server = GitHubServer()
    yield github_server
    github_server.close()


@pytest.fixture
def server(running: GitHubServer) -> GitHubServer:
    running.clear()
    running.commits, running.pull_requests = {HEAD, NEXT, BASE}, {7}
    return running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    with copied(sqlite_template, tmp_path_factory.mktemp("answers"), url=PUBLIC_URL) as service:
        yield service


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """A service on SQLite, unless the test names PostgreSQL."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield emptied(request.getfixturevalue("shared"))
        return
    with in_process(request.getfixturevalue("migrated_postgres_url"), url=PUBLIC_URL) as service:
        yield service


@pytest.fixture
def answerer(api: Api, server: GitHubServer) -> Iterator[Deliver]:
    yield from answering_for(
        api,
        server,
        github_token=SecretStr(TOKEN),
        github_app_id=APP,
        github_app_key=SecretStr(server.pem),
    )


def answering_for(api: Api, server: GitHubServer, **who: Any) -> Iterator[Deliver]:
    keys = {
        "broker_url": "redis://127.0.0.1:1/0",
        "secret_key": SecretStr(SECRET),
    }
    core = open_background_context(
        api.settings.model_copy(update={**keys, "github_url": server.url, **who}), threading.Event()
    )
    client = client_of(core.settings)
    assert client is not None
    by_topic = {"run.finished": lambda session, about: answers.run_ended(session, about["run"])}
    handlers = {OutboxRow: events(core, by_topic), AnswerRow: Answerer(core, client).handle}
    yield Deliver(core, handlers, [client])
    client.close()
    core.close()


def start(api: Api, build: str) -> str:
    answer = api.client.post("/api/v1/runs", json={"suite": SUITE, "builds": [build]})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def commit_check(
    session: Session, run: str | None, base_run: str | None, sha: str = HEAD, **changes: Any
) -> str:
    """Store the commit check that a delivery about a pull request leaves; return its id."""
    now = utcnow()
    delivery = IncomingDeliveryRow(
        id=new_id(),
        key=new_id(),
        topic="pull_request",
        payload={},
        source="github",
        delivery=new_id(),
        repository=REPOSITORY,
        body=None,
        size=1,
        state=IncomingState.started.value,
        reason=None,
        outcome=[],
        tries=1,
        due_at=None,
        created_at=now,
        ended_at=now,
    )
    session.add(delivery)
    session.flush()
    values: dict[str, Any] = {
        "delivery": delivery.id,
        "source": "github",
        "event": "pull_request",
        "rule": "kernels",
        "suite": "nightly",
        "repository": REPOSITORY,
        "installation": None,
        "branch": "main",
        "pull_request": 7,
        "fork": False,
        "head_sha": sha,
        "base_sha": BASE,
        "head_build": None,
        "base_build": None,
        "run": run,
        "base_run": base_run,
        "error": None,
        "occurred_at": now,
    }
    check = commit_checks.add(session, {**values, **changes})
    if check.source == "github":
        answers.add(session, check.id)
    return check.id


def end(api: Api, run: str, *, wrong: bool = False) -> None:
    """End every job of a run."""
    with api.context.session() as session:
        run_and_jobs = runs.get(session, run)
        assert run_and_jobs is not None
        for member in run_and_jobs[1]:
            finish(session, member.id, wrong=wrong)
        conclude(session)


def tell(answerer: Deliver) -> None:
    """Send every answer that is due now, also because a run has ended."""
    for _ in range(2):
        answerer.run_once()
        answerer.join(WAIT_S)


def state(api: Api, commit_check_id: str) -> AnswerRow:
    with api.context.reading() as session:
        answer = answers.get(session, commit_check_id)
    assert answer is not None
    return answer


@pytest.mark.parametrize("api", ["sqlite", "postgres"], indirect=True)
def test_a_pull_request_gets_a_status_a_check_and_one_comment_that_names_the_new_hollow_pass(
    api: Api, server: GitHubServer, answerer: Deliver
) -> None:
    context = "gonogo/kernels/nightly (pull_request)"
    head, base = start(api, "tt-train-2025"), start(api, "correct")
    with api.context.session() as session:
        first = commit_check(session, head, base)
    tell(answerer)
    assert server.status_of(HEAD) == {context: "pending"}
    assert [(check["status"], check["external_id"]) for check in server.checks] == [
        ("in_progress", first)
    ]
    end(api, head, wrong=True)
    request_count = len(server.requests)
    tell(answerer)  # the base hasn't ended yet
    assert len(server.requests) == request_count
    end(api, base)
    tell(answerer)
    assert server.status_of(HEAD) == {context: "failure"}
    assert server.statuses[-1]["description"].startswith("3 new hollow pass")
    assert server.statuses[-1]["target_url"].startswith("https://gonogo.example/compare?")
    (check,) = server.checks
    assert (check["status"], check["conclusion"], len(check["annotations"])) == (
        "completed",
        "failure",
        3,
    )
    (comment,) = server.comments
    assert "**New hollow pass** (3)" in comment["body"]
    assert "s1 is subtracted twice" not in comment["body"]  # these jobs have no diagnosis
    assert (
        "gonogo check --kernel layernorm_bw --shape 32,64 --build tt-train-2025" in comment["body"]
    )
    assert "](https://gonogo.example/jobs/" in comment["body"]
    assert state(api, first).state == "told"
    request_count = len(server.requests)
    tell(answerer)
    assert len(server.requests) == request_count

    better = start(api, "correct")  # the next commit is right: the comment is written anew
    with api.context.session() as session:
        second = commit_check(session, better, base, NEXT)
        again = answers.again(session, first)
    assert again is not None
    end(api, better)
    tell(answerer)
    assert server.status_of(NEXT) == {context: "success"}
    assert len(server.comments) == 1
    assert comment["body"].startswith(report.MARKER)
    assert "nothing new" in comment["body"]
    assert NEXT[:12] in comment["body"]
    # the first commit's answer was sent again, but its words didn't come back
    assert "HOLLOW" not in comment["body"]
    assert (state(api, second).state, state(api, first).state) == ("told", "told")


def test_an_answer_that_is_lost_on_its_way_makes_nothing_twice(
    api: Api, server: GitHubServer, answerer: Deliver
) -> None:
    head, base = start(api, "tt-train-2025"), start(api, "correct")
    end(api, head, wrong=True)
    end(api, base)
    server.most = 1
    for number in range(3):
        server.comment(7, f"comment {number}")
    with api.context.session() as session:
        check_id = commit_check(session, head, base)
    server.lossy = True
    with time_machine.travel(utcnow(), tick=False) as clock:
        for _ in range(8):
            tell(answerer)
            if state(api, check_id).state == "told":
                break
            clock.shift(timedelta(hours=13))
    assert state(api, check_id).state == "told"
    changes = [
        (request.method, request.path.rpartition("/")[2])
        for request in server.requests
        if request.method != "GET"
    ]
    assert changes.count(("POST", HEAD)) == 2  # the second replaces the first
    assert changes.count(("POST", "check-runs")) == changes.count(("POST", "comments")) == 1
    assert len(server.checks) == 1
    assert len(server.checks[0]["annotations"]) == 3
    assert [comment["body"].startswith(report.MARKER) for comment in server.comments] == [
        False
    ] * 3 + [True]
    assert set(server.status_of(HEAD).values()) == {"failure"}


def test_a_limit_is_no_failure_and_what_github_refuses_is_given_up_at_last(
    api: Api, server: GitHubServer, answerer: Deliver
) -> None:
    with api.context.session() as session:
        first = commit_check(session, None, None, error="no build is registered for this commit")
        unknown = commit_check(session, None, None, "d" * 40, pull_request=None)
    with time_machine.travel(utcnow(), tick=False) as clock:
        server.installed = False
        server.script = [Scripted(404), Scripted(403, {"retry-after": "120"})]
        tell(answerer)
        assert server.statuses == []
        assert (state(api, first).tries, state(api, unknown).tries) == (0, 0)
        clock.shift(timedelta(seconds=119))
        tell(answerer)
        assert server.statuses == []
        clock.shift(timedelta(seconds=2))
        tell(answerer)
        assert [(status["state"], status["description"]) for status in server.statuses] == [
            ("error", "could not be started: no build is registered for this commit")
        ]
        assert len(server.comments) == 1
        run = start(api, "correct")  # the delivery was tried again, and now it can be started
        with api.context.session() as session:
            first_check = commit_checks.get(session, first)
            assert first_check is not None
            first_check.run, first_check.error = run, None
            answers.add(session, first)
        tell(answerer)
        assert server.statuses[-1]["state"] == "pending"
        end(api, run)
        tell(answerer)
        assert server.statuses[-1]["state"] == "success"
        for _ in range(10):
            clock.shift(timedelta(hours=13))
            tell(answerer)
    listed = {
        failed_answer["commit_check"]: failed_answer
        for failed_answer in api.get("/github/answers?state=failed")["items"]
    }
    assert list(listed) == [unknown]
    page = api.client.get("/answers?state=failed").text
    again = f"/api/v1/github/answers/{unknown}:again"
    assert "No commit found" in page
    assert f'data-post="{again}"' in page
    gone = state(api, unknown)
    answer = api.client.post(again, json={})
    assert (answer.status_code, answer.json()["state"], answer.json()["accepted_parts"]) == (
        202,
        "waiting",
        [],
    )
    assert api.get("/audit?action=answer.again")["items"][0]["subject"] == unknown
    assert api.client.post(f"/api/v1/github/answers/{new_id()}:again").status_code == 404
    assert (gone.state, gone.due_at, gone.tries) == ("failed", None, 9)
    assert gone.error is not None
    assert "No commit found" in gone.error


def test_a_report_that_can_t_be_written_stalls_no_other(
    api: Api, server: GitHubServer, answerer: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with api.context.session() as session:
        bad = commit_check(session, None, None, error="no build is registered for this commit")
        good = commit_check(session, None, None, error="no build", pull_request=None)
    real_read = report.read

    def read_or_fail(session: Session, check: CommitCheckRow, url: str | None) -> Any:
        if check.id == bad:
            raise KeyError("a bug")
        return real_read(session, check, url)

    monkeypatch.setattr(report, "read", read_or_fail)
    tell(answerer)
    assert (state(api, good).state, state(api, good).tries) == ("told", 0)
    assert (state(api, bad).state, state(api, bad).tries) == ("waiting", 1)
    assert state(api, bad).error == "KeyError: 'a bug'"


def test_a_token_alone_makes_no_checks_and_of_two_that_ask_the_same_the_later_counts(
    api: Api, server: GitHubServer
) -> None:
    head, base = start(api, "correct"), start(api, "correct")
    with api.context.session() as session:
        first = commit_check(session, head, base)
        other = commit_check(session, head, base, event="push", pull_request=None)
        foreign = commit_check(session, head, base, source="ci")
    for answerer in answering_for(api, server, github_token=SecretStr(TOKEN)):
        tell(answerer)
        with api.context.session() as session:
            second = commit_check(session, head, base)
        end(api, head)
        end(api, base)
        tell(answerer)
    assert [state(api, check_id).state for check_id in (first, second, other)] == [
        "superseded",
        "told",
        "told",
    ]
    with api.context.reading() as session:
        assert answers.get(session, foreign) is None
    statuses = {
        "gonogo/kernels/nightly (pull_request)": "success",
        "gonogo/kernels/nightly (push)": "success",
    }
    assert server.status_of(HEAD) == statuses
    assert server.checks == []
    assert server.comments == []  # everything passes, and there was no comment before
    assert all(request.headers["authorization"] == f"Bearer {TOKEN}" for request in server.requests)
