"""Real ttnn kernels give what their programs do, to the bit; wrong ones aren't explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gonogo.judging.judging import judge
from gonogo.spec.arithmetic_names import TTNN
from gonogo.spec.builds import own_builds
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation
from simulated_wormhole import Child
from ttnn_cases import CASES, Array, Case

Inputs = dict[str, Array]


def explanations(case: Case, outputs: Inputs) -> set[Explanation]:
    """Return how the declared programs of ttnn explain outputs."""
    produced = own_builds("ttnn")[case.build].outputs
    given = {name: array.reshape(case.test.flat_shape_of(name)) for name, array in outputs.items()}
    judged = judge(
        case.test,
        case.raw,
        case.quantized,
        given,
        arithmetic=TTNN,
        produced=produced,
        with_limits=False,
        with_faults=False,
    )
    return {judged.outputs[name].explanation for name in outputs}


RUN = {(case.kernel, case.build): case for case in reversed(CASES)}
"""The first case of each kernel and build. The bits of all were recorded, and are compared with
their programs by tests that need no simulator."""


@pytest.mark.parametrize("case", RUN.values(), ids=[case.name for case in RUN.values()])
def test_a_right_kernel_is_replayed_to_the_bit_and_explained(child: Child, case: Case) -> None:
    outputs = child.run(case.build, case.test, case.given)
    for name, values in case.replayed(*outputs).items():
        assert np.array_equal(values, outputs[name])
    assert explanations(case, outputs) == {Explanation.explained}


def shifted(name: str, by: int, axis: int) -> Callable[[Inputs], Inputs]:
    """Return the change that moves a tensor's elements along an axis."""
    return lambda given: {**given, name: np.roll(given[name], by, axis)}


def without_last_tile(name: str) -> Callable[[Inputs], Inputs]:
    """Return the change that leaves out the last 32 columns."""
    return lambda given: {**given, name: given[name] * (np.arange(given[name].shape[-1]) < 68)}


WRONG: tuple[tuple[str, Case, Any], ...] = (
    ("epsilon", CASES[0], {"epsilon": 1e-3}),
    ("other groups", CASES[6], {"parameters": {"num_groups": 4}}),
    ("b of the row above", Case("ttnn.add", "add"), shifted("b", 1, 0)),
    ("less fidelity", CASES[18], {"numerics": {"fidelity": "hifi2"}}),
    ("the last tile isn't added", CASES[18], without_last_tile("a")),
    ("the next row of the table", CASES[28], shifted("table", 1, 0)),
)
"""Faults, the cases that they are in, and other fields of the test or a function of its inputs."""


@pytest.mark.parametrize(("fault", "case", "change"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_one_is_not_explained(child: Child, fault: str, case: Case, change: Any) -> None:
    test, given = case.test, case.given
    if callable(change):
        given = change(given)
    else:
        test = TestSpec.parse({**test.canonical(), **change})
    outputs = child.run(case.build, test, given)
    assert Explanation.unexplained in explanations(case, outputs)
