"""Untrusted XML: elements one after the other, without entities or document types, within limits.

The parser is expat, from the standard library. A document type declaration ends the reading where
it begins, so there is no entity to expand and nothing to fetch from outside; depth, number and size
of elements have limits. No tree is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn
from xml.parsers import expat

from gonogo.errors import FieldError
from gonogo.fields import check_count

MAX_DEPTH = 64
MAX_ELEMENTS = 2_000_000
MAX_ATTRIBUTES = 64
MAX_TEXT = 65_536
"""Characters of one element's text that are read; the rest of a longer log is left out."""
MAX_TAG = 2**20
"""Bytes of a tag with its attributes, or of a comment, which expat reads in one go."""
_SHOWN = 60
_PART = 65_536

Start = Callable[[str, Mapping[str, str]], None]
End = Callable[[str, str], None]


class _Reader:
    def __init__(self, start: Start, end: End) -> None:
        self._start, self._end = start, end
        self._texts: list[list[str]] = []
        self._sizes: list[int] = []
        self._elements = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        depth = len(self._texts) + 1
        check_count(depth, MAX_DEPTH, "file", "the XML is too deep", "elements")
        check_count(self._elements, MAX_ELEMENTS, "file", "the XML has too many elements")
        if len(attributes) > MAX_ATTRIBUTES:
            reason = f"element {name[:100]!r} has too many attributes"
            check_count(len(attributes), MAX_ATTRIBUTES, "file", reason)
        self._texts.append([])
        self._sizes.append(0)
        self._start(_bare(name), {_bare(key): value for key, value in attributes.items()})

    def text(self, text: str) -> None:
        if self._sizes and self._sizes[-1] < MAX_TEXT:
            self._texts[-1].append(text[: MAX_TEXT - self._sizes[-1]])
            self._sizes[-1] += len(text)

    def end(self, name: str) -> None:
        self._sizes.pop()
        self._end(_bare(name), "".join(self._texts.pop()))


def read(data: bytes, start: Start, end: End) -> None:
    """Call `start(name, attributes)` and `end(name, text)` for every element, in order.

    Names have no namespace prefix. `text` is the text directly in the element. Raises FieldError if
    it isn't XML, has a document type, or exceeds the limits.
    """
    reader = _Reader(start, end)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _doctype
    parser.EntityDeclHandler = _doctype  # never reached after the other, but costs nothing
    try:
        for place in range(0, len(data), _PART):  # expat copies each part that it gets
            parser.Parse(data[place : place + _PART], False)
            unread = place - parser.CurrentByteIndex
            check_count(unread, MAX_TAG, "file", "the XML has too large a tag", "bytes")
        parser.Parse(b"", True)
    # an unknown encoding is a LookupError or a ValueError
    except (expat.ExpatError, ValueError, LookupError) as problem:
        raise FieldError("file", data[:_SHOWN], f"isn't XML: {problem}") from None


def _doctype(*_: object) -> NoReturn:
    raise FieldError(
        "file",
        "<!DOCTYPE",
        "XML with a document type declaration is refused: a report needs no entities",
        limit="none",
    )


def _bare(name: str) -> str:
    return name.rpartition(":")[2]
