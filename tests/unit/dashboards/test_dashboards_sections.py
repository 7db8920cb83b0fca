"""Pages are on the site and in the navigation because their sub-package says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gonogo import urls
from gonogo_dashboards import pages
from gonogo_dashboards.kit import manual
from gonogo_dashboards.kit.navigation import Entry, groups


def test_every_sub_package_with_templates_is_on_the_site() -> None:
    with_templates = {folder.parent.name for folder in pages.template_folders()} - {"kit"}
    names = {section.__name__.split(".")[1] for section in pages.sections()}
    assert with_templates < names


def test_a_folder_that_is_added_is_a_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "gonogo_dashboards"
    (root / "runs").mkdir(parents=True)
    shutil.copy(Path(pages.__file__).parent / "runs/routes.py", root / "runs")
    (root / "kit").mkdir()
    monkeypatch.setattr(pages, "__file__", str(root / "pages.py"))
    modules = pages.sections.__wrapped__()
    assert [section.__name__ for section in modules] == ["gonogo_dashboards.runs.routes"]


def test_the_navigation_has_its_pages_in_their_places() -> None:
    lines = [(group.label, entry.label) for group in pages.groups() for entry in group.entries]
    assert lines[:3] == [("Results", "Overview"), ("Results", "Tests"), ("Results", "Flags")]
    assert [label for group, label in lines if group == "Analysis"] == [
        "Compare", "What got worse", "Gauges", "Bisections",
    ]  # fmt: skip
    assert len(lines) == len(set(lines))
    names = [entry.name for group in pages.groups() for entry in group.entries]
    parts = [part for group in pages.groups() for entry in group.entries for part in entry.parts]
    assert len({*names, *parts}) == len(names) + len(parts), "one entry is the current one"


def test_an_entry_stands_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manual, "is_built", lambda: False)
    shown = groups([Entry("b", "B", "/b", "Lab", 2), Entry("a", "A", "/a", "Lab", 2),
                   Entry("c", "C", "/c", "Lab", 1)])  # fmt: skip
    assert {group.label: [entry.label for entry in group.entries] for group in shown} == {
        "Results": [],
        "Analysis": [],
        "Lab": ["C", "A", "B"],
        "Settings": ["API"],
    }
    assert shown[-1].entries[-1].url == urls.DOCS
