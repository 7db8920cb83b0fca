"""Canonical JSON (RFC 8785) and the keys derived from it.

The same value always has the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math

from gonogo.errors import Bug

KEY_PREFIX = "v1-"
KEY_DIGITS = 32
"""128 bits of the SHA-256: different specs never collide, and a key still fits in a URL and on a
screen."""

_MAX_INT = 2**53


def canonical_json(value: object) -> str:
    """Return the RFC 8785 text of plain JSON types.

    Keys are sorted by UTF-16 code units, numbers are written as in ECMAScript: 1 and 1.0 give the
    same text, as do 0 and -0.0. Raises Bug for values that JSON (I-JSON) can't hold: NaN,
    infinities, integers beyond 2**53, keys that aren't text, other types.
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        if abs(value) > _MAX_INT:
            raise Bug(f"the integer {value} has no exact JSON number")
        return str(int(value))
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(canonical_json(item) for item in value) + "]"
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Bug(f"the key {key!r} of a JSON object isn't text")
        ordered = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return (
            "{"
            + ",".join(
                f"{json.dumps(key, ensure_ascii=False)}:{canonical_json(value[key])}"
                for key in ordered
            )
            + "}"
        )
    raise Bug(f"{type(value).__name__} isn't a JSON type")


def key_of(value: object) -> str:
    """Return `v1-` and the first 32 hex digits of the SHA-256 of the canonical JSON of `value`."""
    digest = hashlib.sha256(canonical_json(value).encode()).hexdigest()
    return KEY_PREFIX + digest[:KEY_DIGITS]


def _number(value: float) -> str:
    """Return the text of ECMAScript's Number::toString.

    repr gives the digits, which are also the shortest that round-trip; the exponent rules are
    ECMAScript's.
    """
    if not math.isfinite(value):
        raise Bug(f"{value} has no JSON number")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(float(value))).partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    # value = 0.digits x 10**point
    digits = whole + fraction
    point = len(whole) + (int(exponent) if exponent else 0)
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        text = digits + "0" * (point - count)
    elif 0 < point <= 21:
        text = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        power = point - 1
        text = (
            digits[0]
            + ("." + digits[1:] if count > 1 else "")
            + f"e{'+' if power > 0 else '-'}{abs(power)}"
        )
    return sign + text
