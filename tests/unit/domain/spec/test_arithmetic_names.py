"""Names of declared arithmetics: what is accepted, and what is refused with what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.errors import FieldError
from gonogo.spec.arithmetic_names import NAMES, canonical


@pytest.mark.parametrize("name", NAMES)
def test_a_known_name_is_taken_without_its_spaces(name: str) -> None:
    assert canonical(f" {name} ") == name


def test_no_name_is_none() -> None:
    assert canonical(None) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("tt_train", "did you mean 'tt-train'?"),
        ("bf16: x^ stored", "is not an arithmetic"),
        ("generic", "is not an arithmetic"),
        ("torch-eager", "is not an arithmetic"),
        ("", "is not an arithmetic"),
        (7, "is not an arithmetic"),
    ],
)
def test_what_is_unknown_is_named_with_what_is_allowed(value: Any, words: str) -> None:
    with pytest.raises(FieldError) as caught:
        canonical(value, "build.arithmetic")
    assert caught.value.field == "build.arithmetic"
    assert words in str(caught.value)
    assert "one of tt-train, ttnn, wormhole, fused, eager, stored-xhat" in str(caught.value)
