"""A staged pytest suite through the whole service: HTTP job, worker, stored iterations, the table
with blocker and regression."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

import documented
from patience import scaled
from running_service import Service, gonogo
from servers import RedisServer

STAGES = ("API exists", "stub kernels", "kernels", "launch")
BUILD = """
[builds.{name}]
executor = "pytest"
environment = {{ PYTEST_DISABLE_PLUGIN_AUTOLOAD = "1" }}
options = {{ root = "{root}" }}
[builds.{name}.suites.staged]
stages = [
    {{ name = "API exists", files = ["test_stage1.py"] }},
    {{ name = "stub kernels", files = ["test_stage2.py"], requires = ["stubs.jsonl"] }},
    {{ name = "kernels", files = ["test_stage3.py"], timeout_s = {limit_s} }},
    {{ name = "launch", files = ["test_stage4.py"] }},
]
"""
PASSES = "def test_stage(): pass\n"
HANGS = "import time\ndef test_fits(): pass\ndef test_runs():\n    while True: time.sleep(60)\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("pytest-service")
    builds = []
    for name, third in (("op-1", PASSES), ("op-2", HANGS)):
        root = folder / name
        root.mkdir()
        for number in (1, 2, 4):
            (root / f"test_stage{number}.py").write_text(PASSES)
        (root / "test_stage3.py").write_text(third)
        if name == "op-1":
            (root / "stubs.jsonl").touch()
        builds.append(BUILD.format(name=name, root=root, limit_s=scaled(10)))
    (folder / "builds.toml").write_text("\n".join(builds))
    service = Service(
        folder,
        f"sqlite:///{folder / 'gonogo.sqlite'}",
        redis_server.url,
        GONOGO_BUILDS=str(folder / "builds.toml"),
    )
    service.workers.clear()
    try:
        service.add_worker("pytest")
        service.start_all_but_workers()
        with service.client() as client:
            for sequence, name in enumerate(("op-1", "op-2"), 1):
                client.call(
                    "POST",
                    "/builds",
                    body={"name": name, "executor": "pytest", "branch": "op", "sequence": sequence},
                )
        yield service
    finally:
        service.close()


def job_of(build: str, **selection: Any) -> dict[str, Any]:
    """The body of a job of the staged suite."""
    target = {"executor": "pytest", "arch": "wormhole", "board": "n150"}
    return {
        "test": {"selection": {"suite": "staged", **selection}},
        "build": build,
        "target": target,
        "seeds": {"start": 0, "count": 1},
    }


def run(place: Service, build: str, **selection: Any) -> tuple[str, dict[str, Any]]:
    """Run a job of the staged suite to its end; return its id and its diagnosis."""
    with place.client() as client:
        job = client.call("POST", "/jobs", body=job_of(build, **selection))["id"]
        assert client.wait(job)["state"] == "finished", place.logs()
        return job, client.call("GET", f"/jobs/{job}/diagnosis")


def statuses(diagnosis: dict[str, Any]) -> list[tuple[str, str]]:
    return [(stage["name"], stage["status"]) for stage in diagnosis["stages"]["stages"]]


def test_a_suite_whose_kernels_hang_since_the_last_build(place: Service) -> None:
    _, before = run(place, "op-1")
    assert statuses(before) == [(name, "passed") for name in STAGES], place.logs()
    assert before["words"] == "All 4 stages passed."

    job, diagnosis = run(place, "op-2")
    assert statuses(diagnosis) == list(
        zip(STAGES, ("passed", "partial", "hung", "blocked"), strict=True)
    ), place.logs()
    assert diagnosis["stages"]["blocker"] == "kernels"
    assert [
        (regression["stage"], regression["since"])
        for regression in diagnosis["stages"]["regressions"]
    ] == [
        ("stub kernels", "op-1"),
        ("kernels", "op-1"),
        ("launch", "op-1"),
    ]
    assert diagnosis["words"].startswith(
        "Of 4 stages 1 passed, 2 (stub kernels) partial, 4 (launch) blocked, 3 (kernels) "
        "hung; the blocker is"
    )
    assert diagnosis["verdict"] == "hang"

    page = documented.HTTP.get(f"{place.url}/jobs/{job}")
    assert page.status_code == 200, page.text
    assert page.text.count("it passed on op-1") == 3
    assert "<strong>Blocker</strong>" in page.text
    assert "missing: stubs.jsonl" in page.text
    twin = documented.HTTP.get(f"{place.url}/jobs/{job}.json").json()
    assert statuses(twin["diagnosis"]) == statuses(diagnosis)

    done = subprocess.run(
        gonogo("diagnose", job),
        env=place.environment | {"GONOGO_URL": place.url},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "blocker; test_stage3.py::test_runs hung" in done.stdout

    with place.client() as client:
        (result,) = client.pages(f"/jobs/{job}/results", limit=10)
    assert result["outputs"]["test_stage3.py::test_fits"]["outcome"] == "passed"
    assert result["outputs"]["launch: blocked"]["verdict"] == "skipped"


def test_only_the_stages_up_to_the_one_asked_for(place: Service) -> None:
    _, diagnosis = run(place, "op-2", stages=["stub kernels"])
    assert statuses(diagnosis) == [("API exists", "passed"), ("stub kernels", "partial")]
    assert [regression["stage"] for regression in diagnosis["stages"]["regressions"]] == [
        "stub kernels"
    ]


def test_the_stage_that_was_asked_for_must_exist(place: Service) -> None:
    with place.client() as client:
        job = client.call("POST", "/jobs", body=job_of("op-1", stages=["soon"]))["id"]
        assert client.wait(job)["verdict"] == "error"
        (result,) = client.pages(f"/jobs/{job}/results", limit=10)
    assert "no stage 'soon'; it has: API exists, stub kernels, kernels, launch" in result["message"]
