"""The judge beside a Wormhole's declared program: replayed to the bit, and wrong builds by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.arithmetic import Evaluation
from gonogo.arithmetic.datapath import Width
from gonogo.arithmetic.formats import round_to
from gonogo.gauge.measure import turn
from gonogo.graph import trace
from gonogo.judging.inputs import generate, quantise
from gonogo.judgment import Judgment, judge
from gonogo.kernels.registry import KERNELS as REFERENCES
from gonogo.kernels.wormhole import Options, generic
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation
from gonogo.workloads import declared, shaped
from numeric_cases import spec

Array = NDArray[np.float32]
NUMERICS: Mapping[str, Mapping[str, Any]] = {
    "bf16": {},
    "fp32": {"input": "fp32", "output": "fp32", "buffers": "fp32"},
    "fp32 x, bf16 SrcB": {"input": {"gamma": "fp32"}, "srcb": "bf16"},
    "bf16 Dst": {"accumulate": "bf16"},
    "HiFi2": {"fidelity": "hifi2"},
    "own statistics": {"statistics": "own"},
}
KERNELS = ("layernorm_fw", "layernorm_bw", "rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw")


def drawn(kernel: str, columns: int = 150, **numerics: Any) -> tuple[TestSpec, dict[str, Array]]:
    inputs = {"regime": "uniform", "low": -0.5, "high": 1.5}
    fields: dict[str, Any] = {"shape": (24, columns), "numerics": numerics, "inputs": inputs}
    if kernel == "groupnorm_fw":
        fields |= {"shape": (2, 6, 5, 9), "parameters": {"num_groups": 3}}
    test = spec(kernel, **fields)
    return test, quantise(test, generate(test, 3))


def judged(test: TestSpec, given: Mapping[str, Array], build: str) -> Judgment:
    return judged_outputs(test, given, emulator.run(test, given, build))


def judged_outputs(
    test: TestSpec, given: Mapping[str, Array], outputs: Mapping[str, Array], **changes: Any
) -> Judgment:
    """Return the answer, with the program declared, but for some changes of it."""
    inputs = shaped(test, given)
    ((graph, program),) = declared(test, "tt-train")
    values = {name: a.reshape(graph.outputs[name].shape) for name, a in outputs.items()}
    formats = dict.fromkeys(values, test.numerics.output)
    return judge([graph], inputs, values, formats, programs=[replace(program, **changes)])


@pytest.mark.parametrize(
    ("kernel", "numerics"),
    [
        (kernel, numerics)
        for kernel in KERNELS
        for numerics in NUMERICS
        if kernel.endswith("_bw") or numerics != "own statistics"
    ],
)
def test_a_right_build_is_replayed_to_the_bit(kernel: str, numerics: str) -> None:
    judgment = judged(*drawn(kernel, **NUMERICS[numerics]), "correct")
    for answer in judgment.outputs.values():
        assert answer.distance == 0.0
        assert answer.explanation is Explanation.explained
        assert "dataflow on a Wormhole" in answer.arithmetic


NAMED = [
    ("layernorm_bw", "double-subtract", "dx", "twice:s1@P_centered"),
    ("layernorm_bw", "last-two-tiles", "dx", "only-last-two:s1"),
    ("layernorm_bw", "drop-s1", "dx", "missing:s1@P_centered"),
    ("layernorm_bw", "rstd-off-1e-3", "dx", "factor:rstd@dx"),
    ("layernorm_fw", "tile-missing", "y", "without-tile-2:mean"),
    ("layernorm_fw", "gamma-shifted-tile", "y", "shifted+32:gamma"),
    ("rmsnorm_fw", "epsilon-dropped", "rstd", "missing:epsilon@shifted"),
    ("rmsnorm_bw", "drop-s2", "dx", "missing:share@inner"),
    ("groupnorm_fw", "beta-missing", "y", "zeros:beta"),
]


@pytest.mark.parametrize(("kernel", "build", "output", "fault"), NAMED)
def test_a_wrong_build_is_named(kernel: str, build: str, output: str, fault: str) -> None:
    numerics = {"output": "fp32"} if build == "epsilon-dropped" else {}
    answer = judged(*drawn(kernel, **numerics), build).outputs[output]
    assert answer.explanation is Explanation.unexplained
    assert answer.fault == fault
    assert answer.diagnosis is not None
    assert answer.diagnosis.share > 0.9


@pytest.mark.parametrize("kernel", ["layernorm_bw", "rmsnorm_bw"])  # whose terms have more digits
def test_a_card_may_have_another_order_within_its_sums(kernel: str) -> None:
    test, given = drawn(kernel, columns=700, output="fp32", buffers="fp32")
    other = turn(test, emulator.run(test, turn(test, given), "correct"))
    exact = judged_outputs(test, given, other)
    card = judged_outputs(test, given, other, is_of_card=True)
    assert exact.explanation is Explanation.unexplained
    assert card.explanation is Explanation.explained, card.message
    wrong = emulator.run(test, given, "rstd-off-1e-3")
    answer = judged_outputs(test, given, wrong, is_of_card=True)
    assert answer.explanation is Explanation.unexplained


@pytest.mark.parametrize("dst", ["fp32", "bf16"])
@pytest.mark.parametrize("kernel", ["softmax", "l2norm", "batchnorm_fw", "rmsnorm_fw"])
def test_any_kernel_has_a_generic_program(kernel: str, dst: Width) -> None:
    random = np.random.default_rng(5)
    reference = REFERENCES[kernel].reference
    names = inspect.signature(reference).parameters
    shapes = {"x": (24, 96), "gamma": (96,), "beta": (96,)}
    inputs = {n: round_to(random.normal(size=shapes[n]), "bf16") for n in names if n in shapes}
    parameters = {"epsilon": 1e-3} if "epsilon" in names else {}
    graph = trace(reference, inputs, **parameters)
    program = generic(graph, Options(dst=dst, totals=dst))
    right = Evaluation(graph, inputs).run("y").output("y")
    y = Evaluation(graph, inputs, program).run("y").output("y")
    assert np.abs(y - right).max() < 0.05 * np.abs(right).max()

    def explanation(values: NDArray[Any]) -> Explanation:
        outputs = {"y": values.astype(np.float64)}
        return judge([graph], inputs, outputs, {"y": "bf16"}, programs=[program]).explanation

    assert explanation(y) is Explanation.explained
    assert explanation(1.01 * y) is Explanation.unexplained
