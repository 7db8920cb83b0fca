"""Results of a job over HTTP: pages, streams, artifacts, the diagnosis, and the history of tests
and workloads."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

import stored_jobs
from api import Api, refusal
from database_params import BOTH
from gonogo_service.jobs import artifacts
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.results.exports import parts


@pytest.fixture
def job(api: Api) -> JobRow:
    with api.context.session() as session:
        return stored_jobs.finished(session)


def paged(api: Api, path: str, **query: Any) -> Iterator[list[dict[str, Any]]]:
    """The pages of a list."""
    cursor: dict[str, str] = {}
    while True:
        page = api.get(path, params={**query, **cursor})
        yield page["items"]
        if page["next"] is None:
            return
        cursor = {"cursor": page["next"]}


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


def test_an_unknown_format_and_a_foreign_cursor_are_refused(api: Api, job: JobRow) -> None:
    address = f"/api/v1/jobs/{job.id}/results"
    for form in ("arrow", ""):
        answer = api.client.get(f"{address}?format={form}")
        assert refusal(answer) == (422, "format")
        assert answer.json()["limit"] == "one of json, csv, ndjson, junit, ctrf"
    foreign = ("cursor=x", "cursor=²", "cursor=" + "9" * 30, "cursor=1.2.3", "order=seed&cursor=7")
    for query in (*foreign, "format=csv&cursor=1"):
        assert refusal(api.client.get(f"{address}?{query}")) == (422, "cursor"), query


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
    for name, state, verdict in (
        (job.id, "finished", "pass_by_tolerance"),
        (running, "running", None),
    ):
        diagnosis = api.get(f"/jobs/{name}/diagnosis")
        assert (diagnosis["state"], diagnosis["verdict"]) == (state, verdict)
        assert diagnosis["words"] == f"dx: {stored_jobs.FAULT}"
        assert (diagnosis["can_tell"], diagnosis["faults"]) == (True, {"dx": stored_jobs.FAULT})


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
    assert api.client.get("/api/v1/workloads/v1-nothing/history").status_code == 404


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
    assert (whole["outputs_from"], whole["outputs_total"]) == (0, 25)
    monkeypatch.setattr("gonogo_service.results.api.MAX_OUTPUTS", 10)
    for order in ("arrival", "seed"):
        items = [item for (item,) in paged(api, f"/jobs/{job}/results", order=order)]
        assert [item["outputs_from"] for item in items] == [0, 10, 20]
        assert [name for item in items for name in item["outputs"]] == sorted(whole["outputs"])
