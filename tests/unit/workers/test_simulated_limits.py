"""The simulator's known limits: when they apply, that the documents list them, and that nothing is
forgiven on real hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gonogo_workers.executors.limits import LIMITS, SIMULATED, known

DOCUMENT = (Path(__file__).parents[3] / "docs" / "wormhole.md").read_text()
HERE = {SIMULATED: "/somewhere"}
FORWARD: dict[str, Any] = {"kernel": "layernorm_fw", "shape": [1, 1, 64, 64]}


def names(
    test: dict[str, Any], build: str = "ttnn", environment: dict[str, str] = HERE
) -> list[str]:
    return [limit.name for limit in known(test, build, environment)]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_every_limit_stands_in_the_document_with_its_verdict(limit: Any) -> None:
    assert f"| {limit.name} | `{limit.verdict}` | {limit.words} |" in DOCUMENT


def test_a_limit_applies_to_the_tests_and_builds_that_meet_it() -> None:
    assert names(FORWARD) == []
    assert names(FORWARD | {"program": "welford"}) == names(FORWARD, "ttnn-welford") == ["welford"]
    assert names(FORWARD, "ttnn-moreh") == ["moreh-statistics"]
    assert names({**FORWARD, "kernel": "layernorm_bw"}, "ttnn-moreh") == []
    assert (
        names(FORWARD | {"numerics": {"input": {"x": "bfp8_b"}}})
        == names(FORWARD | {"numerics": {"output": "bfp8_b"}})
        == ["block-formats"]
    )
    assert names(FORWARD | {"memory": {"sharded": [1, 2]}}) == ["one-row-of-cores"]
    product = {"kernel": "matmul", "shape": [2, 16, 64]}
    assert names(product) == ["one-row-of-cores"]
    assert names(product | {"parameters": {"columns": 32}}) == []
    assert names(product | {"shape": [2, 32, 64]}) == []
    assert (
        names(FORWARD | {"memory": {"sharded": [2, 2]}})
        == names(FORWARD | {"memory": {"sharded": [1, 1]}})
        == []
    )


def test_sums_in_fp32_are_a_limit_but_those_of_the_matrix_unit() -> None:
    test = {"kernel": "sum", "shape": [32, 64], "numerics": {"input": "fp32", "output": "fp32"}}
    assert names(test) == ["sums-in-fp32"]
    assert names(test, "ttnn-fast") == names({"kernel": "sum", "shape": [32, 64]}) == []


def test_on_a_card_nothing_is_a_known_limit() -> None:
    assert names(FORWARD, "ttnn-welford", {"TT_METAL_HOME": "/somewhere"}) == []
