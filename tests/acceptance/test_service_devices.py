"""Devices over HTTP, with every process of production: drained, hung and well again, and no seed
lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patience import scaled
from running_service import Service, every_seed_once, submit, until

TROUBLE = {
    "target": {"executor": "troublesome", "arch": "wormhole", "board": "n150"},
    "build": "slow",
}


@pytest.fixture
def service(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Service]:
    """API, background and one worker of the troublesome executor."""
    builds = tmp_path / "builds.toml"
    builds.write_text('[executors.troublesome]\ncanary = "right"\n')
    plugin = "troublesome=troublesome:Troublesome"
    new_service = Service(
        tmp_path,
        sqlite_url,
        redis_url,
        GONOGO_EXECUTORS=plugin,
        GONOGO_BUILDS=str(builds),
        GONOGO_PER_SEED_DEADLINE_S=str(scaled(2)),
    )
    new_service.workers.clear()
    try:
        new_service.start_all_but_workers()
        new_service.add_worker("troublesome")
        yield new_service
    finally:
        new_service.close()


def register(client: Any, *names: str) -> None:
    """Register builds with the service."""
    for name in names:
        client.call("POST", "/builds", body={"name": name, "executor": "troublesome"})


def test_a_host_is_drained_and_given_back_and_a_hang_costs_its_seed_only(service: Service) -> None:
    with service.client() as client:
        register(client, "slow", "hang-sometimes")
        (device,) = until(lambda: client.call("GET", "/devices")["items"], what=service.logs())
        assert (device["name"], device["health"], device["queues"]) == (
            "troublesome:0",
            "good",
            ["troublesome.wormhole.n150"],
        )
        job = submit(client, 40, **TROUBLE)
        until(lambda: client.job(job)["done"] >= 2, what=service.logs())
        host = device["host"]
        client.call("POST", f"/hosts/{host}:drain", body={"reason": "a test"})
        until(
            lambda: client.call("GET", f"/devices/{device['id']}")["state"] == "idle",
            what=service.logs(),
        )
        done = until(lambda: client.call("GET", f"/jobs/{job}"), what="the job")
        assert done["state"] == "running"
        until(lambda: client.call("GET", f"/jobs/{job}")["waiting_reason"], what=service.logs())
        client.call("POST", f"/hosts/{host}:undrain", body={"reason": "the test goes on"})
        until(
            lambda: client.call("GET", f"/jobs/{job}")["state"] == "finished",
            what=service.logs(),
        )
        items = every_seed_once(client, job, range(40))
        assert {item["verdict"] for item in items} == {"pass"}
        hung = submit(client, 4, **TROUBLE | {"build": "hang-sometimes"})
        until(
            lambda: client.call("GET", f"/jobs/{hung}")["state"] == "finished",
            what=service.logs(),
        )
        verdicts = {
            item["seed"]: item["verdict"] for item in every_seed_once(client, hung, range(4))
        }
        assert verdicts == {0: "pass", 1: "pass", 2: "hang", 3: "hang"}
        device_now = client.call("GET", f"/devices/{device['id']}")
        assert device_now["health"] == "good"
        assert [
            change["what"] for change in device_now["history"] if change["what"] == "drain"
        ] == [
            "drain",
            "drain",
        ]


def test_of_three_devices_the_one_with_other_bits_is_suspected_and_its_worker_can_be_drained(
    service: Service,
) -> None:
    service.add_worker("troublesome")
    with service.client() as client:

        def known() -> dict[str, Any]:
            return {device["name"]: device for device in client.call("GET", "/devices")["items"]}

        def run_canary(name: str, standing: str) -> None:
            client.call(
                "PATCH", f"/devices/{known()[name]['id']}", body={"test": True, "reason": "a look"}
            )
            until(
                lambda: (known()[name]["canary"] or {}).get("golden") == standing,
                what=service.logs(),
            )

        until(lambda: len(known()) == 2, what=service.logs())
        service.add_worker("troublesome", TROUBLE_BITS="1")
        until(lambda: len(known()) == 3, what=service.logs())
        run_canary("troublesome:0", "first")
        run_canary("troublesome:1", "golden")
        run_canary("troublesome:2", "differs")
        until(lambda: known()["troublesome:2"]["health"] == "suspect", what=service.logs())
        assert {name: device["health"] for name, device in known().items()} == {
            "troublesome:0": "good",
            "troublesome:1": "good",
            "troublesome:2": "suspect",
        }
        assert "its canary's bits differ" in known()["troublesome:2"]["reason"]
        client.call(
            "POST",
            f"/workers/{known()['troublesome:2']['worker']}:drain",
            body={"reason": "a look"},
        )
        assert {name for name, device in known().items() if device["drained"]} == {"troublesome:2"}
