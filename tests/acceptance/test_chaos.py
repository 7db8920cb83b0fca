"""45 s of `make chaos`: random faults, two at a time, on a whole service, on either database."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.chaos.faults import FAULTS
from checkout import ROOT
from running_service import clean_environment
from servers import Missing, PostgresServer

LONG = {"pause background", "skew worker far", "upgrade"}
"""Faults that take longer than all others of this run together."""
SECONDS = {"postgres": 30, "sqlite": 15}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", SECONDS)
def test_a_service_under_random_faults_loses_and_doubles_nothing(database: str) -> None:
    if database == "postgres":
        try:
            PostgresServer._installed()
        except Missing as problem:
            pytest.skip(str(problem))
    names = [
        name for name, fault in FAULTS.items() if name not in LONG and database in fault.databases
    ]
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.chaos", "--json", "--forked", "--database", database,
            "--seconds", str(SECONDS[database]), "--scale", "0.2", "--seed", "18",
            "--faults", ",".join(names),
        ],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    figures = json.loads(done.stdout)
    assert (figures["lost"], figures["doubled"], figures["problems"]) == (0, 0, [])
    assert len(figures["faults"]) >= 5
    assert sum(figures["jobs"].values()) >= 5
