"""Imports over HTTP: a run from elsewhere becomes a finished job.

It has history, flags and events like any other job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from api import Api, in_process

JUNIT = b"""<testsuite name="nightly"><testcase classname="ln" name="dx" time="0.5"/>
<testcase classname="ln" name="dgamma"><failure message="off"/></testcase></testsuite>"""
SPEC = {"kernel": "layernorm_bw", "shape": [1, 1, 32, 64], "tolerance": {"rtol": 1e-3, "atol": 0.5}}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    """A service for the whole module: every test has its own suites."""
    file = tmp_path_factory.mktemp("imports") / "gonogo.sqlite"
    copyfile(sqlite_template, file)
    with in_process(f"sqlite:///{file}", max_import_bytes=200_000) as service:
        yield service


def take(api: Api, data: bytes, **query: Any) -> Any:
    answer = api.client.post("/api/v1/imports", params={"format": "junit", **query}, content=data)
    assert answer.status_code == 201, answer.text
    return answer.json()


def refused(
    api: Api, data: Any, status: int = 422, headers: dict[str, str] | None = None, **query: Any
) -> Any:
    answer = api.client.post(
        "/api/v1/imports", params={"format": "junit", **query}, content=data, headers=headers
    )
    assert answer.status_code == status, answer.text
    return answer.json()


def hollow(seed: int, ratio: float) -> dict[str, Any]:
    numbers = {
        "count": 2048,
        "nonfinite": 0,
        "tolerance_ratio": 0.1,
        "rounding_ratio": ratio,
        "explanation": "unexplained" if ratio > 1 else "explained",
        "needed_atol": {"0.001": 0.05},
    }
    return {
        "name": "t.py::test_dx",
        "outcome": "passed",
        "seed": seed,
        "comparisons": [{"test": SPEC, "outputs": {"dx": numbers}}],
    }


def lines(*tests: dict[str, Any], **header: Any) -> bytes:
    return "\n".join(
        json.dumps(line) for line in ({"format": "gonogo", "version": 1, **header}, *tests)
    ).encode()


def test_an_import_is_a_finished_job_and_the_next_one_its_history(api: Api) -> None:
    commit = {"repository": "org/name", "sha": "4f1c2d9e0a"}
    first = take(api, JUNIT, suite="unit", label="branch=main", pull_request=7, **commit)
    assert (first["kind"], first["verdict"], first["tests"], first["numbers"]) == (
        "import",
        "not_judged",
        2,
        False,
    )
    assert first["outcomes"] == {"passed": 1, "failed": 1}
    second = take(api, JUNIT.replace(b"failure", b"skipped"), suite="unit", build="head")
    job = api.get(f"/jobs/{first['id']}")
    assert (job["state"], job["build"], job["branch"], job["labels"]) == (
        "finished",
        "4f1c2d9e0a",
        "imported",
        {"branch": "main"},
    )
    assert job["commit"] == {**commit, "pull_request": 7}
    assert job["import"]["format"] == "junit"
    assert job["import"]["numbers"] is False
    history = api.get(f"/workloads/{job['workload_key']}/history")["items"]
    assert [(item["job"], item["build"]) for item in history] == [
        (second["id"], "head"),
        (first["id"], "4f1c2d9e0a"),
    ]
    assert {
        build["build"]: build["seeds"] for build in api.get(f"/tests/{job['test_key']}")["builds"]
    } == {"head": 1, "4f1c2d9e0a": 1}
    assert {item["id"] for item in api.get("/jobs?kind=import&label=branch=main")["items"]} == {
        first["id"]
    }
    events = api.client.get(
        f"/api/v1/jobs/{first['id']}/events", headers={"Accept": "text/event-stream"}
    ).text
    assert '"finished"' in events
    actions = [
        entry["subject"]
        for entry in api.get("/audit")["items"]
        if entry["action"] == "import.created"
    ]
    assert {first["id"], second["id"]} <= set(actions)


def test_the_numbers_of_our_own_lines_raise_the_flag_that_a_job_here_would(api: Api) -> None:
    imported = take(
        api, lines(hollow(0, 0.9), hollow(1, 150.0), suite="plug-in", build="b1"), format="gonogo"
    )
    assert (imported["verdict"], imported["numbers"]) == ("pass_by_tolerance", True)
    rows = api.get(f"/jobs/{imported['id']}/results?order=seed")["items"]
    assert [(row["iteration"], row["verdict"]) for row in rows] == [
        (0, "pass"),
        (1, "pass_by_tolerance"),
    ]
    (flag,) = api.get(f"/flags?test={api.get('/jobs/' + imported['id'])['test_key']}")["items"]
    flag = api.get(f"/flags/{flag['id']}")
    assert (flag["kind"], flag["evidence"]["seed"], flag["evidence"]["output"]) == (
        "passes_by_tolerance",
        1,
        "t.py::test_dx/dx",
    )
    assert flag["evidence"].get("check") is None  # nothing here can run it again
    page = api.client.get(f"/flags/{flag['id']}", headers={"Accept": "text/html"})
    assert page.status_code == 200


def test_the_pages_say_that_it_was_imported_and_whether_it_has_numbers(api: Api) -> None:
    without = take(api, JUNIT, suite="pages")["id"]
    page = api.client.get(f"/jobs/{without}", headers={"Accept": "text/html"}).text
    assert "Imported from JUnit XML: history without numbers" in page
    assert 'id="resubmit"' not in page
    assert "gonogo check" not in page
    with_numbers = take(api, lines(hollow(0, 0.9), suite="pages"), format="gonogo")["id"]
    page = api.client.get(f"/jobs/{with_numbers}", headers={"Accept": "text/html"}).text
    assert "Imported from the lines of GoNoGo" in page
    assert "without numbers" not in page
    # the verdict is the worse of the two; the sentence beside it counts both, in one iteration too
    red = {"name": "t.py::test_red", "outcome": "failed", "seed": 1}
    both = take(api, lines(hollow(1, 150.0), red, suite="both"), format="gonogo")["id"]
    job = api.get(f"/jobs/{both}")
    assert (job["verdict"], job["red"], job["hollow"]) == ("pass_by_tolerance", 1, 1)
    words = "1 test is red, and 1 test passed only by the tolerance (hollow)."
    for path in (f"/jobs/{both}", "/jobs"):
        assert words in api.client.get(path, headers={"Accept": "text/html"}).text
    assert words not in page
    twin = api.client.get(f"/jobs/{without}.json").json()
    assert twin["job"]["imported"]["numbers"] is False


def test_a_page_shows_a_hundred_tests_worst_first_and_finds_the_others(api: Api) -> None:
    """The page of a file of 19,900 tests had 385 kB."""
    cases = [
        {"name": f"t.py::Test_{number:03}", "outcome": "failed" if number == 207 else "passed"}
        for number in range(250)
    ]
    job = take(api, lines(*cases, suite="many"), format="gonogo")["id"]

    def part(query: str) -> tuple[int, list[str], str | None]:
        tests = api.client.get(f"/jobs/{job}.json?{query}").json()["tests"]
        return tests["total"], [line["name"][-3:] for line in tests["lines"]], tests["next_url"]

    total, names, next_url = part("")
    assert (total, len(names), names[:2]) == (250, 100, ["207", "000"])
    assert next_url == f"/jobs/{job}?after=100"
    last = [f"{number:03}" for number in range(200, 250) if number != 207]
    assert part("after=200") == (250, ["199", *last], None)
    assert part("search=TEST_20&after=x") == (10, ["207", *last[:7], *last[7:9]], None)
    for query, words in (
        ("", "Tests 1 to 100 of 250"),
        ("search=no such", "No such test"),
        ("after=900", "No such test"),
    ):
        page = api.client.get(f"/jobs/{job}?{query}", headers={"Accept": "text/html"}).text
        assert words in page, query


def test_an_import_cant_run_again_and_the_same_key_makes_one_job(api: Api) -> None:
    key = {"Idempotency-Key": "once"}
    answers = [
        api.client.post("/api/v1/imports?format=junit&suite=once", content=JUNIT, headers=key)
        for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    job = answers[0].json()["id"]
    assert api.client.post(f"/api/v1/jobs/{job}:resubmit").json()["field"] == "job"
    assert api.client.post(f"/api/v1/jobs/{job}:cancel").json()["state"] == "finished"
    other = api.client.post(
        "/api/v1/imports?format=junit&suite=once", content=JUNIT + b" ", headers=key
    )
    assert (other.status_code, other.json()["field"]) == (422, "Idempotency-Key")


def test_a_job_cant_ask_for_the_executor_of_imports(api: Api) -> None:
    body = {
        "test": {"selection": {"suite": "a"}},
        "build": "b",
        "target": {"executor": "import"},
        "seeds": {"count": 1},
    }
    api.client.post(
        "/api/v1/builds", json={"name": "b", "executor": "import", "branch": "main", "sequence": 4}
    )
    answer = api.client.post("/api/v1/jobs", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "target.executor")
    job = api.get("/jobs/" + take(api, JUNIT, build="b")["id"])
    assert job["branch"] == "main"


def test_bad_imports_name_the_field_and_store_nothing(api: Api) -> None:
    before = api.rows()
    assert refused(api, b"<!DOCTYPE a><testsuites/>")["field"] == "file"
    assert refused(api, JUNIT, format="xunit")["field"] == "format"
    assert refused(api, JUNIT, build="a b")["field"] == "build"
    assert refused(api, JUNIT, label="branch")["field"] == "label.0"
    assert refused(api, JUNIT, sha="4f1c2d9e0a")["field"] == "repository"
    assert (
        refused(api, lines({"name": "t", "outcome": "green"}), format="gonogo")["field"]
        == "lines.2.outcome"
    )
    for header, field in (
        ({"build": "a b"}, "lines.1.build"),
        ({"labels": {"a b": "c"}}, "lines.1.labels.a b"),
        ({"labels": {"a": "c" * 201}}, "lines.1.labels.a"),
        ({"labels": {str(number): "" for number in range(33)}}, "lines.1.labels"),
    ):
        problem = refused(api, lines(**header), format="gonogo")
        assert (problem["field"], problem["limit"] is None) == (field, False)
    assert api.rows() == before


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(api: Api) -> None:
    problem = refused(api, b"", 413, headers={"Content-Length": str(2**30)})
    assert problem["limit"] == "200000 bytes (GONOGO_MAX_IMPORT_BYTES)"
    problem = refused(api, (b" " * 65_536 for _ in range(8)), 413)  # without a stated length
    assert problem["limit"] == "200000 bytes (GONOGO_MAX_IMPORT_BYTES)"
    assert (
        api.client.post("/api/v1/jobs", content=b" " * 2_000_000).json()["limit"]
        == "1048576 bytes (GONOGO_MAX_BODY_BYTES)"
    )
