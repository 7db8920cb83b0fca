"""Pipelines: their commit as GitHub and GitLab tell it, the reports that they read, and what the
examples install."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import pipelines
from gonogo.errors import FieldError
from gonogo_service.cli.pipeline import origin, reports
from gonogo_service.cli.pipeline.origin import Origin
from gonogo_service.cli.pipeline.outcome import Outcome, Remark, Written, of_run

HEAD, BASE, MERGE = "a" * 40, "b" * 40, "c" * 40
PULL = {"number": 7, "head": {"sha": HEAD}, "base": {"sha": BASE, "ref": "main"}}
GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "org/kernels", "GITHUB_REF_NAME": "main"}
GITLAB = {"GITLAB_CI": "true", "CI_COMMIT_SHA": HEAD, "CI_PROJECT_PATH": "org/kernels"}
OF_A_PULL = {**GITHUB, "GITHUB_SHA": MERGE}
QUEUED = {"merge_group": {"head_sha": HEAD, "base_sha": BASE, "base_ref": "refs/heads/main"}}
MERGED = {"CI_COMMIT_SHA": MERGE, "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": HEAD}
REQUEST = {
    "CI_MERGE_REQUEST_IID": "7",
    "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    "CI_MERGE_REQUEST_DIFF_BASE_SHA": BASE,
}


@pytest.mark.parametrize(
    ("variables", "event", "known"),
    [
        ({**GITHUB, "GITHUB_SHA": HEAD}, {"before": BASE}, (BASE, None)),
        ({**GITHUB, "GITHUB_SHA": HEAD}, {"before": "0" * 40}, (None, None)),
        ({**OF_A_PULL, "GITHUB_REF_NAME": "7/merge"}, {"pull_request": PULL}, (BASE, 7)),
        ({**OF_A_PULL, "GITHUB_REF_NAME": "gh-readonly-queue/main/x"}, QUEUED, (BASE, None)),
        ({**GITHUB, "GITHUB_SHA": HEAD}, {"schedule": "0 2 * * *"}, (None, None)),
        ({**GITLAB, "CI_COMMIT_BRANCH": "main", "CI_COMMIT_BEFORE_SHA": BASE}, {}, (BASE, None)),
        ({**GITLAB, **REQUEST, "CI_COMMIT_BEFORE_SHA": "0" * 40}, {}, (BASE, 7)),
        ({**GITLAB, **REQUEST, **MERGED}, {}, (BASE, 7)),
    ],
    ids=["push", "new branch", "pull request", "queue", "timer", "push", "request", "merged"],
)
def test_the_commit_and_its_base_are_those_of_the_pipeline(
    variables: dict[str, str], event: dict[str, Any], known: Any, tmp_path: Path
) -> None:
    system = "github" if "GITHUB_ACTIONS" in variables else "gitlab"
    expected = Origin(system, HEAD, "main", *known, "org/kernels")
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event))
    environment = {**variables, "GITHUB_EVENT_PATH": str(path)}
    assert origin.read(environment, {}) == expected
    given = {"commit": MERGE, "base": HEAD, "branch": None}
    changed = origin.read(environment, given)
    assert (changed.commit, changed.base, changed.branch) == (MERGE, HEAD, expected.branch)
    assert expected.series == ("main/pull-7" if expected.pull_request else "main")


def test_without_a_pipeline_the_commit_must_be_named() -> None:
    with pytest.raises(FieldError, match=r"--commit.*git rev-parse HEAD"):
        origin.read({}, {"base": BASE})
    assert origin.read({}, {"commit": HEAD, "base": HEAD}).base is None


def test_each_test_of_a_suite_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(
        "name: x\nentries:\n  - name: a\n    test: {shape: [1, 2]}\n\n"
        "  # two tests\n  - name: b\n    matrix:\n      shape: [[1, 2], [3, 4]]\n"
    )
    content = yaml.safe_load(file.read_text())
    assert Written.of(file, content, "").lines == {"a": 3, "b 1x2": 7, "b 3x4": 7}
    assert Written.of(file.with_suffix(".json"), content, "").lines == {}


def remark(number: int, **changes: Any) -> Remark:
    about = {"name": f"test {number}: a, b 100%", "label": "New failure", "level": "failure"}
    text = {"sentence": "It is red, and base isn't.", "words": "4 of 4 <b>red</b>\x01"}
    place = {"file": "tests/numerics.yaml", "line": 3, "url": "https://gonogo.example.org/jobs/1"}
    fields: dict[str, Any] = {**about, **text, **place, "check": "gonogo check --shape 1,2"}
    return Remark(**{**fields, "code": 1, **changes})


def outcome(*remarks: Remark, **changes: Any) -> Outcome:
    text = {"title": "Blocked: 12 new failures", "note": None, "words": "12 new failures"}
    place = {"suite": "numerics", "run": "r", "build": "head", "base": "base"}
    fields: dict[str, Any] = {**text, **place, "code": 1, "url": "https://gonogo.example.org/c"}
    return Outcome(remarks=remarks, **{**fields, **changes})


def test_github_reads_the_loudest_remarks_as_commands() -> None:
    quiet = remark(0, label="Passed", level=None, code=0)
    waiting = remark(1, label="Unknown", level="warning", code=3)
    loud = [remark(number) for number in range(2, 14)]
    lines = list(reports.workflow_commands(outcome(quiet, waiting, *loud)))
    assert [line.partition(" ")[0] for line in lines] == ["::error"] * 10 + ["::warning"]
    title = "title=New failure%3A test 2%3A a%2C b 100%25"
    place = f"::error file=tests/numerics.yaml,line=3,{title}"
    assert lines[0].startswith(f"{place}::It is red, and base isn't.%0A4 of 4")
    assert all("\n" not in line for line in lines)
    text = reports.summary(outcome(quiet, waiting, remark(2), note="No base."))
    assert "❌ GoNoGo: Blocked: 12 new failures" in text
    assert "4 of 4 &lt;b>red&lt;/b" in text.replace("\\", "")
    assert "**New failure** (1)" in text
    assert "Passed" not in text


def test_gitlab_gets_a_failure_for_what_closes_the_gate_only(tmp_path: Path) -> None:
    known = remark(1, label="Known flaky", level="notice", code=0)
    result = outcome(remark(0), known, remark(2, code=3), remark(3, level=None, code=0))
    reports.write_junit(result, tmp_path / "junit.xml")
    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "1")
    assert [case[0].tag for case in suite] == ["failure", "system-out", "error", "system-out"]
    reports.write_code_quality(result, tmp_path / "quality.json")
    issues = json.loads((tmp_path / "quality.json").read_text())
    assert [issue["severity"] for issue in issues] == ["major", "info", "major"]
    assert len({issue["fingerprint"] for issue in issues}) == 3
    assert issues[0]["location"] == {"path": "tests/numerics.yaml", "lines": {"begin": 3}}


@pytest.mark.parametrize(
    ("verdicts", "code", "title"),
    [
        (["pass", "pass_by_tolerance"], 0, "Clear"),
        (["pass", "error"], 3, "Undecided"),
        (["crash"], 3, "Undecided"),
        (["hang"], 3, "Undecided"),
        (["not_run"], 3, "Undecided"),
    ],
)
def test_a_commit_without_a_base_is_not_clear_where_its_tests_could_not_run(
    verdicts: list[str], code: int, title: str
) -> None:
    ended = {"id": "r", "name": "a", "state": "finished"}
    nothing = dict.fromkeys(("outcomes", "error", "diagnosis"))
    tests = [{**ended, **nothing, "verdict": one, "counts": {one: 1}} for one in verdicts]
    seeds = {"verdicts": dict.fromkeys(verdicts, 1)}
    run = {**ended, "verdict": verdicts[-1], "tests": tests, "seeds": seeds}
    run["suite"] = {"name": "numerics"}
    written = Written(Path("s.yaml"), {}, "http://x")
    result = of_run(run, written, build="b", note="", fail_on="new")
    assert (result.code, result.title.partition(":")[0]) == (code, title)


EXAMPLE = Path(__file__).parents[3] / "examples/repository"
INSTALL = "-m pip install --quiet --no-compile --disable-pip-version-check"
COMMIT = "a" * 40


@pytest.mark.parametrize("package", [None, "", "git+https://example.com/gonogo"])
def test_pipelines_install_gonogo_unless_they_are_told_otherwise(
    package: str | None, tmp_path: Path
) -> None:
    repository, programs, log = (tmp_path / name for name in ("repository", "bin", "log.txt"))
    shutil.copytree(EXAMPLE, repository)
    programs.mkdir()
    for name in ("python", "gonogo"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\n')
        (programs / name).chmod(0o755)
    settings = {"GONOGO_URL": "http://x", "KERNELS_STORE": str(tmp_path / "store")}
    settings |= {} if package is None else {"GONOGO_PACKAGE": package}
    path = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    values = {f"vars.{name}": value for name, value in settings.items()} | {"github.sha": COMMIT}
    for ended in (
        pipelines.github(repository, "push", {}, values, **path),
        pipelines.gitlab(repository, {"CI_COMMIT_SHA": COMMIT, **path, **settings}),
    ):
        assert ended.code == 0, ended.log
    installs = [line for line in log.read_text().splitlines() if line.startswith("python")]
    assert installs == [f"python {INSTALL} {package or 'gonogo'}"] * 2
