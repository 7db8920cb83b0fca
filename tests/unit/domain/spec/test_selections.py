"""Selections: what is accepted, and which executors run what."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.errors import FieldError
from gonogo.spec.selections import Selection, check_executor, sample
from parsed_tests import parse_test

KERNEL = {"kernel": "layernorm_bw", "shape": [2, 32]}
NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20
).filter(str.strip)


def chosen(**selection: Any) -> dict[str, Any]:
    return {"selection": selection}


def test_defaults_and_the_order_of_fields_do_not_change_the_key() -> None:
    plain = Selection.parse(chosen(suite="a", filter="b"))
    spelled = Selection.parse(chosen(stages=None, shuffle=False, filter="b", suite="a"))
    assert plain == spelled
    assert plain.key == spelled.key == plain.workload_key
    assert plain.canonical() == chosen(suite="a", filter="b")


@given(
    suite=NAMES,
    words=st.none() | NAMES,
    shuffle=st.none() | st.booleans() | st.integers(0, 2**53 - 1),
    stages=st.none() | st.lists(NAMES, min_size=1, max_size=4, unique=True),
)
def test_the_canonical_form_gives_the_same_selection_back(
    suite: str, words: str | None, shuffle: Any, stages: Any
) -> None:
    selection = Selection.parse(chosen(suite=suite, filter=words, shuffle=shuffle, stages=stages))
    again = parse_test(selection.canonical())
    assert (again, again.key) == (selection, selection.key)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"selection": None}, "test.selection"),
        ({"selection": []}, "test.selection"),
        (chosen(suite=""), "test.selection.suite"),
        (chosen(suite="x" * 201), "test.selection.suite"),
        (chosen(filter=3), "test.selection.filter"),
        (chosen(filter="a\0b"), "test.selection.filter"),
        (chosen(shuffle="yes"), "test.selection.shuffle"),
        (chosen(shuffle=1.5), "test.selection.shuffle"),
        (chosen(shuffle=2**53), "test.selection.shuffle"),
        (chosen(suite="a", stages="api"), "test.selection.stages"),
        (chosen(suite="a", stages=[]), "test.selection.stages"),
        (chosen(suite="a", stages=["b", "b"]), "test.selection.stages.1"),
        (chosen(suite="a", stages=[None]), "test.selection.stages.0"),
        (chosen(stages=["b"]), "test.selection.stages"),
    ],
)
def test_a_wrong_field_is_named(data: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_test(data)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("data", "seed", "iteration"),
    [
        (chosen(), None, 5),
        (chosen(shuffle=False), None, 5),
        (chosen(shuffle=True), 5, 5),
        (chosen(shuffle=7), 7, 5),
        (chosen(shuffle=0), 0, 5),
        (KERNEL, 5, None),
    ],
)
def test_a_sample_has_a_seed_only_where_it_is_controlled(
    data: dict[str, Any], seed: int | None, iteration: int | None
) -> None:
    assert sample(data, 5) == {"seed": seed, "iteration": iteration}


STAGED = chosen(suite="a", stages=["b"])


@pytest.mark.parametrize(
    ("data", "executor", "field"),
    [
        (chosen(), "emulator", "test.selection"),
        (chosen(), "ttnn", "test.selection"),
        (chosen(), "torch", "test.selection"),
        (KERNEL, "gtest", "test.kernel"),
        (KERNEL, "pytest", "test.kernel"),
        (STAGED, "gtest", "test.selection.stages"),
        (chosen(), "gtest", None),
        (STAGED, "pytest", None),
        (KERNEL, "ttnn", None),
        (KERNEL, "mine", None),
        (chosen(), "mine", None),
    ],
)
def test_kernels_and_selections_are_run_by_different_executors(
    data: dict[str, Any], executor: str, field: str | None
) -> None:
    with nullcontext() if field is None else pytest.raises(FieldError) as caught:
        check_executor(parse_test(data), executor)
    assert caught is None or caught.value.field == field


def test_words_for_people() -> None:
    named = Selection(suite="nightly", filter="LayerNorm*", shuffle=True)
    staged = Selection(suite="staged", stages=("api", "kernels"), shuffle=3)
    assert Selection().words == "all tests"
    assert named.words == "suite nightly, filter LayerNorm*, shuffled"
    assert staged.words == "suite staged, stages api, kernels, shuffled by 3"
