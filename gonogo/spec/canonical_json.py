"""One text for each JSON document, which hashes are of: compact, keys sorted, numbers in one form.

The audit's hashes are made of it. It needs the standard library only, so that anybody can verify
an export, and it can't change with a version of a package.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any

_FIXED_FROM = -5
"""Smaller numbers are written with an exponent: 0.00001, but 1e-6."""


def dumps(value: Any) -> bytes:
    """Return a document of dicts with text as keys, lists, text, numbers, booleans and None.

    Raises TypeError for other values, and for text that is no Unicode.
    """
    try:
        return "".join(_parts(value)).encode()
    except (UnicodeEncodeError, RecursionError) as problem:
        raise TypeError(f"has no canonical form: {problem}") from problem


def _parts(value: Any) -> Iterator[str]:
    match value:
        case None:
            yield "null"
        case bool():
            yield "true" if value else "false"
        case str():
            yield encode_basestring(value)
        case int():
            yield str(value)
        case float():
            yield _number(value)
        case list() | tuple():
            yield "["
            for number, item in enumerate(value):
                yield "," * (number > 0)
                yield from _parts(item)
            yield "]"
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise TypeError("every key must be text")
            yield "{"
            for number, key in enumerate(sorted(value)):
                yield "," * (number > 0) + encode_basestring(key) + ":"
                yield from _parts(value[key])
            yield "}"
        case _:
            raise TypeError(f"{type(value).__name__} is not JSON")


def _number(value: float) -> str:
    """Return the shortest text that is read as this number; JSON has no infinity and no NaN."""
    if not math.isfinite(value):
        return "null"
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    power = int(exponent)
    if power < _FIXED_FROM or power > 0:
        return f"{mantissa}e{power:+d}"
    sign = "-" * mantissa.startswith("-")
    return f"{sign}0.{'0' * (-power - 1)}{mantissa.lstrip('-').replace('.', '')}"
