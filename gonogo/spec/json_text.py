"""Read JSON of strangers: UTF-8 only, and no key twice in one object.

Two readers of one document must see the same values. Python's parser detects UTF-16 and UTF-32,
which RFC 8259 doesn't allow, and takes the last of equal keys; others take the first.
"""

from __future__ import annotations

import json
from typing import Any

BOM = b"\xef\xbb\xbf"


class BadEncoding(ValueError):
    """The bytes are no UTF-8 text."""


class RepeatedKey(ValueError):
    """An object has a key twice."""


def loads(data: bytes | str, *, nonfinite: bool = False) -> Any:
    """Return the value in JSON text.

    Raises BadEncoding, RepeatedKey, ValueError for what is no JSON, and RecursionError for deep
    nesting. nonfinite: take NaN and Infinity, which a caller refuses who knows their place.
    """
    return json.loads(
        text_of(data) if isinstance(data, bytes) else data,
        object_pairs_hook=_unique,
        parse_constant=None if nonfinite else _refuse,
    )


def text_of(data: bytes) -> str:
    """Return the text of a JSON document. Raises BadEncoding."""
    if b"\0" in data[:4] or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadEncoding("is UTF-16 or UTF-32 (allowed: UTF-8)")
    if data.startswith(BOM):
        raise BadEncoding("begins with a byte order mark (allowed: UTF-8 without it)")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise BadEncoding(f"is not UTF-8: {problem.reason} at byte {problem.start}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise RepeatedKey(f"has the key {name[:100]!r} twice in one object (allowed: once)")
    return content


def _refuse(word: str) -> None:
    raise ValueError(f"{word} isn't JSON")
