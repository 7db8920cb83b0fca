"""The table of stages on a job's page and on a terminal: words, looks, blocker and regression, and
everything escaped."""

from __future__ import annotations

from types import SimpleNamespace

from rich.console import Console

from gonogo.cli.kit import cells
from gonogo.spec.diagnoses import JobDiagnosis
from gonogo.spec.stages import JobStages, table
from gonogo_dashboards import pages
from gonogo_dashboards.jobs import diagnosis
from gonogo_service.kit.database.records import from_json, if_readable

REPORTS = [
    {"stage": "API <exists>", "name": "a", "outcome": "passed"},
    {"stage": "stubs", "name": "b", "outcome": "passed"},
    {"stage": "stubs", "name": "c", "outcome": "failed", "message": "assert <0>"},
    {"stage": "kernels", "name": "d", "outcome": "hang", "message": "no end within 60 s"},
    {"stage": "launch", "name": "launch: blocked", "outcome": "skipped", "blocked_by": "kernels"},
]
LOST = {"stage": "kernels", "status": "hung", "reason": "", "since": "main-17"}
CONTENT = {**table(REPORTS).to_json(), "regressions": [LOST]}


def test_what_another_version_wrote_is_no_diagnosis() -> None:
    assert if_readable(JobDiagnosis, {"stages": CONTENT}) is not None
    great = {**CONTENT, "stages": [{"name": "a", "status": "great"}]}
    assert if_readable(JobDiagnosis, {"stages": great}) is None


def test_the_page_draws_the_table() -> None:
    template = pages.environment().from_string(
        '{% import "kit/parts.html" as parts with context %}{% include "jobs/stages.html" %}'
    )
    stages = from_json(JobStages, CONTENT)
    html = template.render(stages=stages, diagnosis=diagnosis, job=SimpleNamespace(id="1"))
    for shown in ("API &lt;exists&gt;", "it passed on main-17", "assert &lt;0&gt;"):
        assert shown in html
    for look in ("pass", "suspect", "hang", "skipped"):
        assert f"v-{look}" in html
    assert "1\N{NO-BREAK SPACE}passed, 1\N{NO-BREAK SPACE}failed" in html
    assert html.count("<strong>Blocker</strong>") == 1
    assert "<0>" not in html
    assert "style=" not in html


def test_the_terminal_s_table_says_the_same() -> None:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(cells.stages_table(CONTENT))
    lines = captured.get().splitlines()
    assert lines[1].split() == ["1", "API", "<exists>", "passed", "1", "0", "0"]
    assert "blocker; d hung: no end within 60 s; regression: it passed on main-17" in lines[3]
    assert "blocked by 'kernels'" in lines[4]
