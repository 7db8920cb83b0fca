"""Refusals of typed documents: which field is named first, and its limit in words."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field

from gonogo import fields
from gonogo.errors import FieldError, FieldErrors
from gonogo.spec.validation import WHOLE, Model, checked, in_words

Pair = tuple[Annotated[int, Field(ge=0), WHOLE], Annotated[int, Field(le=9), WHOLE]]


def _even(value: int) -> int:
    if value % 2:
        raise FieldError("", value, "is odd", limit="an even number")
    return value


class Typed(Model):
    """A document with a field of any name that a schema has, too."""

    misspelled_first: ClassVar[bool] = True

    type: Annotated[str, Field(min_length=1, json_schema_extra=in_words("text, not empty"))]
    schema_: list[int] = Field([], alias="schema")
    pairs: list[Annotated[Pair, Field(strict=False)]] = Field([])
    even: Annotated[int, checked(_even)] = 0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"type": ""}, "type: is too short (allowed: text, not empty); got ''"),
        ({"type": "a", "even": 3}, "even: is odd (allowed: an even number); got 3"),
        ({"type": "a", "pairs": [[0, 10]]}, "pairs.0.1: is too large (allowed: <= 9); got 10"),
        ({"type": "a", "pairs": [[0, 1], [-1, 1]]}, "pairs.1.0: is too small (allowed: >= 0)"),
    ],
)
def test_a_limit_comes_from_the_schema_or_from_its_words(
    document: dict[str, Any], message: str
) -> None:
    with pytest.raises(FieldError) as refused:
        Typed.parse(document)
    assert str(refused.value).startswith(message)


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


def test_a_number_has_its_limits() -> None:
    assert fields.number(0.5, "p", above=0, most=1) == 0.5
    with pytest.raises(FieldError, match=r"p: is too large \(allowed: > 0 and <= 1\); got 2"):
        fields.number(2, "p", above=0, most=1)


def test_an_error_may_be_about_a_field_of_another_document() -> None:
    problem = FieldError("shape", [0], "is too small", limit=">= 1").at("entries.3.test.shape")
    assert str(problem) == "entries.3.test.shape: is too small (allowed: >= 1); got [0]"
