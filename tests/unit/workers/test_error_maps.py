"""The error maps of a seed whose tensors have four dimensions, as executors give them, are those of
the flat rows."""

from __future__ import annotations

import numpy as np
import pytest

from gonogo import emulator
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from gonogo_workers.attempts.evidence import of_seed

SHAPE = [2, 3, 20, 512]
"""120 rows of 16 tiles: the rows of a tile come from several of the leading dimensions."""


@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw"])
def test_the_error_map_has_each_error_in_its_own_cell(kernel: str) -> None:
    test = TestSpec.parse({"kernel": kernel, "shape": SHAPE})
    given = quantise(test, generate(test, 5))
    outputs = emulator.run(test, given, "correct").items()
    shaped = {name: np.array(array).reshape(test.shape_of(name)) for name, array in outputs}
    place = (1, 0, 15, 70)  # flat row (1 * 3 + 0) * 20 + 15 = 75: the third row of tiles
    first = next(iter(test.outputs))
    shaped[first][place] += 8.0
    artifacts = of_seed(test, (5, 1), given, shaped)
    assert {(one["kind"], one["seed"], one["repeat"]) for one in artifacts} == {("error_map", 5, 1)}
    contents = {artifact["output"]: artifact["content"] for artifact in artifacts}
    assert contents.keys() == set(test.outputs)
    for name, expected in exact_outputs(test, given).items():
        flat = np.atleast_2d(expected)
        error = np.abs(shaped[name].reshape(flat.shape).astype(np.float64) - flat)
        cells = [
            [float(error[row : row + 32, at : at + 32].max()) for at in range(0, flat.shape[1], 32)]
            for row in range(0, flat.shape[0], 32)
        ]
        assert (contents[name]["rows"], contents[name]["features"]) == flat.shape
        np.testing.assert_allclose(contents[name]["max_abs"], cells, rtol=1e-5)
    assert contents[first]["max_abs"][2][2] == pytest.approx(8.0, rel=1e-2)
