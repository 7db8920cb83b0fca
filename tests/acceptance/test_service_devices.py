"""Devices over HTTP, with every process of production: drained, hung and well again, and no seed
lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patience import scaled
from records import pick
from running_service import Service, every_seed_once, submit, until

TARGET = {"executor": "troublesome", "arch": "wormhole", "board": "n150"}


@pytest.fixture
def service(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Service]:
    """API, background and one worker of the troublesome executor."""
    builds = tmp_path / "builds.toml"
    builds.write_text('[executors.troublesome]\ncanary = "right"\n')
    settings = {
        "GONOGO_EXECUTORS": "troublesome=troublesome:Troublesome",
        "GONOGO_BUILDS": str(builds),
        "GONOGO_PER_SEED_DEADLINE_S": str(scaled(2)),
    }
    new_service = Service(tmp_path, sqlite_url, redis_url, **settings)
    new_service.workers.clear()
    try:
        new_service.start_all_but_workers()
        new_service.add_worker("troublesome")
        yield new_service
    finally:
        new_service.close()


def test_a_host_is_drained_and_given_back_and_a_hang_costs_its_seed_only(service: Service) -> None:
    with service.client() as client:

        def device() -> Any:
            return next(iter(client.call("GET", "/devices")["items"]), None)

        def drain(verb: str) -> None:
            client.call("POST", f"/hosts/{device()['host']}:{verb}", body={"reason": "a test"})

        for name in ("slow", "hang-sometimes"):
            client.call("POST", "/builds", body={"name": name, "executor": "troublesome"})
        until(device, what=service.logs)
        known = ("troublesome:0", "good", ["troublesome.wormhole.n150"])
        assert pick(device(), "name", "health", "queues") == known
        job = submit(client, 40, build="slow", target=TARGET)
        until(lambda: client.job(job)["done"] >= 2, what=service.logs)
        drain("drain")
        until(lambda: device()["state"] == "idle", what=service.logs)
        assert client.job(job)["state"] == "running"
        until(lambda: client.job(job)["waiting_reason"], what=service.logs)
        drain("undrain")
        assert client.wait(job)["verdict"] == "pass"
        every_seed_once(client, job, range(40))
        hung = submit(client, 4, build="hang-sometimes", target=TARGET)
        client.wait(hung)
        items = every_seed_once(client, hung, range(4))
        verdicts = {item["seed"]: item["verdict"] for item in items}
        assert verdicts == {0: "pass", 1: "pass", 2: "hang", 3: "hang"}
        flags = ("GET", f"/flags?kind=hangs&job={hung}")
        (flag,) = until(lambda: client.call(*flags)["items"], what=service.logs)
        evidence = client.call("GET", f"/flags/{flag['id']}")["evidence"]
        assert "2 of 4 " in evidence["words"]
        shown = client.call("GET", f"/devices/{device()['id']}")
        drains = [change for change in shown["history"] if change["what"] == "drain"]
        assert (shown["health"], len(drains)) == ("good", 2)


def test_of_three_devices_the_one_with_other_bits_is_suspected_and_its_worker_can_be_drained(
    service: Service,
) -> None:
    service.add_worker("troublesome")
    with service.client() as client:

        def known() -> dict[str, Any]:
            return {device["name"]: device for device in client.call("GET", "/devices")["items"]}

        def run_canary(name: str, standing: str) -> None:
            body = {"test": True, "reason": "a look"}
            client.call("PATCH", f"/devices/{known()[name]['id']}", body=body)
            until(
                lambda: (known()[name]["canary"] or {}).get("golden") == standing, what=service.logs
            )

        until(lambda: len(known()) == 2, what=service.logs)
        service.add_worker("troublesome", TROUBLE_BITS="1")
        until(lambda: len(known()) == 3, what=service.logs)
        run_canary("troublesome:0", "first")
        run_canary("troublesome:1", "golden")
        run_canary("troublesome:2", "differs")
        until(lambda: known()["troublesome:2"]["health"] == "suspect", what=service.logs)
        health = [known()[f"troublesome:{number}"]["health"] for number in range(3)]
        assert health == ["good", "good", "suspect"]
        assert "its canary's bits differ" in known()["troublesome:2"]["reason"]
        worker = known()["troublesome:2"]["worker"]
        client.call("POST", f"/workers/{worker}:drain", body={"reason": "a look"})
        assert {name for name, device in known().items() if device["drained"]} == {"troublesome:2"}
