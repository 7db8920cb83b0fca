"""Results of a job over HTTP: pages, streams, artifacts, the diagnosis, and the history of tests
and workloads."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

import stored_jobs
from api import Api, in_process
from database_params import BOTH
from gonogo_service.jobs import artifacts
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.results.exports import parts
from gonogo_service.routers import routers


@pytest.fixture
def api(lite_database_url: str) -> Iterator[Api]:
    with in_process(lite_database_url) as service:
        yield service


@pytest.fixture
def job(api: Api) -> JobRow:
    """A finished job of tt-train-2025 with eight seeds."""
    with api.context.session() as session:
        return stored_jobs.finished(session)


@BOTH
def test_results_page_by_arrival_and_by_seed(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.submit(session, seeds=5).id
        stored_jobs.report(session, job, [stored_jobs.row(seed, wrong=True) for seed in (3, 0)])
        stored_jobs.report(session, job, [stored_jobs.row(seed, wrong=True) for seed in (4, 1, 2)])

    def seeds(**query: object) -> list[int]:
        listed_seeds, cursor = [], None
        while True:
            page = api.get(
                f"/jobs/{job}/results",
                params={"limit": 2, **query, **({"cursor": cursor} if cursor else {})},
            )
            assert len(page["items"]) <= 2
            listed_seeds += [item["seed"] for item in page["items"]]
            cursor = page["next"]
            if cursor is None:
                return listed_seeds

    assert seeds() == [3, 0, 4, 1, 2]
    assert seeds(order="seed") == [0, 1, 2, 3, 4]


def test_a_result_has_the_form_of_the_contract(api: Api, job: JobRow) -> None:
    item = api.get(f"/jobs/{job.id}/results?order=seed&limit=1")["items"][0]
    contract = {
        "seed",
        "repeat",
        "verdict",
        "explanation",
        "device",
        "host_run",
        "position",
        "duration_ms",
        "outputs",
    }
    assert contract <= set(item)
    assert set(item["outputs"]) == {"dx", "dgamma", "dbeta"}
    assert item["outputs"]["dx"]["rounding_ratio"] == pytest.approx(157, rel=0.1)


def test_csv_has_a_line_per_output_and_seeds_without_numbers(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.submit(session, seeds=3).id
        stored_jobs.report(
            session, job, [stored_jobs.row(2, wrong=True), stored_jobs.unwell(0, "hang", "=cmd()")]
        )
    answer = api.client.get(f"/api/v1/jobs/{job}/results?format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert job in answer.headers["content-disposition"]
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(line["seed"], line["output"]) for line in lines] == [
        ("2", "dbeta"),
        ("2", "dgamma"),
        ("2", "dx"),
        ("0", ""),
    ]
    dx = lines[2]
    stored = api.get(f"/jobs/{job}/results")["items"][0]["outputs"]["dx"]
    assert float(dx["rounding_ratio"]) == stored["rounding_ratio"]
    assert dx["output_verdict"] == "pass_by_tolerance"
    assert lines[3]["verdict"] == "hang"
    assert lines[3]["message"] == "'=cmd()"  # a spreadsheet must not run it


@BOTH
def test_streams_hold_everything_across_their_pages(
    api: Api, job: JobRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PAGE", 3)
    answer = api.client.get(f"/api/v1/jobs/{job.id}/results?format=ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert lines == api.get(f"/jobs/{job.id}/results?order=seed&limit=500")["items"]
    text = api.client.get(f"/api/v1/jobs/{job.id}/results?format=csv").text
    assert len(text.splitlines()) == 1 + 3 * 8


@pytest.mark.parametrize("form", ["arrow", "xml", ""])
def test_an_unknown_format_is_refused_with_those_there_are(
    api: Api, job: JobRow, form: str
) -> None:
    answer = api.client.get(f"/api/v1/jobs/{job.id}/results?format={form}")
    assert answer.status_code == 422
    assert answer.json()["field"] == "format"
    assert answer.json()["limit"] == "one of json, csv, ndjson, junit, ctrf"


def test_a_cursor_that_the_list_did_not_give_is_refused(api: Api, job: JobRow) -> None:
    for query in ("cursor=x", "cursor=1.2.3", "order=seed&cursor=7", "format=csv&cursor=1"):
        answer = api.client.get(f"/api/v1/jobs/{job.id}/results?{query}")
        assert (answer.status_code, answer.json()["field"]) == (422, "cursor"), query


@BOTH
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
    words = f"dx: {stored_jobs.FAULT}"
    diagnosis = api.get(f"/jobs/{job.id}/diagnosis")
    assert (diagnosis["state"], diagnosis["verdict"]) == ("finished", "pass_by_tolerance")
    assert diagnosis["words"] == words
    assert (diagnosis["can_tell"], diagnosis["faults"]) == (True, {"dx": stored_jobs.FAULT})
    with api.context.session() as session:
        running = stored_jobs.submit(session).id
        stored_jobs.report(session, running, [stored_jobs.row(0, wrong=True)], diagnosed=True)
    diagnosis = api.get(f"/jobs/{running}/diagnosis")
    assert (diagnosis["state"], diagnosis["verdict"], diagnosis["words"]) == (
        "running",
        None,
        words,
    )


@BOTH
def test_a_test_tells_its_history_per_build_and_its_flags(api: Api, job: JobRow) -> None:
    with api.context.session() as session:
        stored_jobs.finished(session, wrong=False, seeds=3)
    assert [test["key"] for test in api.get("/tests?kernel=layernorm_bw")["items"]] == [
        job.test_key
    ]
    assert api.get("/tests?kernel=layernorm_fw")["items"] == []
    test = api.get(f"/tests/{job.test_key}")
    counts = {build["build"]: build["counts"] for build in test["builds"]}
    assert counts == {"tt-train-2025": {"pass_by_tolerance": 8}, "correct": {"pass": 3}}
    assert [flag["kind"] for flag in test["flags"]] == ["passes_by_tolerance"]
    assert api.client.get("/api/v1/tests/v1-nothing").status_code == 404


@BOTH
def test_a_subject_keeps_its_past_when_the_tolerance_changes(api: Api, job: JobRow) -> None:
    with api.context.session() as session:
        later = stored_jobs.finished(
            session, test={**stored_jobs.NIGHTLY, "tolerance": {"atol": 0.01}}, seeds=2
        )
    assert later.test_key != job.test_key
    items = api.get(f"/workloads/{job.workload_key}/history")["items"]
    assert [item["job"] for item in items] == [later.id, job.id]
    assert items[1]["outputs"]["dx"]["rounding_ratio"] > 100
    page = api.get(f"/workloads/{job.workload_key}/history?limit=1")
    assert [
        item["job"]
        for item in api.get(
            f"/workloads/{job.workload_key}/history", params={"cursor": page["next"]}
        )["items"]
    ] == [job.id]
    assert api.client.get("/api/v1/workloads/v1-nothing/history").status_code == 404


def test_every_address_below_a_job_says_when_there_is_no_such_job(api: Api) -> None:
    paths = {
        route.path.replace("{job_id}", "01890000-0000-7000-8000-000000000000").replace(
            "{artifact_id}", "x"
        )
        for router in routers()
        for route in router.routes
        if isinstance(route, APIRoute) and "{job_id}" in route.path and "GET" in route.methods
    }
    assert len(paths) == 6
    for path in paths:
        assert api.client.get(path).status_code == 404, path


@pytest.mark.parametrize("order", ["arrival", "seed"])
def test_a_page_of_results_never_tears_a_seed_in_two(
    api: Api, job: JobRow, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    whole = {
        item["seed"]: list(item["outputs"]) for item in api.get(f"/jobs/{job.id}/results")["items"]
    }
    (outputs,) = {len(names) for names in whole.values()}
    assert outputs > 1
    monkeypatch.setattr("gonogo_service.results.api.MAX_OUTPUTS", 2 * outputs + 1)
    pages, cursor = [], ""
    while cursor is not None:
        page = api.get(f"/jobs/{job.id}/results?order={order}{cursor and '&cursor='}{cursor}")
        pages.append({item["seed"]: list(item["outputs"]) for item in page["items"]})
        cursor = page["next"]
    assert [len(page) for page in pages] == [2, 2, 2, 2]
    assert {seed: names for page in pages for seed, names in page.items()} == whole


@BOTH
def test_an_iteration_of_many_tests_comes_on_several_pages(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = "".join(f'<testcase classname="s" name="t{number:02}"/>' for number in range(25))
    report = f"<testsuites><testsuite name='s'>{cases}</testsuite></testsuites>"
    path = "/api/v1/imports?format=junit&build=b&suite=s"
    job = api.client.post(path, content=report.encode()).json()["id"]
    (whole,) = api.get(f"/jobs/{job}/results")["items"]
    assert (whole["outputs_from"], whole["outputs_total"]) == (0, 25)
    monkeypatch.setattr("gonogo_service.results.api.MAX_OUTPUTS", 10)
    for order in ("arrival", "seed"):
        cursor, sizes, names = "", [], []
        while cursor is not None:
            page = api.get(f"/jobs/{job}/results?order={order}{cursor and '&cursor='}{cursor}")
            (item,) = page["items"]
            assert item["outputs_from"] == len(names)
            sizes.append(len(item["outputs"]))
            names += item["outputs"]
            cursor = page["next"]
        assert (sizes, names) == ([10, 10, 5], sorted(whole["outputs"]))
