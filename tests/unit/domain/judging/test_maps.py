"""The error map: cells per 32x32 tile, partial tiles at the edges, counts of values that aren't
finite, and a largest size."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gonogo.judging.error_maps import MAX_TILE_COLUMNS, MAX_TILE_ROWS, error_map


def test_a_cell_holds_the_largest_and_the_mean_error_of_its_tile() -> None:
    reference = np.zeros((64, 96))
    actual = reference.copy()
    actual[40, 70], actual[41, 71] = -3.0, 1.0
    tile_errors = error_map(actual, reference)
    assert tile_errors.max_abs.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 3.0]]
    assert tile_errors.signed_mean[1, 2] == pytest.approx(-2.0 / 1024)
    assert np.count_nonzero(tile_errors.signed_mean) == 1


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    reference = np.zeros((64, 64), np.float32)
    actual = np.full((64, 64), 2.0, np.float32)
    actual[:32, :32], actual[32, 32] = np.nan, np.inf
    tile_errors = error_map(actual, reference)
    assert tile_errors.nonfinite.tolist() == [[1024, 0], [0, 1]]
    assert np.isnan(tile_errors.max_abs[0, 0])
    assert tile_errors.max_abs[1, 1] == tile_errors.signed_mean[1, 1] == 2.0
    assert tile_errors.to_json()["max_abs"][0] == [None, 2.0]


@pytest.mark.parametrize(
    ("shape", "group"),
    [
        ((33, 34), (1, 1)),  # tiles at the edges average over their own elements
        ((MAX_TILE_ROWS * 32, 8), (1, 1)),
        ((MAX_TILE_ROWS * 32 + 1, 8), (2, 1)),
        ((3, MAX_TILE_COLUMNS * 64 + 1), (1, 3)),
    ],
)
def test_large_matrices_are_grouped_by_whole_tiles(
    shape: tuple[int, int], group: tuple[int, int]
) -> None:
    actual, reference = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    tile_errors = error_map(actual, reference)
    error = actual.astype(np.float64) - reference
    height, width = 32 * group[0], 32 * group[1]
    assert tile_errors.group == group
    assert tile_errors.max_abs.shape == (-(-shape[0] // height), -(-shape[1] // width))
    for row, column in np.ndindex(tile_errors.max_abs.shape):
        cell = error[row * height : (row + 1) * height, column * width : (column + 1) * width]
        assert tile_errors.max_abs[row, column] == np.abs(cell).max()
        assert tile_errors.signed_mean[row, column] == pytest.approx(cell.mean(), abs=1e-12)


def test_a_vector_counts_as_one_row_and_the_json_is_plain() -> None:
    map_json = error_map(np.ones(40, np.float32), np.zeros(40, np.float32)).to_json()
    assert map_json == {
        "rows": 1,
        "features": 40,
        "tile": 32,
        "group": [1, 1],
        "cells": [1, 2],
        "max_abs": [[1.0, 1.0]],
        "signed_mean": [[1.0, 1.0]],
        "nonfinite": [[0, 0]],
    }
    assert json.loads(json.dumps(map_json, allow_nan=False)) == map_json
    with pytest.raises(ValueError, match="equal shapes"):
        error_map(np.zeros((2, 3)), np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("output_format", "step"), [("bf16", 2.0**-5), ("bfp8_b", 2.0**-4), ("fp32", 2.0**-21)]
)
def test_the_largest_error_is_told_in_ulp_of_the_tiles_largest_reference(
    output_format: str, step: float
) -> None:
    reference = np.zeros((32, 64))
    reference[3, 4], reference[5, 40] = -5.0, 80.0  # 5 lies in [4, 8)
    actual = reference.copy()
    actual[0, 0], actual[31, 63] = 0.5, np.nan
    tile_errors = error_map(actual, reference, output_format)
    assert tile_errors.max_ulp is not None
    assert tile_errors.max_ulp.tolist() == [[0.5 / step, 0.0]]
    map_json = json.loads(json.dumps(tile_errors.to_json()))
    assert map_json["format"] == output_format
    assert map_json["max_ulp"][0] == pytest.approx([0.5 / step, 0.0], rel=1e-5)
    assert "max_ulp" not in error_map(actual, reference).to_json()
