"""The artifacts of a seed whose tensors have four dimensions, as executors give them: map and
coefficients are those of the flat rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.judging.inputs import generate, quantise
from gonogo.kernels.layernorm.reference import reference
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.attempts.evidence import of_seed

SHAPE = [2, 3, 20, 512]
"""120 rows of 16 tiles: more rows than the tiles need, and the rows of a tile come from several of
the leading dimensions."""


Arrays = dict[str, NDArray[Any]]


def artifacts(
    build: str, kernel: str = "layernorm_bw"
) -> tuple[dict[tuple[str, str | None], Any], Arrays, Arrays]:
    """Return the contents by (kind, output), the outputs in the executors' shapes, and the
    reference with flat rows."""
    test = TestSpec.parse({"kernel": kernel, "shape": SHAPE})
    given = quantise(test, generate(test, 5))
    outputs = {
        name: array.reshape(test.shape_of(name))
        for name, array in emulator.run(test, given, build).items()
    }
    seed_artifacts = of_seed(test, (5, 1), given, outputs)
    assert {(artifact["seed"], artifact["repeat"]) for artifact in seed_artifacts} == {(5, 1)}
    return (
        {
            (artifact["kind"], artifact["output"]): artifact["content"]
            for artifact in seed_artifacts
        },
        outputs,
        reference(test, given),
    )


@pytest.mark.parametrize(
    ("kernel", "names"),
    [("layernorm_bw", ("dx", "dgamma", "dbeta")), ("layernorm_fw", ("y", "mean", "rstd"))],
)
def test_the_error_map_has_each_error_in_its_own_cell(kernel: str, names: tuple[str, ...]) -> None:
    contents, outputs, expected = artifacts("correct", kernel)
    for name in names:
        content = contents["error_map", name]
        flat = np.atleast_2d(np.asarray(expected[name], np.float64))
        error = np.abs(outputs[name].reshape(flat.shape).astype(np.float64) - flat)
        cells = [
            [
                float(error[row : row + 32, column : column + 32].max())
                for column in range(0, flat.shape[1], 32)
            ]
            for row in range(0, flat.shape[0], 32)
        ]
        assert (content["rows"], content["features"]) == flat.shape
        np.testing.assert_allclose(content["max_abs"], cells, rtol=1e-5)


def test_a_planted_error_of_4d_dx_is_found_where_it_is() -> None:
    test = TestSpec.parse({"kernel": "layernorm_bw", "shape": SHAPE})
    given = quantise(test, generate(test, 5))
    dx = np.asarray(reference(test, given)["dx"], np.float32).reshape(SHAPE)
    dx[1, 0, 15, 70] += (
        8.0  # flat row (1 * 3 + 0) * 20 + 15 = 75: the third row of tiles, the third column
    )
    (content,) = [
        artifact["content"]
        for artifact in of_seed(test, (5, 0), given, {"dx": dx})
        if artifact["kind"] == "error_map"
    ]
    cells = np.asarray(content["max_abs"])
    assert cells.shape == (4, 16)
    assert cells[2, 2] == pytest.approx(8.0, rel=1e-5)
    cells[2, 2] = 0.0
    assert cells.max() < 1e-5


def test_the_coefficients_of_4d_dx_name_the_tiles() -> None:
    contents, _, _ = artifacts("tt-train-2025")
    terms = {term["name"]: term for term in contents["coefficients", "dx"]["terms"]}
    np.testing.assert_allclose(terms["s1"]["coefficients"], [2.0] * 16, atol=0.05)
    np.testing.assert_allclose(terms["s2"]["coefficients"], [0.0] * 15 + [1.0], atol=0.1)
    assert (
        contents["diagnosis", None]["words"]
        == "s1 is subtracted twice in all 16 tiles; s2 sums only the last tile (16th of 16)"
    )
