"""The pages of runs: each run against the run before it, red first, and run again."""

from __future__ import annotations

import re
from typing import Any

import suite_runs
from api import Api
from gonogo_service.suites import runs


def _run(api: Api, *red: str, hollow: tuple[str, ...] = (), **suite: Any) -> str:
    """Submit the suite and end it; these tests, or all on these builds, are red or hollow."""
    body = {"suite": {**suite_runs.SUITE, **suite}}
    run = str(api.client.post("/api/v1/runs", json=body).json()["id"])
    _end(api, run, *red, hollow=hollow)
    return run


def _end(api: Api, run: str, *red: str, hollow: tuple[str, ...] = ()) -> None:
    with api.context.session() as session:
        for job in runs.members(session, run):
            is_red = job.name in red or job.build in red
            wrong = is_red or job.name in hollow
            suite_runs.finish(session, job.id, wrong=wrong, within=not is_red)
        suite_runs.conclude(session)


def test_a_run_is_against_the_run_before_it_red_first(api: Api) -> None:
    first = _run(api, "small")
    _run(api, "small", name="other")
    second = _run(api, "grid 33x64", hollow=("grid 32x64",))
    third = _run(api, "grid 33x64")
    lines = {
        run: [
            (line["test"]["name"], line["test"]["change"], line["test"]["verdict_before"])
            for line in api.client.get(f"/runs/{run}.json").json()["tests"]
        ]
        for run in (first, second, third)
    }
    assert lines[first][0] == ("small", "newly_red", None)
    assert lines[second] == [
        ("grid 33x64", "newly_red", "pass"),
        ("grid 32x64", "newly_hollow", "pass"),
        ("small", "fixed", "fail"),
    ]
    assert lines[third] == [
        ("grid 33x64", "red", "fail"),
        ("grid 32x64", "fixed", "pass_by_tolerance"),
        ("small", None, None),
    ]
    assert api.get(f"/runs/{second}")["before"] == first
    page = api.client.get(f"/runs/{third}").text
    for shown in ("1 red as before", "1 fixed", f"/compare?base={second}&amp;head={third}"):
        assert shown in page
    listed = api.client.get("/runs").text
    counted = re.findall(r"([0-9]) (newly red|newly hollow|fixed)</span>", listed)
    assert counted == [
        ("1", "fixed"),
        *(("1", "newly red"), ("1", "newly hollow"), ("1", "fixed")),
        *(("1", "newly red"), ("1", "newly red")),
    ]
    assert listed.count("the first run on its branch") == 2
    suites = api.client.get("/runs.json?suite=nightly").json()["suites"]
    assert [(suite["label"], suite["verdict"], suite["chosen"]) for suite in suites] == [
        ("nightly", "fail", True),
        ("other", "fail", False),
    ]


def test_a_run_runs_again_with_one_click(api: Api) -> None:
    run = _run(api, "small")
    button = re.search(r'id="again" data-post="([^"]*)"', api.client.get(f"/runs/{run}").text)
    assert button is not None
    answer = api.client.post(button[1])
    assert answer.status_code == 202, answer.text
    again = answer.json()["id"]
    _end(api, again)
    both = [api.get(f"/runs/{one}") for one in (run, again)]
    same = [
        [(test["name"], test["test_key"], test["build"], test["total"]) for test in one["tests"]]
        for one in both
    ]
    assert same[0] == same[1]
    assert (both[1]["before"], both[1]["verdict"]) == (run, "pass")
    assert {test["change"] for test in both[1]["tests"]} == {"fixed", None}


def test_each_build_of_a_run_is_against_itself_or_what_stood_in_its_place(api: Api) -> None:
    first = _run(api, "tt-train-2025", builds=["correct", "tt-train-2025"])
    second = _run(api, "tt-train-2025", builds=["tt-train-2025", "correct"])
    third = _run(api, builds=["drop-s1"])
    for run, before, changes in (
        (first, None, {"newly_red", None}),
        (second, first, {"red", None}),
        (third, second, {"fixed"}),
    ):
        shown = api.get(f"/runs/{run}")
        assert shown["before"] == before
        assert {test["change"] for test in shown["tests"]} == changes
