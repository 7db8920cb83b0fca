"""44 s of `make chaos`: random faults, two at a time, on a whole service, on either database."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.chaos.faults import FAULTS
from checkout import ROOT
from running_service import clean_environment
from servers import Missing, PostgresServer

LONG = {"pause background", "stop api", "upgrade"}
"""Faults that take longer than all others of this run together."""


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_service_under_random_faults_loses_and_doubles_nothing(database: str) -> None:
    if database == "postgres":
        try:
            PostgresServer._installed()
        except Missing as problem:
            pytest.skip(str(problem))
    faults = ",".join(name for name in FAULTS if name not in LONG)
    words = [*("--database", database, "--seconds", "22", "--seed", "18"), "--faults", faults]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos", *words],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-3000:]}"
