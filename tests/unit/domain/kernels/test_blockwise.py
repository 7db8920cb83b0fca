"""RMSNorm's and group norm's statistics by the compiled comparison, and by their definition.

Formats, regimes, shapes and broken outputs of every kind. test_compiled.py has expectations that no
kind makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import matrix
from gonogo.kernels import registry
from gonogo.numerics import jit
from gonogo.numerics.compiled import comparison
from gonogo.numerics.jit import HAVE_NUMBA
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import explain
from numeric_cases import REGIMES

needs_numba = pytest.mark.skipif(not HAVE_NUMBA, reason="numba: not installed")

KINDS = ("rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw")
FORMATS: Mapping[str, Mapping[str, Any]] = {
    "bf16": {},
    "fp32": {"input": "fp32", "output": "fp32"},
    "fp16": {"input": "fp16", "output": "fp16"},
    "bf16 sums": {"accumulate": "bf16", "fidelity": "lofi"},
    "own statistics": {"statistics": "own"},
    "bfp8_b": {"output": "bfp8_b"},
}
CASES = [
    (kernel, numerics)
    for kernel in KINDS
    for numerics in FORMATS
    # a group is not a row of tiles; only gradients are given statistics
    if not (kernel == "groupnorm_fw" and numerics.startswith("bfp"))
    and (kernel == "rmsnorm_bw" or numerics != "own statistics")
]
ROWS = 32
"""One block: across blocks, rows may be less coherent than they are in a whole matrix."""


class Seed:
    """The arrays of a seed, and the statistics of outputs by both."""

    def __init__(self, kernel: str, rows: int = ROWS, width: int = 50, **fields: Any) -> None:
        shape: dict[str, Any] = {"shape": [rows, width]}
        if kernel == "groupnorm_fw":
            shape = {"shape": [rows // 8, 16, width // 2, 1], "parameters": {"num_groups": 8}}
        tolerance = {"rtol": 1e-2, "atol": 1e-2}
        self.test = TestSpec.parse({"kernel": kernel, "tolerance": tolerance, **shape, **fields})
        self.numerics = registry.numerics(self.test)
        self.raw = generate(self.test, 0)
        self.given = quantise(self.test, self.raw)

    def run(self, build: str = "correct") -> dict[str, NDArray[np.float32]]:
        outputs = self.numerics.run(self.test, self.given, build)
        return {name: matrix(self.test, name, outputs).copy() for name in self.test.outputs}

    def statistics(self, outputs: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
        return self.numerics.statistics(self.test, self.raw, self.given, outputs, "generic")

    def definition(self, outputs: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
        return self.numerics.definition(self.test, self.raw, self.given, outputs, "generic")

    def assert_same(self, outputs: Mapping[str, NDArray[np.float32]]) -> None:
        compiled, definition = self.statistics(outputs), self.definition(outputs)
        for name, numbers in definition.items():
            differences = {
                key: (compiled[name][key], value)
                for key, value in numbers.items()
                if not close(compiled[name][key], value, key)
            }
            assert compiled[name].keys() == numbers.keys()
            assert not differences, (name, differences)
            assert explain(compiled[name]) == explain(numbers)


def close(left: Any, right: Any, key: str) -> bool:
    if isinstance(right, dict):
        return left.keys() == right.keys() and all(close(left[k], right[k], key) for k in right)
    if isinstance(left, float) and isinstance(right, float):
        # terms of a projection, and of a correlation's centered sums, cancel
        room = 1e-9 if "_z" in key or key == "pcc_deficit" else 1e-12
        return bool(np.isclose(left, right, rtol=room, atol=1e-13))
    return bool(left == right)


@needs_numba
@pytest.mark.parametrize(("kernel", "numerics"), CASES)
def test_formats_and_regimes_have_the_statistics_of_the_definition(
    kernel: str, numerics: str
) -> None:
    for regime in REGIMES:
        case = Seed(kernel, numerics=FORMATS[numerics], inputs=dict(REGIMES[regime]))
        for build in ("correct", "tile-missing"):
            case.assert_same(case.run(build))


@needs_numba
@pytest.mark.parametrize("kernel", KINDS)
def test_broken_zero_and_narrow_outputs_have_the_statistics_of_the_definition(kernel: str) -> None:
    for rows, width in ((ROWS, 50), (ROWS, 2), (8, 6)):
        case = Seed(kernel, rows, width)
        outputs = case.run()
        name = case.test.outputs[0]
        case.assert_same({**outputs, name: np.zeros_like(outputs[name])})
        for value in (np.nan, np.inf, -np.inf):
            broken = outputs[name].copy()
            broken[3, 1] = broken[5] = value
            case.assert_same({**outputs, name: broken})
        case.assert_same({**outputs, name: np.full_like(outputs[name], np.nan)})


@needs_numba
@pytest.mark.parametrize("kernel", ["rmsnorm_fw", "rmsnorm_bw"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (ROWS, 1)])
def test_one_row_and_one_column_have_the_statistics_of_the_definition(
    kernel: str, shape: tuple[int, int]
) -> None:
    case = Seed(kernel, *shape)
    case.assert_same(case.run())


@pytest.mark.parametrize("kernel", KINDS)
def test_the_definition_answers_for_one_block_without_numba(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(comparison, "compare_block", refuse)
    case = Seed(kernel)
    outputs = case.run()
    answer = case.definition(outputs)
    monkeypatch.setattr(jit, "HAVE_NUMBA", False)
    assert case.statistics(outputs) == answer
    monkeypatch.setattr(jit, "HAVE_NUMBA", True)
    with pytest.raises(AssertionError, match="compiled"):
        case.statistics(outputs)
