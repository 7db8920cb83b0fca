"""Every page names the same worst seed, and a right kernel is accused of nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import stored_jobs
from api import Api, in_process
from gonogo import urls
from stored_histories import world

SEEDS = 4
WORST = 2
"""The seed with the largest rounding ratio; others have a larger error ÷ tolerance and distance."""


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    """A service on an empty database."""
    with in_process(migrated_sqlite_url) as service:
        yield service


def wrong(seed: int, gated: bool) -> dict[str, Any]:
    row = stored_jobs.row(seed, wrong=True)
    row["outputs"]["dx"] |= {
        "tolerance_ratio": 0.1 + 0.01 * abs(seed - WORST) if gated else None,
        "rounding_ratio": 60.0 - abs(seed - WORST),
        "distance": 400.0 + abs(seed - WORST),
    }
    return row


def stored(api: Api, rows: list[dict[str, Any]], test: dict[str, Any]) -> str:
    """An ended job with these rows, in which the wrong dx has its fault named."""
    with api.context.session() as session:
        job = stored_jobs.submit(session, test=test, seeds=len(rows))
        stored_jobs.report(session, job.id, rows, diagnosed=True)
        stored_jobs.finish(session, job.id)
    with world(str(api.settings.database_url)) as background:
        background.assess()
    return job.id


@pytest.mark.parametrize("tolerance", [{"rtol": 1e-3, "atol": 0.5}, {"pcc": 0.999}])
def test_every_place_names_the_same_worst_seed(api: Api, tolerance: dict[str, float]) -> None:
    rows = [wrong(seed, "atol" in tolerance) for seed in range(SEEDS)]
    job_id = stored(api, rows, {**stored_jobs.NIGHTLY, "tolerance": tolerance})
    job = api.client.get(urls.job(job_id, as_json=True)).json()
    ratios = [seed["outputs"][0]["numbers"]["rounding_ratio"] for seed in job["worst"]]
    assert ratios == sorted(ratios, reverse=True), "sorted by the column that it shows"
    largest = max(job["plot"]["marks"], key=lambda mark: mark["rounding_ratio"])
    assert largest["rounding_ratio"] == ratios[0], "the chart's number is the table's"
    (flag,) = api.client.get("/flags.json").json()["items"]
    stored_flag = api.client.get(f"/api/v1/flags/{flag['id']}").json()
    test = api.client.get(urls.history(job["test_key"], {"branch": "emulator"}, as_json=True))
    named = {
        "table": job["worst"][0]["seed"],
        "chart": largest["seed"],
        "command": int(job["check"].partition("--seed-start ")[2].split()[0]),
        "diagnosis": job["diagnosis"]["seed"],
        "flag": stored_flag["evidence"]["seed"],
        "test": test.json()["strip"]["worst"][0]["mark"]["seed"],
    }
    assert named == dict.fromkeys(named, WORST)
    if "pcc" in tolerance:
        pages = (urls.job(job_id), urls.history(job["test_key"]), urls.flag(flag["id"]))
        assert all(f"dx, seed {WORST}: PCC" in api.client.get(page).text for page in pages)


def test_the_worst_output_of_a_false_alarm_is_the_farthest_outside_its_tolerance(api: Api) -> None:
    """Rounding explains each output, whatever its rounding ratio."""
    row = stored_jobs.row(0, wrong=False, within=False)
    red = {"verdict": "fail_by_tolerance", "tolerance_ratio": 50.0, "rounding_ratio": 0.1}
    row["outputs"]["dgamma"] |= red
    job_id = stored(api, [row], stored_jobs.NIGHTLY)
    job = api.client.get(urls.job(job_id, seed=(0, 0), as_json=True)).json()
    (flag,) = api.client.get("/flags.json").json()["items"]
    named = {
        "table": job["worst"][0]["outputs"][0]["output"],
        "chart": job["plot"]["output"],
        "seed": job["seed"]["outputs"][0]["output"],
        "flag": api.client.get(f"/api/v1/flags/{flag['id']}").json()["evidence"]["output"],
    }
    assert named == dict.fromkeys(named, "dgamma")


@pytest.mark.parametrize("within", [True, False])
def test_no_cause_is_named_where_rounding_explains_the_error(api: Api, within: bool) -> None:
    row = stored_jobs.row(0, wrong=False, within=within)
    job_id = stored(api, [row], stored_jobs.NIGHTLY)
    job = api.client.get(urls.job(job_id, seed=(0, 0), as_json=True)).json()
    assert job["verdict"] == ("pass" if within else "fail_by_tolerance")
    assert job["diagnosis"] is None
    assert {output["why"] for output in job["seed"]["outputs"]} == {""}
