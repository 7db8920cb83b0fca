"""Judge a right and a wrong run of every kernel, small and in many blocks, and print the answers.

A test runs it with compiled code and without.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.kernels import registry
from gonogo.spec.test_spec import TestSpec

SHAPES = {"small": [3, 64], "in blocks": [34, 1030]}
BUILDS = ("correct", "tile-missing")
TOLERANCE = {"rtol": 1e-2, "atol": 1e-2}


def judged(kernel: str, shape: list[int], form: str, arithmetic: str | None) -> dict[str, Any]:
    """Return build -> the judgment of a seed."""
    fields: dict[str, Any] = {"kernel": kernel, "shape": shape, "tolerance": TOLERANCE}
    if kernel == "groupnorm_fw":
        fields |= {"shape": [shape[0], 8, 2, shape[1] // 16], "parameters": {"num_groups": 2}}
    test = TestSpec.parse({**fields, "numerics": {"input": form, "output": form}})
    raw = generate(test, 0)
    given = quantise(test, raw)
    results = {}
    for build in BUILDS:
        outputs = registry.numerics(test).run(test, given, build)
        shaped = {name: outputs[name].reshape(test.shape_of(name)) for name in test.outputs}
        results[build] = judge(test, raw, given, shaped, arithmetic=arithmetic).to_json()
    return results


def everything() -> dict[str, Any]:
    """Return the judgments by kernel, shape, format and arithmetic model."""
    return {
        f"{kernel} {size} {form} {arithmetic}": judged(kernel, shape, form, arithmetic)
        for kernel in ("layernorm_fw", "layernorm_bw", "rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw")
        for size, shape in SHAPES.items()
        for form, arithmetic in (("bf16", "tt-train"), ("fp32", None))
    }


if __name__ == "__main__":
    json.dump(everything(), sys.stdout)
