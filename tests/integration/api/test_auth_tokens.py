"""Tokens: their form and stored hash, scopes on every address, limits, ends, and failed tries."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from sqlalchemy import event, select

from api import JOB, Api, bearer, in_process, on_port, refusal
from database_params import BOTH
from gonogo_service.edge import EXPIRES_HEADER
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.principals import Keys
from gonogo_service.kit.problems import BadField
from gonogo_service.people import bounds, failures
from gonogo_service.people.auth import make_token
from gonogo_service.people.issuing import issue_token
from gonogo_service.people.model import TokenRow
from records import pick
from suite_runs import SUITE
from tests.checks import routes

UNKNOWN = "01890000-0000-7000-8000-000000000000"
SCOPES = ("read", "submit", "admin")
DAY = 24 * 3600.0
COMMIT = {"repository": "org/kernels", "sha": "a" * 40}
WRONG = bearer("wrong")


def issued(closed: Api, **fields: Any) -> str:
    with closed.context.session() as session:
        settings = {"keys": closed.context.keys, "settings": closed.settings}
        return issue_token(session, "ci", fields.pop("scopes", ["read"]), **settings, **fields)


def limited(closed: Api, **fields: Any) -> dict[str, str]:
    return bearer(issued(closed, scopes=["submit"], **fields))


def created(closed: Api, **body: Any) -> dict[str, Any]:
    body = {"name": "ci", "scopes": ["read"], **body}
    answer = closed.client.post("/api/v1/tokens", json=body, headers=closed.token("admin"))
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def status(closed: Api, headers: Mapping[str, Any], path: str = "/jobs") -> int:
    return closed.client.get(f"/api/v1{path}", headers=headers).status_code


def audited(closed: Api, **query: str) -> list[dict[str, Any]]:
    headers = closed.token("admin")
    answer = closed.client.get("/api/v1/audit", params=query, headers=headers)
    return list(answer.json()["items"])


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
        assert status(closed, {"Authorization": header.encode()}) == 401, header
    assert not any("FROM tokens" in statement for statement in statements)
    elsewhere = closed.visitor(("198.51.100.1", 1))
    assert elsewhere.get("/api/v1/jobs", headers=bearer(text)).status_code == 401
    assert any("FROM tokens" in statement for statement in statements)
    reasons = {entry["detail"]["reason"] for entry in audited(closed, action="token.refused")}
    assert reasons == {"mistyped", "unknown"}


def test_the_database_never_holds_a_token(closed: Api) -> None:
    text = issued(closed)
    status(closed, bearer(text))
    with closed.context.reading() as session:
        row = session.scalars(select(TokenRow)).one()
        stored = " ".join(str(value) for value in vars(row).values())
        stored += " ".join(str(vars(entry)) for entry in session.scalars(select(AuditRow)))
    assert text.split("_")[2] not in stored
    assert row.hash == closed.context.keys.digest("token", text)
    assert text.startswith(row.prefix)
    assert len(row.prefix) < 16
    digest = Keys("a" * 32).digest("token", "x")
    assert digest[:16] == "e910413cdcd663af", "another one would end all stored tokens"
    digests = {Keys(key * 32).digest(use, "x") for key in "ab" for use in ("token", "session")}
    assert len(digests) == 4
    with closed.context.session() as session, pytest.raises(ValueError, match="GONOGO_SECRET_KEY"):
        issue_token(session, "x", ["read"])


@pytest.mark.parametrize(
    ("bad", "field", "limit"),
    [
        ({"scopes": ["read", "root"]}, "scopes", "one of read, submit, admin"),
        ({"scopes": []}, "scopes", "one of read, submit, admin"),
        ({"name": "a\nb"}, "name", "1 to 100 characters"),
        ({"builds": ["!kernels-*"]}, "builds", "a pattern without !"),
        ({"days": 0}, "days", "1 to 36500, or null: no end"),
    ],
)
def test_a_wrong_right_is_refused_with_its_limit(
    closed: Api, bad: dict[str, Any], field: str, limit: str
) -> None:
    given = {"name": "ci", "scopes": ["read"], "keys": closed.context.keys, **bad}
    with closed.context.session() as session, pytest.raises(BadField) as caught:
        issue_token(session, **given)
    (wrong,) = caught.value.errors
    assert pick(wrong, "field", "limit") == (field, limit)


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
        whole = closed.client.get(path, headers=reader)
        head = closed.client.head(path, headers=reader)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]


def test_a_token_owns_the_jobs_it_submits(closed: Api) -> None:
    headers = closed.token("submit", name="ci of org")
    closed.client.post("/api/v1/jobs", json=JOB, headers=headers)
    listed = closed.client.get("/api/v1/jobs?owner=ci%20of%20org", headers=headers).json()
    assert [job["owner"] for job in listed["items"]] == ["ci of org"]


def test_a_token_is_shown_once_revoked_once_and_its_later_use_is_in_the_audit(closed: Api) -> None:
    token, admin, times = created(closed, scopes=["submit", "read"]), closed.token("admin"), []
    assert token["scopes"] == ["read", "submit"]
    assert token["token"].startswith(token["prefix"] + "_")
    shown = {name: value for name, value in token.items() if name != "token"}
    assert shown in closed.client.get("/api/v1/tokens", headers=admin).json()["items"]
    assert status(closed, bearer(token["token"])) == 200
    for minute in range(2):
        with time_machine.travel(utcnow() + timedelta(minutes=minute)):
            answer = closed.client.delete(f"/api/v1/tokens/{token['id']}", headers=admin)
            times.append(answer.json()["revoked_at"])
    assert times[0] == times[1] is not None
    assert status(closed, bearer(token["token"])) == 401
    (entry,) = audited(closed, action="token.refused")
    assert (entry["subject"], entry["detail"]["reason"]) == (token["prefix"], "revoked")


def test_the_time_of_last_use_is_coarse(closed: Api) -> None:
    header = closed.token("admin")

    def last_used() -> Any:
        (token,) = closed.client.get("/api/v1/tokens", headers=header).json()["items"]
        return token["last_used_at"]

    assert last_used() is not None
    for minutes, moves in ((1, False), (6, True)):
        with closed.context.session() as session:
            before = utcnow() - timedelta(minutes=minutes)
            session.scalars(select(TokenRow)).one().last_used_at = before
        assert (last_used() != timestamp(before)) == moves


def test_a_token_has_an_end_and_is_warned_of_it(closed: Api) -> None:
    tokens = {90: created(closed), None: created(closed, days=None), 10: created(closed, days=10)}
    now, seen = utcnow().timestamp(), {}
    for day in (1, 80, 91):
        with time_machine.travel(now + day * DAY, tick=True):
            for days, token in tokens.items():
                answer = closed.client.get("/api/v1/jobs", headers=bearer(token["token"]))
                seen[day, days] = (answer.status_code, answer.headers.get(EXPIRES_HEADER))
    alive, ended = (200, None), (401, None)
    warned = {days: (200, token["expires_at"]) for days, token in tokens.items()}
    assert seen == {
        (1, 90): alive,
        (1, None): alive,
        (1, 10): warned[10],
        (80, 90): warned[90],
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
    text, browser = issued(closed, days=1), closed.visitor()
    assert browser.post("/login", data={"token": text}).status_code == 303
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
    admin, address = closed.token("admin"), f"/api/v1/tokens/{old['id']}:rotate"
    answer = closed.client.post(address, json={"overlap_hours": 2}, headers=admin)
    assert answer.status_code == 201
    new = answer.json()
    rights = ("name", "scopes", "builds", "branches", "repositories", "suites")
    assert pick(new, *rights) == pick(old, *rights)
    now, statuses = utcnow().timestamp(), []
    for hours in (1.9, 2.1):
        with time_machine.travel(now + hours * 3600, tick=True):
            for token in (old, new):
                headers = bearer(token["token"])
                answer = closed.client.post("/api/v1/jobs:validate", json={}, headers=headers)
                statuses.append(answer.status_code)
            rotated = closed.client.post(address, json={}, headers=admin)
            statuses.append(rotated.status_code)
    assert statuses == [422, 422, 201, 401, 422, 422]
    assert pick(rotated.json(), "field", "value") == ("token", old["id"])
    missing = closed.client.post(f"/api/v1/tokens/{'0' * 8}:rotate", json={}, headers=admin)
    assert missing.status_code == 404
    replaced = [entry["detail"]["replaces"] for entry in audited(closed, action="token.rotated")]
    assert replaced == [old["id"]] * 2


def test_a_limited_token_reaches_what_belongs_to_its_limits_and_nothing_else(closed: Api) -> None:
    submit = closed.token("submit")
    limits = {"repositories": ["org/*"], "suites": ["nightly*"]}
    by_repository = limited(closed, repositories=["org/*"])
    by_suite, by_both = limited(closed, suites=["nightly*"]), limited(closed, **limits)
    suite = {**SUITE, "name": "nightly"}

    def post(path: str, headers: dict[str, str], **body: Any) -> tuple[int, str]:
        answer = closed.client.post(f"/api/v1{path}", json=body, headers=headers)
        return answer.status_code, answer.json().get("id", "")

    job = post("/jobs", by_repository, **JOB, commit=COMMIT)[1]
    run = post("/runs", by_suite, suite=suite)[1]
    foreign = post("/jobs", submit, **JOB)[1]
    foreign_run = post("/runs", submit, suite={**suite, "name": "weekly"})[1]
    of_both = post("/runs", by_both, suite=suite, commit=COMMIT)[1]
    assert all((job, run, foreign, foreign_run, of_both))
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
        post(f"/runs/{foreign_run}:resubmit", by_suite),
        post(f"/runs/{run}:resubmit", by_repository),
        post(f"/runs/{run}:resubmit", closed.token("read", name="reader")),
    ]
    assert [code for code, _ in refused] == [403] * len(refused)
    (member,) = closed.client.get(f"/api/v1/runs/{run}", headers=submit).json()["tests"][:1]
    assert post(f"/jobs/{job}:resubmit", by_repository)[0] == 202
    assert post(f"/jobs/{member['id']}:resubmit", by_suite)[0] == 403
    assert [post(f"/runs/{run}:resubmit", by_suite)[0] for _ in range(2)] == [202, 202]
    for path, headers, code in (
        (f"/jobs/{job}", by_repository, 200),
        (f"/jobs/{job}/results", by_repository, 200),
        (f"/jobs/{foreign}", by_repository, 403),
        (f"/jobs/{foreign}/results", by_suite, 403),
        (f"/jobs/{member['id']}", by_suite, 200),
        (f"/jobs/{member['id']}", by_repository, 403),
        (f"/runs/{run}", by_suite, 200),
        (f"/runs/{foreign_run}", by_suite, 403),
        ("/runs?suite=nightly", by_suite, 200),
        ("/runs?suite=nightly&suite=weekly", by_suite, 403),
        ("/runs?suite=nightly", by_repository, 403),
        ("/runs", by_suite, 403),
        (f"/compare?base={run}&head={run}", by_suite, 200),
        (f"/compare?base={foreign_run}&head={run}", by_suite, 403),
        ("/compare?base=correct&head=correct", by_suite, 403),
    ):
        assert status(closed, headers, path) == code, (path, headers)
    report = b"<testsuite name='t'><testcase name='a'/></testsuite>"
    commit = f"&sha={'a' * 40}&repository="
    for query, headers, code in (
        (f"{commit}org/kernels", by_repository, 201),
        (f"{commit}other/kernels", by_repository, 403),
        ("", by_repository, 403),
        (f"{commit}org/kernels&suite=nightly", by_suite, 403),
    ):
        path = f"/api/v1/imports?format=junit{query}"
        answer = closed.client.post(path, content=report, headers=headers)
        assert answer.status_code == code, (query, answer.text)
    detail = closed.client.post("/api/v1/gauges", json={}, headers=by_repository).json()["detail"]
    assert "For gauges, bisections, pages and all else make a token without" in detail


def test_every_other_address_is_closed_to_a_limited_token(closed: Api) -> None:
    headers = limited(closed, repositories=["org/*"])
    opened = {(method, f"/api/v1{pattern}") for method, pattern, _ in bounds.RULES}
    others = ("none", "signature")
    table = [row for row in routes.rows(closed.app) if row.scope not in others]
    assert len(table) > 100
    for row in table:
        address = re.sub(r"\{[^}]*\}", "x", row.path)
        if row.path == "/logout":  # of a login, not of a token
            continue
        if not any(row.method == verb and re.fullmatch(place, address) for verb, place in opened):
            answer = closed.client.request(row.method, address, headers=headers)
            assert answer.status_code == 403, (row, answer.status_code)


@pytest.mark.parametrize("end", ["revoked", "expired", "logout", "rotated"])
def test_a_stream_ends_with_its_token_or_login(migrated_sqlite_url: str, end: str) -> None:
    with on_port(migrated_sqlite_url, embedded=False) as (client, context):
        context.live._check_s = 0.05
        with context.session() as session:
            text = issue_token(session, "reader", ["submit"], keys=context.keys)
            boss = bearer(issue_token(session, "boss", ["admin"], keys=context.keys))
            token = session.scalars(select(TokenRow.id).where(TokenRow.name == "reader")).one()
        headers = bearer(text)
        job = client.post("/api/v1/jobs", json=JOB, headers=headers).json()["id"]
        if end == "logout":
            client.post("/login", data={"token": text})
            headers = {}
        with client.stream("GET", f"/api/v1/jobs/{job}/events", headers=headers) as stream:
            parts, came = stream.iter_raw(), b""
            while b"event: " not in came:
                came += next(parts)
            if end == "revoked":
                client.delete(f"/api/v1/tokens/{token}", headers=boss)
            elif end == "expired":
                with context.session() as session:
                    session.get_one(TokenRow, token).expires_at = utcnow()
            elif end == "rotated":
                body = {"overlap_hours": 0}
                client.post(f"/api/v1/tokens/{token}:rotate", json=body, headers=boss)
            else:
                csrf = re.search(r'name="csrf_token" value="([^"]+)"', client.get("/jobs").text)
                assert csrf is not None
                client.post("/logout", data={"csrf_token": csrf[1]})
            for _ in parts:  # it ends: a test has two minutes
                pass
        assert context.live._open == {}


def test_too_many_wrong_tokens_are_slowed_down_but_right_ones_are_not(closed: Api) -> None:
    right = closed.token("read")
    answers = [closed.client.get("/api/v1/jobs", headers=WRONG) for _ in range(32)]
    assert [answer.status_code for answer in answers] == [401] * 30 + [429] * 2
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert refusal(answers[-1])[0] == 429
    login = closed.client.post("/login", data={"token": "wrong"})
    assert login.status_code == 401, "logins are counted apart"
    assert status(closed, right) == 200
    neighbor = closed.visitor(("198.51.100.1", 1))
    with ThreadPoolExecutor(2) as pool:  # two at once start no timer
        refused = list(pool.map(lambda _: neighbor.get("/api/v1/jobs", headers=WRONG), range(2)))
    assert {answer.status_code for answer in refused} == {401}
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


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
        answers = [browsers[n % 2].post("/login", data={"token": "wrong"}) for n in range(14)]
        assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 4
        assert browsers[1].post("/login", data={"token": issued(first)}).status_code == 303
        elsewhere = second.visitor(("192.0.2.99", 1))
        assert elsewhere.post("/login", data={"token": "wrong"}).status_code == 401
        for number in range(3):
            neighbor = second.visitor((f"2001:db8::{number}", 1))
            assert neighbor.get("/api/v1/jobs", headers=WRONG).status_code == 401
        traces = [
            (entry["action"], entry["actor"], *pick(entry["detail"], "reason", "in_this_hour"))
            for action in ("login.failed", "token.refused")
            for entry in audited(first, action=action)
        ]
        assert sorted(traces) == [
            ("login.failed", "192.0.2.7", "mistyped", 1),
            ("login.failed", "192.0.2.7", "mistyped", 10),
            ("login.failed", "192.0.2.99", "mistyped", 1),
            ("token.refused", "2001:db8::/64", "mistyped", 1),
        ]


@BOTH
def test_failures_from_everywhere_fill_no_table(
    closed: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MAX_ROWS", 5)
    for number in range(40):
        closed.visitor((f"198.51.100.{number}", 1)).get("/api/v1/jobs", headers=WRONG)
    rows = closed.rows()
    assert rows["access_failures"] == 6  # five addresses, and the others
    assert rows["audit"] == 5 + 2  # the others' first and tenth
    with time_machine.travel(utcnow() + timedelta(hours=1)):
        for number in (*range(100, 105), *range(5)):
            closed.visitor((f"198.51.100.{number}", 1)).get("/api/v1/jobs", headers=WRONG)
    assert closed.rows()["access_failures"] == 6 + 6, "five addresses an hour"
    with time_machine.travel(utcnow() + timedelta(days=8)):
        assert status(closed, WRONG) == 401
    assert closed.rows()["access_failures"] == 1, "older ones are forgotten"
