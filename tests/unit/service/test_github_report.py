"""The words that GitHub shows: every class with its tests, links and commands. Text of others stays
text, and nothing is too long."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from gonogo.flakiness.classes import Class, Classification, Finding, RunSummary
from gonogo.flakiness.grades import Sharpness
from gonogo.flakiness.waivers import RED_OR_HOLLOW, waived
from gonogo.reports import markdown
from gonogo.spec.verdicts import Verdict
from gonogo_service.ci import report
from gonogo_service.ci.model import CommitCheckRow
from gonogo_service.compare.compared import Compared
from gonogo_service.compare.comparing import Comparison
from gonogo_service.compare.sides import Place, SideResults
from gonogo_service.kit.database.states import HookSource, JobState
from gonogo_service.waivers.model import WaiverRow

SUBJECT: dict[str, Any] = {
    "id": "0195",
    "source": HookSource.github,
    "event": "pull_request",
    "rule": "nightly",
    "suite": "small",
    "repository": "lab/kernels",
    "branch": "main",
    "pull_request": 7,
    "head_sha": "a" * 40,
    "base_sha": "b" * 40,
    "head_build": "head",
    "base_build": "base",
    "run": "0196",
    "base_run": "0197",
    "gauges": [],
}
HOSTILE = "<script>`` @everyone [x](javascript:1) **b** \n# h"


def page(path: str) -> str:
    return f"https://g.example{path}"


def commit_check(**changes: Any) -> CommitCheckRow:
    return CommitCheckRow(**{**SUBJECT, **changes})


def a_test(
    kind: Class,
    verdict: Verdict,
    name: str = "layernorm_bw 32x64",
    check: str | None = "gonogo check",
    within: str = "",
) -> Compared:
    new = kind in (Class.new_failure, Class.new_hollow_pass)
    finding = Finding(kind, verdict, f"words of {kind}", new=new)
    place = Place("v1-x", "wormhole", "n150", "isolated", within)
    ran = RunSummary("head", ("job-1",), {verdict: 4})
    about = place, name, "s", "layernorm_bw", {}
    return Compared(*about, Classification((finding,)), None, ran, check=check)


def report_of(*tests: Compared, **changes: Any) -> report.Report:
    base, head = (
        SideResults(name, None, (name,), jobs, 0, False, name, {})
        for name, jobs in (("base", 0 if "base_run" in changes else 1), ("head", 1))
    )
    compared = Comparison(base, head, tests, "1")
    faults = {"job-1": "s1 is subtracted twice"}
    return report.compared(commit_check(**changes), compared, faults, page, page("/compare"))


@pytest.mark.parametrize(
    ("kind", "verdict", "state", "conclusion"),
    [
        (Class.new_failure, Verdict.fail, "failure", "failure"),
        (Class.unknown, Verdict.fail, "error", "action_required"),
        (Class.infrastructure, Verdict.error, "error", "action_required"),
        (Class.broken_on_base, Verdict.fail, "success", "success"),
        (Class.known_flaky, Verdict.fail, "success", "success"),
        (Class.known_hollow, Verdict.pass_by_tolerance, "success", "success"),
    ],
)
def test_what_is_known_turns_no_pull_request_red_and_is_listed_all_the_same(
    kind: Class, verdict: Verdict, state: str, conclusion: str
) -> None:
    answer = report_of(a_test(kind, verdict))
    assert (answer.state, answer.check()["conclusion"], answer.worth) == (state, conclusion, True)
    assert f"**{kind.label}** (1)" in answer.details
    assert len(answer.annotations) == 1


def test_where_all_is_well_there_is_nothing_to_say() -> None:
    answer = report_of(a_test(Class.passed, Verdict.pass_))
    assert (answer.state, answer.worth, answer.annotations) == ("success", False, ())
    assert "PASSED" not in answer.details
    assert "is unknown" not in answer.details


def test_gauges_are_told_with_their_links() -> None:
    shown = {"kernel": "k", "test": {"shape": [1]}, "words": "5 of 9 pass", "error": None}
    gauges: Any = [
        SimpleNamespace(id="g", state=JobState.finished, sharpness=Sharpness.blunt, **shown),
        SimpleNamespace(id="f", state=JobState.failed, sharpness=None, **shown),
    ]
    measured = report.gauged(commit_check(suite=None), gauges, page)
    assert (measured.state, measured.words) == ("error", "1 blunt, 1 without a result")
    assert [report.gauged(commit_check(), [gauge], page).worth for gauge in gauges] == [True, True]
    assert "[k 1](https://g.example/gauges/g): 5 of 9 pass" in measured.details


def test_another_arithmetic_is_listed_and_annotated_as_a_notice_and_turns_nothing_red() -> None:
    changed = a_test(Class.arithmetic_changed, Verdict.pass_, check=None)
    answer = report_of(changed, a_test(Class.passed, Verdict.pass_))
    assert answer.status()["state"] == "success"
    assert answer.status()["description"] == "1 arithmetic change, 1 passed"
    assert "**Arithmetic change** (1): Rounding explains the errors on head" in answer.details
    assert [note["annotation_level"] for note in answer.annotations] == ["notice"]
    assert answer.worth


def test_text_of_others_stays_text_and_calls_nobody() -> None:
    hostile = a_test(Class.new_failure, Verdict.fail, name=HOSTILE, check="echo ``` && x")
    text = report.comment([report_of(hostile, error=HOSTILE, base_run=None)])
    for wrong in ("<script>", "@everyone", "](javascript", "**b**", "\n# h"):
        assert wrong not in text
    assert "Base was not run" in text
    assert "````sh\n  echo ``` && x\n  ````" in text
    assert markdown.code("a`b``") == "``` a`b`` ```"
    broken = report.broken(commit_check(), HOSTILE)
    assert broken.status()["state"] == "error"
    assert "<script>" not in broken.details


@pytest.mark.parametrize(
    ("within", "path"),
    [
        ("tests/test_x.py::test_y[1]", "tests/test_x.py"),
        ("Suite.Case", ".github"),
        ("/etc/x.py::y", ".github"),
        ("../x.py::y", ".github"),
    ],
)
def test_pytest_files_are_annotated_where_they_are(within: str, path: str) -> None:
    answer = report_of(a_test(Class.new_failure, Verdict.fail, within=within))
    assert answer.annotations[0]["path"] == path


def test_nothing_is_longer_than_github_takes() -> None:
    long, failed = "x" * 5000, (Class.new_failure, Verdict.fail)
    many = [a_test(*failed, name=f"{number} {long}", check=long) for number in range(300)]
    answer = report_of(*many, rule="r" * 300)
    assert len(answer.annotations) == 200
    for annotation in answer.annotations:
        assert len(annotation["message"]) <= report.MAX_MESSAGE
        assert len(annotation["title"]) <= 255
    assert max(len(answer.status()["context"]), len(answer.check()["name"])) <= 255
    assert len(answer.check()["output"]["summary"]) <= report.MAX_TEXT
    text = report.comment([answer] * 3)
    assert len(text) <= report.MAX_TEXT
    shown, _, rest = text.partition("\nThe rest is too long for a comment.\n")
    assert shown.endswith("```\n"), "the end of an item"
    assert rest == "\n2 more suites are left out.\n"


def test_a_run_in_progress_is_worth_no_comment() -> None:
    running = report.running(commit_check(), "3 tests", None)
    assert (running.words, running.worth) == ("3 tests on head: running", False)


def test_what_a_waiver_suppresses_is_green_and_says_until_when_whose_and_why() -> None:
    bad, end = a_test(Class.new_failure, Verdict.fail), datetime(2026, 12, 1, tzinfo=UTC)
    about = {"owner": "kim", "reason": "the race of @everyone", "expires_at": end}
    waiver = WaiverRow(id="o1", test="v1-x", classes=RED_OR_HOLLOW, **about)
    answer = report_of(bad._replace(classification=waived(bad.classification, [waiver])))
    assert (answer.state, answer.words, answer.worth) == ("success", "1 waived", True)
    assert answer.annotations == ()
    text = report.comment([answer])
    assert "**Waived** (1)" in text
    assert "waived until 2026-12-01 by kim: the race of @\u200beveryone" in text
