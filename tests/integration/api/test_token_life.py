"""Tokens end, are rotated, and are limited to repositories or suites; failures leave a trace."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import time_machine

from api import JOB, Api, bearer, in_process, on_port
from database_params import BOTH
from gonogo_service.edge import EXPIRES_HEADER
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.people import bounds, failures
from gonogo_service.people.issuing import issue_token
from gonogo_service.people.model import TokenRow
from suite_runs import SUITE

DAY = 24 * 3600.0
COMMIT = {"repository": "org/kernels", "sha": "a" * 40}


def issued(closed: Api, **fields: Any) -> str:
    with closed.context.session() as session:
        settings = {"keys": closed.context.keys, "settings": closed.settings}
        return issue_token(session, "ci", fields.pop("scopes", ["read"]), **settings, **fields)


def created(closed: Api, status: int = 201, **body: Any) -> dict[str, Any]:
    answer = closed.client.post(
        "/api/v1/tokens",
        json={"name": "ci", "scopes": ["read"], **body},
        headers=closed.token("admin"),
    )
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def test_a_token_has_an_end_and_is_warned_of_it(closed: Api) -> None:
    tokens = {
        days: created(closed, **({"days": days} if days != 90 else {})) for days in (90, None, 10)
    }
    now, seen = utcnow().timestamp(), {}
    for day in (1, 80, 91):
        with time_machine.travel(now + day * DAY, tick=True):
            for days, token in tokens.items():
                answer = closed.client.get("/api/v1/jobs", headers=bearer(token["token"]))
                seen[day, days] = (answer.status_code, answer.headers.get(EXPIRES_HEADER))
    ends = {days: token["expires_at"] for days, token in tokens.items()}
    alive, ended = (200, None), (401, None)
    assert seen == {
        (1, 90): alive,
        (1, None): alive,
        (1, 10): (200, ends[10]),
        (80, 90): (200, ends[90]),
        (80, None): alive,
        (80, 10): ended,
        (91, 90): ended,
        (91, None): alive,
        (91, 10): ended,
    }


def test_a_setting_bounds_the_life_of_tokens(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url, max_token_days=30) as api:
        lives = [
            api.client.post("/api/v1/tokens", json={"name": "ci", "scopes": ["read"], **more})
            for more in ({}, {"days": 30}, {"days": 31}, {"days": None}, {"days": 0})
        ]
        assert [answer.status_code for answer in lives] == [201, 201, 422, 422, 422]
        end = api.get("/tokens")["items"][0]["expires_at"]
        assert end < (utcnow() + timedelta(days=31)).isoformat()


def test_a_login_ends_with_its_token_and_pages_warn_before(closed: Api) -> None:
    text = issued(closed, days=1)
    browser = closed.visitor()
    answer = browser.post("/login", data={"token": text})
    assert answer.status_code == 303
    assert "gonogo tokens rotate" in browser.get("/jobs").text
    end = utcnow().timestamp() + DAY
    cookie = {"Cookie": f"gonogo_session={browser.cookies['gonogo_session']}"}
    with time_machine.travel(end - 3600, tick=True):
        answer = browser.post("/login", data={"token": text})
        age = re.search(r"Max-Age=(\d+)", answer.headers["set-cookie"])
        assert age is not None
        assert int(age[1]) <= 3600
    with time_machine.travel(end + 1, tick=True):
        assert browser.get("/api/v1/jobs", headers=cookie).status_code == 401
        assert "has expired" in browser.post("/login", data={"token": text}).text


def test_a_rotated_token_has_its_rights_and_overlaps_with_the_old_one(closed: Api) -> None:
    old = created(closed, scopes=["submit"], repositories=["org/*"], builds=["k-*"], days=40)
    admin = closed.token("admin")
    answer = closed.client.post(
        f"/api/v1/tokens/{old['id']}:rotate", json={"overlap_hours": 2}, headers=admin
    )
    assert answer.status_code == 201
    new = answer.json()
    for name in ("name", "scopes", "builds", "branches", "repositories", "suites"):
        assert new[name] == old[name]
    now, statuses = utcnow().timestamp(), []
    for hours in (1.9, 2.1):
        with time_machine.travel(now + hours * 3600, tick=True):
            for token in (old, new):
                answer = closed.client.post(
                    "/api/v1/jobs:validate", json={}, headers=bearer(token["token"])
                )
                statuses.append(answer.status_code)
            again = closed.client.post(f"/api/v1/tokens/{old['id']}:rotate", json={}, headers=admin)
            statuses.append(again.status_code)
    assert statuses == [422, 422, 201, 401, 422, 422]
    missing = closed.client.post(f"/api/v1/tokens/{'0' * 8}:rotate", json={}, headers=admin)
    assert missing.status_code == 404
    actions = [
        (entry["action"], entry["detail"].get("replaces"))
        for entry in closed.client.get("/api/v1/audit", headers=admin).json()["items"]
    ]
    assert actions.count(("token.rotated", old["id"])) == 2


def test_a_limited_token_reaches_what_belongs_to_its_limits_and_nothing_else(closed: Api) -> None:
    submit = closed.token("submit")
    by_repository = bearer(issued(closed, scopes=["submit"], repositories=["org/*"]))
    by_suite = bearer(issued(closed, scopes=["submit"], suites=["nightly*"]))
    limits = {"repositories": ["org/*"], "suites": ["nightly*"]}
    by_both = bearer(issued(closed, scopes=["submit"], **limits))
    suite = {**SUITE, "name": "nightly"}

    def post(path: str, headers: dict[str, str], **body: Any) -> tuple[int, str]:
        answer = closed.client.post(f"/api/v1{path}", json=body, headers=headers)
        return answer.status_code, answer.json().get("id", "")

    job = post("/jobs", by_repository, **JOB, commit=COMMIT)[1]
    run = post("/runs", by_suite, suite=suite)[1]
    foreign = post("/jobs", submit, **JOB)[1]
    foreign_run = post("/runs", submit, suite={**suite, "name": "weekly"})[1]
    assert all(
        (job, run, foreign, foreign_run, post("/runs", by_both, suite=suite, commit=COMMIT)[1])
    )
    refused = [
        post("/jobs", by_repository, **JOB),
        post("/jobs", by_repository, **JOB, commit={**COMMIT, "repository": "other/kernels"}),
        post("/runs", by_repository, suite=suite),
        post("/jobs", by_suite, **JOB, commit=COMMIT),
        post("/jobs", by_both, **JOB, commit=COMMIT),
        post("/runs", by_both, suite=suite),
        post("/runs", by_suite, suite={**suite, "name": "weekly"}),
        post(f"/jobs/{foreign}:cancel", by_repository),
        post(f"/jobs/{foreign}:resubmit", by_suite),
        post(f"/runs/{foreign_run}:cancel", by_suite),
    ]
    assert [status for status, _ in refused] == [403] * len(refused)
    (member,) = closed.client.get(f"/api/v1/runs/{run}", headers=submit).json()["tests"][:1]
    assert post(f"/jobs/{job}:resubmit", by_repository)[0] == 202
    assert post(f"/jobs/{member['id']}:resubmit", by_suite)[0] == 403
    reads = {
        (f"/jobs/{job}", "repository"): 200,
        (f"/jobs/{job}/results", "repository"): 200,
        (f"/jobs/{foreign}", "repository"): 403,
        (f"/jobs/{foreign}/results", "suite"): 403,
        (f"/jobs/{member['id']}", "suite"): 200,
        (f"/jobs/{member['id']}", "repository"): 403,
        (f"/runs/{run}", "suite"): 200,
        (f"/runs/{foreign_run}", "suite"): 403,
        ("/runs?suite=nightly", "suite"): 200,
        ("/runs?suite=nightly&suite=weekly", "suite"): 403,
        ("/runs?suite=nightly", "repository"): 403,
        ("/runs", "suite"): 403,
        (f"/compare?base={run}&head={run}", "suite"): 200,
        (f"/compare?base={foreign_run}&head={run}", "suite"): 403,
        ("/compare?base=correct&head=correct", "suite"): 403,
    }
    report = b"<testsuite name='t'><testcase name='a'/></testsuite>"
    commit = f"&sha={'a' * 40}&repository="
    for query, limited, status in (
        (f"{commit}org/kernels", by_repository, 201),
        (f"{commit}other/kernels", by_repository, 403),
        ("", by_repository, 403),
        (f"{commit}org/kernels&suite=nightly", by_suite, 403),
    ):
        path = f"/api/v1/imports?format=junit{query}"
        answer = closed.client.post(path, content=report, headers=limited)
        assert answer.status_code == status, (query, answer.text)
    refusal = closed.client.post("/api/v1/gauges", json={}, headers=by_repository).json()
    assert "For gauges, bisections, pages and all else make a token without" in refusal["detail"]
    headers = {"repository": by_repository, "suite": by_suite}
    for (path, limits), status in reads.items():
        answer = closed.client.get(f"/api/v1{path}", headers=headers[limits])
        assert answer.status_code == status, (path, limits, answer.text)


def test_every_other_address_is_closed_to_a_limited_token(closed: Api) -> None:
    limited = bearer(issued(closed, scopes=["submit"], repositories=["org/*"]))
    opened = {(method, pattern) for method, pattern, _ in bounds.RULES}
    addresses = [
        (method, route.path)
        for route in closed.app.router.routes
        for method in getattr(route, "methods", None) or ()
        if not route.path.startswith(("/static", "/login", "/logout", "/healthz", "/readyz"))
        and "/hooks/github" not in route.path
        and "/hooks/ci" not in route.path
        and not route.path.endswith("/hosts:join")
    ]
    assert len(addresses) > 100
    for method, path in addresses:
        if method == "HEAD":
            continue
        address = re.sub(r"\{[^}]*\}", "x", path)
        answer = closed.client.request(method, address, headers=limited)
        checked = any(
            method == allowed and re.fullmatch(f"/api/v1{pattern}", address)
            for allowed, pattern in opened
        )
        assert checked or answer.status_code == 403, (method, address, answer.status_code)


@pytest.mark.parametrize("end", ["revoked", "expired", "logout", "rotated"])
def test_a_stream_ends_with_its_token_or_login(migrated_sqlite_url: str, end: str) -> None:
    with on_port(migrated_sqlite_url, embedded=False) as (client, context):
        context.live._check_s = 0.05
        with context.session() as session:
            text = issue_token(session, "reader", ["submit"], keys=context.keys)
            boss = issue_token(session, "boss", ["admin"], keys=context.keys)
        job = client.post("/api/v1/jobs", json=JOB, headers=bearer(text)).json()["id"]
        headers = bearer(text)
        if end == "logout":
            client.post("/login", data={"token": text})
            headers = {}
        (token,) = [
            token
            for token in client.get("/api/v1/tokens", headers=bearer(boss)).json()["items"]
            if token["name"] == "reader"
        ]
        with client.stream("GET", f"/api/v1/jobs/{job}/events", headers=headers) as stream:
            parts = stream.iter_raw()
            next(parts)
            if end == "revoked":
                client.delete(f"/api/v1/tokens/{token['id']}", headers=bearer(boss))
            elif end == "expired":
                with context.session() as session:
                    session.get_one(TokenRow, token["id"]).expires_at = utcnow()
            elif end == "rotated":
                client.post(
                    f"/api/v1/tokens/{token['id']}:rotate",
                    json={"overlap_hours": 0},
                    headers=bearer(boss),
                )
            else:
                page = client.get("/jobs").text
                csrf = re.search(r'name="csrf_token" value="([^"]+)"', page)
                assert csrf is not None
                client.post("/logout", data={"csrf_token": csrf[1]})
            for _ in parts:  # it ends: a test has two minutes
                pass
        assert context.live._open == {}


@BOTH
def test_one_limit_of_failures_holds_for_all_processes_and_blocks_no_valid_token(
    lite_database_url: str,
) -> None:
    with (
        in_process(lite_database_url, embedded=False) as first,
        in_process(lite_database_url, embedded=False) as second,
        time_machine.travel(utcnow().replace(second=1), tick=False),
    ):
        browsers = [first.visitor(), second.visitor()]
        answers = [
            browsers[number % 2].post("/login", data={"token": "wrong"}).status_code
            for number in range(14)
        ]
        assert answers == [401] * 10 + [429] * 4
        text = issued(first)
        assert browsers[1].post("/login", data={"token": text}).status_code == 303
        elsewhere = second.visitor(("192.0.2.99", 1))
        assert elsewhere.post("/login", data={"token": "wrong"}).status_code == 401
        for number in range(3):
            neighbor = second.visitor((f"2001:db8::{number}", 1))
            assert neighbor.get("/api/v1/jobs", headers=bearer("x")).status_code == 401
        admin = first.token("admin")
        entries = first.client.get("/api/v1/audit", headers=admin).json()["items"]
        traces = [
            (entry["action"], entry["actor"], entry["detail"]["in_this_hour"])
            for entry in entries
            if entry["action"] in ("login.failed", "token.refused")
        ]
        assert sorted(traces) == [
            ("login.failed", "192.0.2.7", 1),
            ("login.failed", "192.0.2.7", 10),
            ("login.failed", "192.0.2.99", 1),
            ("token.refused", "2001:db8::/64", 1),
        ]


def test_a_token_is_revoked_once_and_its_later_use_is_in_the_audit(closed: Api) -> None:
    token, admin = created(closed), closed.token("admin")
    times = []
    for minute in range(2):
        with time_machine.travel(utcnow() + timedelta(minutes=minute)):
            answer = closed.client.delete(f"/api/v1/tokens/{token['id']}", headers=admin)
            times.append(answer.json()["revoked_at"])
    assert times[0] == times[1] is not None
    assert closed.client.get("/api/v1/jobs", headers=bearer(token["token"])).status_code == 401
    query = {"action": "token.refused"}
    (entry,) = closed.client.get("/api/v1/audit", params=query, headers=admin).json()["items"]
    assert (entry["subject"], entry["detail"]["reason"]) == (token["prefix"], "revoked")


@BOTH
def test_failures_from_everywhere_fill_no_table(
    closed: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MAX_ROWS", 5)
    for number in range(40):
        stranger = closed.visitor((f"198.51.100.{number}", 1))
        stranger.get("/api/v1/jobs", headers=bearer("wrong"))
    rows = closed.rows()
    assert rows["access_failures"] == 6  # five addresses, and the others
    assert rows["audit"] == 5 + 2  # the others' first and tenth
