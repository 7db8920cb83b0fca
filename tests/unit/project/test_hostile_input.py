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
    *(b"", b"\x00", b"NaN", b"1e999", b"9" * 5000, b'"\\ud800"', b'{"test": 1, "test": 2}'),
    *(b"[" * 100_000, b'{"a":' * 50_000, b"<a>" * 50_000, b"a = " + b"[" * 5000),
    *(b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}"),
    b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>',
    b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16,
    b"\x93NUMPY\x03\x00\xff\xff\xff\xff{}",
)
NUMBERS = st.integers() | st.integers(2**60, 2**70) | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20),
    lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(max_size=8), one, max_size=4),
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
@pytest.mark.parametrize("whole", [False, True], ids=["bytes", "values"])
@given(data=st.data())
def test_something_else_in_the_place_of_a_part_is_refused_or_taken(
    parser: Parser, whole: bool, data: st.DataObject
) -> None:
    """Other bytes in the place of some, or another value in the place of one."""
    content = parser.example
    for _ in range(data.draw(st.integers(1, 3))):
        if whole:
            places = [match.span() for match in PARTS.finditer(content)] or [(0, 0)]
            low, high = data.draw(st.sampled_from(places))
            other = json.dumps(data.draw(VALUES)).encode()
        else:
            low = data.draw(st.integers(0, len(content)))
            high = data.draw(st.integers(low, min(len(content), low + 12)))
            other = data.draw(st.binary(max_size=12))
        content = content[:low] + other + content[high:]
    parser.check(content)


@pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
@given(data=st.binary(max_size=200))
@example(data=b"{}")
@example(data=b"[]")
def test_any_bytes_are_refused_or_taken(parser: Parser, data: bytes) -> None:
    parser.check(data)
