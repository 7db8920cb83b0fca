"""Tokens and scopes: the form of a token, its stored hash, and its rights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from string import ascii_letters, digits
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, select

from api import ELSEWHERE, JOB, Api, in_process
from database_params import BOTH
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.principals import Keys
from gonogo_service.kit.problems import BadField
from gonogo_service.people.auth import make_token, well_formed
from gonogo_service.people.issuing import issue_token
from gonogo_service.people.model import TokenRow
from gonogo_service.people.visit import PUBLIC
from tests.checks import routes

UNKNOWN = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def api(lite_database_url: str) -> Iterator[Api]:
    """A service that is not embedded, with a client on another machine."""
    with in_process(lite_database_url, embedded=False) as service:
        service.client = service.visitor(ELSEWHERE)
        yield service


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_a_token_has_a_prefix_and_a_checksum() -> None:
    tokens = {make_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(well_formed(token) and token.startswith("gng_") for token in tokens)


@given(st.integers(0, 50), st.sampled_from(ascii_letters + digits))
def test_one_wrong_character_is_noticed(place: int, character: str) -> None:
    token = make_token()
    wrong = token[:place] + character + token[place + 1 :]
    assert well_formed(wrong) == (wrong == token)


STRANGERS = [
    "",
    "gng_",
    "gng_" + "a" * 47,
    "x" * 51,
    "gng_ünicode" + "a" * 40,
    make_token() + "a",
    make_token()[:-1],
]


@pytest.mark.parametrize(
    "text",
    STRANGERS,
    ids=["empty", "prefix", "no checksum", "no prefix", "not ascii", "longer", "shorter"],
)
def test_other_strings_are_no_tokens(text: str) -> None:
    assert not well_formed(text)


def test_keys_for_different_purposes_and_secrets_differ() -> None:
    digests = {
        Keys(secret).digest(purpose, "x")
        for secret in ("a" * 32, "b" * 32)
        for purpose in ("token", "session")
    }
    assert len(digests) == 4


@BOTH
def test_the_database_never_holds_a_token(api: Api) -> None:
    with api.context.session() as session:
        text = issue_token(session, "ci", ["read"], keys=api.context.keys)
    api.client.get("/api/v1/jobs", headers=bearer(text))
    with api.context.reading() as session:
        row = session.scalars(select(TokenRow)).one()
        stored = " ".join(str(value) for value in vars(row).values())
        stored += " ".join(str(vars(entry)) for entry in session.scalars(select(AuditRow)))
    secret = text.split("_")[2]
    assert secret not in stored
    assert row.hash == api.context.keys.digest("token", text)
    assert text.startswith(row.prefix)
    assert len(row.prefix) < 16


def test_a_mistyped_token_is_refused_without_looking_for_it(api: Api) -> None:
    statements: list[str] = []
    event.listen(
        api.context.engine, "before_cursor_execute", lambda *args: statements.append(str(args[2]))
    )
    text = make_token()
    wrong = text[:-1] + ("a" if text[-1] != "a" else "b")
    assert api.client.get("/api/v1/jobs", headers=bearer(wrong)).status_code == 401
    assert not any("FROM tokens" in statement for statement in statements)
    assert (
        api.client.get("/api/v1/jobs", headers=bearer(text)).status_code == 401
    )  # well-formed, but unknown
    assert any("FROM tokens" in statement for statement in statements)


def test_without_a_token_only_health_login_and_static_files_answer(api: Api) -> None:
    for path in (
        "/",
        "/jobs",
        "/jobs.json",
        "/docs",
        "/metrics",
        "/api/v1/openapi.json",
        "/api/v1/jobs",
        "/api/v1/nothing",
        "/nothing",
    ):
        answer = api.client.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/problem+json"
    assert api.client.post("/api/v1/jobs", json=JOB).status_code == 401
    for path in ("/healthz", "/login"):
        assert api.client.get(path).status_code == 200, path
    assert api.client.get("/readyz").status_code == 503  # the broker is missing, not the token
    assert api.client.get("/static/nothing.js").status_code == 404
    assert api.rows()["jobs"] == 0


def test_loopback_is_no_privilege_unless_embedded(api: Api) -> None:
    assert api.visitor(("127.0.0.1", 1)).get("/api/v1/jobs").status_code == 401


@pytest.mark.parametrize("header", ["Basic Z25nOng=", "Bearer", "Bearer ", "gng_x"])
def test_another_way_to_authenticate_is_refused(api: Api, header: str) -> None:
    assert api.client.get("/api/v1/jobs", headers={"Authorization": header}).status_code == 401


def test_a_scope_contains_those_before_it_and_no_others(api: Api) -> None:
    """Try every endpoint with every scope. docs/routes.md is the table of what each needs."""
    headers = {scope: api.token(scope) for scope in ("read", "submit", "admin")}
    table = [row for row in routes.rows(api.app) if row.api and row.path not in PUBLIC]
    assert len(table) > 80
    for row in table:
        if row.path.endswith("openapi.json"):
            continue
        path = re.sub(r"\{\w+\}", UNKNOWN, row.path)
        assert api.client.request(row.method, path).status_code == 401, path
        for order, (scope, header) in enumerate(headers.items()):
            answer = api.client.request(row.method, path, headers=header)
            refused = row.scope == "host" or order < list(headers).index(row.scope)
            assert (answer.status_code == 403) == refused, (row, scope, answer.text)
            assert answer.status_code < 500 or answer.status_code == 503, path
            if refused:
                assert row.scope in answer.json()["detail"]


def test_a_token_owns_the_jobs_it_submits(api: Api) -> None:
    answer = api.client.post(
        "/api/v1/jobs", json=JOB, headers=api.token("submit", name="ci of org")
    )
    read = api.token("read")
    assert api.client.get(answer.headers["location"], headers=read).json()["owner"] == "ci of org"
    assert (
        len(api.client.get("/api/v1/jobs?owner=ci%20of%20org", headers=read).json()["items"]) == 1
    )


@BOTH
def test_the_time_of_last_use_is_coarse(api: Api) -> None:
    header = api.token("admin")

    def last_used() -> Any:
        return api.client.get("/api/v1/tokens", headers=header).json()["items"][0]["last_used_at"]

    assert last_used() is not None
    for minutes, moves in ((1, False), (6, True)):
        with api.context.session() as session:
            before = utcnow() - timedelta(minutes=minutes)
            session.scalars(select(TokenRow)).one().last_used_at = before
        assert (last_used() != timestamp(before)) == moves


@pytest.mark.parametrize(
    ("name", "scopes", "field"),
    [
        ("", ["read"], "name"),
        ("a\nb", ["read"], "name"),
        ("x" * 101, ["read"], "name"),
        ("x", [], "scopes"),
        ("x", ["root"], "scopes"),
    ],
)
def test_a_token_without_a_name_or_with_an_unknown_scope_is_not_issued(
    api: Api, name: str, scopes: list[str], field: str
) -> None:
    with api.context.session() as session, pytest.raises(BadField) as caught:
        issue_token(session, name, scopes, keys=api.context.keys)
    assert caught.value.errors[0]["field"] == field
    assert api.rows()["tokens"] == 0


def test_issuing_without_a_secret_key_says_what_is_missing(api: Api) -> None:
    with api.context.session() as session, pytest.raises(ValueError, match="GONOGO_SECRET_KEY"):
        issue_token(session, "x", ["read"])


@BOTH
def test_too_many_wrong_tokens_are_slowed_down_but_right_ones_are_not(api: Api) -> None:
    right = api.token("read")
    answers = [api.client.get("/api/v1/jobs", headers=bearer("wrong")) for _ in range(32)]
    assert [answer.status_code for answer in answers[:30]] == [401] * 30
    assert {answer.status_code for answer in answers[30:]} == {429}
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert answers[-1].headers["content-type"] == "application/problem+json"
    assert api.client.get("/api/v1/jobs", headers=right).status_code == 200
    assert (
        api.visitor(("198.51.100.1", 1)).get("/api/v1/jobs", headers=bearer("wrong")).status_code
        == 401
    )
