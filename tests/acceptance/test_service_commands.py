"""The commands that talk to a server, as a shell script would use them: JSON, exit codes, a message
that says what to do; and a job that compares two builds over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import documented
import forked
from running_service import TINY, Service, clean_environment, every_seed_once, submit
from servers import RedisServer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[Service]:
    """One service for all commands."""
    folder = tmp_path_factory.mktemp("commands")
    service = Service(folder, f"sqlite:///{folder / 'gonogo.sqlite'}", redis_server.url)
    try:
        service.start()
        yield service
    finally:
        service.close()


def call(place: Service, *words: str, code: int = 0, **environment: str) -> str:
    """Run a command against the service, check its exit code and return its output."""
    env = clean_environment(**({"GONOGO_URL": place.url} | environment))
    done = forked.run(words, env, place.folder)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}{place.logs()}"
    return done.stdout if code in {0, 1} else done.stdout + done.stderr


def submitted(place: Service, build: str, code: int, *more: str) -> dict[str, Any]:
    """Return the JSON of `gonogo submit --watch` for one build."""
    words = "submit --shape 1,1,64,1024 --rtol 1e-3 --atol 0.5 --seeds 2 --watch --json --build"
    job: dict[str, Any] = json.loads(call(place, *words.split(), build, *more, code=code))
    return job


def test_a_right_kernel_exits_with_0_and_a_hollow_pass_with_1(place: Service) -> None:
    assert submitted(place, "correct", 0)["verdict"] == "pass"
    hollow = submitted(place, "double-subtract", 1)
    assert hollow["verdict"] == "pass_by_tolerance"
    assert "s1 is subtracted twice" in json.dumps(hollow["diagnosis"])
    let_through = submitted(place, "double-subtract", 0, "--fail-on", "fail")
    assert let_through["verdict"] == "pass_by_tolerance"


def test_jobs_results_and_diagnosis_of_a_job(place: Service) -> None:
    job = submitted(place, "drop-s1", 1)["id"]
    listed = json.loads(call(place, "jobs", "list", "--build", "drop-s1", "--json"))["items"]
    assert job in {item["id"] for item in listed}
    items = json.loads(call(place, "results", job, "--json"))["items"]
    assert sorted(item["seed"] for item in items) == [0, 1]
    rows = call(place, "results", job, "--format", "csv").splitlines()
    assert len(rows) == 1 + 2 * 3  # a header; each seed's dx, dgamma, dbeta
    assert "s1 is missing" in call(place, "diagnose", job)
    assert "Hollow pass" in call(place, "watch", job, code=1)
    assert job in call(place, "jobs", "list")
    assert "drop-s1" in call(place, "jobs", "list")


def test_a_suite_gates_on_what_is_new_against_its_base(place: Service) -> None:
    entry = {"name": "small", "test": TINY, "seeds": {"start": 0, "count": 1}}
    path = place.folder / "gate.yaml"
    path.write_text(json.dumps({"name": "gate", "entries": [entry]}))
    builds = "--build correct --build double-subtract --base correct"
    words = f"submit {path} --watch {builds} --json"
    suite_run = json.loads(call(place, *words.split(), code=1))
    (compared,) = suite_run["comparisons"]
    assert compared["counts"] == {"new_hollow_pass": 1}
    assert compared["gate"]["words"] == "1 new hollow pass"
    assert compared["items"][0]["findings"][0]["evidence"]["change"]["change"] == "broken"
    sides = [f"{build}@{suite_run['id']}" for build in ("double-subtract", "correct")]
    assert "No longer a hollow pass" in call(place, "compare", *sides)


def test_the_first_token_is_made_beside_the_database_and_works(place: Service) -> None:
    names = ("GONOGO_DATABASE_URL", "GONOGO_SECRET_KEY")
    server = {name: place.environment[name] for name in names}
    words = "tokens create --name script --scope submit"
    token = call(place, *words.split(), **server).strip()
    assert "items" in json.loads(call(place, "jobs", "list", "--json", GONOGO_TOKEN=token))
    assert call(place, "jobs", "list", code=2, GONOGO_TOKEN="gng_wrong")


def test_a_job_compares_two_builds_over_http(place: Service) -> None:
    with place.client() as client:
        test = {**TINY, "shape": [1, 64, 1, 416]}
        job = submit(client, 3, test=test, reference={"build": "tt-train-2025"})
        ended = client.wait(job)
        assert (ended["state"], ended["verdict"]) == ("finished", "pass"), place.logs()
        assert ended["reference"] == {"build": "tt-train-2025"}
        for item in every_seed_once(client, job, range(3)):
            dx = item["outputs"]["dx"]
            assert dx["rounding_ratio"] < 1.1  # against float64: this build is right
            assert dx["reference"]["build"] == "tt-train-2025"
            assert dx["reference"]["explanation"] == "unexplained"
            assert "rounding explains this build, not tt-train-2025" in item["message"]
        # a flag is about one build and float64
        assert client.call("GET", "/flags", job=job)["items"] == []
        again = client.call("POST", f"/jobs/{job}:resubmit")["id"]
        assert client.wait(again)["reference"] == {"build": "tt-train-2025"}
        page = documented.HTTP.get(f"{place.url}/jobs/{job}").text
        assert "tt-train-2025 and float64" in page
        assert "--reference-build tt-train-2025" in page
        assert "Against tt-train-2025" in page


def test_the_doctor_finds_a_service_well(place: Service) -> None:
    every = place.environment.items()
    settings = {name: value for name, value in every if name.startswith("GONOGO_")}
    report = json.loads(call(place, "doctor", "--json", **settings))
    assert report["ok"], report
