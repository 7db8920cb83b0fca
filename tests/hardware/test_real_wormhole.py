"""On a real card: the same kernels, the same executor, another environment. Skipped with the reason
where there is none.

Run on a Wormhole host with GONOGO_TEST_BUILDS naming its builds file (docs/wormhole.md), which says
where its ttnn is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation
from gonogo_workers.executors.limits import SIMULATED
from simulated_wormhole import Child

DRIVER = Path("/dev/tenstorrent")
"""The kernel driver's devices: one number for each chip."""
RIGHT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ttnn", {"kernel": "layernorm_fw", "shape": [1, 1, 32, 1024]}),
    (
        "ttnn",
        {"kernel": "layernorm_fw", "shape": [1, 1, 128, 256], "numerics": {"accumulate": "bf16"}},
    ),
    (
        "ttnn",
        {
            "kernel": "layernorm_fw",
            "shape": [1, 1, 64, 96],
            "numerics": {"input": {"x": "bfp8_b"}, "output": "bfp8_b"},
        },
    ),
    ("ttnn-welford", {"kernel": "layernorm_fw", "shape": [1, 1, 64, 96]}),
    ("ttnn", {"kernel": "layernorm_fw", "shape": [1, 1, 64, 128], "memory": {"sharded": [1, 2]}}),
    ("ttnn", {"kernel": "layernorm_bw", "shape": [1, 1, 128, 256]}),
    ("ttnn-generic-bw", {"kernel": "layernorm_bw", "shape": [1, 1, 64, 96]}),
)
"""Some of them are beyond the simulator: on hardware they must pass."""


@pytest.fixture(scope="module")
def card() -> Iterator[Child]:
    """A child with the card open."""
    builds = os.environ.get("GONOGO_TEST_BUILDS")
    if not DRIVER.exists():
        pytest.skip(f"hardware: there is no {DRIVER}, so no Tenstorrent card or no driver")
    if not builds:
        pytest.skip("hardware: GONOGO_TEST_BUILDS doesn't name this host's builds file")
    child = Child(Path(builds))
    if SIMULATED in child.resolved.environment:
        child.host.kill()
        pytest.skip("hardware: GONOGO_TEST_BUILDS names the simulator's builds file")
    yield child
    child.host.close()


@pytest.mark.parametrize(
    ("build", "fields"),
    RIGHT,
    ids=lambda value: value if isinstance(value, str) else value["kernel"],
)
def test_a_right_kernel_is_explained_on_hardware(
    card: Child, build: str, fields: dict[str, Any]
) -> None:
    judged = card.judged(build, TestSpec.parse(fields))
    assert judged.explanation is Explanation.explained, {
        name: output.to_json() for name, output in judged.outputs.items()
    }


def test_the_planted_fault_is_green_and_unexplained_on_hardware(card: Child) -> None:
    test = TestSpec.parse(
        {
            "kernel": "layernorm_bw",
            "shape": [1, 1, 64, 96],
            "tolerance": {"rtol": 1e-3, "atol": 0.5},
        }
    )
    judged = card.judged("ttnn-generic-bw-double-subtract", test)
    assert judged.verdict.value == "pass_by_tolerance"
