"""Programs of ttnn's kernels give what the kernels gave on the simulated Wormhole, to the bit."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest

from gonogo.judgment import judge
from gonogo.spec.verdicts import Explanation
from ttnn_cases import GROUPS, RIGHT, Case

RECORDED = {
    "ttnn.layer_norm, fp32 Dst": 2703420845,
    "ttnn.layer_norm, bf16 Dst": 3991549627,
    "ttnn.rms_norm, fp32 Dst": 768838673,
    "ttnn.rms_norm, bf16 Dst": 1107038860,
    "ttnn.softmax, fp32 Dst": 3801141269,
    "ttnn.softmax, bf16 Dst": 1101348497,
    "ttnn.group_norm, fp32 Dst": 3262981040,
    "ttnn.group_norm, bf16 Dst": 69172978,
    "moreh.layer_norm_backward, fp32 Dst": 1018003976,
    "moreh.layer_norm_backward, bf16 Dst": 1712559059,
    "ttnn.generic_op, fp32 Dst": 497202481,
    "ttnn.generic_op, bf16 Dst": 2490874132,
}  # fmt: skip
"""The checksum of the simulated kernel's first output, as bf16's bits; tests/simulator runs it."""


@pytest.mark.parametrize("case", RIGHT, ids=[case.name for case in RIGHT])
def test_a_program_gives_the_recorded_bits(case: Case) -> None:
    output = first_output(case)
    bits = np.ascontiguousarray(case.replayed(output)[output], np.float32).view(np.uint32) >> 16
    assert crc32(bits.astype(np.uint16).tobytes()) == RECORDED[case.name]


@pytest.mark.parametrize("case", RIGHT, ids=[case.name for case in RIGHT])
def test_those_bits_are_explained_where_only_their_size_is_known(case: Case) -> None:
    output = first_output(case)
    graph, program = case.question()
    card = replace(program, is_of_card=True)
    answer = judge([graph], case.inputs(), case.replayed(output), {output: "bf16"}, programs=[card])
    assert answer.outputs[output].explanation is Explanation.explained


@pytest.mark.parametrize("case", RIGHT[::3], ids=[case.name for case in RIGHT[::3]])
def test_a_step_in_one_element_is_not_explained(case: Case) -> None:
    output = first_output(case)
    outputs = {output: case.replayed(output)[output].copy()}
    outputs[output].ravel().view(np.uint32)[77] += 0x10000
    assert case.judged(outputs).outputs[output].explanation is Explanation.unexplained


def test_the_other_width_of_dst_is_not_explained() -> None:
    narrow, wide = (Case("ttnn.group_norm", dst, GROUPS) for dst in ("bf16", "fp32"))
    answer = wide.judged(narrow.replayed("y")).outputs["y"]
    assert answer.explanation is Explanation.unexplained


def first_output(case: Case) -> str:
    return "y" if "y" in case.question()[0].outputs else "dx"
