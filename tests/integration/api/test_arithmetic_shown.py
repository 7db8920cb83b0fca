"""The arithmetic and the detection limits wherever a verdict is shown: the API, the exports,
the pages, and the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from html import unescape

import pytest

import nightly_history
import stored_jobs
from api import Api, in_process, on_port
from gonogo.cli.app import load
from records import pick
from rows_of_layernorm import CHANGE, INSIDE, LIMIT, STORED, TEST, row
from stored_histories import world

BASE, HEAD = "b1", "b2"


@pytest.fixture
def api(lite_database_url: str) -> Iterator[Api]:
    """Two builds of a branch; the second one stores x^ in bf16."""
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


def test_a_verdict_is_shown_with_its_arithmetic_and_what_no_seed_could_have_seen(api: Api) -> None:
    job = job_of(api, HEAD)
    of_y, key = api.get(f"/jobs/{job}")["arithmetic"][0], api.get(f"/jobs/{job}")["test_key"]
    assert pick(of_y, "output", "arithmetic", "seeds") == ("y", STORED, 4)
    assert of_y["detection_limits"] == [LIMIT]
    assert of_y["words"] == f"arithmetic of y: {STORED}; couldn't have seen: {LIMIT}"
    for address in (f"/jobs/{job}", f"/jobs/{job}?seed=2", f"/tests/{key}"):
        page = unescape(api.client.get(address).text)
        assert STORED in page
        assert f"couldn't have seen: {LIMIT}" in page
    (flag,) = api.get("/flags?kind=arithmetic_changed")["items"]
    assert flag["sentence"] == f"y: {CHANGE}"
    page = unescape(api.client.get(f"/flags/{flag['id']}").text)
    for text in ("Arithmetic changed", f"y: {CHANGE}", INSIDE, STORED):
        assert text in page


def test_a_seed_that_no_arithmetic_explains_counts_as_such(api: Api) -> None:
    wrong = {"verdict": "pass_by_tolerance", "explanation": "unexplained"}
    unknown = row(0) | wrong
    y = {**unknown["outputs"]["y"], **wrong, "distance": 99.0}
    unknown["outputs"] = {"y": {name: y[name] for name in y if name != "detection_limits"}}
    with api.context.session() as session:
        job = nightly_history.submit(session, [0, 1, 2], test=TEST, build="b3", sequence=3)
        stored_jobs.report(session, job.id, [unknown, row(1), row(2)])
        stored_jobs.finish(session, job.id)
    (of_y,) = api.get(f"/jobs/{job.id}")["arithmetic"]
    expected = (INSIDE, INSIDE, [LIMIT])
    assert pick(of_y, "arithmetic", "closest", "detection_limits") == expected
    counts = [pick(count, "arithmetic", "seeds") for count in of_y["counts"]]
    assert counts == [(INSIDE, 2), (None, 1)]


def test_exports_have_the_model_and_the_limits_of_each_output(api: Api) -> None:
    address = f"/api/v1/jobs/{job_of(api, HEAD)}/results?format="
    lines = list(csv.DictReader(io.StringIO(api.client.get(address + "csv").text)))
    assert {line["output_arithmetic"] for line in lines} == {STORED}
    assert {line["detection_limits"] for line in lines} == {LIMIT}
    junit = api.client.get(address + "junit").text
    assert f'<property name="arithmetic" value="y: {STORED}"/>' in junit
    assert f'<property name="detection_limits" value="y: {LIMIT}"/>' in junit
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
            assert f"arithmetic of y: {STORED}; couldn't have seen: {LIMIT}" in printed


def test_a_comparison_names_the_new_arithmetic_and_lets_the_commit_pass(api: Api) -> None:
    comparison = api.get(f"/compare?base={BASE}&head={HEAD}&fail_on=any")
    assert comparison["counts"] == {"arithmetic_changed": 1}
    assert comparison["gate"]["code"] == 0
    (finding,) = comparison["items"][0]["findings"]
    assert (finding["words"], finding["new"]) == (f"y: {CHANGE}", True)
    (change,) = finding["evidence"]["arithmetic"]
    assert (change["before"], change["after"]) == (INSIDE, STORED)
    page = api.client.get(f"/compare?base={BASE}&head={HEAD}").text
    assert "Arithmetic change" in page
    assert CHANGE in unescape(page)
