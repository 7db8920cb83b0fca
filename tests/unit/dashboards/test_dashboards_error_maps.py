"""The error map in words: a last column, stripes, values that are not finite; and the scales of its
colors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.error_maps import error_map
from gonogo_dashboards.jobs import error_maps, map_charts
from gonogo_dashboards.jobs.error_maps import MapContent

ROWS, FEATURES = 256, 500
"""8 rows of 16 tiles; the last is 20 wide."""


def content(error: NDArray[np.float64], output_format: str | None = "bf16") -> MapContent:
    """Return the page's view of an error on top of rounding noise."""
    noise = np.random.default_rng(0).normal(0, 1e-3, (ROWS, FEATURES))
    reference = np.ones((ROWS, FEATURES))
    map_json: dict[str, Any] = error_map(
        reference + noise + error, reference, output_format
    ).to_json()
    return error_maps.content(map_json)


def zeros() -> NDArray[np.float64]:
    return np.zeros((ROWS, FEATURES))


def test_a_missing_mask_is_said_to_be_the_last_column() -> None:
    error = zeros()
    error[:, 480:] = 0.5
    view = content(error)
    assert (
        "The last column of tiles holds 100% of the error; it is only 20 wide, so a mask"
        in view.summary
    )
    assert view.tiles[0].features == (480, 499)
    assert view.tiles[0].max_ulp == pytest.approx(64, rel=0.02)
    assert len(view.tiles) == error_maps.MAX_TILES
    assert view.summary.startswith(
        "Counted in ulp of bf16, the largest error is 64.4 ulp (|e| 0.503)"
    )


def test_a_term_per_row_shows_level_stripes_and_one_along_the_features_upright_ones() -> None:
    by_row = np.repeat(np.array([1, -1, 1, 1, -1, -1, 1, -1]) * 0.1, 32)[:, None]
    by_column = np.repeat(np.array([1, -1] * 8) * 0.1, 32)[None, :FEATURES]
    level, upright = content(zeros() + by_row).summary, content(zeros() + by_column).summary
    assert "horizontal stripes" in level
    assert "vertical" not in level
    assert "vertical stripes" in upright
    assert "horizontal" not in upright


def test_one_tile_among_many_is_named_by_its_column_and_row() -> None:
    error = zeros()
    error[40, 70] = 3.0
    assert (
        "Column 3 of 16 of tiles holds 100% of the error. Row 2 of 8 of tiles holds 100% "
        "of the error."
    ) in content(error).summary


def test_rounding_alone_has_no_pattern() -> None:
    assert content(zeros()).summary.endswith("It is spread over the tiles without a pattern.")


def test_what_is_not_finite_comes_first() -> None:
    error = zeros()
    error[100, 100] = np.nan
    error[0, 0] = 5.0
    view = content(error)
    assert view.nonfinite == 1
    assert view.summary.startswith(
        "1 value is NaN or Inf, most of them in rows 96 to 127, features 96 to 127."
    )
    assert view.tiles[0].nonfinite == 1


def test_no_error_at_all_and_a_vector_are_maps_too() -> None:
    flat = error_maps.content(error_map(np.ones(500), np.ones(500), "bf16").to_json())
    assert flat.summary == "No tile has an error: every value equals the reference."
    assert (flat.tiles, map_charts.height(flat)) == ((), "map-flat")
    assert (
        map_charts.signed(flat)["yAxis"]["name"] == "row"
    )  # a longer name would leave the tiles no height
    assert (
        map_charts.largest(flat)["visualMap"]["min"] < map_charts.largest(flat)["visualMap"]["max"]
    )


def test_the_colours_of_the_mean_are_even_about_zero_and_those_of_the_largest_are_decades() -> None:
    error = zeros()
    error[:32] = -0.5
    view = content(error)
    scale = map_charts.signed(view)["visualMap"]
    assert scale["min"] == -scale["max"] == pytest.approx(-0.5, rel=0.01)
    decades = map_charts.largest(view)["visualMap"]
    assert 10 ** decades["max"] == pytest.approx(view.largest)
    assert map_charts.unit(view) == "ulp of bf16"
    assert map_charts.unit(content(error, None)) == "absolute"
    axis = map_charts.signed(view)["xAxis"]
    assert (axis["data"][-1], axis["name"]) == ("16", "column of tiles (of 16)")
