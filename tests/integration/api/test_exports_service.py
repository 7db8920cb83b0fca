"""Exports over HTTP: one job and one run in every format, read by third-party parsers."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from xml.etree import ElementTree

import pytest

import stored_jobs
import suite_runs
from api import Api

NASTY = "=cmd() \u2028 <b>&amp; ]]> \x1b[31m \N{SNOWMAN}"
FILES = ("csv", "ndjson", "junit", "ctrf")


@pytest.fixture(scope="module")
def job(shared: Api) -> str:
    """A job with three hollow passes, a seed that hung, and an inconclusive one."""
    with shared.context.session() as session:
        job_id = stored_jobs.submit(session, seeds=5).id
        rows = [stored_jobs.row(seed, wrong=True) for seed in (2, 0, 1)]
        stored_jobs.report(
            session,
            job_id,
            [
                *rows,
                stored_jobs.unwell(3, "hang", NASTY),
                stored_jobs.unwell(4, "inconclusive", "constant rows"),
            ],
        )
        stored_jobs.finish(session, job_id)
    return job_id


@pytest.fixture(scope="module")
def run(shared: Api) -> str:
    """A run of three jobs: one right, two hollow."""
    response = shared.client.post("/api/v1/runs", json={"suite": suite_runs.SUITE})
    assert response.status_code == 202, response.text
    run_id = str(response.json()["id"])
    with shared.context.session() as session:
        for number, test in enumerate(shared.get(f"/runs/{run_id}")["tests"]):
            suite_runs.finish(session, test["id"], wrong=number > 0)
        suite_runs.conclude(session)
    return run_id


def file_of(shared: Api, noun: str, identity: str, form: str) -> bytes:
    answer = shared.client.get(f"/api/v1/{noun}/{identity}/results?format={form}")
    assert answer.status_code == 200, answer.text
    assert f'filename="{identity}.' in answer.headers["content-disposition"]
    return answer.content


def test_junit_counts_findings_as_failures_and_says_how_to_see_them_again(
    shared: Api, job: str
) -> None:
    root = ElementTree.fromstring(file_of(shared, "jobs", job, "junit"))
    (suite,) = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "3",
        "errors": "1",
        "skipped": "1",
    }
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert list(cases) == ["seed 0", "seed 1", "seed 2", "seed 3", "seed 4"]
    assert cases["seed 0"].get("time") == "0.812500"  # 812.5 ms
    failure = cases["seed 0"].find("failure")
    assert failure is not None
    assert failure.get("type") == "pass_by_tolerance"
    assert "dx: Hollow pass, unexplained, tolerance_ratio" in str(failure.text)
    assert (
        "again: gonogo check --kernel layernorm_bw --shape 3,273,1,8462 --build tt-train-2025"
        in str(failure.text)
    )
    error = cases["seed 3"].find("error")
    assert error is not None
    assert NASTY.replace("\x1b", "\ufffd") in str(error.text)
    assert cases["seed 4"].find("skipped") is not None


def test_ctrf_has_what_its_schema_requires_and_sums_up_what_it_holds(shared: Api, job: str) -> None:
    report = json.loads(file_of(shared, "jobs", job, "ctrf"))
    assert set(report) == {"reportFormat", "specVersion", "generatedBy", "results"}
    assert set(report["results"]) == {"tool", "summary", "tests", "environment", "extra"}
    assert (report["reportFormat"], report["results"]["tool"]["name"]) == ("CTRF", "gonogo")
    summary, tests = report["results"]["summary"], report["results"]["tests"]
    counted = {"tests": 5, "passed": 0, "failed": 3, "skipped": 1, "pending": 0, "other": 1}
    assert {name: summary[name] for name in counted} == counted
    facts = shared.get(f"/jobs/{job}")
    for name, moment in (("start", "started_at"), ("stop", "finished_at")):
        exact = datetime.fromisoformat(facts[moment] or facts["created_at"]).timestamp()
        assert summary[name] == round(exact * 1000), name
    required = {"name", "status", "duration"}
    known = {*required, "suite", "rawStatus", "message", "trace", "filePath", "line", "extra"}
    for test in tests:
        assert required <= set(test) <= known
        assert isinstance(test["duration"], int)
    assert [test["rawStatus"] for test in tests] == [
        *["pass_by_tolerance"] * 3,
        "hang",
        "inconclusive",
    ]


def test_a_file_without_rows_is_a_file(shared: Api) -> None:
    with shared.context.session() as session:
        queued = stored_jobs.submit(session).id
    assert len(file_of(shared, "jobs", queued, "csv").splitlines()) == 1  # the header
    suite = ElementTree.fromstring(file_of(shared, "jobs", queued, "junit"))[0]
    assert (list(suite.iter("testcase")), suite.get("tests")) == (
        [],
        None,
    )  # the number is unknown until the job ends
    assert json.loads(file_of(shared, "jobs", queued, "ctrf"))["results"]["summary"]["tests"] == 0


def test_a_run_is_one_file_with_every_job_named(shared: Api, run: str) -> None:
    jobs = [test["id"] for test in shared.get(f"/runs/{run}")["tests"]]
    lines = list(csv.DictReader(io.StringIO(file_of(shared, "runs", run, "csv").decode())))
    assert [line["job"] for line in lines] == [jobs[0]] * 6 + [jobs[1]] * 3 + [jobs[2]] * 3
    assert [
        json.loads(line)["job"] for line in file_of(shared, "runs", run, "ndjson").splitlines()
    ] == [jobs[0], *jobs]
    suites = list(ElementTree.fromstring(file_of(shared, "runs", run, "junit")))
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in suites] == [
        ("small", "2", "0"),
        (suites[1].get("name"), "1", "1"),
        (suites[2].get("name"), "1", "1"),
    ]
    summary = json.loads(file_of(shared, "runs", run, "ctrf"))["results"]["summary"]
    assert (summary["passed"], summary["failed"], summary["suites"]) == (2, 2, 3)
    page = shared.client.get(f"/runs/{run}", headers={"Accept": "text/html"}).text
    assert all(f"/api/v1/runs/{run}/results?format={form}" in page for form in FILES)
    assert shared.client.get(f"/api/v1/runs/{run}/results?format=json").json()["field"] == "format"
    assert (
        shared.client.get(
            "/api/v1/runs/01890000-0000-7000-8000-000000000000/results?format=csv"
        ).status_code
        == 404
    )


@pytest.mark.parametrize("form", ["junit", "ctrf"])
def test_what_goes_out_comes_in_again_with_the_same_outcomes(shared: Api, form: str) -> None:
    """Export four imported tests and import them again: passed, failed, skipped and broken."""
    cases = "".join(
        f'<testcase classname="s" name="{name}">{inner}</testcase>'
        for name, inner in OUTCOMES.items()
    )
    imported = shared.client.post(
        "/api/v1/imports?format=junit", content=f'<testsuite name="s">{cases}</testsuite>'.encode()
    ).json()
    out = file_of(shared, "jobs", imported["id"], form)
    back = shared.client.post(f"/api/v1/imports?format={form}", content=out)
    assert back.status_code == 201, back.text
    assert (
        back.json()["outcomes"]
        == imported["outcomes"]
        == {"passed": 1, "failed": 1, "skipped": 1, "error": 1}
    )
    names = shared.get(f"/jobs/{imported['id']}/results")["items"][0]["outputs"]
    assert set(shared.get(f"/jobs/{back.json()['id']}/results")["items"][0]["outputs"]) == set(
        names
    )


OUTCOMES = {"a": "", "b": '<failure message="off by one"/>', "c": "<skipped/>", "d": "<error/>"}
