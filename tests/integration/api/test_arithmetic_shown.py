"""The arithmetic model and the detection limits wherever a verdict is shown: the API, the exports,
the pages, and the terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

import nightly_history
import stored_jobs
from api import Api, in_process, on_port
from database_params import BOTH
from gonogo import urls
from gonogo.spec.arithmetic_words import ArithmeticSummary
from gonogo.spec.verdicts import explain
from gonogo_cli.app import load
from replayed_rows import INSIDE, STORED, TEST, row
from stored_histories import world

BASE, HEAD = "b1", "b2"
LIMIT = "a common factor below 0."


@pytest.fixture
def api(lite_database_url: str) -> Iterator[Api]:
    """A service with two builds of a branch; the second one stores x^ in bf16."""
    with world(lite_database_url) as here:
        for sequence, build in enumerate((BASE, HEAD), 1):
            rows = [row(seed, stores=build == HEAD) for seed in range(4)]
            here.job(rows, test=TEST, build=build, sequence=sequence)
        with in_process(lite_database_url) as service:
            yield service


def job_of(api: Api, build: str) -> str:
    (job,) = api.get(f"/jobs?build={build}")["items"]
    assert "arithmetic" not in job  # only a job that is read by its id has it
    return str(job["id"])


def test_the_api_has_the_model_and_what_no_seed_could_have_seen(api: Api) -> None:
    job = api.get(f"/jobs/{job_of(api, HEAD)}")
    (model,) = (ArithmeticSummary(**output) for output in job["arithmetic"])
    assert (model.output, model.arithmetic, model.seeds) == ("y", STORED, 4)
    (limit,) = model.detection_limits
    assert limit == "a common factor below 0.0003 %"
    assert model.words == f"arithmetic model of y: {STORED}; couldn't have seen: {limit}"
    with api.context.session() as session:
        named = stored_jobs.finished(session)
    assert api.get(f"/jobs/{named.id}")["arithmetic"] is None


def test_a_budget_s_limits_are_shown_with_its_name(api: Api) -> None:
    limit = "a common factor below 0.3 %"
    rows = [stored_jobs.row(seed, wrong=False) for seed in range(4)]
    for result in rows:
        result["outputs"]["dgamma"] |= {
            "detection_limits": ["mean", limit],
            "unseen_terms": ["mean"],
        }
    with api.context.session() as session:
        job = stored_jobs.submit(session, build="correct", seeds=4)
        stored_jobs.report(session, job.id, rows)
        stored_jobs.finish(session, job.id)
    (model,) = (ArithmeticSummary(**output) for output in api.get(f"/jobs/{job.id}")["arithmetic"])
    assert (model.output, model.arithmetic, model.seeds) == ("dgamma", "tt-train", 4)
    assert model.detection_limits == ["mean", limit]
    key = api.get(f"/jobs/{job.id}")["test_key"]
    # the page of a job with a chosen seed has both
    for address, times in (
        (f"/jobs/{job.id}", 1),
        (f"/jobs/{job.id}?seed=2", 2),
        (f"/tests/{key}", 1),
    ):
        page = api.client.get(address).text.replace("&#39;", "'")
        meaning = "The build names the arithmetic model tt-train; its budget is the ruler."
        assert page.count(meaning) == times
        assert page.count(f"couldn't have seen: mean; {limit}") == times
    results = f"/api/v1/jobs/{job.id}/results?format="
    junit = api.client.get(results + "junit").text
    assert f'<property name="detection_limits" value="dgamma: mean, {limit}"/>' in junit
    assert '<property name="arithmetic"' not in junit
    lines = list(csv.DictReader(io.StringIO(api.client.get(results + "csv").text)))
    assert {line["detection_limits"] for line in lines} == {"", f"mean; {limit}"}


@BOTH
def test_stored_rows_are_explained_again_as_they_were(api: Api) -> None:
    unknown = row(0)
    unknown["outputs"] = {
        "y": {**unknown["outputs"]["y"], "arithmetic": None, "may_store": True, "cell_max": 99.0}
    }
    with api.context.session() as session:
        job = nightly_history.submit(session, [0], test=TEST, build="b3", sequence=3)
        stored_jobs.report(session, job.id, [unknown])
        stored_jobs.finish(session, job.id)
    for name in (job_of(api, BASE), job_of(api, HEAD)):
        for item in api.get(f"/jobs/{name}/results")["items"]:
            assert explain(item["outputs"]["y"]) == item["explanation"] == "explained"
    (item,) = api.get(f"/jobs/{job.id}/results")["items"]
    assert explain(item["outputs"]["y"]) == "suspect"
    (model,) = api.get(f"/jobs/{job.id}")["arithmetic"]
    assert (model["arithmetic"], model["nearest_arithmetic"]) == (None, INSIDE)
    assert "none reproduces it; nearest: fp32-inside" in api.client.get(f"/jobs/{job.id}").text


def test_exports_have_the_model_and_the_limits_of_each_output(api: Api) -> None:
    address = f"/api/v1/jobs/{job_of(api, HEAD)}/results?format="
    lines = list(csv.DictReader(io.StringIO(api.client.get(address + "csv").text)))
    assert {line["output_arithmetic"] for line in lines} == {STORED}
    assert all(LIMIT in line["detection_limits"] for line in lines)
    assert "nearest_arithmetic" in json.loads(lines[0]["other"])
    junit = api.client.get(address + "junit").text
    assert f'<property name="arithmetic" value="y: {STORED}"/>' in junit
    assert '<property name="detection_limits" value="y: a common factor below' in junit
    tests = api.client.get(address + "ctrf").json()["results"]["tests"]
    assert {test["extra"]["arithmetic"] for test in tests} == {f"y: {STORED}"}


def test_the_command_prints_the_model_and_the_limits_below_the_results(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with world(migrated_sqlite_url) as here:
        here.job([row(seed, stores=True) for seed in range(4)], test=TEST)
    with on_port(migrated_sqlite_url) as (client, _):
        monkeypatch.setenv("GONOGO_URL", str(client.base_url))
        job = client.get("/api/v1/jobs").json()["items"][0]["id"]
        for command in ("results", "watch"):
            load(command).main([job], prog_name=f"gonogo {command}", standalone_mode=False)
            printed = " ".join(capsys.readouterr().out.split())
            assert f"arithmetic model of y: {STORED}; couldn't have seen: a common" in printed


def test_a_comparison_names_the_new_arithmetic_and_lets_the_commit_pass(api: Api) -> None:
    comparison = api.get(f"/compare?base={BASE}&head={HEAD}&fail_on=any")
    assert comparison["counts"] == {"arithmetic_changed": 1}
    assert comparison["gate"]["code"] == 0
    (finding,) = comparison["items"][0]["findings"]
    assert (finding["words"], finding["new"]) == ("y: x^ is now stored in bf16", True)
    (change,) = finding["evidence"]["arithmetic"]
    assert (change["before"], change["after"]) == (INSIDE, STORED)
    page = api.client.get(f"/compare?base={BASE}&head={HEAD}").text
    assert "Arithmetic change" in page
    assert "y: x^ is now stored in bf16" in page


def test_a_build_that_did_not_run_both_tests_has_no_such_class(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b3", 3, range(4))
    comparison = api.get(f"/compare?base={BASE}&head=b3")
    assert "arithmetic_changed" not in comparison["counts"]


def test_the_flag_is_listed_and_its_page_has_both_models(api: Api) -> None:
    (flag,) = api.get("/flags?kind=arithmetic_changed")["items"]
    assert flag["sentence"] == "y: x^ is now stored in bf16"
    assert "Arithmetic changed" in api.client.get("/flags").text
    page = api.client.get(f"/flags/{flag['id']}").text
    for text in ("Arithmetic changed", "y: x^ is now stored in bf16", INSIDE, STORED):
        assert text in page


def test_the_pages_of_job_seed_and_test_show_the_model_with_the_glossary_s_sentence(
    api: Api,
) -> None:
    job = job_of(api, HEAD)
    key = api.get(f"/jobs/{job}")["test_key"]
    for address in (f"/jobs/{job}", f"/jobs/{job}?seed=2", f"/tests/{key}"):
        page = api.client.get(address).text
        assert 'title="An arithmetic model says which values a kernel stores' in page
        assert 'title="Detection limits list the faults that a verdict' in page
        assert f'title="It stores x^ in bf16; the rest stays in fp32.">{STORED}</td>' in page
        assert "couldn't have seen: a common factor below" in page
    assert "4 of 4 seeds" in api.client.get(f"/jobs/{job}").text
    assert "Beyond the replay, σ" in api.client.get(f"/jobs/{job}?seed=2").text
    twin = api.client.get(urls.job(job, as_json=True)).json()
    assert twin["arithmetic"][0]["arithmetic"] == STORED
