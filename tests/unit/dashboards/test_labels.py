"""Labels of tests in lists: what differs comes first, and only where two would be alike."""

from __future__ import annotations

import pytest

from gonogo.spec.selections import Selection
from gonogo_dashboards.kit import commands
from gonogo_dashboards.kit.labels import Listed, labels

TEST = {"kernel": "layernorm_bw", "shape": [3, 32], "tolerance": {"rtol": 1e-3, "atol": 0.5}}


def test_a_test_that_is_alone_with_its_shape_is_called_by_it() -> None:
    other = {**TEST, "shape": [3, 64]}
    assert labels([Listed(TEST, "nightly: small"), Listed(other, "nightly: wide")]) == [
        "layernorm_bw 3×32",
        "layernorm_bw 3×64",
    ]


def test_the_suite_s_names_come_first_where_they_tell_tests_apart() -> None:
    other = {**TEST, "epsilon": 1e-3}
    assert labels(
        [Listed(TEST, "nightly: a"), Listed(other, "nightly: b"), Listed(TEST, "nightly: a")]
    ) == [
        "nightly: a · layernorm_bw 3×32",
        "nightly: b · layernorm_bw 3×32",
        "nightly: a · layernorm_bw 3×32",
    ]


def test_else_the_fields_that_differ_come_first() -> None:
    epsilon, loose = {**TEST, "epsilon": 1e-3}, {**TEST, "tolerance": {"atol": 0.7}}
    assert labels([Listed(TEST), Listed(epsilon), Listed(loose)]) == [
        "rtol 0.001, atol 0.5 · default epsilon · layernorm_bw 3×32",
        "rtol 0.001, atol 0.5 · epsilon 0.001 · layernorm_bw 3×32",
        "atol 0.7 · default epsilon · layernorm_bw 3×32",
    ]


def test_a_test_on_two_boards_has_its_board_first() -> None:
    rows = [Listed(TEST, "nightly: a", place={"board": board}) for board in ("n150", "n300")]
    assert labels(rows) == ["board n150 · layernorm_bw 3×32", "board n300 · layernorm_bw 3×32"]


def test_one_test_twice_needs_nothing() -> None:
    assert labels([Listed(TEST, head="small"), Listed(TEST, head="small")]) == ["small", "small"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.21000000000000002, "0.21"),
        (0.1 + 0.2, "0.3"),
        (1e-3, "0.001"),
        (3.0000000000000004e-05, "3e-05"),
        (0.12345678, "0.12345678"),
        (1 / 3, "0.333333333333"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_is_shown_without_the_noise_of_arithmetic(value: float, text: str) -> None:
    assert commands.plain(value) == text
    assert commands.tolerance_words({"atol": value}) == f"atol {text}"


def test_a_selection_of_existing_tests_is_called_by_its_tests() -> None:
    selection = Selection.parse(
        {"selection": {"suite": "gtest:ops", "filter": "LayerNorm.*"}}
    ).canonical()
    (label,) = labels([Listed(selection, place={"board": "n150"})])
    assert "LayerNorm.*" in label
