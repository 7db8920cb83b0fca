"""Half a minute of `make chaos`: random faults, two at a time, on a whole service."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from checkout import ROOT
from running_service import clean_environment
from servers import Missing, PostgresServer

FAULTS = (
    "kill api", "kill background", "kill worker", "kill kernel", "kill database process",
    "pause worker", "flush broker", "restart broker without data", "restore old broker",
    "duplicate messages", "reorder messages", "hostile host", "skew worker", "restart api",
)  # fmt: skip
"""Faults that are over within seconds."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_service_under_random_faults_loses_and_doubles_nothing() -> None:
    try:
        PostgresServer._installed()
    except Missing as problem:
        pytest.skip(str(problem))
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.chaos", "--json", "--database", "postgres",
            "--seconds", "15", "--scale", "0.3", "--seed", "18", "--faults", ",".join(FAULTS),
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
