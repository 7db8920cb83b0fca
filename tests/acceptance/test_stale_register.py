"""A kernel that is right or wrong by what ran before it: the table of isolation against groups
comes out of the API."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import forked
from api import in_process
from emulator_worker import core_of, work_off
from records import pick
from running_service import clean_environment

# Alone it is right. Behind a backward kernel, whose outputs are small, it is wrong, and outside the
# tolerance on some seeds only; behind a forward kernel, whose outputs are larger, on all.
TEST: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [1, 1, 32, 64],
    "tolerance": {"rtol": 1e-3, "atol": 0.1},
}
NEIGHBORS = {"name": "backward-suite", "before": [TEST]}
ALL = {"name": "all-suites", "before": [TEST, {"kernel": "layernorm_fw", "shape": [1, 1, 32, 64]}]}
SEEDS = range(8)


def test_isolation_against_groups_comes_out_of_the_api(sqlite_url: str) -> None:
    with in_process(sqlite_url) as api:
        # one seed a job, as each run of the report was a process of its own
        jobs = [
            api.submit(test=TEST, build="stale-register", seeds=[seed], context=context)
            for context in ("isolated", NEIGHBORS, ALL)
            for seed in SEEDS
        ]
        core = core_of(api.context)
        assert work_off(core) == len(jobs)
        key = api.get(f"/jobs/{jobs[0]}")["test_key"]

        attribution = api.get(f"/tests/{key}/attribution")
        rows = {row["name"]: row for row in attribution["contexts"]}
        assert list(rows) == ["isolated", "all-suites", "backward-suite"]
        assert {(row["runs"], row["host_runs"]) for row in rows.values()} == {(8, 8)}
        assert [rows[name]["pass_rate"] for name in ("isolated", "all-suites")] == [1.0, 0.0]
        assert 0 < rows["backward-suite"]["pass_rate"] < 1
        for row in rows.values():
            assert row["pass_low"] <= row["pass_rate"] <= row["pass_high"]
            assert row["passed"] + row["failed"] == row["runs"]
        assert rows["isolated"]["p"] is None
        assert rows["all-suites"]["p"] < 1e-3

        assert attribution["cause"] == "context_dependent"
        assert "what ran before" in attribution["sentence"]
        findings = {finding["cause"]: finding for finding in attribution["findings"]}
        factor = findings["context_dependent"]
        assert factor["holds"]
        # every seed's bits change with the context
        assert pick(factor["compared"], "failures", "runs") == (8, 8)
        assert factor["examples"]
        assert [row["name"] for row in factor["rows"]] == ["all-suites"]
        places = {pick(sample, "context", "position") for sample in attribution["samples"]}
        assert places == {("isolated", 0), ("backward-suite", 1), ("all-suites", 2)}

        # that was the background's assessment; the same is computed where it has seen nothing
        assert attribution["assessed"]["source"] == "stored"
        (flag,) = api.get(f"/flags?kind=context_dependent&test={key}")["items"]
        _its_line_shows_it_again(api.get(f"/flags/{flag['id']}")["evidence"], rows)
        graded = api.get(f"/tests/{key}")["variants"][0]
        assert graded["build"] == "stale-register"
        assert pick(graded["grade"], "stability", "hollow") == ("flaky", True)
        api.submit(test=TEST, build="stale-register", seeds=[99])
        # a job that is not over says nothing
        assert api.get(f"/tests/{key}/attribution")["assessed"]["source"] == "stored"
        page = api.client.get(f"/tests/{key}").text
        names = ("what ran before", "backward-suite", "all-suites", "100%", "flaky", flag["id"])
        assert [name for name in names if name not in page] == []
        shown = api.client.get(f"/tests/{key}.json").json()["status"]["attribution"]
        assert shown["cause"] == "context_dependent"
        core.close()


def _its_line_shows_it_again(evidence: dict[str, Any], rows: dict[str, Any]) -> None:
    """The flag's command gives the outputs of the context, and without it those of isolation."""
    shell = shlex.split(evidence["check"])
    place = shell.index("--context")
    name = json.loads(shell[place + 1])["name"]
    assert name in rows
    assert name != "isolated"
    known = {pick(one, "context", "seed"): one["digests"]["dx"] for one in evidence["examples"]}
    seed = evidence["seed"]
    assert _digest(shell) == known[name, seed]
    assert _digest(shell[:place] + shell[place + 2 :]) == known["isolated", seed]


def _digest(shell: list[str]) -> str:
    done = forked.run((*shell[1:], "--json"), clean_environment(), Path.cwd())
    assert done.returncode in (0, 1), done.stderr
    digest: str = json.loads(done.stdout)["seeds"][0]["outputs"]["dx"]["digest"]
    return digest
