"""GoNoGo's errors, as a tree that says who is responsible.

GonogoError
├── InfrastructureError      broker, database, device or host: says nothing about the kernel
├── JobError                 the request can't be done as it is
│   ├── FieldError           a field of the input is wrong: has the field, the value and the limit
│   │   └── FieldErrors      several fields are wrong: has a FieldError for each
│   └── KernelOutputError    a kernel's output can't be judged (a shape, a type, a missing tensor)
└── Bug                      ours
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

_SHOWN = 80
"""Values are shown up to this many characters: a message must stay one line even for a huge
input."""
_QUOTED = 200
"""The same limit in a document for programs: a response must not grow with a hostile request."""
_FIELD = 500
"""Characters of a field's path; the names in it may be a stranger's."""
_FEW = 4
"""Fields that the sentence about several problems names."""
_NAMES = 12
"""Names of a list of allowed ones that a sentence has: a message is no catalogue."""
_MISSING = ("is required", "is needed")
"""Beginnings of the reasons that say that a field isn't there."""
_DIGITS = 24
"""A whole number with more digits is shown by its first digits and their count."""


class GonogoError(Exception):
    """The base class of every error that GoNoGo raises on purpose."""


class InfrastructureError(GonogoError):
    """The broker, the database, a device or a host failed; this doesn't judge the kernel."""


class JobError(GonogoError):
    """The request can't be done as it is; repeating it changes nothing."""


class Bug(GonogoError):
    """GoNoGo itself is wrong: its code reached a state that it promises never to reach."""


class FieldError(JobError):
    """One field of the input is wrong.

    `field` is a dotted path ("test.shape"), `value` the value that was given (None: it is
    missing), and `limit` what is allowed (None if the reason says it all). The CLI prints
    str(error); the HTTP service makes a problem document from the parts.
    """

    def __init__(self, field: str, value: object, reason: str, *, limit: object = None) -> None:
        # a stranger's name may have half a surrogate, which no answer and no terminal takes
        self.field = field = _cut(field.encode("utf-8", "replace").decode(), _FIELD)
        self.value = value
        self.reason = reason = shorten(reason)
        self.limit = limit
        allowed = "" if limit is None else f" (allowed: {brief(limit)})"
        is_missing = value is None and reason.startswith(_MISSING)  # "got None" would be a riddle
        got = "" if is_missing else f"; got {_cut(_written(value), _SHOWN)}"
        super().__init__(f"{field}: {reason}{allowed}{got}")

    def at(self, field: str) -> FieldError:
        """Return the same error about a field of another document, such as a suite's."""
        return FieldError(field, self.value, self.reason, limit=self.limit)


class FieldErrors(FieldError):
    """Several fields of the input are wrong; `problems` has an error for each.

    Where one error is expected, it is the first of them.
    """

    def __init__(self, problems: Sequence[FieldError]) -> None:
        first = problems[0]
        super().__init__(first.field, first.value, first.reason, limit=first.limit)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        """Return the first problem in words, and the fields of the first few others."""
        others = [problem.field for problem in self.problems[1:]]
        words = ", ".join((*others[:_FEW], *(["..."] if len(others) > _FEW else ())))
        return super().__str__() + (f"; {len(others)} more: {words}" if others else "")


class KernelOutputError(JobError):
    """A kernel's output can't be judged: a tensor is missing, or has a wrong shape or type."""


def shorten(text: str) -> str:
    """Return the text with every huge number in it cut: 12345678...(4001 digits)."""
    return re.sub(
        rf"\d{{{_DIGITS + 1},}}", lambda match: f"{match[0][:8]}...({len(match[0])} digits)", text
    )


def brief(limit: object) -> str:
    """Return the allowed values for a sentence: of a long list of names the first few."""
    words = str(limit)
    names = words.removeprefix("one of ").split(", ")
    if not words.startswith("one of ") or len(names) <= _NAMES + 2:
        return words
    return f"one of {', '.join(names[:_NAMES])}, ... ({len(names)} in all)"


def quote(value: object) -> Any:
    """Return a value for a problem document: plain JSON, short, readable in every language.

    Whole numbers that some languages can't read exactly become text.
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
    value = _beginning(value)
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
    # what was read back is plain, also where the value had an uploaded file in it
    return json.loads(text) if exact else _cut(shorten(text), _QUOTED)


def _written(value: object) -> str:
    """Return the repr of a value, shortened if it has huge numbers.

    Python itself refuses to write numbers with more than 4300 digits.
    """
    if isinstance(value, bytes | bytearray):
        value = bytes(value[: _QUOTED + 1]).decode(errors="replace")
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 14_000:
        return f"a whole number of about {int(value.bit_length() * math.log10(2))} digits"
    try:
        return " ".join(shorten(repr(_beginning(value))).split("\n"))
    except (ValueError, RecursionError):
        return type(value).__name__


def _beginning(value: object) -> object:
    """Return the value with only as many of its members and characters as can be shown.

    To write a hostile megabyte would take long; what it begins with is quick.
    """
    left = _QUOTED

    def part(value: object) -> object:
        nonlocal left
        left -= 1
        if isinstance(value, str | bytes) and len(value) > _QUOTED:
            return value[: _QUOTED + 1]
        if isinstance(value, Mapping):
            return {part(key): part(item) for key, item in islice(value.items(), max(left, 0))}
        if isinstance(value, list):
            return [part(item) for item in islice(value, max(left, 0))]
        return value

    return part(value)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "..."


def in_words(problem: BaseException) -> str:
    """Return the message of an error; with its type, unless it is one of ours.

    Without the type, messages such as "'x'" or "0" say nothing.
    """
    return (
        str(problem) if isinstance(problem, GonogoError) else f"{type(problem).__name__}: {problem}"
    )
