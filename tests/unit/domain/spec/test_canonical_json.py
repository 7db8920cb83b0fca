"""The canonical text of JSON is the one that the database's audit was hashed with."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo.spec import canonical_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FIXED = st.floats().filter(lambda value: not 0 < abs(value) < 1e-5 and not abs(value) > 1e15)
"""Numbers that need no exponent: versions of orjson write exponents differently."""
NUMBERS = st.integers(-(2**53), 2**53) | FIXED
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
DOCUMENTS = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


@given(DOCUMENTS)
def test_it_is_what_orjson_writes_with_sorted_keys(document: Any) -> None:
    expected = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    assert canonical_json.dumps(document) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1e-5, -1.5e-5, 9.99e-5, 1e-4], "[0.00001,-0.000015,0.0000999,0.0001]"),
        ([1e-6, 1e15, 1e16, -1.5e300, 5e-324], "[1e-6,1000000000000000.0,1e+16,-1.5e+300,5e-324]"),
        ([-0.0, 3.0, math.nan, -math.inf, True, 1], "[-0.0,3.0,null,null,true,1]"),
        ({"b": "\x1b\x7f\u2028é", "a": {"é": 1, "Z": "\U0001f600"}, "": []}, None),
    ],
)
def test_numbers_and_text_have_one_form(value: Any, text: str | None) -> None:
    expected = '{"":[],"a":{"Z":"\U0001f600","é":1},"b":"\\u001b\x7f\u2028é"}'
    assert canonical_json.dumps(value).decode() == (expected if text is None else text)


def test_what_is_no_json_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value in ({1: 2}, object(), "\ud800", nested):
        with pytest.raises(TypeError):
            canonical_json.dumps(value)
