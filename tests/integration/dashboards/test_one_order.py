"""Every page names the same worst seed, and a right kernel is accused of nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import stored_jobs
from api import Api, in_process
from gonogo import urls
from gonogo.spec import diagnoses
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.ids import new_id
from gonogo_storage.jobs import artifacts
from stored_histories import world

SEEDS = 4
WORST = 2
"""The seed whose error is farthest beyond rounding, by a statistic of its rows; the others have a
larger error ÷ tolerance, error ÷ budget and chi."""


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    """A service on an empty database."""
    with in_process(migrated_sqlite_url) as service:
        yield service


def wrong(seed: int, gated: bool) -> dict[str, Any]:
    row = stored_jobs.row(seed, wrong=True)
    row["outputs"]["dx"] |= {
        "tolerance_ratio": 0.1 + 0.01 * abs(seed - WORST) if gated else None,
        "budget_ratio": 60.0 + abs(seed - WORST),
        "chi": 20.0 + abs(seed - WORST),
        "row_z_max": 1000.0 - 100 * abs(seed - WORST),
        "row_count": 2.0,
    }
    return row


def stored(api: Api, rows: list[dict[str, Any]], test: dict[str, Any]) -> str:
    """An ended job with these rows, and a diagnosis that accuses s1 of each."""
    with api.context.session() as session:
        job = stored_jobs.submit(session, test=test, seeds=len(rows))
        stored_jobs.report(session, job.id, rows)
        items = [
            {
                "kind": "diagnosis",
                "seed": row["seed"],
                "repeat": 0,
                "output": "",
                "content": stored_jobs.diagnosis(),
            }
            for row in rows
        ]
        artifacts.add(session, job.id, new_id(), items, now=utcnow())
        stored_jobs.finish(session, job.id)
    with world(str(api.settings.database_url)) as background:
        background.assess()
    return job.id


@pytest.mark.parametrize("tolerance", [{"rtol": 1e-3, "atol": 0.5}, {"pcc": 0.999}])
def test_every_place_names_the_same_worst_seed(api: Api, tolerance: dict[str, float]) -> None:
    rows = [wrong(seed, "atol" in tolerance) for seed in range(SEEDS)]
    job_id = stored(api, rows, {**stored_jobs.NIGHTLY, "tolerance": tolerance})
    job = api.client.get(urls.job(job_id, as_json=True)).json()
    beyond = [seed["outputs"][0]["evidence"] for seed in job["worst"]]
    assert beyond == sorted(beyond, reverse=True), "sorted by the column that it shows"
    farthest = max(job["plot"]["marks"], key=lambda mark: mark["evidence"])
    assert farthest["evidence"] == beyond[0], "the chart's number is the table's"
    (flag,) = api.client.get("/flags.json").json()["items"]
    stored_flag = api.client.get(f"/api/v1/flags/{flag['id']}").json()
    test = api.client.get(urls.history(job["test_key"], {"branch": "emulator"}, as_json=True))
    named = {
        "table": job["worst"][0]["seed"],
        "chart": farthest["seed"],
        "command": int(job["check"].partition("--seed-start ")[2].split()[0]),
        "diagnosis": job["diagnosis"]["seed"],
        "flag": stored_flag["evidence"]["seed"],
        "test": test.json()["strip"]["worst"][0]["seed"],
    }
    assert named == dict.fromkeys(named, WORST)
    if "pcc" in tolerance:
        pages = (urls.job(job_id), urls.history(job["test_key"]), urls.flag(flag["id"]))
        assert all(f"dx, seed {WORST}: PCC" in api.client.get(page).text for page in pages)


def test_the_worst_output_of_a_false_alarm_is_the_farthest_outside_its_tolerance(api: Api) -> None:
    """Rounding explains each output, whatever part of its budget the error is."""
    row = stored_jobs.row(0, wrong=False, within=False)
    red = {"verdict": "fail_by_tolerance", "tolerance_ratio": 50.0, "budget_ratio": 0.1}
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
    """A term by tiles may differ by rounding alone: on exact inputs, s1 does."""
    row = stored_jobs.row(0, wrong=False, within=within)
    job_id = stored(api, [row], stored_jobs.NIGHTLY)
    job = api.client.get(urls.job(job_id, as_json=True)).json()
    assert job["verdict"] == ("pass" if within else "fail_by_tolerance")
    assert job["diagnosis"]["words"] == diagnoses.RIGHT
    page = api.client.get(urls.job(job_id)).text
    assert "s1 is subtracted twice" not in page
    answer = api.client.get(urls.diagnosis(job_id)).json()
    assert (answer["words"], answer["residuals"]) == (diagnoses.RIGHT, {})
    assert [term for term in answer["terms"] if term["wrong"]] == []
