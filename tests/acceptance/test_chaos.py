"""44 s of `make chaos`: random faults, two at a time, on a whole service, on either database."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.chaos.faults import FAULTS
from checkout import ROOT
from running_service import clean_environment
from servers import Missing, PostgresServer

LONG = {"pause background", "stop api", "upgrade"}
"""Faults that take longer than all others of this run together."""
SECONDS = 22
"""On each database."""


def _missing(database: str) -> str:
    """Return why a database can't run here; empty where it can."""
    try:
        if database == "postgres":
            PostgresServer._installed()
    except Missing as problem:
        return str(problem)
    return ""


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[str, Any]]:
    """The figures of a run on each database that is here.

    One command does all runs: importing what it forks takes as long as some faults.
    """
    databases = "sqlite" if _missing("postgres") else "both"
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.chaos", "--json", "--forked", "--database", databases,
            "--seconds", str(SECONDS), "--scale", "0.2", "--seed", "18",
            "--faults", ",".join(name for name in FAULTS if name not in LONG),
        ],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["database"]: row for row in figures}


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_service_under_random_faults_loses_and_doubles_nothing(
    database: str, runs: dict[str, dict[str, Any]]
) -> None:
    if missing := _missing(database):
        pytest.skip(missing)
    figures = runs[database]
    assert (figures["lost"], figures["doubled"], figures["problems"]) == (0, 0, [])
    assert len(figures["faults"]) >= 5
    assert sum(figures["jobs"].values()) >= 5
