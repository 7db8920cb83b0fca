"""The simulator's known limits: when they apply, and that nothing is forgiven on real hardware."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo_workers.executors.limits import SIMULATED, known

FORWARD: dict[str, Any] = {"kernel": "layernorm_fw", "shape": [1, 1, 64, 64]}
PRODUCT: dict[str, Any] = {"kernel": "matmul", "shape": [2, 16, 64]}
SUM: dict[str, Any] = {"kernel": "sum", "shape": [32, 64]}
IN_FP32 = {"numerics": {"input": "fp32", "output": "fp32"}}


@pytest.mark.parametrize(
    ("test", "build", "limits"),
    [
        (FORWARD, "ttnn", []),
        (FORWARD | {"program": "welford"}, "ttnn", ["welford"]),
        (FORWARD, "ttnn-welford", ["welford"]),
        (FORWARD, "ttnn-moreh", ["moreh-statistics"]),
        (FORWARD | {"kernel": "layernorm_bw"}, "ttnn-moreh", []),
        (FORWARD | {"numerics": {"input": {"x": "bfp8_b"}}}, "ttnn", ["block-formats"]),
        (FORWARD | {"numerics": {"output": "bfp8_b"}}, "ttnn", ["block-formats"]),
        (FORWARD | {"memory": {"sharded": [1, 2]}}, "ttnn", ["one-row-of-cores"]),
        (FORWARD | {"memory": {"sharded": [2, 2]}}, "ttnn", []),
        (FORWARD | {"memory": {"sharded": [1, 1]}}, "ttnn", []),
        (PRODUCT, "ttnn", ["one-row-of-cores"]),
        (PRODUCT | {"parameters": {"columns": 32}}, "ttnn", []),
        (PRODUCT | {"shape": [2, 32, 64]}, "ttnn", []),
        (SUM | IN_FP32, "ttnn", ["sums-in-fp32"]),
        (SUM | IN_FP32, "ttnn-fast", []),  # on the matrix unit
        (SUM, "ttnn", []),
    ],
)
def test_a_limit_applies_to_the_tests_and_builds_that_meet_it_on_the_simulator_only(
    test: dict[str, Any], build: str, limits: list[str]
) -> None:
    assert [limit.name for limit in known(test, build, {SIMULATED: "/somewhere"})] == limits
    assert known(test, build, {"TT_METAL_HOME": "/somewhere"}) == []
