"""Refusals of typed documents: which field is named first."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pytest
from pydantic import Field

from gonogo.errors import FieldError, FieldErrors
from gonogo.spec.validation import WHOLE, Model

Pair = tuple[Annotated[int, WHOLE], Annotated[int, Field(le=9), WHOLE]]


class Typed(Model):
    """A document with a field of any name that a schema has, too."""

    misspelled_first: ClassVar[bool] = True

    type: str
    schema_: list[int] = Field([], alias="schema")
    pairs: list[Annotated[Pair, Field(strict=False)]] = Field([])
    even: int = 0


def test_a_limit_comes_from_the_schema_of_the_innermost_item() -> None:
    words = r"pairs\.0\.1: is too large \(allowed: <= 9\); got 10"
    with pytest.raises(FieldError, match=words):
        Typed.parse({"type": "a", "pairs": [[0, 10]]})


def test_a_list_ends_at_its_first_wrong_item_whatever_its_field_is_named() -> None:
    with pytest.raises(FieldError) as refused:
        Typed.parse({"type": "a", "schema": ["x"] * 100_000})
    assert not isinstance(refused.value, FieldErrors)
    assert refused.value.field == "schema.0"


def test_a_misspelled_field_is_named_before_what_is_wrong_and_what_is_missing() -> None:
    with pytest.raises(FieldErrors) as refused:
        Typed.parse({"tipe": "a", "even": "b"})
    assert [problem.field for problem in refused.value.problems] == ["tipe", "even", "type"]
    assert "did you mean 'type'?" in str(refused.value)
