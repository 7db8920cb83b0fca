"""A commit compared with its base from stored seeds: classes, evidence, flags and runs.

The tests read the comparison over HTTP, on its page and by the command.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

import compared_builds
import nightly_history
import stored_jobs
from api import JOB, Api, in_process, on_port
from compared_builds import BASE, HEAD
from gonogo.cli.app import load
from gonogo.errors import FieldError
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.test_spec import TestSpec
from gonogo_service.builds import store as builds
from gonogo_service.compare import comparing, reruns
from gonogo_service.flags import store as flags
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.results import worst as worst_seeds
from gonogo_service.tests import build_series

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
    return next(
        entry for entry in comparison["items"] if entry["test_key"] == TestSpec.parse(test).key
    )


def test_every_class_from_stored_seeds(database_url: str) -> None:
    with in_process(database_url) as api:
        with api.context.session() as session:
            head_jobs = compared_builds.history(session)
        comparison = api.get(f"/compare?base={BASE}&head={HEAD}&limit=500")
        assert comparison["counts"] == COUNTS
        assert (comparison["tests"], comparison["next"], comparison["complete"]) == (
            16,
            None,
            False,
        )
        assert (comparison["gate"]["code"], comparison["gate"]["reasons"]) == (
            1,
            {"new_failure": 2, "new_hollow_pass": 2, "infrastructure": 1},
        )
        classes = {
            entry["within"]: entry["class"] for entry in comparison["items"] if entry["within"]
        }
        assert classes == {
            "Ops.Fine": "passed",
            "Ops.Breaks": "new_failure",
            "Ops.Old": "broken_on_base",
            "Ops.Added": "unknown",
        }

        hollow = of(comparison, compared_builds.HOLLOW)
        assert head_jobs["hollow"] is not None
        assert (hollow["class"], hollow["links"]["head"]) == (
            "new_hollow_pass",
            f"/jobs/{head_jobs['hollow'].id}",
        )
        assert hollow["check"].startswith("gonogo check --kernel layernorm_bw")
        assert f"--build {HEAD}" in hollow["check"]
        evidence = hollow["findings"][0]["evidence"]
        assert (
            evidence["head"]["failures"],
            evidence["head"]["runs"],
            evidence["base"]["failures"],
        ) == (8, 8, 0)
        assert (evidence["change"]["change"], evidence["p"] < 1e-3) == ("broken", True)
        masked = of(comparison, compared_builds.MASKED)
        assert (masked["class"], "masked, not fixed" in masked["words"]) == (
            "new_hollow_pass",
            True,
        )
        assert (
            of(comparison, compared_builds.BROKEN)["findings"][0]["evidence"]["change"]["by"]
            == "faults"
        )
        flaky = of(comparison, compared_builds.FLAKY)
        assert (flaky["class"], flaky["findings"][0]["evidence"]["flag"]["kind"]) == (
            "known_flaky",
            "flaky",
        )
        assert [
            finding["class"] for finding in of(comparison, compared_builds.HUNG)["findings"]
        ] == ["infrastructure"]
        assert of(comparison, compared_builds.OPEN)["head"]["waiting"] == 1

        # the pages add up to the same list, and one class can be listed alone
        first = api.get(f"/compare?base={BASE}&head={HEAD}&limit=10")
        rest = api.get(f"/compare?base={BASE}&head={HEAD}&limit=10&cursor={first['next']}")
        assert [*first["items"], *rest["items"]] == comparison["items"]
        assert rest["next"] is None
        only = api.get(f"/compare?base={BASE}&head={HEAD}&class=fixed")
        assert ([entry["class"] for entry in only["items"]], only["counts"]) == (["fixed"], COUNTS)

        page = api.client.get(f"/compare?base={BASE}&head={HEAD}")
        assert page.status_code == 200
        assert "New hollow pass" in page.text
        assert "Blocked: " in page.text
        twin = api.client.get(f"/compare.json?base={BASE}&head={HEAD}").json()
        assert "rtol 0.001, atol 0.1 · wormhole · n150" in {
            line["where"] for line in twin["tests"]
        }  # this tells tests of one shape apart
        assert dict(twin["counts"]) == COUNTS
        assert [line["kind"] for line in twin["tests"]] == [
            entry["class"] for entry in comparison["items"]
        ]
        # a line links to the test's page on both builds, and to its jobs
        line = next(test for test in twin["tests"] if test["kind"] == "new_hollow_pass")
        assert line["head_url"].endswith(f"&build={HEAD}")
        assert line["base_url"].endswith(f"&build={BASE}")
        for url in (line["head_url"], line["base_url"], *line["head_jobs"]):
            assert api.client.get(url).status_code == 200
        # without a query the page offers the newest builds, also as pairs
        start = api.client.get("/compare.json").json()
        assert {BASE, HEAD} <= set(start["choices"])
        assert {"base": BASE, "head": HEAD} in [
            {name: pair[name] for name in ("base", "head")} for pair in start["pairs"]
        ]
        assert 'list="builds"' in api.client.get("/compare").text


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    with in_process(migrated_sqlite_url) as service:
        yield service


def test_flags_excuse_what_they_knew_before_head_or_what_someone_takes_on(api: Api) -> None:
    with api.context.session() as session:
        compared_builds.flicker(session, BASE, [])
        flag = compared_builds.flag(
            session, compared_builds.flicker(session, HEAD, [0, 1]), FlagKind.flaky
        )
        (entry,) = comparing.compare(session, BASE, HEAD).tests
        assert (
            entry.classification.kind == "new_failure"
        )  # a flag that head itself raised excuses nothing
        change = {
            "state": "acknowledged",
            "owner": "kim",
            "reason": "the race of ticket 12",
            "expires": utcnow() + timedelta(days=1),
        }
        flags.change(session, flag, change, actor="kim")
        comparison = comparing.compare(session, BASE, HEAD)
        assert (comparison.tests[0].classification.kind, comparison.gate("any").code) == (
            "waived",
            0,
        )
        words = comparison.tests[0].classification.words
        assert "acknowledged by kim until" in words
        assert words.endswith(": the race of ticket 12")


def test_what_ran_on_a_sick_device_says_nothing_of_the_commit(api: Api) -> None:
    with api.context.session() as session:
        stored_jobs.device(session)  # its health is bad
        compared_builds.both(
            session, compared_builds.NEW, {}, {"wrong": True, "red": compared_builds.EIGHT}
        )
        (entry,) = comparing.compare(session, "elsewhere", HEAD).tests
    assert entry.classification.kind == "infrastructure"
    assert entry.head is not None
    assert (entry.head.sick, entry.head.answered) == ({"lab-1/wormhole:0": 8}, 0)


def test_a_comparison_takes_as_many_statements_for_three_tests_as_for_one(api: Api) -> None:
    tests = [
        {**compared_builds.NEW, "tolerance": {"rtol": 1e-3, "atol": 0.1 + number / 100}}
        for number in range(3)
    ]
    statements: list[str] = []

    def read(*added: dict[str, Any]) -> tuple[comparing.Comparison, list[str]]:
        for test in added:
            compared_builds.both(session, test, {"wrong": True}, {"wrong": True, "red": [4, 6]})
        session.flush()
        statements.clear()
        comparison = comparing.compare(session, BASE, HEAD)
        shown = comparing.with_checks(session, comparison, comparison.tests)
        return replace(comparison, tests=tuple(shown)), list(statements)

    with api.context.session() as session:
        event.listen(
            session.connection(),
            "before_cursor_execute",
            lambda *given: statements.append(given[2]),
        )
        (_, few), (comparison, many) = read(tests[0]), read(*tests[1:])
        facts = {entry.place: comparison.head.facts[entry.place] for entry in comparison.tests}
        alone = {
            place: build_series.records(session, job_facts) for place, job_facts in facts.items()
        }
        assert build_series.records_of(session, facts) == alone
        worst = [
            worst_seeds.read(session, entry.head.jobs[0], 1, verdict="fail")[0].seed
            for entry in comparison.tests
            if entry.head
        ]
    assert (len(comparison.tests), len(many)) == (3, len(few))
    assert not any(
        "DISTINCT job_blocks.job_id" in statement for statement in many
    )  # no device was ever sick
    for entry, seed in zip(comparison.tests, worst, strict=True):
        assert f"--seed-start {seed} " in f"{entry.check} ", "the worst, as the job's page has it"
    assert all(
        entry.head and entry.head.record == alone[entry.place][-1] for entry in comparison.tests
    )


def test_tests_of_a_selection_with_equal_results_are_classified_once_and_only_shown_ones_looked_up(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of 19,900 tests took 41 s: each test was classified, and its job read again."""
    for build, failing in ((BASE, 0), (HEAD, 300)):
        cases = "".join(
            f'<testcase classname="s" name="t{number:03}">'
            + ('<failure message="wrong"/>' if number < failing else "")
            + "</testcase>"
            for number in range(400)
        )
        report = f"<testsuites><testsuite name='s'>{cases}</testsuite></testsuites>"
        path = f"/api/v1/imports?format=junit&build={build}&suite=s"
        assert api.client.post(path, content=report.encode()).status_code == 201
    classified: list[Any] = []
    looked_up: list[Any] = []
    lines, classify = reruns.lines, comparing.classify

    def counting(*given: Any) -> Any:
        classified.append(given)
        return classify(*given)

    def looking(session: Any, head: Any, candidates: Any) -> Any:
        looked_up.extend(tests := list(candidates))
        return lines(session, head, tests)

    monkeypatch.setattr(comparing, "classify", counting)
    monkeypatch.setattr(reruns, "lines", looking)
    answer = api.get(f"/compare?base={BASE}&head={HEAD}&limit=20")
    assert (answer["tests"], len(answer["items"])) == (400, 20)
    assert sorted(answer["counts"].values()) == [100, 300]
    assert (len(classified), len(looked_up)) == (2, 20)


def test_of_many_tests_fewer_seeds_of_each_are_compared_and_all_are_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = [
        {**compared_builds.NEW, "tolerance": {"rtol": 1e-3, "atol": 0.1 + number / 100}}
        for number in range(3)
    ]
    monkeypatch.setattr(comparing, "MAX_SEEDS", 12)
    monkeypatch.setattr(comparing, "MIN_SEEDS", 3)
    seed_counts = []
    with api.context.session() as session:
        for test in tests:
            compared_builds.both(session, test, {}, {"wrong": True})
            session.flush()
            entries = comparing.compare(session, BASE, HEAD).tests
            seed_counts.append(
                [
                    len(entry.head.record.seeds)
                    for entry in entries
                    if entry.head and entry.head.record
                ]
            )
    assert seed_counts == [[8], [6, 6], [4, 4, 4]]
    assert {
        (entry.classification.kind, entry.head.of("pass_by_tolerance"))
        for entry in entries
        if entry.head
    } == {("new_hollow_pass", 8)}


@pytest.mark.parametrize(
    ("together", "kind"),
    [("unexplained", "new_hollow_pass"), ("suspect", "undecided")],
)
def test_suspect_seeds_count_as_what_all_seeds_together_say(
    api: Api, together: str, kind: str
) -> None:
    suspect = {"verdict": "suspect", "explanation": "suspect"}
    rows = [
        nightly_history.row(0, wrong=False, within=True, bits=HEAD) | suspect,
        nightly_history.row(1, wrong=False, within=True, bits=HEAD),
    ]
    with api.context.session() as session:
        compared_builds.both(session, compared_builds.NEW, {}, None)
        job = compared_builds.rows_of(session, compared_builds.NEW, HEAD, rows)
        session.get_one(JobRow, job.id).suspects = stored_jobs.together(together)
        session.flush()
        assert comparing.compare(session, BASE, HEAD).counts == {kind: 1}


def test_a_commit_names_the_build_that_was_registered_for_it(api: Api) -> None:
    with api.context.session() as session:
        compared_builds.both(session, compared_builds.HOLLOW, {}, {"wrong": True})
        builds.add(
            session,
            name=HEAD,
            executor="emulator",
            branch="main",
            sequence=2,
            commit="5f0c77aa91be",
        )
        comparison = comparing.compare(session, BASE, "5f0c77aa91be")
        assert (comparison.head.builds, comparison.counts) == ((HEAD,), {"new_hollow_pass": 1})
        builds.add(
            session,
            name="again",
            executor="emulator",
            branch="main",
            sequence=3,
            commit="5f0c77aa91be",
        )
        with pytest.raises(FieldError, match="several builds are of this commit"):
            comparing.compare(session, "5f0c77aa91be", HEAD)


def test_runs_are_compared_with_the_names_of_their_suite(api: Api) -> None:
    entries = [{"name": "small", "test": JOB["test"], "seeds": {"start": 0, "count": 2}}]
    body = {"suite": {"name": "s", "entries": entries}, "builds": ["correct", "tt-train-2025"]}
    run = api.client.post("/api/v1/runs", json=body).json()["id"]
    with api.context.session() as session:
        for job in api.get("/jobs")["items"]:
            wrong = job["build"] == "tt-train-2025"
            rows = [
                nightly_history.row(seed, wrong=wrong, within=True, bits=job["build"])
                for seed in range(2)
            ]
            stored_jobs.report(session, job["id"], rows)
            stored_jobs.finish(session, job["id"])
    comparison = api.get(f"/compare?base=correct@{run}&head=tt-train-2025@{run}")
    assert (
        [(entry["name"], entry["class"]) for entry in comparison["items"]],
        comparison["complete"],
    ) == (
        [("small", "new_hollow_pass")],
        True,
    )
    assert api.get(f"/compare?base=tt-train-2025&head=tt-train-2025@{run}")["gate"] == {
        "code": 0,
        "reasons": {},
        "words": "nothing new",
    }
    several = api.client.get(f"/api/v1/compare?base=correct&head={run}")
    assert (
        several.status_code,
        several.json()["field"],
        f"correct@{run}" in several.json()["limit"],
    ) == (422, "head", True)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("base=a", "head"),
        ("base=a&head=never-built", "head"),
        ("base=01900000-0000-7000-8000-000000000000&head=a", "base"),
        ("base=a&head=a&class=sad", "class"),
        ("base=a&head=a&fail_on=never", "fail_on"),
        ("base=a&head=a&cursor=x", "cursor"),
        ("base=a&heat=a", "heat"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_field(api: Api, query: str, field: str) -> None:
    answer = api.client.get(f"/api/v1/compare?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    if field in ("base", "head") and "head=" in query:
        assert (
            api.client.get(f"/compare.json?{query}").status_code
            == api.client.get(f"/compare?{query}").status_code
            == 422
        )


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
