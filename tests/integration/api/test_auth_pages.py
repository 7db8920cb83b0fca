"""Access by browsers: login, session cookie, CSRF, Host and Origin, and the headers of every
answer."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie

import pytest
import time_machine

import stored_jobs
from api import ELSEWHERE, JOB, LOCAL, Api, TestClient, in_process
from database_params import BOTH
from gonogo_service.kit.database.encoding import utcnow

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
)


@pytest.fixture
def api(lite_database_url: str) -> Iterator[Api]:
    """A service that is not embedded."""
    with in_process(lite_database_url, embedded=False, url="https://gonogo.example.org") as service:
        yield service


@pytest.fixture
def embedded(sqlite_url: str) -> Iterator[Api]:
    with in_process(sqlite_url) as service:
        yield service


def text_of(header: dict[str, str]) -> str:
    return header["Authorization"].removeprefix("Bearer ")


def log_in(api: Api, *scopes: str, base_url: str = "http://localhost") -> TestClient:
    """A browser that has logged in."""
    browser = api.visitor(ELSEWHERE, base_url)
    answer = browser.post(
        "/login", data={"token": text_of(api.token(*scopes)), "next": "/jobs?state=queued"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?state=queued")
    return browser


def csrf_of(browser: TestClient) -> str:
    page = browser.get("/")
    assert page.status_code == 200
    return page.text.split('name="csrf-token" content="')[1].split('"')[0]


def test_a_person_without_a_login_is_sent_to_it_and_back(api: Api) -> None:
    browser = api.visitor()
    answer = browser.get("/jobs?state=queued", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["location"]) == (
        303,
        "/login?next=%2Fjobs%3Fstate%3Dqueued",
    )
    page = browser.get(answer.headers["location"])
    assert 'value="/jobs?state=queued"' in page.text


def test_a_login_opens_pages_and_api_until_the_logout(api: Api) -> None:
    browser = log_in(api, "submit")
    csrf = csrf_of(browser)
    assert browser.get("/api/v1/jobs").status_code == 200
    assert browser.post("/api/v1/jobs", json=JOB, headers={"X-CSRF-Token": csrf}).status_code == 202
    assert browser.get("/api/v1/audit").status_code == 403
    cookies = dict(browser.cookies)
    answer = browser.post("/logout", data={"csrf_token": csrf})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert not browser.cookies
    stolen = api.visitor()
    stolen.cookies.update(cookies)
    assert stolen.get("/api/v1/jobs").status_code == 401


@pytest.mark.parametrize(
    ("base_url", "name", "secure"),
    [
        ("http://localhost", "gonogo_session", False),
        ("https://gonogo.example.org", "__Host-gonogo_session", True),
    ],
)
def test_the_cookie_is_closed_to_scripts_other_sites_and_plain_http(
    api: Api, base_url: str, name: str, secure: bool
) -> None:
    browser = api.visitor(ELSEWHERE, base_url)
    answer = browser.post("/login", data={"token": text_of(api.token("read"))})
    ((cookie_name, cookie),) = SimpleCookie(answer.headers["set-cookie"]).items()
    assert cookie_name == name
    assert bool(cookie["secure"]) == secure
    assert cookie["httponly"]
    assert cookie["samesite"].lower() == "strict"
    assert (cookie["path"], cookie["domain"]) == ("/", "")
    assert browser.get("/api/v1/jobs").status_code == 200


@BOTH
def test_the_database_holds_only_a_hash_of_the_cookie(api: Api) -> None:
    from sqlalchemy import select

    from gonogo_service.people.model import SessionRow

    browser = log_in(api, "read")
    with api.context.reading() as session:
        row = session.scalars(select(SessionRow)).one()
    assert row.id == api.context.keys.digest("session", browser.cookies["gonogo_session"])


def test_a_change_by_a_login_needs_its_csrf_token(api: Api) -> None:
    browser, other = log_in(api, "submit"), log_in(api, "submit")
    for header in (
        {},
        {"X-CSRF-Token": ""},
        {"X-CSRF-Token": "wrong"},
        {"X-CSRF-Token": csrf_of(other)},
        {"X-CSRF-Token": "ä".encode()},
    ):
        answer = browser.post("/api/v1/jobs", json=JOB, headers=header)  # type: ignore[arg-type]
        assert answer.status_code == 403, header
        assert answer.json()["type"].endswith("csrf")
    assert browser.post("/logout", data={"csrf_token": "wrong"}).status_code == 403
    assert api.rows()["jobs"] == 0
    assert browser.get("/api/v1/jobs").status_code == 200


def test_a_wrong_token_shows_the_form_again(api: Api) -> None:
    answer = api.visitor().post("/login", data={"token": "wrong", "next": "/jobs"})
    assert answer.status_code == 401
    assert "not valid" in answer.text
    assert 'value="/jobs"' in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/a\r\nb: c",
    ],
)
def test_a_login_sends_nobody_to_another_site(api: Api, target: str) -> None:
    answer = api.visitor().post(
        "/login", data={"token": text_of(api.token("read")), "next": target}
    )
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("fields", ["token", "next"])
def test_a_file_in_the_place_of_a_field_is_a_refusal_without_a_traceback(
    api: Api, fields: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = api.visitor().post("/login", files={"token": (None, "x"), fields: ("x", b"x")})
    assert (answer.status_code, answer.json()["field"]) == (422, fields)
    assert "Traceback" not in "".join(capsys.readouterr())


@BOTH
def test_revoking_a_token_ends_its_logins(api: Api) -> None:
    browser = log_in(api, "read")
    admin = api.token("admin", name="boss")
    tokens = {
        token["name"]: token["id"]
        for token in api.client.get("/api/v1/tokens", headers=admin).json()["items"]
    }
    assert api.client.delete(f"/api/v1/tokens/{tokens['test']}", headers=admin).status_code == 200
    assert browser.get("/api/v1/jobs").status_code == 401


def test_a_login_ends_after_twelve_hours(api: Api) -> None:
    browser = log_in(api, "read")
    cookie = browser.cookies["gonogo_session"]
    for hours, status in ((11, 200), (12.1, 401)):
        with time_machine.travel(utcnow().timestamp() + hours * 3600, tick=True):
            assert (
                browser.get(
                    "/api/v1/jobs", headers={"Cookie": f"gonogo_session={cookie}"}
                ).status_code
                == status
            )


@BOTH
def test_logging_in_again_and_again_is_slowed_down(api: Api) -> None:
    browser = api.visitor()
    answers = [browser.post("/login", data={"token": "wrong"}).status_code for _ in range(12)]
    assert answers == [401] * 10 + [429] * 2


def test_embedded_on_loopback_needs_no_token_but_checks_one_that_is_shown(embedded: Api) -> None:
    assert embedded.client.post("/api/v1/jobs", json=JOB).status_code == 202
    assert (
        embedded.client.get(
            "/api/v1/jobs", headers={"Authorization": "Bearer nonsense"}
        ).status_code
        == 401
    )
    assert (
        embedded.client.post("/api/v1/jobs", json=JOB, headers=embedded.token("read")).status_code
        == 403
    )


@pytest.mark.parametrize("address", [("192.0.2.7", 1), ("127.0.0.1.evil", 1), ("", 0)])
def test_embedded_is_closed_to_other_machines(embedded: Api, address: tuple[str, int]) -> None:
    assert embedded.visitor(address).get("/api/v1/jobs").status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        {"X-Forwarded-For": "192.0.2.7"},
        {"X-Forwarded-Proto": "https"},
        {"X-Forwarded-Host": "gonogo.example.org"},
        {"Forwarded": "for=192.0.2.7"},
        {"Via": "1.1 proxy"},
        {"X-Real-IP": "192.0.2.7"},
        {"CF-Connecting-IP": "192.0.2.7"},
    ],
)
def test_embedded_is_closed_to_those_behind_a_proxy(embedded: Api, header: dict[str, str]) -> None:
    assert embedded.client.get("/api/v1/jobs", headers=header).status_code == 401


def test_embedded_may_ask_for_a_login_on_loopback(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url, loopback_login=True) as closed:
        assert closed.client.get("/api/v1/jobs").status_code == 401
        assert closed.client.get("/api/v1/jobs", headers=closed.token("read")).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "192.0.2.7:8717",
        "",
        "[::1",
        "user@evil.example:80",
    ],
)
def test_a_foreign_host_name_is_refused(embedded: Api, host: str) -> None:
    """Without this, a page whose name resolves here could read everything (DNS rebinding)."""
    answer = embedded.client.get("/api/v1/jobs", headers={"Host": host})
    assert answer.status_code == 421
    assert "GONOGO_HOSTS" in answer.json()["detail"]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8717", "127.0.0.1:1", "[::1]:8717", "[::1]"]
)
def test_its_own_host_names_are_answered(embedded: Api, host: str) -> None:
    assert embedded.client.get("/api/v1/jobs", headers={"Host": host}).status_code == 200


def test_the_host_of_gonogo_url_is_its_own_and_health_answers_to_any(api: Api) -> None:
    assert api.client.get("/api/v1/jobs", headers={"Host": "gonogo.example.org"}).status_code == 401
    assert api.client.get("/api/v1/jobs", headers={"Host": "other.example.org"}).status_code == 421
    assert api.client.get("/healthz", headers={"Host": "10.0.0.7:8717"}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://localhost:9999", "http://localhost.evil.example"],
)
def test_a_change_from_a_foreign_page_is_refused(embedded: Api, origin: str) -> None:
    headers = {"Origin": origin}
    answer = embedded.client.post("/api/v1/jobs", json=JOB, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["type"].endswith("origin")
    assert embedded.client.post("/login", data={"token": "x"}, headers=headers).status_code == 403
    assert embedded.rows()["jobs"] == 0


def test_a_change_from_a_page_of_its_own_or_from_no_page_is_taken(embedded: Api) -> None:
    for headers in (
        {},
        {"Origin": "http://localhost"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ):
        assert embedded.client.post("/api/v1/jobs", json=JOB, headers=headers).status_code == 202, (
            headers
        )
    assert (
        embedded.client.post(
            "/api/v1/jobs", json=JOB, headers={"Sec-Fetch-Site": "cross-site"}
        ).status_code
        == 403
    )


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
    embedded: Api, method: str, path: str, status: int
) -> None:
    answer = embedded.client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-security-policy"] == CSP
    assert "unsafe" not in CSP
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "strict-transport-security" not in answer.headers


def test_refusals_have_the_strict_headers_too_and_https_is_remembered(api: Api) -> None:
    for answer in (api.client.get("/api/v1/jobs"), api.client.get("/", headers={"Host": "evil"})):
        assert answer.headers["content-security-policy"] == CSP
        assert answer.headers["cache-control"] == "no-store"
    secure = api.visitor(LOCAL, "https://gonogo.example.org")
    assert "max-age" in secure.get("/healthz").headers["strict-transport-security"]


@pytest.mark.parametrize("public", [False, True])
def test_badges_are_for_everybody_only_where_the_setting_says_so(
    lite_database_url: str, public: bool
) -> None:
    with in_process(lite_database_url, embedded=False, public_badges=public) as api:
        with api.context.session() as session:
            job = stored_jobs.finished(session, seeds=1)
        reader, stranger = log_in(api, "read"), api.visitor(ELSEWHERE)
        badge = f"/badges/tests/{job.test_key}.svg"
        for address, text in (
            (badge, "hollow pass"),
            ("/badges/branches/emulator.svg", "1 hollow"),
        ):
            answer = reader.get(address)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
            assert text in answer.text
            assert stranger.get(address).status_code == (200 if public else 401)
        assert "nobody: no such suite" in reader.get("/badges/suites/nobody.svg").text
        assert stranger.get(f"/tests/{job.test_key}.json").status_code == 401
        evil = reader.get("/badges/tests/%3Cscript%3E.svg")
        assert "<script" not in evil.text
