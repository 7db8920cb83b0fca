"""Sequential seeds over HTTP: accepted and refused requests, their estimated cost, the job and its
page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import unchecked
from api import JOB, Api, in_process
from gonogo_service.jobs import chunks, dispatching
from gonogo_service.kit.database.encoding import utcnow
from handed_out import hand_out
from job_flow import QUEUE, row

SEEDS = {"policy": "sequential", "max": 500}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service on SQLite."""
    folder: Path = tmp_path_factory.mktemp("sequential")
    with in_process(f"sqlite:///{folder / 'gonogo.sqlite'}") as service:
        yield service


def work(
    api: Api, job: str, verdict: str, explanation: str = "explained", *, most: int = 1000
) -> None:
    """Do what workers and ingest do with a job, chunk after chunk."""
    for _ in range(most):
        now = utcnow()
        with api.context.session() as current:
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


def test_the_estimate_names_the_most_and_the_mean(api: Api) -> None:
    answer = api.client.post("/api/v1/jobs:validate", json={**JOB, "seeds": SEEDS})
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
    plain = api.client.post("/api/v1/jobs:validate", json=JOB).json()
    assert plain["expected"] is None


@pytest.mark.parametrize(
    ("changes", "field", "limit"),
    [
        ({"seeds": {"policy": "sequential"}}, "seeds.max", None),
        ({"seeds": {"policy": "sequential", "max": 0}}, "seeds.max", ">= 1"),
        (
            {"seeds": {"policy": "sequential", "max": 10**15}},
            "seeds.max",
            "100000 (GONOGO_MAX_SEEDS)",
        ),
        (
            {"seeds": {"policy": "sequential", "max": 2, "start": 2**53 - 1}},
            "seeds",
            f"<= {2**53 - 1}",
        ),
        ({"seeds": {"policy": "bayes", "max": 5}}, "seeds.policy", "sequential"),
        (
            {"seeds": {"policy": "sequential", "count": 5, "max": 5}},
            "seeds.count",
            "one of policy, max, start, stop_on_finding",
        ),
        (
            {"seeds": SEEDS, "reference": {"build": "correct"}},
            "reference.build",
            "null, or a range of seeds",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_field_and_limit(
    api: Api, changes: dict[str, Any], field: str, limit: str | None
) -> None:
    answer = api.client.post("/api/v1/jobs", json={**JOB, **changes})
    assert answer.status_code == 422, answer.text
    assert (answer.json()["field"], answer.json()["limit"]) == (field, limit)


def test_a_job_says_in_json_and_on_its_page_where_its_decision_stands_and_what_it_saved(
    api: Api,
) -> None:
    job = api.submit(seeds=SEEDS)
    work(api, job, "pass", most=3)
    shown_job = api.get(f"/jobs/{job}")
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
    page = api.client.get(f"/jobs/{job}").text
    assert "8 of at most 500 seeds" in page
    assert "Not decided yet: 8 seeds read in order, 0 failed; at least 41 more seeds." in page
    assert "from 0 until decided, at most 500" in page
    work(api, job, "pass")
    shown_job = api.get(f"/jobs/{job}")
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
    page = api.client.get(f"/jobs/{job}").text
    assert "49 of 49 seeds" in page
    assert f"Decided, stable: {stop['words']}." in page
    assert "451 of 500 seeds, " in page
    assert api.client.get(f"/jobs/{job}.json").json()["stop"] == stop


def test_a_hollow_test_ends_with_its_first_seed(api: Api) -> None:
    job = api.submit(seeds={**SEEDS, "start": 7})
    work(api, job, "pass_by_tolerance", "unexplained")
    shown_job = api.get(f"/jobs/{job}")
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
    assert api.get("/flags", params={"job": job})["items"]
    again = api.client.post(f"/api/v1/jobs/{job}:resubmit").json()["id"]
    assert api.get(f"/jobs/{again}")["seeds"] == shown_job["seeds"]
    assert (api.get(f"/jobs/{again}")["total"], api.get(f"/jobs/{again}")["stop"]) == (500, None)


def test_asked_for_more_a_finding_ends_nothing(api: Api) -> None:
    job = api.submit(seeds={**SEEDS, "stop_on_finding": False})
    work(api, job, "fail", "unexplained")
    stop = api.get(f"/jobs/{job}")["stop"]
    assert (stop["decision"], stop["seeds_seen"]) == ("flaky", 2)
