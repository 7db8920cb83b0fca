"""A kernel that is right or wrong by what ran before it: the table of isolation against groups
comes out of the API.

The report that this retells ran one test alone, with its neighbors and with a larger group, and
counted by hand how often each passed.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

from api import in_process
from emulator_worker import core_of, work_off
from patience import WAIT_S
from running_service import clean_environment, gonogo

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
        factor = next(
            finding
            for finding in attribution["findings"]
            if finding["cause"] == "context_dependent"
        )
        assert factor["holds"]
        assert (factor["compared"]["failures"], factor["compared"]["runs"]) == (
            8,
            8,
        )  # every seed's bits change with the context
        assert factor["examples"]
        assert [row["name"] for row in factor["rows"]] == ["all-suites"]
        assert {(sample["context"], sample["position"]) for sample in attribution["samples"]} == {
            ("isolated", 0),
            ("backward-suite", 1),
            ("all-suites", 2),
        }

        # that was the background's assessment; the same is computed where it has seen nothing
        assert attribution["assessed"]["source"] == "stored"
        (flag,) = api.get(f"/flags?kind=context_dependent&test={key}")["items"]
        _its_line_shows_it_again(api.get(f"/flags/{flag['id']}")["evidence"], rows)
        graded = api.get(f"/tests/{key}")["variants"][0]
        assert (graded["build"], graded["grade"]["stability"], graded["grade"]["hollow"]) == (
            "stale-register",
            "flaky",
            True,
        )
        later = api.submit(test=TEST, build="stale-register", seeds=[99])
        assert (
            api.get(f"/tests/{key}/attribution")["assessed"]["source"] == "stored"
        )  # a job that is not over says nothing
        page = api.client.get(f"/tests/{key}").text
        for phrase in (
            "what ran before",
            "backward-suite",
            "all-suites",
            "100%",
            "flaky",
            flag["id"],
        ):
            assert phrase in page
        shown = api.client.get(f"/tests/{key}.json").json()["status"]["attribution"]
        assert shown["cause"] == "context_dependent"
        assert later not in str(attribution)
        core.close()


def _its_line_shows_it_again(evidence: dict[str, Any], rows: dict[str, Any]) -> None:
    """Check that the flag's command gives the outputs of the context, and those of isolation
    without the context."""
    shell = shlex.split(evidence["check"])
    place = shell.index("--context")
    name = json.loads(shell[place + 1])["name"]
    assert name in rows
    assert name != "isolated"
    known = {
        (example["context"], example["seed"]): example["digests"]["dx"]
        for example in evidence["examples"]
    }
    seed = evidence["seed"]
    assert _digest(shell) == known[name, seed]
    assert _digest(shell[:place] + shell[place + 2 :]) == known["isolated", seed]


def _digest(shell: list[str]) -> str:
    done = subprocess.run(
        [*gonogo(*shell[1:]), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
        timeout=WAIT_S,
    )
    assert done.returncode in (0, 1), done.stderr
    digest: str = json.loads(done.stdout)["seeds"][0]["outputs"]["dx"]["digest"]
    return digest
