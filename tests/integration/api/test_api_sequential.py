"""Sequential seeds over HTTP: accepted and refused requests, their estimated cost, the job and its
page."""

from __future__ import annotations

import pytest

import unchecked
from api import JOB, Api
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.kit.database.encoding import utcnow
from handed_out import hand_out
from job_flow import QUEUE, row

SEEDS = {"policy": "sequential", "max": 500}


def work(
    shared: Api, job: str, verdict: str, explanation: str = "explained", *, most: int = 1000
) -> None:
    """Do what workers and ingest do with a job, chunk after chunk."""
    for _ in range(most):
        now = utcnow()
        with shared.context.session() as current:
            dispatching.dispatch(current, chunks.choose(current, QUEUE, 1), now=now)
            items = hand_out(current, now=now)
            for item in items:
                unchecked.started(current, item.attempt, {"worker": "w"}, now=now)
                rows = [
                    row(seed, repeat, verdict, explanation, duration_ms=812.5)
                    for seed, repeat in item.work
                ]
                unchecked.store(current, item.attempt, {"batch": 0, "rows": rows}, now=now)
                unchecked.finished(
                    current,
                    item.attempt,
                    {"outcome": "done", "sent": item.work, "batches": 1},
                    now=now,
                )
        if not items:
            return


def test_the_estimate_names_the_most_and_the_mean(shared: Api) -> None:
    answer = shared.client.post("/api/v1/jobs:validate", json={**JOB, "seeds": SEEDS})
    assert answer.status_code == 200, answer.text
    estimate = answer.json()
    assert (estimate["results"], estimate["device_s"]) == (
        500,
        pytest.approx(500 * estimate["seed_s"]),
    )
    means = {name: cost["seeds"] for name, cost in estimate["expected"].items()}
    assert means == {
        "stable": pytest.approx(64.7, abs=0.05),
        "flaky": pytest.approx(37.7, abs=0.05),
        "wrong": 1,
    }
    assert estimate["expected"]["stable"]["device_s"] == pytest.approx(
        means["stable"] * estimate["seed_s"]
    )
    plain = shared.client.post("/api/v1/jobs:validate", json=JOB).json()
    assert plain["expected"] is None


def test_a_job_says_in_json_and_on_its_page_where_its_decision_stands_and_what_it_saved(
    shared: Api,
) -> None:
    job = shared.submit(seeds=SEEDS)
    work(shared, job, "pass", most=3)
    shown_job = shared.get(f"/jobs/{job}")
    assert shown_job["seeds"] == {
        "policy": "sequential",
        "max": 500,
        "start": 0,
        "stop_on_finding": True,
    }
    assert (
        shown_job["total"],
        shown_job["stop"],
        shown_job["sequential"]["seen"],
        shown_job["sequential"]["needed"],
    ) == (500, None, 8, 41)
    page = shared.client.get(f"/jobs/{job}").text
    assert "8 of at most 500 seeds" in page
    assert "Not decided yet: 8 seeds read in order, 0 failed; at least 41 more seeds." in page
    assert "from 0 until decided, at most 500" in page
    work(shared, job, "pass")
    shown_job = shared.get(f"/jobs/{job}")
    assert (shown_job["state"], shown_job["verdict"], shown_job["total"]) == (
        "finished",
        "pass",
        49,
    )
    stop = shown_job["stop"]
    assert (stop["decision"], stop["seeds_seen"], stop["seeds_saved"], stop["device_ms_saved"]) == (
        "stable",
        49,
        451,
        451 * 812.5,
    )
    page = shared.client.get(f"/jobs/{job}").text
    assert "49 of 49 seeds" in page
    assert f"Decided, stable: {stop['words']}." in page
    assert "451 of 500 seeds, " in page
    assert shared.client.get(f"/jobs/{job}.json").json()["stop"] == stop


def test_a_hollow_test_ends_with_its_first_seed(shared: Api) -> None:
    job = shared.submit(seeds={**SEEDS, "start": 7})
    work(shared, job, "pass_by_tolerance", "unexplained")
    shown_job = shared.get(f"/jobs/{job}")
    assert (
        shown_job["verdict"],
        shown_job["stop"]["decision"],
        shown_job["stop"]["seed"],
        shown_job["done"],
    ) == (
        "pass_by_tolerance",
        "hollow",
        7,
        2,
    )
    assert shared.get("/flags", params={"job": job})["items"]
    again = shared.client.post(f"/api/v1/jobs/{job}:resubmit").json()["id"]
    assert shared.get(f"/jobs/{again}")["seeds"] == shown_job["seeds"]
    assert (shared.get(f"/jobs/{again}")["total"], shared.get(f"/jobs/{again}")["stop"]) == (
        500,
        None,
    )


def test_asked_for_more_a_finding_ends_nothing(shared: Api) -> None:
    job = shared.submit(seeds={**SEEDS, "stop_on_finding": False})
    work(shared, job, "fail", "unexplained")
    stop = shared.get(f"/jobs/{job}")["stop"]
    assert (stop["decision"], stop["seeds_seen"]) == ("flaky", 2)
