"""Selections: what is accepted, keys that last for ever, and which executors run what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.errors import FieldError
from gonogo.spec.selections import Selection, check_executor, is_selection, sample
from gonogo.spec.test_spec import TestSpec
from parsed_tests import parse_test

KERNEL = {"kernel": "layernorm_bw", "shape": [2, 32]}


@pytest.mark.parametrize(
    ("inner", "key"),
    [
        ({}, "v1-532c21035675293d890126cddb8e5f0e"),
        ({"suite": "nightly"}, "v1-61d08d7fb8ac88d8890a0969cd5c91fb"),
        (
            {"suite": "nightly", "filter": "LayerNorm*", "shuffle": 7},
            "v1-f1e941765c0a61737b8c251c14cd4d74",
        ),
        ({"suite": "staged", "stages": ["api", "kernels"]}, "v1-7bfb858c6f0f9854c14dc217cd76c4be"),
    ],
)
def test_golden_keys(inner: dict[str, Any], key: str) -> None:
    """These keys are in databases: they never change."""
    assert Selection.parse({"selection": inner}).key == key


def test_defaults_and_the_order_of_fields_do_not_change_the_key() -> None:
    plain = Selection.parse({"selection": {"suite": "a", "filter": "b"}})
    spelled = Selection.parse(
        {"selection": {"stages": None, "shuffle": False, "filter": "b", "suite": "a"}}
    )
    assert plain == spelled
    assert plain.key == spelled.key == plain.workload_key
    assert plain.canonical() == {"selection": {"suite": "a", "filter": "b"}}


names = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20
).filter(str.strip)


@given(
    suite=names,
    words=st.none() | names,
    shuffle=st.none() | st.booleans() | st.integers(0, 2**53 - 1),
    stages=st.none() | st.lists(names, min_size=1, max_size=4, unique=True),
)
def test_the_canonical_form_gives_the_same_selection_back(
    suite: str, words: str | None, shuffle: Any, stages: Any
) -> None:
    selection = Selection.parse(
        {"selection": {"suite": suite, "filter": words, "shuffle": shuffle, "stages": stages}}
    )
    again = parse_test(selection.canonical())
    assert again == selection
    assert again.key == selection.key


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"selection": None}, "test.selection"),
        ({"selection": []}, "test.selection"),
        ({"selection": {}, "shape": [1]}, "test.shape"),
        ({"selection": {"tests": "A"}}, "test.selection.tests"),
        ({"selection": {"suite": ""}}, "test.selection.suite"),
        ({"selection": {"suite": "x" * 201}}, "test.selection.suite"),
        ({"selection": {"filter": 3}}, "test.selection.filter"),
        ({"selection": {"filter": "a\0b"}}, "test.selection.filter"),
        ({"selection": {"shuffle": "yes"}}, "test.selection.shuffle"),
        ({"selection": {"shuffle": 1.5}}, "test.selection.shuffle"),
        ({"selection": {"shuffle": 2**53}}, "test.selection.shuffle"),
        ({"selection": {"suite": "a", "stages": "api"}}, "test.selection.stages"),
        ({"selection": {"suite": "a", "stages": []}}, "test.selection.stages"),
        ({"selection": {"suite": "a", "stages": ["b", "b"]}}, "test.selection.stages.1"),
        ({"selection": {"suite": "a", "stages": [None]}}, "test.selection.stages.0"),
        ({"selection": {"stages": ["b"]}}, "test.selection.stages"),
    ],
)
def test_a_wrong_field_is_named(data: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_test(data)
    assert caught.value.field == field


def test_the_path_of_the_request_is_named() -> None:
    with pytest.raises(FieldError) as caught:
        Selection.parse({"selection": {"suite": 1}}, path="jobs.3.test")
    assert caught.value.field == "jobs.3.test.selection.suite"


def test_a_test_of_a_kernel_is_one_still() -> None:
    assert isinstance(parse_test(KERNEL), TestSpec)
    assert not is_selection(KERNEL)
    assert not is_selection([])


@pytest.mark.parametrize(
    ("shuffle", "shown"),
    [(None, None), (False, None), (True, 5), (7, 7), (0, 0)],
)
def test_a_sample_has_a_seed_only_where_it_is_controlled(shuffle: Any, shown: int | None) -> None:
    assert sample({"selection": {} if shuffle is None else {"shuffle": shuffle}}, 5) == {
        "seed": shown,
        "iteration": 5,
    }


def test_a_seed_of_a_kernel_is_no_iteration() -> None:
    assert sample(KERNEL, 5) == {"seed": 5, "iteration": None}


@pytest.mark.parametrize(
    ("data", "executor", "field"),
    [
        ({"selection": {}}, "emulator", "test.selection"),
        ({"selection": {}}, "ttnn", "test.selection"),
        ({"selection": {}}, "torch", "test.selection"),
        (KERNEL, "gtest", "test.kernel"),
        (KERNEL, "pytest", "test.kernel"),
        ({"selection": {"suite": "a", "stages": ["b"]}}, "gtest", "test.selection.stages"),
    ],
)
def test_kernels_and_selections_are_run_by_different_executors(
    data: dict[str, Any], executor: str, field: str
) -> None:
    with pytest.raises(FieldError) as caught:
        check_executor(parse_test(data), executor)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("data", "executor"),
    [
        ({"selection": {}}, "gtest"),
        ({"selection": {"suite": "a", "stages": ["b"]}}, "pytest"),
        (KERNEL, "ttnn"),
        (KERNEL, "mine"),
        ({"selection": {}}, "mine"),
    ],
)
def test_what_fits_is_let_through(data: dict[str, Any], executor: str) -> None:
    check_executor(parse_test(data), executor)


def test_words_for_people() -> None:
    assert Selection().words == "all tests"
    assert (
        Selection(suite="nightly", filter="LayerNorm*", shuffle=True).words
        == "suite nightly, filter LayerNorm*, shuffled"
    )
    assert (
        Selection(suite="staged", stages=("api", "kernels"), shuffle=3).words
        == "suite staged, stages api, kernels, shuffled by 3"
    )
