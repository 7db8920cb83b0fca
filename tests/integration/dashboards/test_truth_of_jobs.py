"""Every page of a job names the same worst seed, what decided and what stopped it, and accuses no
right kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import time_machine

import nightly_history
import stored_jobs
from api import Api
from gonogo import urls
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from stored_histories import world

SEEDS = 4
WORST = 2
"""The seed with the largest rounding ratio; others have a larger error ÷ tolerance and distance."""
BY_PCC = {**stored_jobs.NIGHTLY, "tolerance": {"pcc": 0.9999999}}
DECIDED = "dx, seed 0: PCC 0.99988, needs 0.9999999"
WHY = "killed by SIGSEGV"


def ended(
    api: Api,
    rows: list[dict[str, Any]],
    test: Mapping[str, Any] = stored_jobs.NIGHTLY,
    build: str = "base",
) -> JobRow:
    """A job that has ended with these rows, and is assessed; a wrong dx has its fault named."""
    with api.context.session() as session:
        job = stored_jobs.submit(session, test=test, build=build, seeds=len(rows))
        stored_jobs.report(session, job.id, rows, diagnosed=True)
        stored_jobs.finish(session, job.id)
    with world(str(api.settings.database_url)) as background:
        background.assess()
    return job


def wrong(seed: int, gated: bool) -> dict[str, Any]:
    row = stored_jobs.row(seed, wrong=True)
    row["outputs"]["dx"] |= {
        "tolerance_ratio": 0.1 + 0.01 * abs(seed - WORST) if gated else None,
        "rounding_ratio": 60.0 - abs(seed - WORST),
        "distance": 400.0 + abs(seed - WORST),
    }
    return row


def viewed(api: Api, job: JobRow, **options: Any) -> dict[str, Any]:
    view: dict[str, Any] = api.client.get(urls.job(job.id, as_json=True, **options)).json()
    return view


def test_the_list_says_where_and_how_long_jobs_ran_and_finds_those_of_a_kernel(api: Api) -> None:
    start = utcnow()
    with time_machine.travel(start, tick=False) as clock, api.context.session() as session:
        job = stored_jobs.submit(session, seeds=3)
        rows = [{**stored_jobs.row(seed, wrong=False), "device": f"d{seed}"} for seed in range(3)]
        stored_jobs.report(session, job.id, rows)
        clock.shift(125)
        stored_jobs.finish(session, job.id)
        running = stored_jobs.submit(session, build="b2")
        stored_jobs.fleet(session, running)
    (line,) = api.client.get("/jobs.json?build=b2").json()["items"]
    assert (line["done"], line["device"]) == (0, "lab-1/wormhole:0"), "before its first result"
    other = api.submit(test={"kernel": "softmax", "shape": [32, 64]}, build="correct")
    query = "kernel=layernorm_bw&state=finished"
    shown = api.client.get(f"/jobs?{query}").text
    (line,) = api.client.get(f"/jobs.json?{query}").json()["items"]
    (listed,) = api.get(f"/jobs?{query}")["items"]
    assert line["id"] == listed["id"] == job.id != other
    assert (line["device"], line["duration_s"]) == ("d0 and 2 more", 125.0)
    assert '<td class="device">d0 and 2 more</td>' in shown
    assert '<td class="n took">2 min 5 s</td>' in shown
    assert '<option value="softmax" >' in shown, "a choice of the kernels that have tests"


@pytest.mark.parametrize("tolerance", [{"rtol": 1e-3, "atol": 0.5}, {"pcc": 0.999}])
def test_every_place_names_the_same_worst_seed(api: Api, tolerance: dict[str, float]) -> None:
    rows = [wrong(seed, "atol" in tolerance) for seed in range(SEEDS)]
    stored = ended(api, rows, {**stored_jobs.NIGHTLY, "tolerance": tolerance})
    job = viewed(api, stored)
    ratios = [seed["outputs"][0]["numbers"]["rounding_ratio"] for seed in job["worst"]]
    assert ratios == sorted(ratios, reverse=True), "sorted by the column that it shows"
    largest = max(job["plot"]["marks"], key=lambda mark: mark["rounding_ratio"])
    assert largest["rounding_ratio"] == ratios[0], "the chart's number is the table's"
    (flag,) = api.client.get("/flags.json").json()["items"]
    test = api.client.get(urls.history(job["test_key"], {"branch": "emulator"}, as_json=True))
    named = {
        "table": job["worst"][0]["seed"],
        "chart": largest["seed"],
        "command": int(job["check"].partition("--seed-start ")[2].split()[0]),
        "diagnosis": job["diagnosis"]["seed"],
        "flag": api.get(f"/flags/{flag['id']}")["evidence"]["seed"],
        "test": test.json()["strip"]["worst"][0]["mark"]["seed"],
    }
    assert named == dict.fromkeys(named, WORST)
    if "pcc" in tolerance:
        pages = (urls.job(stored.id), urls.history(job["test_key"]), urls.flag(flag["id"]))
        assert all(f"dx, seed {WORST}: PCC" in api.client.get(page).text for page in pages)


def test_the_worst_output_of_a_false_alarm_is_the_farthest_outside_its_tolerance(api: Api) -> None:
    row = stored_jobs.row(0, wrong=False, within=False)
    red = {"verdict": "fail_by_tolerance", "tolerance_ratio": 50.0, "rounding_ratio": 0.1}
    row["outputs"]["dgamma"] |= red
    job = viewed(api, ended(api, [row]), seed=(0, 0))
    (flag,) = api.client.get("/flags.json").json()["items"]
    named = {
        "table": job["worst"][0]["outputs"][0]["output"],
        "chart": job["plot"]["output"],
        "seed": job["seed"]["outputs"][0]["output"],
        "flag": api.get(f"/flags/{flag['id']}")["evidence"]["output"],
    }
    assert named == dict.fromkeys(named, "dgamma")


@pytest.mark.parametrize("within", [True, False])
def test_no_cause_is_named_where_rounding_explains_the_error(api: Api, within: bool) -> None:
    stored = ended(api, [stored_jobs.row(0, wrong=False, within=within)])
    job = viewed(api, stored, seed=(0, 0))
    assert job["verdict"] == ("pass" if within else "fail_by_tolerance")
    assert job["diagnosis"] is None
    assert {output["why"] for output in job["seed"]["outputs"]} == {""}


def by_pcc(verdict: str, deficit: float) -> dict[str, Any]:
    """A seed whose dx has this distance from a PCC of 1."""
    result = stored_jobs.row(0, wrong=False)
    for output in result["outputs"].values():
        output |= {"tolerance_ratio": None, "pcc_deficit": 1e-9}
    result["outputs"]["dx"] |= {"verdict": verdict, "pcc_deficit": deficit}
    return result | {"verdict": verdict}


def panel_of(api: Api, job: JobRow) -> str:
    page = api.client.get(urls.job(job.id, seed=(0, 0))).text
    return page.partition('aria-labelledby="seed-title"')[2].partition("</section>")[0]


def test_a_test_that_fails_by_pcc_shows_it_on_every_page(api: Api) -> None:
    ended(api, [by_pcc("pass", 1e-9)], BY_PCC)
    job = ended(api, [by_pcc("fail_by_tolerance", 1.2e-4)], BY_PCC, "head")
    (flag,) = api.client.get("/flags.json").json()["items"]
    test = urls.history(job.test_key, {"branch": "emulator", "build": "head"})
    pages = (urls.job(job.id), test, urls.flag(flag["id"]), urls.compare("base", "head"))
    assert not [path for path in pages if DECIDED not in api.client.get(path).text]
    for shown in ("PCC 0.99988, needs 0.9999999", "PCC 0.999999999, needs 0.9999999"):
        assert shown in panel_of(api, job)
    row_of_flag = api.client.get("/").text.partition('class="flag-rows"')[2]
    assert "the tolerance is tighter than the formats allow" in row_of_flag
    assert "(allclose)" in panel_of(api, ended(api, [stored_jobs.row(0, wrong=True)]))


def test_a_crash_says_what_stopped_it_and_not_the_diagnosis_of_another_seed(api: Api) -> None:
    job = ended(api, [stored_jobs.unwell(0, "crash", WHY), stored_jobs.row(1, wrong=True)])
    for path, start in ((urls.job(job.id), 'id="banner"'), (urls.history(job.test_key), "grade")):
        banner = api.client.get(path).text.partition(start)[2].partition("</section>")[0]
        assert f"Seed 0: {WHY}" in banner, path
        assert stored_jobs.FAULT not in banner, path


def test_the_worst_seeds_and_lines_of_a_tests_chart_have_the_numbers_of_their_own_seeds(
    api: Api,
) -> None:
    with api.context.session() as session:
        for build in (1, 2):
            job = nightly_history.night(session, f"b{build}", build, range(99), wrong=build == 1)
    strip = api.client.get(f"/tests/{job.test_key}.json?branch=main&output=dx").json()["strip"]
    assert [band["rounding"] < 0.001 for band in strip["bands"]] == [True, False]
    rows = api.get(f"/jobs/{strip['worst'][0]['mark']['job']}/results?order=seed&limit=500")
    stored = {row["seed"]: row["outputs"]["dx"]["rounding_ratio"] for row in rows["items"]}
    shown = {line["mark"]["seed"]: line["rounding_ratio"] for line in strip["worst"]}
    assert shown.items() <= stored.items()
