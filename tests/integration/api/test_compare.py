"""A commit compared with its base from stored seeds, over HTTP, on its page and by the command:
classes, evidence, flags and runs."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

import compared_builds
import nightly_history
import stored_jobs
import suite_runs
from api import JOB, Api, on_port, refusal
from compared_builds import BASE, HEAD
from database_params import BOTH
from gonogo.cli.app import load
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.test_spec import TestSpec
from gonogo_service.compare import comparing
from gonogo_service.flags import store as flags
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.results import worst as worst_seeds
from records import pick

COUNTS = {
    "new_failure": 2,
    "new_hollow_pass": 2,
    "unknown": 2,
    "infrastructure": 1,
    "pending": 1,
    "false_alarm": 1,
    "broken_on_base": 2,
    "known_flaky": 1,
    "not_run": 1,
    "fixed": 1,
    "passed": 2,
}


def of(comparison: dict[str, Any], test: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a kernel's test."""
    key = TestSpec.parse(test).key
    return next(entry for entry in comparison["items"] if entry["test_key"] == key)


@BOTH
def test_every_class_from_stored_seeds(api: Api) -> None:
    with api.context.session() as session:
        head_jobs = compared_builds.history(session)
    address = f"/compare?base={BASE}&head={HEAD}"
    comparison = api.get(f"{address}&limit=500")
    assert comparison["counts"] == COUNTS
    assert pick(comparison, "tests", "next", "complete") == (16, None, False)
    reasons = {"new_failure": 2, "new_hollow_pass": 2, "infrastructure": 1}
    assert pick(comparison["gate"], "code", "reasons") == (1, reasons)
    within = {entry["within"]: entry["class"] for entry in comparison["items"] if entry["within"]}
    assert within == {
        "Ops.Fine": "passed",
        "Ops.Breaks": "new_failure",
        "Ops.Old": "broken_on_base",
        "Ops.Added": "unknown",
    }
    hollow = of(comparison, compared_builds.HOLLOW)
    assert head_jobs["hollow"] is not None
    assert hollow["class"] == "new_hollow_pass"
    assert hollow["links"]["head"] == f"/jobs/{head_jobs['hollow'].id}"
    assert hollow["check"].startswith("gonogo check --kernel layernorm_bw")
    assert f"--build {HEAD}" in hollow["check"]
    evidence = hollow["findings"][0]["evidence"]
    assert pick(evidence["head"], "failures", "runs") == (8, 8)
    assert evidence["base"]["failures"] == 0
    assert (evidence["change"]["change"], evidence["p"] < 1e-3) == ("broken", True)
    masked = of(comparison, compared_builds.MASKED)
    assert masked["class"] == "new_hollow_pass"
    assert "masked, not fixed" in masked["words"]
    broken = of(comparison, compared_builds.BROKEN)["findings"][0]["evidence"]
    assert broken["change"]["by"] == "faults"
    flaky = of(comparison, compared_builds.FLAKY)
    assert flaky["class"] == "known_flaky"
    assert flaky["findings"][0]["evidence"]["flag"]["kind"] == "flaky"
    hung = of(comparison, compared_builds.HUNG)["findings"]
    assert [finding["class"] for finding in hung] == ["infrastructure"]
    assert of(comparison, compared_builds.OPEN)["head"]["waiting"] == 1
    # the pages add up to the same list, and one class can be listed alone
    first = api.get(f"{address}&limit=10")
    rest = api.get(f"{address}&limit=10&cursor={first['next']}")
    assert [*first["items"], *rest["items"]] == comparison["items"]
    assert rest["next"] is None
    only = api.get(f"{address}&class=fixed")
    assert ([entry["class"] for entry in only["items"]], only["counts"]) == (["fixed"], COUNTS)
    _pages_say_the_same(api, comparison)


def _pages_say_the_same(api: Api, comparison: dict[str, Any]) -> None:
    query = f"?base={BASE}&head={HEAD}"
    page = api.client.get(f"/compare{query}").text
    assert "New hollow pass" in page
    assert "Blocked: " in page
    twin = api.client.get(f"/compare.json{query}").json()
    # this tells tests of one shape apart
    assert "rtol 0.001, atol 0.1 · wormhole · n150" in {line["where"] for line in twin["tests"]}
    assert dict(twin["counts"]) == COUNTS
    kinds = [line["kind"] for line in twin["tests"]]
    assert kinds == [entry["class"] for entry in comparison["items"]]
    # a line links to the test's page on both builds, and to its jobs
    line = next(test for test in twin["tests"] if test["kind"] == "new_hollow_pass")
    assert line["head_url"].endswith(f"&build={HEAD}")
    assert line["base_url"].endswith(f"&build={BASE}")
    for url in (line["head_url"], line["base_url"], *line["head_jobs"]):
        assert api.client.get(url).status_code == 200
    # without a query the page offers the newest builds, also as pairs
    start = api.client.get("/compare.json").json()
    assert {BASE, HEAD} <= set(start["choices"])
    assert {"base": BASE, "head": HEAD}.items() <= start["pairs"][0].items()


def test_flags_excuse_what_they_knew_before_head_or_what_someone_takes_on(api: Api) -> None:
    with api.context.session() as session:
        compared_builds.flicker(session, BASE, [])
        job = compared_builds.flicker(session, HEAD, [0, 1])
        flag = compared_builds.flag(session, job, FlagKind.flaky)
        (entry,) = comparing.compare(session, BASE, HEAD).tests
        # a flag that head itself raised excuses nothing
        assert entry.classification.kind == "new_failure"
        end = utcnow() + timedelta(days=1)
        change = {"state": "acknowledged", "owner": "kim", "reason": "ticket 12", "expires": end}
        flags.change(session, flag, change, actor="kim")
        comparison = comparing.compare(session, BASE, HEAD)
        (entry,) = comparison.tests
        assert (entry.classification.kind, comparison.gate("any").code) == ("waived", 0)
        assert "acknowledged by kim until" in entry.classification.words
        assert entry.classification.words.endswith(": ticket 12")


def test_what_ran_on_a_sick_device_says_nothing_of_the_commit(api: Api) -> None:
    with api.context.session() as session:
        stored_jobs.device(session)  # its health is bad
        red = {"wrong": True, "red": compared_builds.EIGHT}
        compared_builds.both(session, compared_builds.NEW, {}, red)
        (entry,) = comparing.compare(session, "elsewhere", HEAD).tests
    assert entry.classification.kind == "infrastructure"
    assert entry.head is not None
    assert (entry.head.sick, entry.head.answered) == ({"lab-1/wormhole:0": 8}, 0)


@pytest.mark.parametrize("is_sick", [False, True])
def test_a_slower_kernel_is_a_warning_that_closes_no_gate(api: Api, is_sick: bool) -> None:
    with api.context.session() as session:
        if is_sick:
            stored_jobs.device(session)  # its health is bad
        fast, slow = ({"bits": "a", "kernel_s": seconds} for seconds in (2e-3, 2.6e-3))
        compared_builds.both(session, compared_builds.RIGHT, fast, slow)
    comparison = api.get(f"/compare?base={BASE}&head={HEAD}&fail_on=any")
    (entry,) = comparison["items"]
    assert comparison["gate"]["code"] == 0
    if is_sick:
        assert (entry["class"], entry["time"]) == ("passed", None)
        return
    (finding,) = entry["findings"]
    assert pick(finding, "class", "verdict", "new") == ("slower", "pass", True)
    assert finding["words"].startswith("2.6 ms a seed, before 2 ms: 1.3 times (99.9%: 1.1")
    assert finding["evidence"]["time"] == entry["time"]
    assert (entry["time"]["before"]["seeds"], entry["time"]["low"] > 1.1) == (8, True)
    assert "1 slower" in api.client.get(f"/compare?base={BASE}&head={HEAD}").text


def looser(number: int) -> dict[str, Any]:
    return {**compared_builds.NEW, "tolerance": {"rtol": 1e-3, "atol": 0.1 + number / 100}}


def test_a_comparison_takes_as_many_statements_for_three_tests_as_for_one(api: Api) -> None:
    statements: list[str] = []

    def read(*numbers: int) -> tuple[list[dict[str, Any]], int]:
        with api.context.session() as session:
            for number in numbers:
                wrong = {"wrong": True}
                compared_builds.both(session, looser(number), wrong, {**wrong, "red": [4, 6]})
        with api.context.session() as session:  # other threads have other connections
            connection = session.connection()
            event.listen(
                connection, "before_cursor_execute", lambda *given: statements.append(given[2])
            )
            statements.clear()
            comparison = comparing.compare(session, BASE, HEAD)
            comparing.with_checks(session, comparison, comparison.tests)
        return api.get(f"/compare?base={BASE}&head={HEAD}")["items"], len(statements)

    (_, few), (items, many) = read(0), read(1, 2)
    assert (len(items), many) == (3, few)
    for item in items:  # the worst, as the job's page has it
        with api.context.reading() as session:
            (worst,) = worst_seeds.read(session, item["head"]["jobs"][0], 1, verdict="fail")
        assert f"--seed-start {worst.seed} " in f"{item['check']} "


def test_of_many_tests_fewer_seeds_of_each_are_compared_and_all_are_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "MAX_SEEDS", 12)
    monkeypatch.setattr(comparing, "MIN_SEEDS", 3)
    seeds: list[list[int]] = []
    with api.context.session() as session:
        for number in range(3):
            compared_builds.both(session, looser(number), {}, {"wrong": True})
            session.flush()
            heads = [entry.head for entry in comparing.compare(session, BASE, HEAD).tests]
            records = [head.record for head in heads if head is not None]
            seeds.append([len(record.seeds) for record in records if record is not None])
            assert {head.of("pass_by_tolerance") for head in heads if head is not None} == {8}
    assert seeds == [[8], [6, 6], [4, 4, 4]]


@pytest.mark.parametrize(
    ("together", "kind"), [("unexplained", "new_hollow_pass"), ("suspect", "undecided")]
)
def test_suspect_seeds_count_as_what_all_seeds_together_say(
    api: Api, together: str, kind: str
) -> None:
    right = [nightly_history.row(seed, wrong=False, within=True, bits=HEAD) for seed in (0, 1)]
    rows = [right[0] | {"verdict": "suspect", "explanation": "suspect"}, right[1]]
    with api.context.session() as session:
        compared_builds.both(session, compared_builds.NEW, {}, None)
        job = compared_builds.rows_of(session, compared_builds.NEW, HEAD, rows)
        session.get_one(JobRow, job.id).suspects = stored_jobs.together(together)
        session.flush()
        assert comparing.compare(session, BASE, HEAD).counts == {kind: 1}


def test_a_commit_names_the_build_that_was_registered_for_it(api: Api) -> None:
    sha = "5f0c77aa91be"

    def register(name: str) -> None:
        body = {"name": name, "executor": "ttnn", "branch": "main", "commit": sha}
        assert api.client.post("/api/v1/builds", json=body).status_code == 201

    with api.context.session() as session:
        compared_builds.both(session, compared_builds.HOLLOW, {}, {"wrong": True})
    register(HEAD)
    comparison = api.get(f"/compare?base={BASE}&head={sha}")
    assert (comparison["head"]["builds"], comparison["counts"]) == ([HEAD], {"new_hollow_pass": 1})
    register("again")
    answer = api.client.get(f"/api/v1/compare?base={BASE}&head={sha}")
    assert refusal(answer) == (422, "head")
    assert "several builds are of this commit" in answer.json()["detail"]


def test_runs_are_compared_with_the_names_of_their_suite(api: Api) -> None:
    entries = [{"name": "small", "test": JOB["test"], "seeds": {"start": 0, "count": 2}}]
    body = {"suite": {"name": "s", "entries": entries}, "builds": ["correct", "tt-train-2025"]}
    run = api.client.post("/api/v1/runs", json=body).json()["id"]
    with api.context.session() as session:
        for job in api.get("/jobs")["items"]:
            wrong = job["build"] == "tt-train-2025"
            suite_runs.finish(session, job["id"], wrong=wrong)
    comparison = api.get(f"/compare?base=correct@{run}&head=tt-train-2025@{run}")
    (item,) = comparison["items"]
    assert pick(item, "name", "class") == ("small", "new_hollow_pass")
    assert comparison["complete"]
    same = api.get(f"/compare?base=tt-train-2025&head=tt-train-2025@{run}")
    assert same["gate"] == {"code": 0, "reasons": {}, "words": "nothing new"}
    several = api.client.get(f"/api/v1/compare?base=correct&head={run}")
    assert refusal(several) == (422, "head")
    assert f"correct@{run}" in several.json()["limit"]


def test_the_command_prints_the_classes_and_gates(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gonogo(*words: str) -> tuple[int, str]:
        code = load("compare").main(list(words), prog_name="gonogo compare", standalone_mode=False)
        return int(code or 0), capsys.readouterr().out

    with on_port(migrated_sqlite_url) as (client, context):
        with context.session() as session:
            compared_builds.both(session, compared_builds.HOLLOW, {}, {"wrong": True})
            compared_builds.both(session, compared_builds.RIGHT, {}, {})
        monkeypatch.setenv("GONOGO_URL", str(client.base_url))
        code, output = gonogo(BASE, HEAD, "--watch")
        assert code == 1
        assert "New hollow pass" in output
        assert "Blocked: 1 new hollow pass" in output
        assert "again: gonogo check --kernel layernorm_bw" in output
        assert "/compare?base=" in output
        code, output = gonogo(BASE, HEAD, "--fail-on", "fail", "--json")
        assert (code, json.loads(output)["counts"]) == (0, {"new_hollow_pass": 1, "passed": 1})
        assert gonogo(HEAD, BASE)[0] == 0
        assert gonogo("nothing", HEAD)[0] == 3  # base never ran: the answer is unknown
