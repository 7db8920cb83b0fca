"""Programs of ttnn's kernels give what the kernels gave on the simulated Wormhole, to the bit."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest

from gonogo.kernels.ttnn import DATAFLOWS
from gonogo.spec.verdicts import Explanation
from ttnn_cases import CASES, Case

RECORDED = {
    "ttnn.layer_norm: layernorm_fw 33x50": 1091727323,
    "ttnn.layer_norm: layernorm_fw 33x50, accumulate bf16": 3813498251,
    "ttnn.layer_norm: layernorm_fw 1x1x32x64, input fp32, output fp32": 2706310582,
    "ttnn.layer_norm: layernorm_fw 33x50, fidelity lofi": 958737466,
    "ttnn.rms_norm: rmsnorm_fw 33x50": 2979776258,
    "ttnn.rms_norm: rmsnorm_fw 1x1x32x64, input fp32, output fp32": 776561005,
    "ttnn.group_norm: groupnorm_fw 1x64x40": 3565679097,
    "ttnn.group_norm: groupnorm_fw 1x64x40, accumulate bf16": 111769902,
    "ttnn.softmax: softmax 33x50": 3007452112,
    "ttnn.softmax: softmax 2x32x64, input fp32, output fp32": 399341243,
    "ttnn.gelu: gelu 33x50": 3074006709,
    "ttnn.gelu: gelu 2x32x64, input fp32, output fp32": 2328687608,
    "ttnn.silu: silu 33x50": 2683965626,
    "ttnn.silu: silu 2x32x64, input fp32, output fp32": 478274068,
    "ttnn.add: add 33x50": 4215896145,
    "ttnn.add: add 2x32x64, input fp32, output fp32": 1627473633,
    "ttnn.multiply: mul 33x50": 194139658,
    "ttnn.multiply: mul 2x32x64, input fp32, output fp32": 1588615783,
    "ttnn.matmul: matmul 40x100": 2310188562,
    "ttnn.matmul: matmul 2x32x64, fidelity lofi": 2105207141,
    "ttnn.matmul: matmul 64x64, input fp32, output fp32": 165974306,
    "ttnn.linear: linear 40x100": 4110803771,
    "ttnn.linear: linear 64x64, input fp32, output fp32, fidelity hifi2": 398760413,
    "ttnn.sum: sum 33x100": 1239770023,
    "ttnn.sum: sum 2x32x64, accumulate bf16": 2624109206,
    "ttnn.sum: sum 33x100, input fp32, output fp32": 1636925627,
    "ttnn.sum: mean 33x100": 899028156,
    "ttnn.sum: mean 33x100, input fp32, output fp32": 1044030827,
    "ttnn.embedding: embedding 2x32": 3652167836,
    "ttnn.attention: attention 1x1x32x32": 3723792182,
    "ttnn.attention: attention 1x2x32x64": 1583980383,
    "ttnn.attention: attention 1x1x32x32, causal": 4260746889,
    "moreh.layer_norm_backward: layernorm_bw 33x50": 543454976,
    "moreh.layer_norm_backward: layernorm_bw 1x1x32x64, accumulate bf16": 2213207163,
    "ttnn.generic_op: layernorm_bw 33x50": 3569512618,
    "ttnn.generic_op: layernorm_bw 3x70x50, accumulate bf16": 2056811386,
}
"""The checksum of the simulated kernel's first output, in fp32; tests/simulator runs it."""
KNOWN = [pytest.param(case, id=case.name) for case in CASES]


def test_every_operation_is_recorded_but_those_that_the_simulator_lacks() -> None:
    known = {name for flows in DATAFLOWS.values() for name in flows}
    large = {name for name in known if name.endswith((", large", ", not stable"))}
    missing = known - large - {case.operation for case in CASES}
    assert missing == {"moreh.layer_norm", "ttnn.sum, accurate"}


@pytest.mark.parametrize("case", KNOWN)
def test_a_program_gives_the_recorded_bits(case: Case) -> None:
    output = case.first_output
    assert crc32(np.ascontiguousarray(case.replayed(output)[output])) == RECORDED[case.name]


@pytest.mark.parametrize("case", KNOWN)
def test_those_bits_are_explained_where_only_their_size_is_known(case: Case) -> None:
    output = case.first_output
    card = replace(case.question()[1], is_of_card=True)
    answer = case.judged(case.replayed(output), card)
    assert answer.outputs[output].explanation is Explanation.explained


@pytest.mark.slow
@pytest.mark.parametrize("case", KNOWN[:18:6])
def test_a_step_in_one_element_is_not_explained(case: Case) -> None:
    output = case.first_output
    outputs = {output: case.replayed(output)[output].copy()}
    outputs[output].ravel().view(np.uint32)[7] += 0x10000
    assert case.judged(outputs).outputs[output].explanation is Explanation.unexplained


def test_the_other_width_of_dst_is_not_explained() -> None:
    wide, narrow = (case for case in CASES if case.operation == "ttnn.group_norm")
    answer = wide.judged(narrow.replayed("y")).outputs["y"]
    assert answer.explanation is Explanation.unexplained
