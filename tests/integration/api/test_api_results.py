"""Results of jobs and runs over HTTP: pages, files in every format, artifacts, the diagnosis, and
the history of tests and workloads."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

import pytest

import stored_jobs
import suite_runs
from api import Api, refusal
from database_params import BOTH
from gonogo_service.jobs import artifacts
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.results.exports import parts
from records import pick

NASTY = "=cmd() \u2028 <b>&amp; ]]> \x1b[31m \N{SNOWMAN}"


@pytest.fixture
def job(api: Api) -> JobRow:
    with api.context.session() as session:
        return stored_jobs.finished(session)


@pytest.fixture(scope="module")
def mixed(shared: Api) -> str:
    """A job with three hollow passes, a seed that hung, and an inconclusive one."""
    with shared.context.session() as session:
        job_id = stored_jobs.submit(session, seeds=5).id
        rows = [stored_jobs.row(seed, wrong=True) for seed in (2, 0, 1)]
        hung = stored_jobs.unwell(3, "hang", NASTY)
        unsure = stored_jobs.unwell(4, "inconclusive", "constant rows")
        stored_jobs.report(session, job_id, [*rows, hung, unsure])
        stored_jobs.finish(session, job_id)
    return job_id


def paged(api: Api, path: str, **query: Any) -> Iterator[list[dict[str, Any]]]:
    """The pages of a list."""
    cursor: dict[str, str] = {}
    while True:
        page = api.get(path, params={**query, **cursor})
        yield page["items"]
        if page["next"] is None:
            return
        cursor = {"cursor": page["next"]}


def file_of(api: Api, noun: str, identity: str, form: str) -> bytes:
    answer = api.client.get(f"/api/v1/{noun}/{identity}/results?format={form}")
    assert answer.status_code == 200, answer.text
    assert f'filename="{identity}.' in answer.headers["content-disposition"]
    return answer.content


def csv_of(api: Api, noun: str, identity: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file_of(api, noun, identity, "csv").decode())))


@BOTH
def test_results_page_by_arrival_and_by_seed(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.submit(session, seeds=5).id
        for seeds in ((3, 0), (4, 1, 2)):
            rows = [stored_jobs.row(seed, wrong=True) for seed in seeds]
            stored_jobs.report(session, job, rows)
    for order, expected in (("arrival", [[3, 0], [4, 1], [2]]), ("seed", [[0, 1], [2, 3], [4]])):
        pages = paged(api, f"/jobs/{job}/results", limit=2, order=order)
        assert [[item["seed"] for item in page] for page in pages] == expected


@pytest.mark.parametrize("order", ["arrival", "seed"])
def test_a_page_of_results_never_tears_a_seed_in_two(
    api: Api, job: JobRow, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    path = f"/jobs/{job.id}/results"
    whole = api.get(path, params={"order": order})["items"]
    (outputs,) = {len(item["outputs"]) for item in whole}
    monkeypatch.setattr("gonogo_service.results.api.MAX_OUTPUTS", 2 * outputs + 1)
    pages = list(paged(api, path, order=order))
    assert [len(page) for page in pages] == [2, 2, 2, 2]
    assert [item for page in pages for item in page] == whole


def test_an_iteration_of_many_tests_comes_on_several_pages(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = "".join(f'<testcase classname="s" name="t{number:02}"/>' for number in range(25))
    report = f"<testsuites><testsuite name='s'>{cases}</testsuite></testsuites>"
    path = "/api/v1/imports?format=junit&build=b&suite=s"
    job = api.client.post(path, content=report.encode()).json()["id"]
    (whole,) = api.get(f"/jobs/{job}/results")["items"]
    assert pick(whole, "outputs_from", "outputs_total") == (0, 25)
    monkeypatch.setattr("gonogo_service.results.api.MAX_OUTPUTS", 10)
    for order in ("arrival", "seed"):
        items = [item for (item,) in paged(api, f"/jobs/{job}/results", order=order)]
        assert [item["outputs_from"] for item in items] == [0, 10, 20]
        assert [name for item in items for name in item["outputs"]] == sorted(whole["outputs"])


def test_an_unknown_format_and_a_foreign_cursor_are_refused(api: Api, job: JobRow) -> None:
    address = f"/api/v1/jobs/{job.id}/results"
    for form in ("arrow", ""):
        answer = api.client.get(f"{address}?format={form}")
        assert refusal(answer) == (422, "format")
        assert answer.json()["limit"] == "one of json, csv, ndjson, junit, ctrf"
    foreign = ("cursor=x", "cursor=²", "cursor=" + "9" * 30, "cursor=1.2.3", "order=seed&cursor=7")
    foreign += (f"cursor={2**31}", f"cursor=1.{2**31}", f"order=seed&cursor=1.{2**31}")
    for query in (*foreign, "format=csv&cursor=1"):
        assert refusal(api.client.get(f"{address}?{query}")) == (422, "cursor"), query


def test_csv_has_a_line_per_output_and_seeds_without_numbers(shared: Api, mixed: str) -> None:
    answer = shared.client.get(f"/api/v1/jobs/{mixed}/results?format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    lines = csv_of(shared, "jobs", mixed)
    named = [pick(line, "seed", "output") for line in lines[6:]]
    assert named == [("2", "dbeta"), ("2", "dgamma"), ("2", "dx"), ("3", ""), ("4", "")]
    dx, hung = lines[8:10]
    stored = shared.get(f"/jobs/{mixed}/results?order=seed")["items"][2]["outputs"]["dx"]
    assert float(dx["rounding_ratio"]) == stored["rounding_ratio"]
    assert dx["output_verdict"] == "pass_by_tolerance"
    assert hung["verdict"] == "hang"
    assert hung["message"].startswith("'=cmd()")  # a spreadsheet must not run it


def test_streams_hold_everything_across_their_pages(
    api: Api, job: JobRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PAGE", 3)
    answer = api.client.get(f"/api/v1/jobs/{job.id}/results?format=ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines == api.get(f"/jobs/{job.id}/results?order=seed&limit=500")["items"]
    assert len(csv_of(api, "jobs", job.id)) == 3 * 8


def test_junit_counts_findings_as_failures_and_says_how_to_see_them_again(
    shared: Api, mixed: str
) -> None:
    (suite,) = ElementTree.fromstring(file_of(shared, "jobs", mixed, "junit"))
    counted = {"tests": "5", "failures": "3", "errors": "1", "skipped": "1"}
    assert counted.items() <= suite.attrib.items()
    cases = {str(case.get("name")): case for case in suite.iter("testcase")}
    assert list(cases) == [f"seed {number}" for number in range(5)]
    assert cases["seed 0"].get("time") == "0.812500"  # 812.5 ms
    failure, error = cases["seed 0"].find("failure"), cases["seed 3"].find("error")
    assert failure is not None
    assert failure.get("type") == "pass_by_tolerance"
    again = "gonogo check --kernel layernorm_bw --shape 3,273,1,8462 --build tt-train-2025"
    for words in ("dx: Hollow pass, unexplained, tolerance_ratio", f"again: {again}"):
        assert words in str(failure.text)
    assert error is not None
    assert NASTY.replace("\x1b", "\ufffd") in str(error.text)
    assert cases["seed 4"].find("skipped") is not None


def test_ctrf_has_what_its_schema_requires_and_sums_up_what_it_holds(
    shared: Api, mixed: str
) -> None:
    report = json.loads(file_of(shared, "jobs", mixed, "ctrf"))
    assert set(report) == {"reportFormat", "specVersion", "generatedBy", "results"}
    assert set(report["results"]) == {"tool", "summary", "tests", "environment", "extra"}
    assert (report["reportFormat"], report["results"]["tool"]["name"]) == ("CTRF", "gonogo")
    summary, tests = report["results"]["summary"], report["results"]["tests"]
    counted = {"tests": 5, "passed": 0, "failed": 3, "skipped": 1, "pending": 0, "other": 1}
    assert counted.items() <= summary.items()
    facts = shared.get(f"/jobs/{mixed}")
    for name, moment in (("start", "started_at"), ("stop", "finished_at")):
        exact = datetime.fromisoformat(facts[moment] or facts["created_at"]).timestamp()
        assert summary[name] == round(exact * 1000), name
    required = {"name", "status", "duration"}
    known = {*required, "suite", "rawStatus", "message", "trace", "filePath", "line", "extra"}
    for test in tests:
        assert required <= set(test) <= known
        assert isinstance(test["duration"], int)
    statuses = [test["rawStatus"] for test in tests]
    assert statuses == ["pass_by_tolerance"] * 3 + ["hang", "inconclusive"]


def test_a_file_without_rows_is_a_file(shared: Api) -> None:
    with shared.context.session() as session:
        queued = stored_jobs.submit(session).id
    assert len(file_of(shared, "jobs", queued, "csv").splitlines()) == 1  # the header
    suite = ElementTree.fromstring(file_of(shared, "jobs", queued, "junit"))[0]
    # the number is unknown until the job ends
    assert (list(suite.iter("testcase")), suite.get("tests")) == ([], None)
    assert json.loads(file_of(shared, "jobs", queued, "ctrf"))["results"]["summary"]["tests"] == 0


def test_a_run_is_one_file_with_every_job_named(shared: Api) -> None:
    run = shared.client.post("/api/v1/runs", json={"suite": suite_runs.SUITE}).json()["id"]
    right, *hollow = jobs = [test["id"] for test in shared.get(f"/runs/{run}")["tests"]]
    with shared.context.session() as session:
        for job in jobs:
            suite_runs.finish(session, job, wrong=job in hollow)
        suite_runs.conclude(session)
    lines = [line["job"] for line in csv_of(shared, "runs", run)]
    assert lines == [right] * 6 + [job for job in hollow for _ in range(3)]
    rows = map(json.loads, file_of(shared, "runs", run, "ndjson").splitlines())
    assert [row["job"] for row in rows] == [right, *jobs]
    suites = list(ElementTree.fromstring(file_of(shared, "runs", run, "junit")))
    counts = [(suite.get("tests"), suite.get("failures")) for suite in suites]
    assert (suites[0].get("name"), counts) == ("small", [("2", "0"), ("1", "1"), ("1", "1")])
    summary = json.loads(file_of(shared, "runs", run, "ctrf"))["results"]["summary"]
    assert pick(summary, "passed", "failed", "suites") == (2, 2, 3)
    page = shared.client.get(f"/runs/{run}", headers={"Accept": "text/html"}).text
    for form in ("csv", "ndjson", "junit", "ctrf"):
        assert f"/api/v1/runs/{run}/results?format={form}" in page
    assert shared.client.get(f"/api/v1/runs/{run}/results?format=json").json()["field"] == "format"


@pytest.mark.parametrize("form", ["junit", "ctrf"])
def test_what_goes_out_comes_in_again_with_the_same_outcomes(shared: Api, form: str) -> None:
    """Export four imported tests and import them again: passed, failed, skipped and broken."""
    inner = {"a": "", "b": '<failure message="off by one"/>', "c": "<skipped/>", "d": "<error/>"}
    cases = "".join(
        f'<testcase classname="s" name="{name}">{text}</testcase>' for name, text in inner.items()
    )
    imports, report = "/api/v1/imports?format=", f'<testsuite name="s">{cases}</testsuite>'.encode()
    imported = shared.client.post(f"{imports}junit", content=report).json()
    out = file_of(shared, "jobs", imported["id"], form)
    back = shared.client.post(imports + form, content=out).json()
    outcomes = {"passed": 1, "failed": 1, "skipped": 1, "error": 1}
    assert back["outcomes"] == imported["outcomes"] == outcomes
    (one,), (other,) = (
        shared.get(f"/jobs/{job['id']}/results")["items"] for job in (imported, back)
    )
    assert set(one["outputs"]) == set(other["outputs"])


def test_artifacts_are_listed_without_and_given_with_their_content(api: Api) -> None:
    log = {"kind": "log", "seed": 0, "repeat": 0, "output": "", "content": {"text": "x"}}
    with api.context.session() as session:
        job, other = (stored_jobs.submit(session).id for _ in range(2))
        for text in ("x", "second"):
            sent = {**log, "content": {"text": text}}
            artifacts.add(session, job, new_id(), [sent], now=utcnow())
    listed = api.get(f"/jobs/{job}/artifacts")
    assert listed["next"] is None
    (head,) = listed["items"]
    assert head["kind"] == "log"
    assert "content" not in head
    assert api.get(f"/jobs/{job}/artifacts?kind=error_map")["items"] == []
    whole = api.get(f"/jobs/{job}/artifacts/{head['id']}")
    assert whole == {**head, "content": log["content"]}
    assert api.client.get(f"/api/v1/jobs/{other}/artifacts/{head['id']}").status_code == 404


def test_the_diagnosis_is_in_words_also_while_the_job_runs(api: Api, job: JobRow) -> None:
    with api.context.session() as session:
        running = stored_jobs.submit(session).id
        stored_jobs.report(session, running, [stored_jobs.row(0, wrong=True)], diagnosed=True)
    for name, state in ((job.id, ("finished", "pass_by_tolerance")), (running, ("running", None))):
        diagnosis = api.get(f"/jobs/{name}/diagnosis")
        assert pick(diagnosis, "state", "verdict") == state
        assert diagnosis["words"] == f"dx: {stored_jobs.FAULT}"
        assert pick(diagnosis, "can_tell", "faults") == (True, {"dx": stored_jobs.FAULT})


def test_a_test_tells_its_history_per_build_and_its_flags(api: Api, job: JobRow) -> None:
    with api.context.session() as session:
        stored_jobs.finished(session, wrong=False, seeds=3)
    (listed,) = api.get("/tests?kernel=layernorm_bw")["items"]
    assert listed["key"] == job.test_key
    assert api.get("/tests?kernel=layernorm_fw")["items"] == []
    test = api.get(f"/tests/{job.test_key}")
    counts = {build["build"]: build["counts"] for build in test["builds"]}
    assert counts == {"tt-train-2025": {"pass_by_tolerance": 8}, "correct": {"pass": 3}}
    assert [flag["kind"] for flag in test["flags"]] == ["passes_by_tolerance"]


def test_a_subject_keeps_its_past_when_the_tolerance_changes(api: Api, job: JobRow) -> None:
    looser = {**stored_jobs.NIGHTLY, "tolerance": {"atol": 0.01}}
    with api.context.session() as session:
        later = stored_jobs.finished(session, test=looser, seeds=2)
    assert later.test_key != job.test_key
    history = f"/workloads/{job.workload_key}/history"
    items = api.get(history)["items"]
    assert [item["job"] for item in items] == [later.id, job.id]
    assert items[1]["outputs"]["dx"]["rounding_ratio"] > 100
    assert list(paged(api, history, limit=1)) == [items[:1], items[1:]]
