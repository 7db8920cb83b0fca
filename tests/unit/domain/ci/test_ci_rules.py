"""The commit events that payloads give, and the rules that they fit."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gonogo.ci.events import CommitEvent, Ignored, Rerequest, from_ci, from_github
from gonogo.ci.patterns import fits, fits_any
from gonogo.ci.rules import Rule, build_name, problem_of
from gonogo.errors import FieldError
from hook_payloads import BEFORE, HEAD, check_suite, pull_request, push, workflow_run


def event(name: str, payload: dict[str, Any]) -> CommitEvent:
    commit_event = from_github(name, payload)
    assert isinstance(commit_event, CommitEvent), commit_event
    return commit_event


@pytest.mark.parametrize(
    ("patterns", "text", "expected"),
    [
        ([], "main", True),
        (["main"], "main", True),
        (["main"], "maintenance", False),
        (["release/*"], "release/1.2", True),
        (["release/*"], "release/1/2", False),
        (["release/**"], "release/1/2", True),
        (["**/*.cpp"], "a.cpp", True),
        (["**/*.cpp"], "ttnn/a/b.cpp", True),
        (["ttnn/**/kernels/*"], "ttnn/kernels/k", True),
        (["v?"], "v1", True),
        (["v?"], "v/", False),
        (["**", "!wip/**"], "wip/x", False),
        (["**", "!wip/**", "wip/but-this"], "wip/but-this", True),
        (["!wip/**"], "main", True),
        (["a.b"], "axb", False),
        (["Org/Name"], "org/name", False),
        (["**a*b"], "a/ab", True),
        (["*a" * 100 + "*b"], "a" * 300, False),  # a regular expression would take years
    ],
)
def test_patterns_are_those_of_github_s_workflows(
    patterns: list[str], text: str, expected: bool
) -> None:
    assert fits(patterns, text) is expected


def test_one_path_that_fits_is_enough_and_repositories_have_no_case() -> None:
    assert fits_any(["docs/**", "!docs/old/**"], ["docs/old/a", "docs/b"])
    assert not fits_any(["docs/**"], ["src/a"])
    assert fits(["Org/*"], "org/name", any_case=True)


def test_a_push_tells_the_commit_before_and_the_changed_paths() -> None:
    commit_event = event("push", push(paths={"added": ["a"], "modified": ["b"], "removed": ["c"]}))
    assert (commit_event.head_sha, commit_event.base_sha) == (HEAD, BEFORE)
    assert (commit_event.branch, commit_event.fork) == ("main", False)
    assert commit_event.paths == ("a", "b", "c")
    assert commit_event.occurred_at is not None
    assert event("push", push(forced=True)).paths is None
    new = event("push", push(before="0" * 40, created=True))
    assert (new.base_sha, new.paths) == (None, None)


@pytest.mark.parametrize(
    ("name", "payload", "reason"),
    [
        ("push", push(ref="refs/tags/v1"), "not a branch"),
        ("push", push(after="0" * 40, deleted=True), "deleted"),
        ("ping", {"zen": "x"}, "'ping'"),
        ("issues", {"repository": None}, "'issues'"),
    ],
)
def test_what_says_nothing_of_a_commit_is_ignored_with_the_reason(
    name: str, payload: dict[str, Any], reason: str
) -> None:
    ignored = from_github(name, payload)
    assert isinstance(ignored, Ignored)
    assert reason in ignored.reason


@pytest.mark.parametrize("other", [7, True, "text", {"a": 1}])
def test_what_should_be_a_list_and_is_none_counts_as_empty(other: object) -> None:
    assert event("push", push(commits=[{"added": other}])).paths == ()
    suite = check_suite("completed")
    suite["check_suite"]["pull_requests"] = other
    assert event("check_suite", suite).pull_request is None


def test_a_pull_request_comes_from_a_fork_unless_both_ends_are_of_one_repository() -> None:
    assert not event("pull_request", pull_request()).fork
    assert event("pull_request", pull_request(fork=True)).fork
    gone = pull_request()
    gone["pull_request"]["head"]["repo"] = None
    assert event("pull_request", gone).fork
    commit_event = event("pull_request", pull_request())
    assert (commit_event.pull_request, commit_event.branch) == (7, "main")
    assert (commit_event.action, commit_event.paths) == ("opened", None)


def test_a_suite_without_a_branch_and_a_workflow_of_another_repository_come_from_forks() -> None:
    assert event("check_suite", check_suite(head_branch=None)).fork
    assert event("workflow_run", workflow_run(head_repository={"id": 2})).fork
    assert event("workflow_run", workflow_run(head_repository=None)).fork
    rerequest = from_github("check_suite", check_suite("rerequested"))
    assert isinstance(rerequest, Rerequest)
    commit_event = rerequest.otherwise
    assert commit_event is not None
    assert (commit_event.fork, commit_event.again) == (False, True)
    assert (commit_event.base_sha, commit_event.workflow) == (BEFORE, "actions")
    assert event("workflow_run", workflow_run()).workflow == "build"


def test_a_pull_request_that_is_made_from_here_to_elsewhere_is_none_of_ours() -> None:
    head = {"sha": HEAD, "repo": {"id": 1}}
    sides = [
        {"number": number, "head": head, "base": {"sha": BEFORE, "ref": "main", "repo": {"id": id}}}
        for number, id in ((7, 2), (8, 1))
    ]
    assert event("check_suite", check_suite(pull_requests=sides[:1])).pull_request is None
    assert event("workflow_run", workflow_run(pull_requests=sides)).pull_request == 8


@pytest.mark.parametrize(
    ("name", "place", "value", "field"),
    [
        ("push", ("after",), "HEAD", "after"),
        ("push", ("repository",), None, "repository.full_name"),
        ("pull_request", ("pull_request", "base"), None, "pull_request.base.sha"),
        ("pull_request", ("pull_request", "number"), "7", "pull_request.number"),
    ],
)
def test_a_payload_of_another_form_is_a_field_error(
    name: str, place: tuple[str, ...], value: Any, field: str
) -> None:
    payload = copy.deepcopy({"push": push(), "pull_request": pull_request()}[name])
    inner = payload
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(FieldError) as caught:
        from_github(name, payload)
    assert caught.value.field == field


def rule(**changes: Any) -> Rule:
    everything = ["push", "pull_request", "workflow_run", "check_suite"]
    usual = {"name": "r", "events": everything, "repositories": ["lab/*"], "suites": ["nightly"]}
    return Rule.parse({**usual, **changes})


@pytest.mark.parametrize(
    ("changes", "name", "payload", "reason"),
    [
        ({}, "push", push(), None),
        ({"enabled": False}, "push", push(), "switched off"),
        ({"branches": ["release/*"]}, "push", push(), "branch 'main'"),
        ({"paths": ["docs/**"]}, "push", push(), "none of the 1 changed paths"),
        ({"paths": ["docs/**"]}, "pull_request", pull_request(), None),  # its paths are unknown
        ({}, "pull_request", pull_request(fork=True), "fork"),
        ({"forks": True}, "pull_request", pull_request(fork=True), None),
        ({}, "pull_request", pull_request("closed"), "closed"),
        ({"actions": ["labeled"]}, "pull_request", pull_request("labeled"), None),
        ({"actions": ["labeled"]}, "push", push(), None),  # a push has no action
        ({}, "check_suite", check_suite("completed"), "completed"),
        ({"workflows": ["deploy"]}, "workflow_run", workflow_run(), "'build'"),
        ({"workflows": ["deploy"]}, "workflow_run", workflow_run(name=None), "''"),
        ({"workflows": ["deploy"]}, "push", push(), None),
        ({}, "workflow_run", workflow_run(conclusion="failure"), "failure"),
        ({"conclusions": ["failure"]}, "workflow_run", workflow_run(conclusion="failure"), None),
    ],
)
def test_a_rule_says_why_it_starts_nothing(
    changes: dict[str, Any], name: str, payload: dict[str, Any], reason: str | None
) -> None:
    commit_event = event(name, payload)
    assert rule(**changes).concerns(commit_event)
    refusal = rule(**changes).refusal(commit_event)
    assert refusal is None if reason is None else reason in str(refusal)


def test_a_rule_concerns_its_events_and_repositories_only() -> None:
    commit_event = event("push", push())
    assert not rule(events=["pull_request"]).concerns(commit_event)
    assert not rule(repositories=["other/*"]).concerns(commit_event)
    assert rule(repositories=["LAB/Kernels"]).concerns(commit_event)


def test_a_build_is_named_by_its_commit() -> None:
    commit_event = event("push", push(ref="refs/heads/wip/a b#1"))
    assert build_name("tt-{short}-{branch}", HEAD, commit_event) == f"tt-{HEAD[:12]}-wip/a-b-1"
    of_pull_request = event("pull_request", pull_request())
    assert build_name("pr{number}/{sha}", HEAD, of_pull_request) == f"pr7/{HEAD}"
    problems = [problem_of(form) is None for form in ("tt-{commit}", "tt {sha}", "tt-{sha}")]
    assert problems == [False, False, True]


def test_another_ci_says_it_in_our_words() -> None:
    data = {"repository": "lab/kernels", "sha": HEAD, "base": BEFORE, "branch": "main"}
    data |= {"paths": ["a"], "builds": {"head": "correct"}}
    commit_event = from_ci({"type": "commit", "timestamp": "2026-01-31T12:00:00Z", "data": data})
    assert isinstance(commit_event, CommitEvent)
    assert (commit_event.event, commit_event.head_build) == ("commit", "correct")
    assert (commit_event.base_sha, commit_event.paths) == (BEFORE, ("a",))
    assert isinstance(from_ci({"type": "release", "data": {}}), Ignored)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"sha": "HEAD"}, "data.sha"),
        ({"repository": "../etc"}, "data.repository"),
        ({"repository": "lab kernels"}, "data.repository"),
        ({"colour": "red"}, "data.colour"),
        ({"branch": "a\0b"}, "data.branch"),
        ({"pull_request": 0}, "data.pull_request"),
        ({"fork": "no"}, "data.fork"),
        ({"paths": "a"}, "data.paths"),
        ({"builds": {"left": "x"}}, "data.builds.left"),
    ],
)
def test_what_another_ci_gets_wrong_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as caught:
        from_ci({"type": "commit", "data": {"repository": "lab/kernels", "sha": HEAD, **changes}})
    assert caught.value.field == field
