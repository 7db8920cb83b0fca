"""CONTRIBUTING.md and docs/adr name files that exist, and their links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[3]
ADR = ROOT / "docs/adr"
PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted(ADR.glob("*.md")),
]
PATH = re.compile(r"[A-Za-z0-9_.<>-]+(?:/[A-Za-z0-9_.<>-]+)*/?")
GENERATED = {"static", "manual"}
"""Folders of the pages' package into which a build writes."""
NOT_OURS = {"path/to/your_file.py"}
SUFFIXES = (".md", ".py", ".toml", ".yml", ".yaml", ".html", ".js", ".cpp", ".hpp")


def paths(text: str) -> Iterator[str]:
    """Yield each path that a page names: a code span that is one, and the arguments of commands in
    code blocks."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    words = [
        word.rpartition("=")[2]
        for block in blocks
        for line in block.splitlines()
        for word in line.partition(" # ")[0].split()
    ]
    spans = re.findall(r"`([^`\s]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for word in (*words, *spans):
        is_path = "/" in word[:-1] or word.endswith(("/", *SUFFIXES))
        is_ours = word not in NOT_OURS and not word.startswith(".venv/")
        if is_path and is_ours and PATH.fullmatch(word):
            yield word


def exists(path: str) -> bool:
    """Return whether the path is there; `<kind>` stands for any name."""
    pattern = re.sub(r"<\w+>", "*", path.rstrip("/"))
    return any(True for _ in ROOT.glob(pattern))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    missing = [path for path in paths(page.read_text()) if not exists(path)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_contributing_names_many_paths() -> None:
    named_paths = set(paths((ROOT / "CONTRIBUTING.md").read_text()))
    assert len(named_paths) > 60
    assert {
        "gonogo/urls.py",
        "tests/unit/domain",
        "gonogo/kernels/<kind>/numerics.py",
    } <= named_paths


def section(title: str) -> str:
    """Return the part of CONTRIBUTING.md below a heading of the third level."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text.partition(f"\n### {title}\n")[2].partition("\n### ")[0]


def product_files(pattern: str) -> set[str]:
    """Return the files of the packages and of docs/ that have the pattern."""
    folders = ("gonogo*", "service", "workers", "dashboards/gonogo_dashboards", "docs")
    return {
        str(path.relative_to(ROOT))
        for folder in folders
        for suffix in ("py", "md", "html")
        for top in ROOT.glob(folder)
        for path in top.rglob(f"*.{suffix}")
        if not GENERATED.intersection(path.parts) and re.search(pattern, path.read_text())
    }


@pytest.mark.parametrize(
    ("title", "pattern", "elsewhere"),
    [
        ("Add a statistic", r"\bmean_abs\b", {"docs/http.md"}),
        (
            "Add a built-in executor",
            r"\b(TorchExecutor|torch_executor)\b",
            {"docs/kernel_parts.md"},
        ),
    ],
)
def test_a_table_lists_every_file_that_names_its_example(
    title: str, pattern: str, elsewhere: set[str]
) -> None:
    listed = set(paths(section(title)))
    named = product_files(pattern) - elsewhere
    assert named
    unlisted = {path for path in named if not any(fits(path, entry) for entry in listed)}
    assert unlisted == set()


def fits(path: str, entry: str) -> bool:
    """Return whether a path is one that a table names: `<name>` stands for any name."""
    return re.fullmatch(re.sub(r"<\\?\w+>", r"\\w+", re.escape(entry)), path) is not None


def test_a_page_is_named_in_its_own_folder_only() -> None:
    folder = "dashboards/gonogo_dashboards/search/"
    others = {path for path in product_files(r"gonogo_dashboards[./]search") if folder not in path}
    assert others == set(), "pages.py finds a sub-package by itself"


def test_the_index_lists_every_decision_in_order() -> None:
    records = sorted(path.name for path in ADR.glob("[0-9]*.md"))
    assert [name[:4] for name in records] == [f"{n:04d}" for n in range(1, len(records) + 1)]
    assert re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (ADR / "README.md").read_text()) == records


def test_the_tests_behind_the_claims_of_the_threat_model_exist() -> None:
    claims = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text())
    assert len(claims) > 30
    missing = [
        f"{path}::{name}"
        for path, name in claims
        if not re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_examples_are_the_same_in_ci_and_new_each_night() -> None:
    assert settings.get_profile("gonogo").derandomize
    assert not settings.get_profile("nightly").derandomize
    assert "make explore" in (ROOT / ".ci/nightly").read_text()
    assert "--hypothesis-profile=nightly -m hypothesis" in (ROOT / "Makefile").read_text()
