"""Every parser of strangers' input takes it or refuses it, whatever it is.

`make fuzz` runs these for long, with other inputs each time.
"""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.checks.fuzz import PARSERS, Parser

HOSTILE = (
    b"",
    b"\x00",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"<a>" * 50_000,
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"NaN",
    b"1e999",
    b"9" * 5000,
    b'"\\ud800"',
    b'{"test": 1, "test": 2}',
    b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>',
    b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16,
    b"\x93NUMPY\x03\x00\xff\xff\xff\xff{}",
    b"a = " + b"[" * 5000,
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**60, 2**70)
    | st.floats()
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
PARTS = re.compile(rb'"[^"]*"|[0-9.]+|null|true|[A-Za-z_]+|[^\w\s]')


def test_each_parser_takes_its_example() -> None:
    """Else the tests below would change what is refused anyway."""
    assert [name for name, parser in PARSERS.items() if not parser.check(parser.example)] == []


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
def test_known_tricks_are_refused_or_taken(parser: Parser) -> None:
    for data in HOSTILE:
        try:
            parser.check(data)
        except Exception as error:
            error.add_note(f"the input begins with {data[:40]!r}")
            raise


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
@given(data=st.data())
def test_other_bytes_in_the_place_of_some_are_refused_or_taken(
    parser: Parser, data: st.DataObject
) -> None:
    content = parser.example
    for _ in range(data.draw(st.integers(1, 3))):
        low = data.draw(st.integers(0, len(content)))
        high = data.draw(st.integers(low, min(len(content), low + 12)))
        content = content[:low] + data.draw(st.binary(max_size=12)) + content[high:]
    parser.check(content)


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
@given(data=st.data())
def test_another_value_in_the_place_of_one_is_refused_or_taken(
    parser: Parser, data: st.DataObject
) -> None:
    content = parser.example
    for _ in range(data.draw(st.integers(1, 2))):
        places = [match.span() for match in PARTS.finditer(content)]
        if places:
            low, high = data.draw(st.sampled_from(places))
            value = json.dumps(data.draw(VALUES)).encode()
            content = content[:low] + value + content[high:]
    parser.check(content)


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
@given(data=st.binary(max_size=200))
@example(data=b"{}")
@example(data=b"[]")
def test_any_bytes_are_refused_or_taken(parser: Parser, data: bytes) -> None:
    parser.check(data)
