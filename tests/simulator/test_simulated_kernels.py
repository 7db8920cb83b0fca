"""Right ttnn kernels are explained, in every numerics that runs; what isn't
offered is an error that says why."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation
from gonogo_workers.executors.base import KernelError, shaped_inputs
from simulated_wormhole import Child

WIDE_IN_NARROW = {"input": "fp32", "output": "fp32", "accumulate": "bf16"}
RIGHT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ttnn", {"kernel": "layernorm_fw", "shape": [1, 1, 33, 50], "numerics": WIDE_IN_NARROW}),
    ("ttnn", {"kernel": "layernorm_fw", "shape": [1, 1, 64, 64], "memory": {"sharded": [2, 2]}}),
)
"""Numerics and placements that test_simulated_operations.py leaves out."""


@pytest.mark.parametrize(
    ("build", "fields"),
    RIGHT,
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_a_right_kernel_is_explained(child: Child, build: str, fields: dict[str, Any]) -> None:
    judged = child.judged(build, TestSpec.parse(fields))
    assert judged.explanation is Explanation.explained, {
        name: output.to_json() for name, output in judged.outputs.items()
    }


@pytest.mark.parametrize(
    ("build", "fields", "words"),
    [
        ("ttnn", {"kernel": "layernorm_bw", "numerics": {"input": "fp32"}},
         "moreh.layer_norm_backward takes bf16 only"),
        ("ttnn", {"kernel": "layernorm_bw", "numerics": {"statistics": "own"}},
         "it can't make its own"),
        ("ttnn", {"kernel": "layernorm_bw", "program": "welford"}, "one program only"),
        ("ttnn", {"kernel": "layernorm_bw", "memory": {"sharded": [1, 1]}},
         "it takes interleaved tensors"),
        ("ttnn", {"kernel": "layernorm_fw", "numerics": {"output": "fp32"}},
         "it gives y in the format of x"),
        ("ttnn", {"kernel": "layernorm_fw", "numerics": {"input": "fp16"}},
         "x in fp16 can't be given"),
        ("ttnn", {"kernel": "layernorm_fw", "numerics": {"input": "bfp8_b", "output": "bfp8_b"}},
         "gamma in bfp8_b can't be given"),
        ("ttnn", {"kernel": "layernorm_fw", "numerics": {"buffers": "fp32"}},
         "numerics.buffers = 'fp32' can't be asked of ttnn"),
        ("ttnn", {"kernel": "layernorm_fw", "numerics": {"layout": "row_major"}},
         "tilized on the host"),
        ("ttnn", {"kernel": "layernorm_fw", "memory": {"sharded": [1, 3]}}, "don't divide evenly"),
        ("ttnn", {"kernel": "layernorm_fw", "memory": {"sharded": [64, 64]}}, "this chip has"),
        ("ttnn-legacy", {"kernel": "layernorm_fw", "program": "welford"}, "the build is 'legacy'"),
        ("ttnn", {"kernel": "gelu", "numerics": {"fidelity": "lofi"}}, "it has no configuration"),
        ("ttnn-legacy", {"kernel": "layernorm_bw"}, "has no layernorm_bw; it has layernorm_fw"),
        ("ttnn-generic-bw", {"kernel": "layernorm_bw", "shape": [1, 1, 32, 32000]}, "at most"),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_refused_with_the_reason(
    child: Child, build: str, fields: dict[str, Any], words: str
) -> None:
    test = TestSpec.parse({"shape": [1, 1, 32, 64]} | fields)
    given = quantise(test, generate(test, 0))
    with pytest.raises(KernelError, match=words):
        child.run(build, test, shaped_inputs(test, given))


def test_an_unknown_build_is_refused_with_the_known_ones(child: Child) -> None:
    with pytest.raises(KernelError, match="ttnn-generic-bw-double-subtract"):
        child.executor("no-such-build")
