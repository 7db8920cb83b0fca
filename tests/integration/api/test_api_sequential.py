"""Sequential seeds over HTTP: accepted and refused requests, their estimated cost, the job and its
page."""

from __future__ import annotations

from typing import Any

import pytest

import unchecked
from api import JOB, Api
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.kit.database.encoding import utcnow
from handed_out import hand_out
from job_flow import QUEUE, row
from records import pick

SEEDS: dict[str, Any] = {"policy": "sequential", "max": 500}


def work(shared: Api, verdict: str, explanation: str = "explained", *, most: int = 1000) -> None:
    """Do what workers and ingest do with what waits, chunk after chunk."""
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
                end = {"outcome": "done", "sent": item.work, "batches": 1}
                unchecked.store(current, item.attempt, {"batch": 0, "rows": rows}, now=now)
                unchecked.finished(current, item.attempt, end, now=now)
        if not items:
            return


def test_the_estimate_names_the_most_and_the_mean(shared: Api) -> None:
    def estimate(**changes: Any) -> Any:
        return shared.client.post("/api/v1/jobs:validate", json={**JOB, **changes}).json()

    cost = estimate(seeds=SEEDS)
    assert pick(cost, "results", "device_s") == (500, pytest.approx(500 * cost["seed_s"]))
    means = {name: mean["seeds"] for name, mean in cost["expected"].items()}
    assert means == pytest.approx({"stable": 64.7, "flaky": 37.7, "wrong": 1}, abs=0.05)
    stable_s = means["stable"] * cost["seed_s"]
    assert cost["expected"]["stable"]["device_s"] == pytest.approx(stable_s)
    assert estimate()["expected"] is None


def test_a_job_says_in_json_and_on_its_page_where_its_decision_stands_and_what_it_saved(
    shared: Api,
) -> None:
    job = shared.submit(seeds=SEEDS)
    work(shared, "pass", most=3)
    shown = shared.get(f"/jobs/{job}")
    assert shown["seeds"] == {**SEEDS, "start": 0, "stop_on_finding": True}
    assert pick(shown, "total", "stop") == (500, None)
    assert pick(shown["sequential"], "seen", "needed") == (8, 41)
    page = shared.client.get(f"/jobs/{job}").text
    assert "8 of at most 500 seeds" in page
    assert "Not decided yet: 8 seeds read in order, 0 failed; at least 41 more seeds." in page
    assert "from 0 until decided, at most 500" in page
    work(shared, "pass")
    shown = shared.get(f"/jobs/{job}")
    assert pick(shown, "state", "verdict", "total") == ("finished", "pass", 49)
    stop = shown["stop"]
    saved = pick(stop, "decision", "seeds_seen", "seeds_saved", "device_ms_saved")
    assert saved == ("stable", 49, 451, 451 * 812.5)
    page = shared.client.get(f"/jobs/{job}").text
    assert "49 of 49 seeds" in page
    assert f"Decided, stable: {stop['words']}." in page
    assert "451 of 500 seeds, " in page
    assert shared.client.get(f"/jobs/{job}.json").json()["stop"] == stop


def test_a_hollow_test_ends_with_its_first_seed(shared: Api) -> None:
    job = shared.submit(seeds={**SEEDS, "start": 7})
    work(shared, "pass_by_tolerance", "unexplained")
    shown = shared.get(f"/jobs/{job}")
    assert pick(shown, "verdict", "done") == ("pass_by_tolerance", 2)
    assert pick(shown["stop"], "decision", "seed") == ("hollow", 7)
    assert shared.get("/flags", params={"job": job})["items"]
    again = shared.client.post(f"/api/v1/jobs/{job}:resubmit").json()["id"]
    request = pick(shared.get(f"/jobs/{again}"), "seeds", "total", "stop")
    assert request == (shown["seeds"], 500, None)
    shared.client.post(f"/api/v1/jobs/{again}:cancel")
