"""A job that compares two builds, through the whole service: HTTP to stored seeds, and the page
that says so."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from running_service import Service
from servers import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TEST = {
    "kernel": "layernorm_bw",
    "shape": [1, 64, 1, 416],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}


def test_a_job_compares_two_builds_over_http(tmp_path: Path, redis_server: RedisServer) -> None:
    service = Service(tmp_path, f"sqlite:///{tmp_path / 'gonogo.sqlite'}", redis_server.url)
    try:
        service.start()
        with service.client() as client:
            body = {
                "test": TEST,
                "build": "correct",
                "reference": {"build": "tt-train-2025"},
                "seeds": {"start": 0, "count": 3},
            }
            assert client.call("POST", "/jobs:validate", body=body)["results"] == 3
            job = client.call("POST", "/jobs", body=body)["id"]
            ended = client.wait(job)
            assert (ended["state"], ended["verdict"]) == ("finished", "pass_by_tolerance"), (
                service.logs()
            )
            assert ended["reference"] == {"build": "tt-train-2025"}
            items = list(client.pages(f"/jobs/{job}/results"))
            assert sorted(item["seed"] for item in items) == [0, 1, 2]
            for item in items:
                dx = item["outputs"]["dx"]
                assert dx["budget_ratio"] < 1.1  # against float64: this build is right
                assert dx["reference"]["build"] == "tt-train-2025"
                assert dx["reference"]["budget_ratio"] > 10
                assert "the reference" in item["message"]
            assert (
                client.call("GET", "/flags")["items"] == []
            )  # a flag is about one build and float64
            again = client.call("POST", f"/jobs/{job}:resubmit")["id"]
            assert client.wait(again)["reference"] == {"build": "tt-train-2025"}
            page = httpx.get(f"{service.url}/jobs/{job}").text
            assert "tt-train-2025 and float64" in page
            assert "--reference-build tt-train-2025" in page
            assert "Against tt-train-2025" in page
    finally:
        service.close()
