"""The parts of a job's page from stored rows: grid, a seed's details, error map, diagnosis, logs
and telemetry, and their JSON twin."""

from __future__ import annotations

from typing import Any

import numpy as np
from sqlalchemy.orm import Session

import stored_jobs
import unchecked
from api import Api
from gonogo.judging.error_maps import error_map
from gonogo_service.jobs import artifacts, chunks, dispatching
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id

EVIL = "</script><img src=x onerror=alert(1)>\u202e"


def test_the_grid_fills_in_as_results_come(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.submit(session, seeds=8)

    def verdicts(*rows: dict[str, Any]) -> list[str]:
        with api.context.session() as session:
            stored_jobs.report(session, job.id, rows)
        grid = api.client.get(f"/jobs/{job.id}.json").json()["grid"]
        return [grid["verdicts"].get(letter, "") for letter in grid["cells"]]

    assert verdicts() == [""] * 8
    wrong, right = stored_jobs.row(4, wrong=True), stored_jobs.row(0, wrong=False)
    hollow = "pass_by_tolerance"
    assert verdicts(wrong, right) == ["pass", "", "", "", hollow, "", "", ""]
    hang = stored_jobs.unwell(2, "hang", "no answer")
    assert verdicts(hang) == ["pass", "", "hang", "", hollow, "", "", ""]


def _artifact(kind: str, seed: int, content: dict[str, Any], output: str = "") -> dict[str, Any]:
    return {"kind": kind, "seed": seed, "repeat": 0, "output": output, "content": content}


def _map(offset: float) -> dict[str, Any]:
    error = np.zeros((64, 80))
    error[:, 64:] = offset
    return error_map(1 + error, np.ones((64, 80)), "bf16").to_json()


def _filled(session: Session) -> JobRow:
    job = stored_jobs.submit(session, seeds=6)
    (attempt,) = dispatching.dispatch(session, chunks.choose(session, job.queue, 1), now=utcnow())
    about = {"worker": "w", "device": "lab-1/wormhole:0", "host": "lab-1"}
    unchecked.started(session, attempt, about, now=utcnow())
    rows = [stored_jobs.with_fault(stored_jobs.row(seed, wrong=seed == 3)) for seed in range(5)]
    rows[3]["outputs"]["dx"]["fault"] = f"{stored_jobs.FAULT} {EVIL}"
    stored_jobs.report(session, job.id, rows)
    stored_jobs.report(session, job.id, [stored_jobs.unwell(5, "crash", f"signal 11 {EVIL}")])
    seed_artifacts = [
        _artifact("error_map", 0, _map(0.25), "dx"),
        _artifact("error_map", 3, _map(0.5), "dx"),
        _artifact("log", 5, {"text": EVIL}),
        _artifact("watcher", 5, {"log": "stuck"}),
    ]
    artifacts.add(session, job.id, new_id(), seed_artifacts, now=utcnow())
    row = session.get_one(AttemptRow, attempt)
    names = ("chunk_id", "job_id", "queue", "work", "created_at", "device")
    same = {name: getattr(row, name) for name in names}
    lost = {"state": "error", "error": "bug in the worker", "log_tail": EVIL}
    for number, (warm, end) in enumerate(((45.0, {"state": "done"}), (61.5, lost)), start=2):
        telemetry = {"temperature_c": warm, "power_w": 30.0, "firmware": "18.3", "at": 1.0}
        ended = {"id": new_id(), "number": number, "batches": [], "finished_at": utcnow()}
        session.add(AttemptRow(**same, **end, **ended, telemetry=telemetry))
    return job


def test_the_page_and_its_twin_say_the_same_of_a_seed_its_map_and_its_log(api: Api) -> None:
    with api.context.session() as session:
        job = _filled(session)
    view = api.client.get(f"/jobs/{job.id}.json", params={"seed": "3"}).json()
    results = api.get(f"/jobs/{job.id}/results")["items"]
    letters = (view["grid"]["verdicts"][letter] for letter in view["grid"]["cells"])
    assert [*letters] == ["pass"] * 3 + ["pass_by_tolerance", "pass", "crash"]
    assert view["grid"]["finished"] == len(results) == 6
    shown = view["seed"]
    assert (shown["seed"], shown["verdict"], shown["outputs"][0]["output"]) == (
        3,
        "pass_by_tolerance",
        "dx",
    )
    dx = next(result for result in results if result["seed"] == 3)["outputs"]["dx"]
    headings = {name: heading for name, heading, _ in shown["columns"]}
    named = {"max_abs": "max |e|", "rounding_ratio": "error ÷ rounding"}
    named |= {"distance": "beyond the replay, σ"}
    assert {name: headings[name] for name in named} == named
    numbers = shown["outputs"][0]["numbers"]
    assert {name: numbers[name] for name in named} == {name: dx[name] for name in named}
    assert [output["why"] for output in shown["outputs"]] == [dx["fault"], "", ""]
    assert "--seeds 1 --seed-start 3 " in shown["check"]
    assert (shown["before"], shown["after"]) == (
        f"/jobs/{job.id}?seed=2",
        f"/jobs/{job.id}?seed=4",
    )
    # the map is of the seed that the address names, else of the worst one
    chart = view["map"]
    assert (chart["seed"], chart["output"]) == (3, "dx")
    assert "The last column of tiles holds 100% of the error" in chart["content"]["summary"]
    cells = api.client.get(chart["url"]).json()["content"]
    assert chart["content"]["tiles"][0]["max_ulp"] == max(map(max, cells["max_ulp"]))
    assert api.client.get(f"/jobs/{job.id}.json", params={"seed": "0"}).json()["map"]["seed"] == 0
    assert api.client.get(f"/jobs/{job.id}.json").json()["map"]["seed"] == 3
    assert view["diagnosis"]["faults"] == {"dx": dx["fault"]}
    assert (view["log"]["seed"], view["log"]["text"]) == (5, EVIL)
    assert api.client.get(view["log"]["more"][0][1]).json()["content"] == {"log": "stuck"}
    (device,) = view["telemetry"]["devices"]
    assert device["summary"] == "lab-1/wormhole:0: temperature 45 to 61.5 °C, power 30 W."
    assert device["quantities"][0]["last"] == 61.5
    assert [numbers for *_, numbers in view["telemetry"]["readings"]] == [
        [61.5, 30.0],
        [45.0, 30.0],
    ]
    assert [attempt["log_tail"] for attempt in view["attempts"] if attempt["state"] == "error"] == [
        EVIL
    ]
    page = api.client.get(f"/jobs/{job.id}", params={"seed": "5"}).text
    assert "<img src=x" not in page
    for part in (
        "Seed 5",
        "Error map of dx",
        "Diagnosis",
        stored_jobs.FAULT,
        "Logs",
        "Telemetry during the job",
        "check-seed",
    ):
        assert part in page, part


def test_an_address_that_names_no_seed_of_the_job_is_a_page_without_details(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.submit(session, seeds=2)
    for wrong in ("2", "-1", "x", "9" * 30, "1&repeat=1"):
        answer = api.client.get(f"/jobs/{job.id}.json?seed={wrong}")
        assert answer.status_code == 200
        assert answer.json()["seed"] is None
    waiting = api.client.get(f"/jobs/{job.id}.json?seed=1").json()
    assert (waiting["seed"]["verdict"], waiting["seed"]["sentence"]) == (
        None,
        "It has not finished yet.",
    )
    assert (waiting["map"], waiting["log"], waiting["telemetry"]) == (None, None, None)
    assert api.client.get(f"/jobs/{job.id}?seed=1").status_code == 200
