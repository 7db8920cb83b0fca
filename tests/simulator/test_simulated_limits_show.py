"""Each known limit of the simulator shows with its registered verdict: a limit that has gone fails
here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.spec.builds import own_builds
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors.base import ExecutorFailure, shaped_inputs
from gonogo_workers.executors.kernel_host import HOST_RUN_VARIABLE
from gonogo_workers.executors.limits import LIMITS, known
from patience import scaled
from running_service import clean_environment, gonogo
from simulated_wormhole import Child, servers

FORWARD: dict[str, Any] = {
    "kernel": "layernorm_fw",
    "shape": [1, 1, 32, 64],
    "tolerance": {"rtol": 1e-2, "atol": 5e-2},
}
MEETING: dict[str, tuple[str, dict[str, Any]]] = {
    "welford": ("ttnn-welford", {}),
    "moreh-statistics": ("ttnn-moreh", {}),
    "block-formats": ("ttnn", {"numerics": {"input": {"x": "bfp8_b"}, "output": "bfp8_b"}}),
    "one-row-of-cores": ("ttnn", {"memory": {"sharded": [1, 2]}}),
    "sums-in-fp32": ("ttnn", {"kernel": "sum", "numerics": {"input": "fp32", "output": "fp32"}}),
}
"""Limit -> a build and fields of a test that meet it."""
HANG_S = min(scaled(30), 60)
"""Sizes like those that hang take 2 s on a grid that works, 12 s with compilation."""
ENDS_S = scaled(120)
"""The limit for what must end by itself."""


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_a_known_limit_shows_as_its_verdict_and_leaves_no_process(builds: Path, limit: Any) -> None:
    build, fields = MEETING[limit.name]
    test = TestSpec.parse(FORWARD | fields)
    child = Child(builds, build)
    assert known(test.canonical(), build, child.resolved.environment) == [limit]
    raw = generate(test, 0)
    given = quantise(test, raw)
    try:
        deadline_s = HANG_S if limit.verdict == "hang" else ENDS_S
        outputs = child.run(build, test, shaped_inputs(test, given), deadline_s)
        assert servers(HOST_RUN_VARIABLE, child.host.host_run), (
            "without a server nothing below says anything"
        )
        build_known = own_builds("ttnn")[build]
        verdict = judge(
            test,
            raw,
            given,
            outputs,
            arithmetic=None,
            produced=build_known.outputs,
            on_wormhole=True,
        ).verdict.value
    except ExecutorFailure as problem:
        verdict = problem.verdict
    finally:
        child.host.kill()
    assert verdict == limit.verdict
    assert servers(HOST_RUN_VARIABLE, child.host.host_run) == []


def test_check_names_the_limit_beside_the_verdict(builds: Path) -> None:
    words = "--kernel layernorm_fw --shape 1,1,32,64 --build ttnn-moreh --rtol 1e-2 --atol 5e-2"
    done = subprocess.run(
        gonogo("check", "--executor", "ttnn", *words.split(), "--json"),
        env=clean_environment(GONOGO_BUILDS=str(builds)),
        capture_output=True,
        text=True,
        timeout=scaled(280),
        check=False,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["verdict"] == "fail"
    assert report["known_limits"] == [
        limit.words for limit in LIMITS if limit.name == "moreh-statistics"
    ]
