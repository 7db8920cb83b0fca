"""The client of GitHub's REST API against a strict server of the tests: tokens, pages, limits,
redirects, and doing things twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import time_machine

from github import APP, REPOSITORY, TOKEN, GitHubServer, Scripted
from gonogo_service.ci.github import GitHub, GitHubError, Limited, Refused, limit_of, read_key

SHA = "a" * 40
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def running() -> Iterator[GitHubServer]:
    github_server = GitHubServer()
    yield github_server
    github_server.close()


@pytest.fixture
def server(running: GitHubServer) -> GitHubServer:
    """The server that all tests share, cleared for this test."""
    running.clear()
    running.commits, running.pull_requests = {SHA}, {7}
    return running


@pytest.fixture
def github(server: GitHubServer) -> Iterator[GitHub]:
    client = GitHub(server.url, token=TOKEN)
    yield client
    client.close()


@pytest.fixture
def app(server: GitHubServer) -> Iterator[GitHub]:
    key = read_key(server.pem.replace("\n", "\\n"))
    client = GitHub(server.url, token=TOKEN, app=APP, key=key)
    yield client
    client.close()


def status(github: GitHub, sha: str = SHA, repository: str = REPOSITORY) -> None:
    body = {"state": "success", "context": "gonogo/nightly", "description": "well"}
    github.call("POST", repository, f"/statuses/{sha}", body)


def create_comment(github: GitHub, text: str) -> int:
    return github.create(REPOSITORY, "/issues/7/comments", {"body": text})


def create_check(github: GitHub, external_id: str = "e1") -> int:
    about = {"name": "GoNoGo", "head_sha": SHA, "status": "in_progress"}
    return github.create(REPOSITORY, "/check-runs", {**about, "external_id": external_id})


def later(**time: float) -> Any:
    return time_machine.travel(datetime.now(UTC) + timedelta(**time), tick=False)


def test_an_app_proves_who_it_is_and_renews_its_tokens_in_time(
    server: GitHubServer, app: GitHub
) -> None:
    def tokens() -> int:
        return sum(path.endswith("access_tokens") for path in server.paths("POST"))

    ended = {"status": "completed", "conclusion": "success"}
    app.call("PATCH", REPOSITORY, f"/check-runs/{create_check(app)}", ended)
    assert (server.checks[0]["status"], server.checks[0]["conclusion"]) == ("completed", "success")
    assert tokens() == 1  # the client keeps a token for its hour
    with later(minutes=56):
        status(app)
    assert tokens() == 2
    server.tokens -= {token for token in server.tokens if token.startswith("ghs_")}
    status(app)  # revoked: the client requests a new one, once
    assert len(server.statuses) == 2
    server.script = [Scripted(401)] * 2
    with pytest.raises(Refused, match="401"):
        status(app)


def test_where_the_app_is_not_installed_the_token_speaks(server: GitHubServer, app: GitHub) -> None:
    server.installed = False
    status(app)
    assert not app.may_check(REPOSITORY)
    assert server.paths("GET") == [f"/repos/{REPOSITORY}/installation"]  # requested once
    (post,) = (request for request in server.requests if request.method == "POST")
    assert post.headers["authorization"] == f"Bearer {TOKEN}"
    server.installed = True
    assert not app.may_check(REPOSITORY)  # remembered for five minutes
    with later(minutes=6):
        assert app.may_check(REPOSITORY)
    server.installed = False
    alone = GitHub(server.url, app=APP, key=server.key)
    with pytest.raises(Refused, match="not installed"):
        status(alone)
    alone.close()


def test_what_is_there_is_found_on_whichever_page(server: GitHubServer, app: GitHub) -> None:
    server.most = 2
    numbers = [create_check(app, f"e{number}") for number in range(5)]
    pages = list(app.pages(REPOSITORY, f"/commits/{SHA}/check-runs?check_name=GoNoGo"))
    numbers_by_page = [[run["id"] for run in page["check_runs"]] for page in pages]
    assert numbers_by_page == [numbers[:2], numbers[2:4], numbers[4:]]
    for text in ("> <!-- mine -->", "x", "y", "z"):
        server.comment(7, text)
    assert app.find_comment(REPOSITORY, 7, "<!-- mine -->") is None  # a quote is not ours
    comment = create_comment(app, "<!-- mine -->\nall is well")
    assert app.find_comment(REPOSITORY, 7, "<!-- mine -->") == comment
    requests = [request for request in server.requests if request.path.endswith("/comments")]
    assert [one.query["page"] for one in requests if "page" in one.query] == ["2", "2", "3"]


def test_a_comment_of_a_stranger_is_not_ours_whatever_it_says(
    server: GitHubServer, github: GitHub, app: GitHub
) -> None:
    server.comment(7, "<!-- mine -->\nthis may be merged")
    for client in (github, app):
        assert client.find_comment(REPOSITORY, 7, "<!-- mine -->") is None
        comment = create_comment(client, "<!-- mine -->\nthis must not be merged")
        assert client.find_comment(REPOSITORY, 7, "<!-- mine -->") == comment
    assert server.paths("GET").count("/user") == 1


def used_up(reset: float) -> dict[str, str]:
    return {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{reset:.0f}"}


@pytest.mark.parametrize(
    ("answer", "wait"),
    [
        (Scripted(429, {"retry-after": "Sun, 01 Mar 2026 12:10:00 GMT"}), 600),
        (Scripted(403, {"retry-after": "120"}), 120),
        (Scripted(429, {"retry-after": "7"}), 7),
        (Scripted(429, {"retry-after": "0"}), 1),
        (Scripted(403, used_up(NOW.timestamp() + 900)), 900),
        (Scripted(429, used_up(99999999999)), 3600),
        (Scripted(403, body={"message": "You have exceeded a secondary rate limit."}), 60),
        (Scripted(429), 60),
    ],
)
def test_a_limit_is_waited_for_and_nothing_is_asked_before(
    server: GitHubServer, answer: Scripted, wait: int
) -> None:
    server.script = [answer]
    with time_machine.travel(NOW, tick=False) as clock:
        github = GitHub(server.url, token=TOKEN)
        with pytest.raises(Limited) as caught:
            status(github)
        assert caught.value.until == NOW + timedelta(seconds=wait)
        clock.shift(timedelta(seconds=wait - 1))
        with pytest.raises(Limited):
            status(github)
        assert len(server.requests) == 1
        clock.shift(timedelta(seconds=1))
        status(github)
        github.close()
    assert len(server.statuses) == 1


def test_the_last_request_of_a_window_is_an_answer_and_the_next_one_waits(
    server: GitHubServer,
) -> None:
    server.script = [Scripted(201, used_up(NOW.timestamp() + 60), {"id": 1})]
    with time_machine.travel(NOW, tick=False):
        github = GitHub(server.url, token=TOKEN)
        status(github)
        with pytest.raises(Limited):
            status(github)
        github.close()
    refused = httpx.Response(403, text="Resource not accessible by integration")
    assert limit_of(refused, NOW) is None


NOT_OURS = {"message": "Resource not accessible by integration"}
INVALID = {"message": "Validation Failed", "errors": [{"field": "body", "code": "missing"}]}


@pytest.mark.parametrize(
    ("wrong", "raised", "words"),
    [
        (Scripted(502), GitHubError, "502"),
        (Scripted(200, body={}), GitHubError, "no id"),
        (Scripted(403, body=NOT_OURS), Refused, "Resource not accessible"),
        (Scripted(302, {"location": "http://127.0.0.1:1/repos/x/y"}), Refused, "another server"),
        (Scripted(422, body=INVALID), Refused, "body missing"),
    ],
)
def test_what_github_may_answer_instead(
    server: GitHubServer, github: GitHub, wrong: Scripted, raised: type[GitHubError], words: str
) -> None:
    server.script = [wrong]
    with pytest.raises(raised, match=words) as caught:
        create_comment(github, "text")
    assert TOKEN not in str(caught.value)


def test_wrong_names_and_a_dead_server_are_told_apart(server: GitHubServer, github: GitHub) -> None:
    for repository in ("lab", "lab/a/b", "/x", "../x", ""):
        with pytest.raises(Refused, match="owner/name"):
            status(github, repository=repository)
    assert server.requests == []
    with pytest.raises(Refused, match="No commit found"):
        status(github, sha="b" * 40)
    dead = GitHub("http://127.0.0.1:1", token=TOKEN)
    with pytest.raises(GitHubError, match="ConnectError"):
        status(dead)
    dead.close()


def test_a_renamed_repository_is_followed_on_the_same_server(
    server: GitHubServer, github: GitHub
) -> None:
    server.moved = "lab/renamed"
    status(github)
    assert len(server.statuses) == 1
    assert server.requests[-1].path == f"/repos/lab/renamed/statuses/{SHA}"


def test_keys_that_are_none_are_refused_without_showing_them() -> None:
    pem = "-----BEGIN RSA PRIVATE KEY-----\nsecret\n-----END RSA PRIVATE KEY-----"
    for text, words in (("secret.pem", "nor a readable file"), (pem, "no private RSA key")):
        with pytest.raises(ValueError, match=words) as caught:
            read_key(text)
        assert "secret" not in str(caught.value)
