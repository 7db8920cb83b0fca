"""Imports over HTTP: a run from elsewhere becomes a finished job like any other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api import Api, refusal
from records import pick

JUNIT = b"""<testsuite name="nightly"><testcase classname="ln" name="dx" time="0.5"/>
<testcase classname="ln" name="dgamma"><failure message="off"/></testcase></testsuite>"""
SPEC = {"kernel": "layernorm_bw", "shape": [1, 1, 32, 64], "tolerance": {"rtol": 1e-3, "atol": 0.5}}


SETTINGS = {"max_import_bytes": 200_000}


@pytest.fixture(scope="module")
def api(shared: Api) -> Api:
    """One service for the whole module: every test has its own suites."""
    return shared


def send(api: Api, data: Any, headers: dict[str, str] | None = None, **query: Any) -> Any:
    params = {"format": "junit", **query}
    return api.client.post("/api/v1/imports", params=params, content=data, headers=headers)


def take(api: Api, data: bytes, **query: Any) -> Any:
    answer = send(api, data, **query)
    assert answer.status_code == 201, answer.text
    return answer.json()


def page_of(api: Api, path: str) -> str:
    return api.client.get(path, headers={"Accept": "text/html"}).text


def hollow(seed: int, ratio: float) -> dict[str, Any]:
    dx = {"count": 2048, "nonfinite": 0, "tolerance_ratio": 0.1, "rounding_ratio": ratio}
    dx |= {"needed_atol": {"0.001": 0.05}}
    dx |= {"explanation": "unexplained" if ratio > 1 else "explained"}
    compared = [{"test": SPEC, "outputs": {"dx": dx}}]
    return {"name": "t.py::test_dx", "outcome": "passed", "seed": seed, "comparisons": compared}


def lines(*tests: dict[str, Any], **header: Any) -> bytes:
    parts = ({"format": "gonogo", "version": 1, **header}, *tests)
    return "\n".join(map(json.dumps, parts)).encode()


def test_an_import_is_a_finished_job_and_the_next_one_its_history(api: Api) -> None:
    commit = {"repository": "org/name", "sha": "4f1c2d9e0a"}
    first = take(api, JUNIT, suite="unit", label="branch=main", pull_request=7, **commit)
    kind = ("import", "not_judged", 2, False)
    assert pick(first, "kind", "verdict", "tests", "numbers") == kind
    assert first["outcomes"] == {"passed": 1, "failed": 1}
    second = take(api, JUNIT.replace(b"failure", b"skipped"), suite="unit", build="head")
    job = api.get(f"/jobs/{first['id']}")
    place = ("finished", "4f1c2d9e0a", "imported", {"branch": "main"})
    assert pick(job, "state", "build", "branch", "labels") == place
    assert job["commit"] == {**commit, "pull_request": 7}
    assert pick(job["import"], "format", "numbers") == ("junit", False)
    history = api.get(f"/workloads/{job['workload_key']}/history")["items"]
    ran = [(second["id"], "head"), (first["id"], "4f1c2d9e0a")]
    assert [pick(item, "job", "build") for item in history] == ran
    builds = api.get(f"/tests/{job['test_key']}")["builds"]
    seeds = {build["build"]: build["seeds"] for build in builds}
    assert seeds == {"head": 1, "4f1c2d9e0a": 1}
    (labelled,) = api.get("/jobs?kind=import&label=branch=main")["items"]
    assert labelled["id"] == first["id"]
    events = {"Accept": "text/event-stream"}
    stream = api.client.get(f"/api/v1/jobs/{first['id']}/events", headers=events)
    assert '"finished"' in stream.text
    entries = api.get("/audit?action=import.created")["items"]
    assert {first["id"], second["id"]} <= {entry["subject"] for entry in entries}


def test_the_numbers_of_our_own_lines_raise_the_flag_that_a_job_here_would(api: Api) -> None:
    data = lines(hollow(0, 0.9), hollow(1, 150.0), suite="plug-in", build="b1")
    imported = take(api, data, format="gonogo")
    assert pick(imported, "verdict", "numbers") == ("pass_by_tolerance", True)
    rows = api.get(f"/jobs/{imported['id']}/results?order=seed")["items"]
    verdicts = [(0, "pass"), (1, "pass_by_tolerance")]
    assert [pick(row, "iteration", "verdict") for row in rows] == verdicts
    (flag,) = api.get(f"/flags?test={api.get('/jobs/' + imported['id'])['test_key']}")["items"]
    flag = api.get(f"/flags/{flag['id']}")
    assert flag["kind"] == "passes_by_tolerance"
    assert pick(flag["evidence"], "seed", "output") == (1, "t.py::test_dx/dx")
    assert flag["evidence"].get("check") is None  # nothing here can run it again
    assert api.client.get(f"/flags/{flag['id']}").status_code == 200


def test_the_pages_say_that_it_was_imported_and_whether_it_has_numbers(api: Api) -> None:
    without = take(api, JUNIT, suite="pages")["id"]
    page = page_of(api, f"/jobs/{without}")
    assert "Imported from JUnit XML: history without numbers" in page
    assert 'id="resubmit"' not in page
    assert "gonogo check" not in page
    with_numbers = take(api, lines(hollow(0, 0.9), suite="pages"), format="gonogo")["id"]
    page = page_of(api, f"/jobs/{with_numbers}")
    assert "Imported from the lines of GoNoGo" in page
    assert "without numbers" not in page
    # the verdict is the worse of the two; the sentence beside it counts both, in one iteration too
    red = {"name": "t.py::test_red", "outcome": "failed", "seed": 1}
    both = take(api, lines(hollow(1, 150.0), red, suite="both"), format="gonogo")["id"]
    job = api.get(f"/jobs/{both}")
    assert pick(job, "verdict", "red", "hollow") == ("pass_by_tolerance", 1, 1)
    words = "1 test is red, and 1 test passed only by the tolerance (hollow)."
    for path in (f"/jobs/{both}", "/jobs"):
        assert words in page_of(api, path)
    assert words not in page
    twin = api.client.get(f"/jobs/{without}.json").json()
    assert twin["job"]["imported"]["numbers"] is False


def test_a_page_shows_a_hundred_tests_worst_first_and_finds_the_others(api: Api) -> None:
    cases = [
        {"name": f"t.py::Test_{number:03}", "outcome": "failed" if number == 207 else "passed"}
        for number in range(250)
    ]
    cases[249]["name"] = "t.py::Test_Überlauf_249"
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
    assert part("search=test_Über") == (1, ["249"], None)
    for query, words in (
        ("", "Tests 1 to 100 of 250"),
        ("search=no such", "No such test"),
        ("after=900", "No such test"),
    ):
        assert words in page_of(api, f"/jobs/{job}?{query}"), query


def test_an_import_cant_run_again_and_the_same_key_makes_one_job(api: Api) -> None:
    key = {"Idempotency-Key": "once"}
    first, again = (take(api, JUNIT, suite="once", headers=key) for _ in range(2))
    assert first == again
    job = first["id"]
    assert api.client.post(f"/api/v1/jobs/{job}:resubmit").json()["field"] == "job"
    assert api.client.post(f"/api/v1/jobs/{job}:cancel").json()["state"] == "finished"
    other = send(api, JUNIT + b" ", suite="once", headers=key)
    assert refusal(other) == (422, "Idempotency-Key")


def test_a_job_cant_ask_for_the_executor_of_imports(api: Api) -> None:
    build = {"name": "b", "executor": "import", "branch": "main", "sequence": 4}
    api.client.post("/api/v1/builds", json=build)
    target = {"build": "b", "target": {"executor": "import"}}
    body = {"test": {"selection": {"suite": "a"}}, "seeds": {"count": 1}, **target}
    assert refusal(api.client.post("/api/v1/jobs", json=body)) == (422, "target.executor")
    job = api.get("/jobs/" + take(api, JUNIT, build="b")["id"])
    assert job["branch"] == "main"


def test_bad_imports_name_the_field_and_store_nothing(api: Api) -> None:
    before, lines_of_ours = api.rows(), {"format": "gonogo"}
    for data, query, field in (
        (b"<!DOCTYPE a><testsuites/>", {}, "file"),
        (JUNIT, {"format": "xunit"}, "format"),
        (JUNIT, {"build": "a b"}, "build"),
        (JUNIT, {"label": "branch"}, "label.0"),
        (JUNIT, {"sha": "4f1c2d9e0a"}, "repository"),
        (JUNIT, {"pull_request": 7}, "sha"),
        (lines({"name": "t", "outcome": "green"}), lines_of_ours, "lines.2.outcome"),
        (lines(build="a b"), lines_of_ours, "lines.1.build"),
        (lines(labels={"a b": "c"}), lines_of_ours, "lines.1.labels.a b"),
        (lines(labels={"a": "c" * 201}), lines_of_ours, "lines.1.labels.a"),
        (lines(labels={str(number): "" for number in range(33)}), lines_of_ours, "lines.1.labels"),
    ):
        assert refusal(send(api, data, **query)) == (422, field)
    assert api.rows() == before


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(api: Api) -> None:
    for answer in (
        send(api, b"", headers={"Content-Length": str(2**30)}),
        send(api, (b" " * 65_536 for _ in range(8))),  # without a stated length
    ):
        assert answer.status_code == 413
        assert answer.json()["limit"] == "200000 bytes (GONOGO_MAX_IMPORT_BYTES)"
