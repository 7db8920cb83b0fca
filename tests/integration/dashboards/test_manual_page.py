"""The manual below /manual: its files, nothing else, and no link to it where it was not built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api import Api, in_process
from gonogo_dashboards.kit import manual
from tests.checks.manual import without_inline

LINK = 'href="/manual/"'
OUTSIDE = (
    "/manual/../secret",
    "/manual/..%2Fsecret",
    "/manual/install/..%2F..%2Fsecret",
    "/manual/%2Fetc%2Fpasswd",
    "/manual//etc/passwd",
    "/manual/link",
    "/manual/no-such-page",
    "/manual/" + "a" * 300,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of the built manual."""
    place = tmp_path / "manual"
    place.mkdir()
    monkeypatch.setattr(manual, "FOLDER", place)
    return place


@pytest.fixture
def api(sqlite_url: str, folder: Path) -> Iterator[Api]:
    with in_process(sqlite_url) as service:
        yield service


@pytest.fixture
def built(folder: Path) -> Path:
    """A manual of two pages, beside a file that nobody may read."""
    (folder / "install").mkdir()
    (folder / "index.html").write_text("<h1>The manual</h1>")
    (folder / "install" / "index.html").write_text("<h1>Install</h1>")
    (folder.parent / "secret").write_text("SECRET")
    (folder / "link").symlink_to(folder.parent / "secret")
    return folder


@pytest.mark.usefixtures("built")
def test_a_page_of_the_manual_is_served_under_the_policy_of_all_pages(api: Api) -> None:
    first = api.client.get("/manual/")
    assert (first.status_code, first.text) == (200, "<h1>The manual</h1>")
    policy = first.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    without_slash = api.client.get("/manual/install", follow_redirects=False)
    assert (without_slash.status_code, without_slash.headers["location"]) == (
        307,
        "/manual/install/",
    )
    assert api.client.get("/manual/install/").text == "<h1>Install</h1>"
    assert LINK in api.client.get("/").text


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_of_the_manual_is_served(api: Api, path: str) -> None:
    answer = api.client.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "SECRET" not in answer.text
    assert "root:" not in answer.text


def test_no_page_links_to_a_manual_that_was_not_built(api: Api) -> None:
    assert LINK not in api.client.get("/").text
    assert api.client.get("/search.json", params={"q": "manual"}).json()["items"] == []
    answer = api.client.get("/manual/", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert "make docs" in answer.text


def test_the_policy_allows_every_script_and_style_of_a_built_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.checks.manual.SITE", tmp_path)
    (tmp_path / "_static").mkdir()
    page = tmp_path / "install" / "index.html"
    text = '<head><style>p {}</style></head><p style="top: 0">x</p><script>go()</script>'
    html = without_inline(text, page)
    assert ' style="' not in html
    assert "<style>" not in html
    assert "go()" not in html
    files = {file.read_text() for file in (tmp_path / "_static").iterdir()}
    assert {"p {}", "go()"} <= files
    assert html.count("../_static/") == len(files)
