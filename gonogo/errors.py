"""The errors of GoNoGo: whose fault something is, drawn as a tree at the top of this file.

GonogoError
├── InfrastructureError      broker, database, device or host: nothing is said about the kernel
├── JobError                 the request can't be done as asked
│   ├── FieldError           one field of the input is wrong: names the field, the value and the
limit │   └── KernelOutputError    what the kernel gave back can't be judged (a shape, a type, a
tensor that is missing) ├── KernelFailure            wrong numbers: the only one that feeds
flakiness └── Bug                      ours
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_SHOWN = 80
"""Values are shown up to this many characters: a message must stay one line even for a huge
input."""
_QUOTED = 200
"""The same in a document that a program reads: an answer must not grow with a hostile request."""
_DIGITS = 24
"""A whole number of more digits is told by its first ones and their count."""


class GonogoError(Exception):
    """Root of every error that GoNoGo raises on purpose."""


class InfrastructureError(GonogoError):
    """Broker, database, device or host failed; the kernel is not judged by it."""


class JobError(GonogoError):
    """The request can't be done as asked; asking again changes nothing."""


class KernelFailure(GonogoError):
    """The kernel gave wrong numbers."""


class Bug(GonogoError):
    """GoNoGo itself is wrong: a state that its own code promises never to reach."""


class FieldError(JobError):
    """One field of the input is wrong.

    `field` is a dotted path ("test.shape"), `value` what was given, `limit` what would have been
    allowed (None when the reason says it all). The CLI prints str(error); the HTTP service makes a
    problem document of the parts.
    """

    def __init__(self, field: str, value: object, reason: str, *, limit: object = None) -> None:
        self.field = field
        self.value = value
        self.reason = reason = shorten(reason)
        self.limit = limit
        within = "" if limit is None else f" (limit: {limit})"
        super().__init__(f"{field}: {reason}{within}; got {_cut(_written(value), _SHOWN)}")


class KernelOutputError(JobError):
    """What a kernel gave back can't be judged: a tensor is missing, or of a wrong shape or type."""


def shorten(text: str) -> str:
    """Return the text with every huge number in it cut: 12345678...(4001 digits)."""
    return re.sub(
        rf"\d{{{_DIGITS + 1},}}", lambda found: f"{found[0][:8]}...({len(found[0])} digits)", text
    )


def quote(value: object) -> Any:
    """Return a value as it may stand in a problem document: plain JSON, short, whole numbers as every
    language reads them.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= 2**53 else _written(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        value = bytes(value[: _QUOTED + 1]).decode(errors="replace")
    if isinstance(value, str):
        return _cut(value.encode("utf-8", "replace").decode(), _QUOTED)
    try:
        text = json.dumps(value, default=str)
    except (ValueError, TypeError, RecursionError):
        return _cut(type(value).__name__, _QUOTED)
    exact = (
        len(text) <= _QUOTED
        and "NaN" not in text
        and "Infinity" not in text
        and shorten(text) == text
    )
    return value if exact else _cut(shorten(text), _QUOTED)


def _written(value: object) -> str:
    """repr, short where it holds huge numbers: Python itself refuses to write those of more than
    4300 digits.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 14_000:
        return f"a whole number of about {int(value.bit_length() * math.log10(2))} digits"
    try:
        return shorten(repr(value))
    except (ValueError, RecursionError):
        return type(value).__name__


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."


def in_words(problem: BaseException) -> str:
    """Return the message of an error of ours; of any other its type as well, without which "'x'" or "0"
    says nothing.
    """
    return (
        str(problem) if isinstance(problem, GonogoError) else f"{type(problem).__name__}: {problem}"
    )
