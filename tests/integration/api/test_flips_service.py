"""Flips of a job with a reference build: stored, pooled, and shown by the API, the page, the
command and the comparison of its two builds."""

from __future__ import annotations

import html
import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import stored_jobs
from api import Api, in_process, on_port
from gonogo.arithmetic.formats import round_to
from gonogo.cli.app import app
from gonogo.judgment.pairs import flips_of
from records import pick

TEST = {"kernel": "layernorm_bw", "shape": [32, 1024]}
FACTOR = 1 + 3e-6
HEAD, BASE = "correct", "tt-train-2025"


def row(seed: int, factor: float = FACTOR, repeat: int = 0) -> dict[str, Any]:
    """Return a result row whose dx has real counts, of a build that differs by a factor."""
    values = np.random.default_rng(seed).standard_normal((32, 1024))
    counts = flips_of(round_to(values * factor, "bf16"), round_to(values, "bf16"))
    result = stored_jobs.row(seed, wrong=False) | {"repeat": repeat}
    entry = {"build": BASE, "explanation": "explained", "within": True, "arithmetic": "tt-train"}
    numbers = {"max_abs": 0.01, "ulp_max": 1.0, "mismatch_fraction": 1e-3}
    result["outputs"]["dx"]["reference"] = {**entry, **numbers, "flips": asdict(counts)}
    return result


def compared(api: Api, rows: list[dict[str, Any]], reference: str = BASE) -> str:
    """Return the id of a finished job that compares HEAD with another build."""
    with api.context.session() as session:
        two = {"test": TEST, "build": HEAD, "reference": reference}
        job = stored_jobs.submit(session, seeds=len(rows), **two)
        stored_jobs.report(session, job.id, rows)
        stored_jobs.finish(session, job.id)
        return job.id


def test_the_job_pools_the_flips_over_its_seeds(api: Api) -> None:
    job = compared(api, [row(seed) for seed in range(4)] + [row(0, repeat=1)])
    (dx,) = api.get(f"/jobs/{job}")["flips"]
    assert pick(dx, "output", "seeds", "elements") == ("dx", 4, 4 * 32768)
    assert pick(dx, "one_way", "toward") == (True, 0)
    assert dx["away"] == dx["differing"] > 50
    assert dx["words"].startswith("one way: ")
    # each seed has its own counts, too
    seeds = api.get(f"/jobs/{job}/results")["items"]
    stored = [seed["outputs"]["dx"]["reference"]["flips"] for seed in seeds if not seed["repeat"]]
    assert sum(counts["away"] for counts in stored) == dx["away"]
    assert "flips" not in api.get("/jobs")["items"][0]
    page = html.unescape(api.client.get(f"/jobs/{job}").text)
    assert 'id="flips"' in page
    assert dx["words"] in page
    with api.context.session() as session:
        alone = stored_jobs.submit(session, test=TEST, build=HEAD)
        waiting = stored_jobs.submit(session, test=TEST, build=HEAD, reference=BASE)
    assert [api.get(f"/jobs/{name.id}")["flips"] for name in (alone, waiting)] == [None, []]
    assert 'id="flips"' not in api.client.get(f"/jobs/{alone.id}").text


def test_the_comparison_of_the_two_builds_quotes_the_newest_job_that_compared_them(
    api: Api,
) -> None:
    with api.context.session() as session:
        for build in (BASE, HEAD):
            alone = stored_jobs.submit(session, test=TEST, build=build, seeds=1)
            stored_jobs.report(session, alone.id, [stored_jobs.row(0, wrong=False)])
            stored_jobs.finish(session, alone.id)
    compared(api, [row(0, factor=1.0)])
    newest = compared(api, [row(seed) for seed in range(4)])
    compared(api, [row(0, factor=1.0)], reference="drop-s1")
    (item,) = api.get(f"/compare?base={BASE}&head={HEAD}")["items"]
    assert pick(item["pair"], "job", "reference") == (newest, BASE)
    (dx,) = item["pair"]["flips"]
    assert dx["one_way"] is True
    assert item["head"]["jobs"] != [newest]  # it counts for neither side
    page = html.unescape(api.client.get(f"/compare?base={BASE}&head={HEAD}").text)
    assert f"Flips of dx: {dx['words']}" in page
    (other_way,) = api.get(f"/compare?base={HEAD}&head={BASE}")["items"]
    assert other_way["pair"] is None


def test_the_command_says_what_the_flips_show(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_process(migrated_sqlite_url) as api:
        job = compared(api, [row(seed) for seed in range(4)])
    with on_port(migrated_sqlite_url) as (client, _):
        monkeypatch.setenv("GONOGO_URL", str(client.base_url))
        shown = CliRunner().invoke(app, ["watch", job])
        assert "flips of dx: one way: " in shown.stdout
        answer = json.loads(CliRunner().invoke(app, ["watch", job, "--json"]).stdout)
        assert answer["flips"][0]["one_way"] is True
