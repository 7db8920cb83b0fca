"""A staged pytest suite through the whole service: HTTP job, worker, stored iterations, the table
with blocker and regression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import documented
import forked
from patience import scaled
from records import pick
from running_service import Service, clean_environment, submit
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
    texts = []
    for name, third in (("op-1", PASSES), ("op-2", HANGS)):
        root = folder / name
        root.mkdir()
        for number in (1, 2, 4):
            (root / f"test_stage{number}.py").write_text(PASSES)
        (root / "test_stage3.py").write_text(third)
        if name == "op-1":
            (root / "stubs.jsonl").touch()
        texts.append(BUILD.format(name=name, root=root, limit_s=scaled(10)))
    (folder / "builds.toml").write_text("\n".join(texts))
    url, builds = f"sqlite:///{folder / 'gonogo.sqlite'}", str(folder / "builds.toml")
    service = Service(folder, url, redis_server.url, GONOGO_BUILDS=builds)
    service.workers.clear()
    try:
        service.add_worker("pytest")
        service.start_all_but_workers()
        with service.client() as client:
            for sequence, name in enumerate(("op-1", "op-2"), 1):
                place = {"executor": "pytest", "branch": "op", "sequence": sequence}
                client.call("POST", "/builds", body={"name": name, **place})
        yield service
    finally:
        service.close()


def run(place: Service, build: str) -> tuple[str, dict[str, Any]]:
    """Run a job of the staged suite to its end; return its id and its diagnosis."""
    target = {"executor": "pytest", "arch": "wormhole", "board": "n150"}
    with place.client() as client:
        job = submit(client, build=build, target=target, test={"selection": {"suite": "staged"}})
        assert client.wait(job)["state"] == "finished", place.logs()
        return job, client.call("GET", f"/jobs/{job}/diagnosis")


def statuses(diagnosis: dict[str, Any]) -> list[tuple[str, str]]:
    return [(stage["name"], stage["status"]) for stage in diagnosis["stages"]["stages"]]


def test_a_suite_whose_kernels_hang_since_the_last_build(place: Service) -> None:
    _, before = run(place, "op-1")
    assert statuses(before) == [(name, "passed") for name in STAGES], place.logs()
    assert before["words"] == "All 4 stages passed."

    job, diagnosis = run(place, "op-2")
    expected = dict(zip(STAGES, ("passed", "partial", "hung", "blocked"), strict=True))
    assert dict(statuses(diagnosis)) == expected, place.logs()
    assert diagnosis["stages"]["blocker"] == "kernels"
    regressions = [pick(one, "stage", "since") for one in diagnosis["stages"]["regressions"]]
    assert regressions == [(name, "op-1") for name in ("stub kernels", "kernels", "launch")]
    counted = "Of 4 stages 1 passed, 2 (stub kernels) partial, 4 (launch) blocked, 3 (kernels) hung"
    assert diagnosis["words"].startswith(f"{counted}; the blocker is")
    assert diagnosis["verdict"] == "hang"

    page = documented.HTTP.get(f"{place.url}/jobs/{job}")
    assert page.status_code == 200, page.text
    assert page.text.count("it passed on op-1") == 3
    assert "<strong>Blocker</strong>" in page.text
    assert "missing: stubs.jsonl" in page.text
    twin = documented.HTTP.get(f"{place.url}/jobs/{job}.json").json()
    assert statuses(twin["diagnosis"]) == statuses(diagnosis)

    done = forked.run(("diagnose", job), clean_environment(GONOGO_URL=place.url), place.folder)
    assert "blocker; test_stage3.py::test_runs hung" in done.stdout

    with place.client() as client:
        (result,) = client.pages(f"/jobs/{job}/results", limit=10)
    assert result["outputs"]["test_stage3.py::test_fits"]["outcome"] == "passed"
    assert result["outputs"]["launch: blocked"]["verdict"] == "skipped"
