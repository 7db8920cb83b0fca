"""A commit against its base from stored seeds: classes, evidence, flags, runs, over HTTP, on its
page and by the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

import compared_builds
import nightly_history
import stored_jobs
from api import JOB, Api, in_process, on_port
from compared_builds import BASE, HEAD
from gonogo.errors import FieldError
from gonogo.spec.test_spec import TestSpec
from gonogo_cli.app import load
from gonogo_service.api.ci.compare import ComparisonOut
from gonogo_storage.catalogue import builds
from gonogo_storage.comparison import comparing
from gonogo_storage.db.states import FlagKind
from gonogo_storage.flags import flag_changes
from gonogo_storage.history import build_series
from gonogo_storage.tables import JobRow

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


def of(found: dict[str, Any], test: dict[str, Any]) -> dict[str, Any]:
    """The entry of a kernel's test."""
    return next(each for each in found["items"] if each["test_key"] == TestSpec.parse(test).key)


def test_every_class_from_stored_seeds(database_url: str) -> None:
    with in_process(database_url) as api:
        with api.context.session() as session:
            made = compared_builds.history(session)
        found = api.get(f"/compare?base={BASE}&head={HEAD}&limit=500")
        assert ComparisonOut.model_validate(found).tests == 16
        assert found["counts"] == COUNTS
        assert (found["tests"], found["next"], found["complete"]) == (16, None, False)
        assert (found["gate"]["code"], found["gate"]["reasons"]) == (
            1,
            {"new_failure": 2, "new_hollow_pass": 2, "infrastructure": 1},
        )
        said = {each["within"]: each["class"] for each in found["items"] if each["within"]}
        assert said == {
            "Ops.Fine": "passed",
            "Ops.Breaks": "new_failure",
            "Ops.Old": "broken_on_base",
            "Ops.Added": "unknown",
        }

        hollow = of(found, compared_builds.HOLLOW)
        assert made["hollow"] is not None
        assert (hollow["class"], hollow["links"]["head"]) == (
            "new_hollow_pass",
            f"/jobs/{made['hollow'].id}",
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
        masked = of(found, compared_builds.MASKED)
        assert (masked["class"], "masked, not fixed" in masked["words"]) == (
            "new_hollow_pass",
            True,
        )
        assert (
            of(found, compared_builds.BROKEN)["findings"][0]["evidence"]["change"]["by"]
            == "coefficients"
        )
        flaky = of(found, compared_builds.FLAKY)
        assert (flaky["class"], flaky["findings"][0]["evidence"]["flag"]["kind"]) == (
            "known_flaky",
            "flaky",
        )
        assert [each["class"] for each in of(found, compared_builds.HUNG)["findings"]] == [
            "infrastructure"
        ]
        assert of(found, compared_builds.OPEN)["head"]["waiting"] == 1

        # page by page it is the same, and a class alone too
        first = api.get(f"/compare?base={BASE}&head={HEAD}&limit=10")
        rest = api.get(f"/compare?base={BASE}&head={HEAD}&limit=10&cursor={first['next']}")
        assert [*first["items"], *rest["items"]] == found["items"]
        assert rest["next"] is None
        only = api.get(f"/compare?base={BASE}&head={HEAD}&class=fixed")
        assert ([each["class"] for each in only["items"]], only["counts"]) == (["fixed"], COUNTS)

        page = api.client.get(f"/compare?base={BASE}&head={HEAD}")
        assert page.status_code == 200
        assert "New hollow pass" in page.text
        assert "Blocked: " in page.text
        twin = api.client.get(f"/compare.json?base={BASE}&head={HEAD}").json()
        assert "rtol 0.001, atol 0.1 · wormhole · n150" in {
            line["where"] for line in twin["tests"]
        }  # tests of one shape differ by it
        assert {each["kind"]: each["tests"] for each in twin["counts"]} == COUNTS
        assert [line["kind"] for line in twin["tests"]] == [
            each["class"] for each in found["items"]
        ]
        # a line leads to the test's page on either build where it ran there, and to the jobs
        line = next(each for each in twin["tests"] if each["kind"] == "new_hollow_pass")
        assert line["head_url"].endswith(f"&build={HEAD}")
        assert line["base_url"].endswith(f"&build={BASE}")
        for url in (line["head_url"], line["base_url"], *line["head_jobs"]):
            assert api.client.get(url).status_code == 200
        # before anything is asked the newest builds are offered, as pairs too
        start = api.client.get("/compare.json").json()
        assert {BASE, HEAD} <= set(start["choices"])
        assert {"base": BASE, "head": HEAD} in [
            {name: pair[name] for name in ("base", "head")} for pair in start["pairs"]
        ]
        assert 'list="builds"' in api.client.get("/compare").text


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    with in_process(migrated_sqlite_url) as made:
        yield made


def test_flags_excuse_what_they_knew_before_head_or_what_someone_takes_on(api: Api) -> None:
    with api.context.session() as session:
        compared_builds.flicker(session, BASE, [])
        flag = compared_builds.flag(
            session, compared_builds.flicker(session, HEAD, [0, 1]), FlagKind.flaky
        )
        (own,) = comparing.compare(session, BASE, HEAD).tests
        assert (
            own.classification.kind == "new_failure"
        )  # head's own finding is what it is judged for
        change = {"state": "acknowledged", "owner": "kim", "reason": "the race of ticket 12"}
        flag_changes.change(session, flag, change, actor="kim")
        taken = comparing.compare(session, BASE, HEAD)
        assert (taken.tests[0].classification.kind, taken.gate("any").code) == ("waived", 0)
        assert "acknowledged by kim: the race of ticket 12" in taken.tests[0].classification.words


def test_what_ran_on_a_sick_device_says_nothing_of_the_commit(api: Api) -> None:
    with api.context.session() as session:
        stored_jobs.device(session)  # it was found bad
        compared_builds.both(
            session, compared_builds.NEW, {}, {"wrong": True, "red": compared_builds.EIGHT}
        )
        (found,) = comparing.compare(session, "elsewhere", HEAD).tests
    assert found.classification.kind == "infrastructure"
    assert found.head is not None
    assert (found.head.sick, found.head.answered) == ({"lab-1/wormhole:0": 8}, 0)


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
        return comparing.compare(session, BASE, HEAD), list(statements)

    with api.context.session() as session:
        event.listen(
            session.connection(),
            "before_cursor_execute",
            lambda *given: statements.append(given[2]),
        )
        (_, few), (found, many) = read(tests[0]), read(*tests[1:])
        facts = {each.place: found.head.facts[each.place] for each in found.tests}
        alone = {place: build_series.records(session, each) for place, each in facts.items()}
        assert build_series.records_of(session, facts) == alone
    assert (len(found.tests), len(many)) == (3, len(few))
    assert not any(
        "DISTINCT seed_results.job_id" in each for each in many
    )  # no device was ever sick
    assert [each.check is not None and "--seed-start 4" in each.check for each in found.tests] == [
        True
    ] * 3
    assert all(each.head and each.head.record == alone[each.place][-1] for each in found.tests)


def test_of_many_tests_fewer_seeds_of_each_are_compared_and_all_are_counted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = [
        {**compared_builds.NEW, "tolerance": {"rtol": 1e-3, "atol": 0.1 + number / 100}}
        for number in range(3)
    ]
    monkeypatch.setattr(comparing, "MAX_SEEDS", 12)
    monkeypatch.setattr(comparing, "MIN_SEEDS", 3)
    looked = []
    with api.context.session() as session:
        for test in tests:
            compared_builds.both(session, test, {}, {"wrong": True})
            session.flush()
            found = comparing.compare(session, BASE, HEAD).tests
            looked.append(
                [len(each.head.record.seeds) for each in found if each.head and each.head.record]
            )
    assert looked == [[8], [6, 6], [4, 4, 4]]
    assert {
        (each.classification.kind, each.head.of("pass_by_tolerance")) for each in found if each.head
    } == {("new_hollow_pass", 8)}


@pytest.mark.parametrize(
    ("together", "kind"),
    [("explained", "passed"), ("unexplained", "new_hollow_pass"), ("suspect", "undecided")],
)
def test_suspect_seeds_count_as_what_all_seeds_together_say(
    api: Api, together: str, kind: str
) -> None:
    said = {"verdict": "suspect", "explanation": "suspect"}
    rows = [
        nightly_history.row(0, wrong=False, within=True, bits=HEAD) | said,
        nightly_history.row(1, wrong=False, within=True, bits=HEAD),
    ]
    with api.context.session() as session:
        compared_builds.both(session, compared_builds.NEW, {}, None)
        job = compared_builds.rows_of(session, compared_builds.NEW, HEAD, rows)
        session.get_one(JobRow, job.id).suspects = {"explanation": together}
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
        found = comparing.compare(session, BASE, "5f0c77aa91be")
        assert (found.head.builds, found.counts) == ((HEAD,), {"new_hollow_pass": 1})
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
    found = api.get(f"/compare?base=correct@{run}&head=tt-train-2025@{run}")
    assert ([(each["name"], each["class"]) for each in found["items"]], found["complete"]) == (
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
        code, said = gonogo(BASE, HEAD, "--watch")
        assert code == 1
        assert "New hollow pass" in said
        assert "Blocked: 1 new hollow pass" in said
        assert "again: gonogo check --kernel layernorm_bw" in said
        assert "/compare?base=" in said
        code, said = gonogo(BASE, HEAD, "--fail-on", "fail", "--json")
        assert (code, json.loads(said)["counts"]) == (0, {"new_hollow_pass": 1, "passed": 1})
        assert gonogo(HEAD, BASE)[0] == 0
        assert gonogo("nothing", HEAD)[0] == 3  # base was not run: it can't be said
