"""Tokens and scopes: the form of a token, its stored hash, and its rights on every address."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, select

from api import JOB, Api, bearer, refusal
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.principals import Keys
from gonogo_service.people.auth import make_token
from gonogo_service.people.issuing import issue_token
from gonogo_service.people.model import TokenRow
from tests.checks import routes

UNKNOWN = "01890000-0000-7000-8000-000000000000"
SCOPES = ("read", "submit", "admin")


def test_what_is_no_token_is_refused_without_looking_for_it(closed: Api) -> None:
    statements: list[str] = []
    event.listen(
        closed.context.engine, "before_cursor_execute", lambda *given: statements.append(given[2])
    )
    text = make_token()
    others = ["", "gng_", "gng_" + "a" * 47, "x" * 51, "gng_\xfcnicode" + "a" * 40]
    mistyped = [
        text[:place] + ("a" if text[place] != "a" else "b") + text[place + 1 :]
        for place in range(0, len(text), 5)
    ]
    wrong = [f"Bearer {token}" for token in (*others, text + "a", text[:-1], *mistyped)]
    for header in (*wrong, "Basic Z25nOng=", "Bearer", text):
        answer = closed.client.get("/api/v1/jobs", headers={"Authorization": header.encode()})
        assert answer.status_code == 401, header
    assert not any("FROM tokens" in statement for statement in statements)
    assert closed.client.get("/api/v1/jobs", headers=bearer(text)).status_code == 401
    assert any("FROM tokens" in statement for statement in statements)


def test_the_database_never_holds_a_token(closed: Api) -> None:
    with closed.context.session() as session:
        text = issue_token(session, "ci", ["read"], keys=closed.context.keys)
    closed.client.get("/api/v1/jobs", headers=bearer(text))
    with closed.context.reading() as session:
        row = session.scalars(select(TokenRow)).one()
        stored = " ".join(str(value) for value in vars(row).values())
        stored += " ".join(str(vars(entry)) for entry in session.scalars(select(AuditRow)))
    assert text.split("_")[2] not in stored
    assert row.hash == closed.context.keys.digest("token", text)
    assert text.startswith(row.prefix)
    assert len(row.prefix) < 16
    digests = {Keys(key * 32).digest(use, "x") for key in "ab" for use in ("token", "session")}
    assert len(digests) == 4


def test_without_a_token_only_health_login_and_static_files_answer(closed: Api) -> None:
    paths = ("/", "/jobs", "/jobs.json", "/docs", "/metrics", "/nothing")
    for path in (*paths, "/api/v1/openapi.json", "/api/v1/jobs", "/api/v1/nothing"):
        answer = closed.client.get(path)
        assert refusal(answer)[0] == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert closed.client.post("/api/v1/jobs", json=JOB).status_code == 401
    for path in ("/healthz", "/login"):
        assert closed.client.get(path).status_code == 200, path
    assert closed.client.get("/readyz").status_code == 503  # the broker is missing, not the token
    assert closed.client.get("/static/nothing.js").status_code == 404
    assert closed.visitor(("127.0.0.1", 1)).get("/api/v1/jobs").status_code == 401
    assert closed.rows()["jobs"] == 0


def test_a_scope_contains_those_before_it_and_no_others(closed: Api) -> None:
    """Every address of docs/routes.md with every scope."""
    headers = {scope: closed.token(scope, name=scope) for scope in SCOPES}
    table = routes.rows(closed.app)
    assert len(table) > 150
    for row in table:
        path = re.sub(r"\{[^}]*\}", UNKNOWN, row.path)
        without = closed.client.request(row.method, path).status_code
        if row.scope in ("none", "signature"):
            assert without not in (401, 303), row
            continue
        assert without == 401, row
        for order, scope in enumerate(SCOPES):
            answer = closed.client.request(row.method, path, headers=headers[scope])
            refused = row.scope == "host" or order < SCOPES.index(row.scope)
            assert (answer.status_code == 403) == refused, (row, scope, answer.text[:200])
            assert answer.status_code < 500 or answer.status_code == 503, (row, answer.text[:200])
            if refused and row.api:
                assert row.scope in answer.json()["detail"]


def test_link_checkers_get_the_head_of_a_page_under_the_scope_of_the_page(closed: Api) -> None:
    reader = closed.token("read")
    for path in ("/jobs", "/jobs.json", "/jobs.csv"):
        assert closed.client.head(path).status_code == 401
        whole, head = (
            closed.client.request(method, path, headers=reader) for method in ("GET", "HEAD")
        )
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]


def test_a_token_owns_the_jobs_it_submits(closed: Api) -> None:
    owner, read = closed.token("submit", name="ci of org"), closed.token("read")
    answer = closed.client.post("/api/v1/jobs", json=JOB, headers=owner)
    assert (
        closed.client.get(answer.headers["location"], headers=read).json()["owner"] == "ci of org"
    )
    listed = closed.client.get("/api/v1/jobs?owner=ci%20of%20org", headers=read).json()
    assert len(listed["items"]) == 1


def test_a_token_is_shown_once_works_and_is_revoked(api: Api) -> None:
    issued = api.client.post("/api/v1/tokens", json={"name": "ci", "scopes": ["submit", "read"]})
    assert issued.status_code == 201
    token = issued.json()
    assert token["scopes"] == ["read", "submit"]
    assert token["token"].startswith(token["prefix"] + "_")
    shown = {name: value for name, value in token.items() if name != "token"}
    assert api.get("/tokens")["items"] == [shown]
    header = bearer(token["token"])
    assert api.client.get("/api/v1/jobs", headers=header).status_code == 200
    for _ in range(2):
        revoked = api.client.delete(f"/api/v1/tokens/{token['id']}")
        assert (revoked.status_code, revoked.json()["revoked_at"] is None) == (200, False)
    assert api.client.get("/api/v1/jobs", headers=header).status_code == 401


def test_the_time_of_last_use_is_coarse(closed: Api) -> None:
    header = closed.token("admin")

    def last_used() -> Any:
        return closed.client.get("/api/v1/tokens", headers=header).json()["items"][0][
            "last_used_at"
        ]

    assert last_used() is not None
    for minutes, moves in ((1, False), (6, True)):
        with closed.context.session() as session:
            before = utcnow() - timedelta(minutes=minutes)
            session.scalars(select(TokenRow)).one().last_used_at = before
        assert (last_used() != timestamp(before)) == moves


def test_a_wrong_token_is_not_issued(closed: Api) -> None:
    admin = closed.token("admin")
    for changes, field in (
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes.0"),
        ({"scopes": ["admin"], "repositories": ["org/*"]}, "repositories"),
        ({"scopes": ["admin"], "suites": ["a"]}, "suites"),
        ({"scopes": ["submit"], "builds": ["!k-*", "!main"]}, "builds"),
        ({"scopes": ["submit"], "branches": ["main"]}, "branches"),
    ):
        body = {"name": "ci", "scopes": ["read"], **changes}
        assert refusal(closed.client.post("/api/v1/tokens", json=body, headers=admin)) == (
            422,
            field,
        )
    with closed.context.session() as session, pytest.raises(ValueError, match="GONOGO_SECRET_KEY"):
        issue_token(session, "x", ["read"])
    assert closed.rows()["tokens"] == 1


def test_too_many_wrong_tokens_are_slowed_down_but_right_ones_are_not(closed: Api) -> None:
    right = closed.token("read")
    answers = [closed.client.get("/api/v1/jobs", headers=bearer("wrong")) for _ in range(32)]
    assert [answer.status_code for answer in answers] == [401] * 30 + [429] * 2
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert refusal(answers[-1])[0] == 429
    assert closed.client.get("/api/v1/jobs", headers=right).status_code == 200
    neighbor = closed.visitor(("198.51.100.1", 1))
    assert neighbor.get("/api/v1/jobs", headers=bearer("wrong")).status_code == 401
