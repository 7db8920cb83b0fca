"""Keys derived from canonical JSON (RFC 8785): equal values have equal keys."""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785

from gonogo.errors import Bug

KEY_PREFIX = "v1-"
KEY_DIGITS = 32
"""128 bits of the SHA-256: different specs never collide, and a key still fits in a URL and on a
screen."""


def key_of(value: Any) -> str:
    """Return `v1-` and the first 32 hex digits of the SHA-256 of the canonical JSON of `value`.

    Keys are sorted and numbers are written as in ECMAScript: 1 and 1.0 are equal, as are 0 and
    -0.0. Raises Bug for values that I-JSON (RFC 7493) can't hold: NaN, infinities, integers of
    2**53 or more, lone surrogates, keys that aren't text, other types.
    """
    try:
        text = rfc8785.dumps(value)
    except ValueError as problem:
        raise Bug(f"no canonical JSON: {problem}") from problem
    return KEY_PREFIX + hashlib.sha256(text).hexdigest()[:KEY_DIGITS]
