"""The page that submits a job, as the server makes it: filled from its address, with builds and
executors to choose from."""

from __future__ import annotations

import json

from api import JOB, Api, in_process
from gonogo import urls
from gonogo.kernels.registry import KERNELS
from gonogo_service.builds import store as builds

STRANGE = "\"'><script>alert(1)</script>"


def text(api: Api, **query: str) -> str:
    """Return the page for an address."""
    answer = api.client.get("/jobs/new", params=query)
    assert answer.status_code == 200
    return answer.text


def test_the_form_begins_with_what_the_address_says(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        shown = text(api, kernel="rmsnorm_fw", shape="7, 9", policy="sequential")
        assert '<option value="rmsnorm_fw" selected>' in shown
        assert '<option value="sequential" selected>' in shown
        assert 'value="7, 9"' in shown
        twin = api.client.get("/jobs/new.json", params={"shape": "7, 9", "nothing": "1"}).json()
        assert (twin["values"]["shape"], twin["values"]["count"]) == ("7, 9", "8")
        assert "nothing" not in twin["values"]
        assert set(twin["kernels"]) == set(KERNELS)


def test_what_an_address_holds_stays_text(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        names = api.client.get("/jobs/new.json").json()["values"]
        shown = text(api, **dict.fromkeys(names, STRANGE))
        assert shown.count("&lt;script&gt;alert(1)") == len(names)
        assert "<script>alert" not in shown
        assert len(text(api, build="x" * 9_000)) < len(text(api)) + 3_000


def test_registered_builds_come_first_and_what_the_form_begins_with_is_a_job(
    migrated_sqlite_url: str,
) -> None:
    with in_process(migrated_sqlite_url) as api:
        with api.context.session() as session:
            builds.add(
                session,
                name="main-0001",
                executor="ttnn",
                branch="main",
                sequence=1,
                commit=None,
                arithmetic=None,
                outputs=None,
            )
        twin = api.client.get("/jobs/new.json").json()
        assert next(iter(twin["builds"].items())) == ("main-0001", "ttnn, main")
        assert "ttnn" in twin["executors"]
        values = twin["values"]
        job = {
            "test": {
                "kernel": values["kernel"],
                "shape": [int(dimension) for dimension in values["shape"].split(",")],
            },
            "build": values["build"],
            "target": {name: values[name] for name in ("executor", "arch", "board")},
            "seeds": {"start": int(values["start"]), "count": int(values["count"])},
            "repeats": int(values["repeats"]),
            "priority": int(values["priority"]),
        }
        assert api.client.post(urls.VALIDATE, json=job).status_code == 200
        assert api.client.post(urls.SUBMIT, json=job).status_code == 202


def test_the_form_begins_as_a_job_or_a_test_did(migrated_sqlite_url: str) -> None:
    test = {
        "kernel": "layernorm_bw",
        "shape": [32, 64],
        "epsilon": 1e-5,
        "inputs": {"regime": "normal", "mean": 0.0, "std": 2.0},
        "tolerance": {"rtol": 1e-3, "atol": 0.5, "pcc": 0.999, "ulp": 4.0},
    }
    job_fields = {
        "test": test,
        "build": "tt-train-2025",
        "reference": {"build": "correct"},
        "seeds": [3, 1, 8],
        "repeats": 2,
        "priority": 7,
        "queue_deadline_s": 3600,
        "labels": {"suite": "nightly", "team": STRANGE},
        "context": {"name": "after", "before": [JOB["test"]]},
        "commit": {"repository": "org/name", "sha": "0123abc", "pull_request": 7},
    }
    with in_process(migrated_sqlite_url) as api:
        job = api.submit(**job_fields)
        begun = api.client.get("/jobs/new.json", params={"from": job, "priority": "9"}).json()
        values = begun["values"]
        typed = tuple(values[name] for name in ("kind", "shape", "epsilon", "rtol", "atol", "pcc"))
        assert typed == ("kernel", "32, 64", "1e-05", "0.001", "0.5", "0.999")
        assert json.loads(values["rest"]) == {"inputs": test["inputs"], "tolerance": {"ulp": 4.0}}
        assert (values["policy"], values["these"], values["repeats"], values["priority"]) == (
            "list",
            "3, 1, 8",
            "2",
            "9",
        )
        assert (values["reference"], values["queue_deadline"]) == ("correct", "3600")
        assert (values["repository"], values["sha"], values["pull_request"]) == (
            "org/name",
            "0123abc",
            "7",
        )
        assert json.loads(values["context"])["name"] == "after"
        assert begun["begun_url"] == f"/jobs/{job}"
        page = text(api, **{"from": job})
        assert "<script>alert" not in page
        assert f'<a href="/jobs/{job}">the job</a>' in page
        assert f"/jobs/new?from={job}" in api.client.get(f"/jobs/{job}").text
        # a test on the build and the target where it ran last; a job that stops early; a selection
        key = api.get(f"/jobs/{job}")["test_key"]
        of_test = api.client.get("/jobs/new.json", params={"test": key}).json()["values"]
        assert (of_test["shape"], of_test["policy"], of_test["count"]) == ("32, 64", "range", "8")
        rate = api.submit(seeds={"policy": "sequential", "max": 40, "stop_on_finding": False})
        assert (
            api.client.get("/jobs/new.json", params={"from": rate}).json()["values"]["policy"]
            == "rate"
        )
        chosen = {
            "selection": {
                "suite": "nightly",
                "filter": "a and not b",
                "shuffle": True,
                "stages": ["one", "two"],
            }
        }
        with api.context.session() as session:
            builds.add(session, name="suites-1", executor="pytest", branch="suites", sequence=1)
        suite = api.submit(test=chosen, build="suites-1", target={"executor": "pytest"})
        twin = api.client.get("/jobs/new.json", params={"from": suite}).json()
        named = {
            name: twin["values"][name]
            for name in ("kind", "suite", "filter", "stages", "shuffle", "executor")
        }
        assert named == {
            "kind": "selection",
            "suite": "nightly",
            "filter": "a and not b",
            "stages": "one, two",
            "shuffle": "yes",
            "executor": "pytest",
        }
        assert (twin["suites"], twin["reporters"]) == (["nightly"], ["gtest", "pytest"])
        # the page says that a job or a test is missing
        for name in ("from", "test"):
            answer = api.client.get("/jobs/new", params={name: STRANGE})
            assert answer.status_code == 200
            assert "The form has its default values" in answer.text
            assert "<script>alert" not in answer.text
