"""Access by browsers: login, session cookie, CSRF, Host and Origin, and the headers of every
answer."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
import time_machine
from sqlalchemy import select

import stored_jobs
from api import ELSEWHERE, JOB, LOCAL, Api, in_process, refusal
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.people.model import SessionRow

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)
SITE = "https://gonogo.example.org"
JOBS = "/api/v1/jobs"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    """A service that is not embedded."""
    file = tmp_path_factory.mktemp("pages") / "gonogo.sqlite"
    copyfile(sqlite_template, file)
    with in_process(f"sqlite:///{file}", embedded=False, url=SITE) as service:
        yield service


def login(api: Api, browser: Any = None, **fields: str) -> Any:
    """Log in with a token of the scope `read`, unless told otherwise; return the answer."""
    token = api.token("read")["Authorization"].removeprefix("Bearer ")
    return (browser or api.visitor()).post("/login", data={"token": token, **fields})


def test_a_person_without_a_login_is_sent_to_it_and_back(api: Api) -> None:
    browser = api.visitor()
    answer = browser.get("/jobs?state=queued", headers={"Accept": "text/html"})
    place = "/login?next=%2Fjobs%3Fstate%3Dqueued"
    assert (answer.status_code, answer.headers["location"]) == (303, place)
    assert 'value="/jobs?state=queued"' in browser.get(place).text
    again = login(api, token="wrong", next="/jobs")
    assert (again.status_code, "set-cookie" in again.headers) == (401, False)
    assert "not valid" in again.text
    assert 'value="/jobs"' in again.text
    assert login(api, next="/jobs?state=queued").headers["location"] == "/jobs?state=queued"


def test_a_login_opens_pages_and_api_until_the_logout(api: Api) -> None:
    browser, csrf = api.browser("submit")
    assert browser.get(JOBS).status_code == 200
    assert browser.post(JOBS, json=JOB, headers=csrf).status_code == 202
    assert browser.get("/api/v1/audit").status_code == 403
    cookies = dict(browser.cookies)
    answer = browser.post("/logout", data={"csrf_token": csrf["X-CSRF-Token"]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert not browser.cookies
    stolen = api.visitor()
    stolen.cookies.update(cookies)
    assert stolen.get(JOBS).status_code == 401


@pytest.mark.parametrize(
    ("base_url", "name", "secure"),
    [("http://localhost", "gonogo_session", False), (SITE, "__Host-gonogo_session", True)],
)
def test_the_cookie_is_closed_to_scripts_other_sites_and_plain_http(
    api: Api, base_url: str, name: str, secure: bool
) -> None:
    browser = api.visitor(ELSEWHERE, base_url)
    cookies = SimpleCookie(login(api, browser).headers["set-cookie"])
    ((cookie_name, cookie),) = cookies.items()
    assert (cookie_name, bool(cookie["secure"])) == (name, secure)
    assert (bool(cookie["httponly"]), cookie["samesite"].lower()) == (True, "strict")
    assert (cookie["path"], cookie["domain"]) == ("/", "")
    assert browser.get(JOBS).status_code == 200
    with api.context.reading() as session:
        stored = set(session.scalars(select(SessionRow.id)))
    assert api.context.keys.digest("session", browser.cookies[name]) in stored
    assert browser.cookies[name] not in stored


def test_a_change_by_a_login_needs_its_csrf_token(api: Api) -> None:
    (browser, _), (_, foreign) = api.browser("submit"), api.browser("submit")
    before = api.rows()["jobs"]
    tokens: list[Any] = ["", "wrong", "ä".encode()]
    for header in ({}, foreign, *({"X-CSRF-Token": token} for token in tokens)):
        answer = browser.post(JOBS, json=JOB, headers=header)
        assert answer.status_code == 403, header
        assert answer.json()["type"].endswith("csrf")
    assert browser.post("/logout", data={"csrf_token": "wrong"}).status_code == 403
    assert api.rows()["jobs"] == before
    assert browser.get(JOBS).status_code == 200


def test_a_login_sends_nobody_to_another_site(api: Api) -> None:
    evil = ("https://evil.example", "//evil.example", "/\\evil.example")
    for target in (*evil, "javascript:alert(1)", "/a\r\nb: c"):
        assert login(api, next=target).headers["location"] == "/", target


@pytest.mark.parametrize("field", ["token", "next"])
def test_a_file_in_the_place_of_a_field_is_a_refusal_without_a_traceback(
    api: Api, field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = api.visitor().post("/login", files={"token": (None, "x"), field: ("x", b"x")})
    assert refusal(answer) == (422, field)
    assert "Traceback" not in "".join(capsys.readouterr())


def test_a_login_ends_after_twelve_hours_and_with_its_token(api: Api) -> None:
    browser, _ = api.browser("read")
    cookie = {"Cookie": f"gonogo_session={browser.cookies['gonogo_session']}"}
    for hours, status in ((11, 200), (12.1, 401)):
        with time_machine.travel(utcnow().timestamp() + hours * 3600, tick=True):
            assert browser.get(JOBS, headers=cookie).status_code == status
    admin = api.token("admin", name="boss")
    for token in api.client.get("/api/v1/tokens", headers=admin).json()["items"]:
        if token["name"] == "test":
            api.client.delete(f"/api/v1/tokens/{token['id']}", headers=admin)
    assert browser.get(JOBS, headers=cookie).status_code == 401


def test_embedded_on_loopback_needs_no_token_but_checks_one_that_is_shown(shared: Api) -> None:
    post = shared.client.post
    assert post(JOBS, json=JOB).status_code == 202
    assert post(JOBS, json=JOB, headers={"Authorization": "Bearer nonsense"}).status_code == 401
    assert post(JOBS, json=JOB, headers=shared.token("read")).status_code == 403
    for address in (("192.0.2.7", 1), ("127.0.0.1.evil", 1), ("", 0)):
        assert shared.visitor(address).get(JOBS).status_code == 401


def test_embedded_is_closed_to_those_behind_a_proxy(shared: Api) -> None:
    for name, value in (
        ("X-Forwarded-For", "192.0.2.7"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "gonogo.example.org"),
        ("Forwarded", "for=192.0.2.7"),
        ("Via", "1.1 proxy"),
        ("X-Real-IP", "192.0.2.7"),
        ("CF-Connecting-IP", "192.0.2.7"),
    ):
        assert shared.client.get(JOBS, headers={name: value}).status_code == 401, name


def test_embedded_may_ask_for_a_login_on_loopback(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url, loopback_login=True) as closed:
        assert closed.client.get(JOBS).status_code == 401
        assert closed.client.get(JOBS, headers=closed.token("read")).status_code == 200


def test_a_foreign_host_name_is_refused(shared: Api) -> None:
    """Without this, a page whose name resolves here could read everything (DNS rebinding)."""
    evil = ("evil.example", "localhost.evil.example", "user@evil.example:80")
    for host in (*evil, "192.0.2.7:8717", "", "[::1"):
        answer = shared.client.get(JOBS, headers={"Host": host})
        assert answer.status_code == 421, host
        assert "GONOGO_HOSTS" in answer.json()["detail"]


def test_its_own_host_names_are_answered_and_health_answers_to_any(shared: Api, api: Api) -> None:
    for host in ("localhost", "LOCALHOST:8717", "127.0.0.1:1", "[::1]:8717", "[::1]"):
        assert shared.client.get(JOBS, headers={"Host": host}).status_code == 200
    for path, host, status in (
        (JOBS, "gonogo.example.org", 401),  # it is that of GONOGO_URL
        (JOBS, "other.example.org", 421),
        ("/healthz", "10.0.0.7:8717", 200),
    ):
        assert api.client.get(path, headers={"Host": host}).status_code == status


def test_a_change_from_a_foreign_page_is_refused(shared: Api) -> None:
    before, login = shared.rows()["jobs"], {"token": "x"}
    evil = ("https://evil.example", "http://localhost.evil.example")
    for origin in (*evil, "null", "http://localhost:9999"):
        headers = {"Origin": origin}
        answer = shared.client.post(JOBS, json=JOB, headers=headers)
        assert answer.status_code == 403
        assert answer.json()["type"].endswith("origin")
        assert shared.client.post("/login", data=login, headers=headers).status_code == 403
    assert shared.rows()["jobs"] == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://localhost"}, 202),
        ({}, 202),
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({"Sec-Fetch-Site": "none"}, 202),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_a_change_from_a_page_of_its_own_or_from_no_page_is_taken(
    shared: Api, headers: dict[str, str], status: int
) -> None:
    assert shared.client.post(JOBS, json=JOB, headers=headers).status_code == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/login", 200),
        ("GET", "/healthz", 200),
        ("GET", "/api/v1/jobs", 200),
        ("GET", "/api/v1/nothing", 404),
        ("POST", "/api/v1/jobs", 422),
        ("PUT", "/api/v1/jobs", 405),
        ("GET", "/static/favicon.svg", 200),
    ],
)
def test_every_answer_has_the_strict_headers(
    shared: Api, method: str, path: str, status: int
) -> None:
    answer = shared.client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-security-policy"] == CSP
    assert "unsafe" not in CSP
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "strict-transport-security" not in answer.headers


def test_refusals_have_the_strict_headers_too_and_https_is_remembered(api: Api) -> None:
    for answer in (api.client.get(JOBS), api.client.get("/", headers={"Host": "evil"})):
        assert answer.headers["content-security-policy"] == CSP
        assert answer.headers["cache-control"] == "no-store"
    secure = api.visitor(LOCAL, SITE).get("/healthz")
    assert "max-age" in secure.headers["strict-transport-security"]


@pytest.mark.parametrize("public", [False, True])
def test_badges_are_for_everybody_only_where_the_setting_says_so(
    migrated_sqlite_url: str, public: bool
) -> None:
    with in_process(migrated_sqlite_url, embedded=False, public_badges=public) as api:
        with api.context.session() as session:
            job = stored_jobs.finished(session, seeds=1)
        (reader, _), stranger = api.browser("read"), api.visitor(ELSEWHERE)
        badges = {
            f"/badges/tests/{job.test_key}.svg": "hollow pass",
            "/badges/branches/emulator.svg": "1 hollow",
        }
        for address, text in badges.items():
            answer = reader.get(address)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
            assert text in answer.text
            assert stranger.get(address).status_code == (200 if public else 401)
        assert stranger.get(f"/tests/{job.test_key}.json").status_code == 401
