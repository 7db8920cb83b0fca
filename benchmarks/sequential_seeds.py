"""Measure sequential seeds through the service: seeds run, and device time saved.

Real processes and emulated kernels. A part of `flakiness`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.service import PATIENCE_S, Service, running
from gonogo.judging import inputs
from gonogo.judging.judging import judge
from gonogo.kernels.layernorm import emulation
from gonogo.spec.test_spec import TestSpec

MOST = 500
FLAKY = 0.2
"""The failure rate of the flaky test, by its tolerance: the policy's flaky rate is .1."""
MEASURED = range(10**6, 10**6 + 60)
"""Seeds that place the tolerance; the job has others."""
SHAPE = [1, 1, 64, 512]


def cases() -> dict[str, tuple[Mapping[str, Any], str, str]]:
    """Name -> (test, build, the decision to be made).

    A right kernel is stable or flaky by its tolerance, a wrong one hollow.
    """
    loose = {"kernel": "layernorm_bw", "shape": SHAPE, "tolerance": {"rtol": 0, "atol": 0.5}}
    test = TestSpec.parse(loose)
    needed = []
    for seed in MEASURED:
        raw = inputs.generate(test, seed)
        given = inputs.quantise(test, raw)
        judged = judge(
            test,
            raw,
            given,
            emulation.run(test, given, "correct", seed=seed),
            arithmetic="tt-train",
        )
        needed.append(judged.outputs["dx"].statistics["needed_atol"]["0"])
    tight = {"dx": {"rtol": 0, "atol": float(np.quantile(needed, 1 - FLAKY))}}
    return {
        "stable": (loose, "correct", "stable"),
        f"flaky ({FLAKY:g})": ({**loose, "tolerance": tight}, "correct", "flaky"),
        "wrong, and green": (loose, "tt-train-2025", "hollow"),
    }


def decided(service: Service, job: Mapping[str, Any]) -> dict[str, Any]:
    """The decision of a job, once it is over. Raises RuntimeError when that takes too long."""
    job_id = service.http.post("/jobs", json=job).raise_for_status().json()["id"]
    deadline = time.monotonic() + PATIENCE_S
    while (record := service.http.get(f"/jobs/{job_id}").raise_for_status().json())[
        "state"
    ] != "finished":
        if time.monotonic() > deadline:
            raise RuntimeError(f"job {job_id} did not end within {PATIENCE_S:.0f} s: {record}")
        time.sleep(0.1)  # what is measured is on the job, not how soon it is seen here
    stop: dict[str, Any] = record["stop"]
    return stop


def through_the_service(console: Console) -> bool:
    """One job of each case on a service of its own; whether each is decided as it should be."""
    shown = Table(
        title=f"sequential seeds through the service, at most {MOST} (one emulated device)",
        title_justify="left",
    )
    for column in ("test", "decision", "seeds it took", "seeds run", "device time saved"):
        shown.add_column(column, justify="left" if column in ("test", "decision") else "right")
    good = True
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as record:
        service = Service(record)
        try:
            for name, (test, build, verdict) in cases().items():
                stop = decided(
                    service,
                    {"test": test, "build": build, "seeds": {"policy": "sequential", "max": MOST}},
                )
                good &= stop["decision"] == verdict
                saved = f"{stop['device_ms_saved'] / 1000:.2f} s, {stop['seeds_saved'] / MOST:.0%}"
                shown.add_row(
                    name, stop["decision"], str(stop["seeds_seen"]), str(stop["seeds_run"]), saved
                )
        finally:
            service.close()
    console.print(shown)
    return good
