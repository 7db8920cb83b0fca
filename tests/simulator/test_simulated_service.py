"""Real ttnn kernels on the simulated Wormhole through the whole service: HTTP, a worker, stored
seeds, verdicts, flags, diagnoses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from running_service import Service, every_seed_once, gone, submit, until
from servers import RedisServer
from simulated_wormhole import servers

TARGET = {"executor": "ttnn", "arch": "wormhole", "board": "n150"}
WAIT_S = 300.0
MARK = "SIMULATED_SERVICE"
"""A variable by which the tests find the processes of their own service."""
UPSTREAM = {"rtol": 1e-2, "atol": 5e-2}
"""The tolerance of ttnn's own tests of layer_norm in bf16."""
LOOSE = {"rtol": 1e-3, "atol": 0.5}
"""The tolerance of the nightly backward test in the bug report."""


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer, builds: Path
) -> Iterator[Service]:
    """One service with one ttnn worker, on a device of its own."""
    folder = tmp_path_factory.mktemp("simulated")
    service = Service(
        folder,
        f"sqlite:///{folder / 'gonogo.sqlite'}",
        redis_server.url,
        GONOGO_BUILDS=str(builds),
        GONOGO_CHILD_VARIABLES=MARK,
        **{MARK: str(folder)},
    )
    service.workers.clear()
    try:
        service.add_worker("ttnn")
        service.start_all_but_workers()
        yield service
    finally:
        service.close()
        for process in _servers_of(service):
            process.kill()


def finished(
    place: Service, build: str, test: dict[str, Any], seeds: int = 1
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Run a job to its end; return the job, its results and its diagnosis."""
    with place.client() as client:
        job = submit(client, seeds, build=build, test=test, target=TARGET)
        ended = client.wait(job, patience_s=WAIT_S)
        assert ended["state"] == "finished", f"{ended}\n{place.logs()}"
        return (
            ended,
            every_seed_once(client, job, range(seeds)),
            client.call("GET", f"/jobs/{job}/diagnosis"),
        )


def test_a_right_forward_passes_and_every_seed_is_stored(place: Service) -> None:
    test = {"kernel": "layernorm_fw", "shape": [1, 1, 32, 64], "tolerance": UPSTREAM}
    ended, items, _ = finished(place, "ttnn", test, seeds=2)
    assert ended["verdict"] == "pass", items
    assert {item["arithmetic"] for item in items} == {"ttnn's dataflow on a Wormhole"}
    assert all(set(item["outputs"]) == {"y"} for item in items)
    assert all(item["outputs"]["y"]["explanation"] == "explained" for item in items)


def test_a_fault_planted_in_a_real_kernel_is_flagged_and_named(place: Service) -> None:
    """Repeat the bug of the original report on that hardware's own toolchain: green at atol 0.5,
    with s1 subtracted twice."""
    test = {"kernel": "layernorm_bw", "shape": [1, 1, 64, 96], "tolerance": LOOSE}
    ended, items, _ = finished(place, "ttnn-generic-bw", test)
    assert ended["verdict"] == "pass", items
    ended, items, diagnosis = finished(place, "ttnn-generic-bw-double-subtract", test)
    assert ended["verdict"] == "pass_by_tolerance", items
    assert "s1 is subtracted twice" in diagnosis["words"]
    with place.client() as client:
        flags = client.call("GET", "/flags", kind="passes_by_tolerance", state="open")["items"]
    assert [flag["build"] for flag in flags if flag["build"].startswith("ttnn-generic")] == [
        "ttnn-generic-bw-double-subtract"
    ]
    assert "s1 is subtracted twice" in str(flags)


def test_a_killed_worker_s_simulator_is_reaped_and_the_job_still_ends(place: Service) -> None:
    with place.client() as client:
        job = submit(
            client,
            4,
            build="ttnn",
            test={"kernel": "layernorm_fw", "shape": [1, 1, 32, 64]},
            target=TARGET,
        )
        left = until(lambda: _servers_of(place), WAIT_S, "the simulator's server")
        place.workers[0].kill()
        place.add_worker("ttnn")
        ended = client.wait(job, patience_s=WAIT_S)
        assert ended["verdict"] == "pass", f"{ended}\n{place.logs()}"
        every_seed_once(client, job, range(4))
    until(lambda: gone(left), 30, "the killed worker's servers to end")


def _servers_of(place: Service) -> list[psutil.Process]:
    return servers(MARK, str(place.folder))
