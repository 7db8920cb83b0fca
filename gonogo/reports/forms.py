"""The form of results: a hostile host sends anything, and pages of others show what is stored.

The table of statistics says which values each may have. Values are checked by the column, because
most seeds share them. A worker checks what a kernel's tests report by the same rules, so that one
wrong report costs its own seed only: the service refuses the whole message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from gonogo.reports.outcomes import Outcome
from gonogo.reports.texts import MAX_NAME_CHARS
from gonogo.spec import statistics
from gonogo.spec.verdicts import Explanation, Verdict

Fits = Callable[[object], bool]


class SenselessResult(ValueError):
    """A result with values that no worker sends."""


MAX_TEXT = 20_000
MAX_LONG_TEXT = 1_000_000
"""Characters of a log: a worker sends at most the last 256 Ki of one."""
MAX_NAME = MAX_NAME_CHARS + 200
"""A test's name, with the names of its arrays and their output behind it."""
MAX_ITEMS = 1000
"""Members of a list or an object within a result."""
MAX_DEPTH = 6
MAX_COUNT = 2**53
MAX_INTEGER = 2**63 - 1
"""Tests may record any, such as a hash; the JSON encoder takes no larger one."""
_HEADS: Mapping[str, Collection[Any]] = {
    "verdict": frozenset(verdict.value for verdict in Verdict),
    "explanation": frozenset((None, *(explanation.value for explanation in Explanation))),
    "outcome": frozenset(outcome.value for outcome in Outcome),
}


def is_text(value: object, longest: int = MAX_TEXT) -> bool:
    """Return whether a value is text that every database and every file can hold."""
    if not isinstance(value, str) or len(value) > longest or "\x00" in value:
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    if isinstance(value, float):
        return math.isfinite(value)
    return type(value) is int and abs(value) <= MAX_INTEGER


def is_count(value: object) -> bool:
    """Return whether a value is a whole number from 0 that JSON readers know exactly."""
    return type(value) is int and 0 <= value <= MAX_COUNT


def is_plain(value: object, depth: int = 0) -> bool:
    """Return whether a value is plain JSON of bounded size."""
    if value is None or isinstance(value, bool) or is_number(value) or is_text(value):
        return True
    if depth >= MAX_DEPTH:
        return False

    def below(item: object) -> bool:
        return is_plain(item, depth + 1)

    return _is_list(value, below) or _is_object(value, below)


def _is_list(value: object, fits: Fits) -> bool:
    return isinstance(value, list | tuple) and len(value) <= MAX_ITEMS and all(map(fits, value))


def _is_object(value: object, fits: Fits) -> bool:
    return (
        isinstance(value, Mapping)
        and len(value) <= MAX_ITEMS
        and all(is_text(name, MAX_NAME) for name in value)
        and all(map(fits, value.values()))
    )


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_name(value: object) -> bool:
    return is_text(value, MAX_NAME)


def _or_null(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _objects(fits: Fits) -> Fits:
    return lambda value: _is_object(value, fits)


def _one_of(name: str) -> Fits:
    return lambda value: isinstance(value, str | None) and value in _HEADS[name]


_KINDS: Mapping[Any, Fits] = {
    float: is_number,
    int: is_count,
    bool: _is_bool,
    str: is_text,
    list[str]: lambda value: _is_list(value, is_text),
    list[int]: lambda value: _is_list(value, is_count),
    dict[str, float | None]: _objects(_or_null(is_number)),
    dict[str, int | str]: _objects(lambda item: is_text(item, 40) or is_count(item)),
    dict[str, str]: _objects(lambda item: is_text(item, 40)),
}
"""How values are checked that seeds have by the thousand; those of other kinds, by their type."""


def check_values(output: str, name: str, values: Sequence[Any]) -> None:
    """Raise SenselessResult for a statistic with values that no judgment has, besides null."""
    fits = _fitting(name)
    for value in distinct(values):
        if value is not None and not fits(value):
            raise SenselessResult(f"{output[:40]!r}: {name[:40]!r} is {str(value)[:40]!r}")


def distinct(values: Sequence[Any]) -> Iterable[Any]:
    """Return a column's values with few repetitions: most seeds share most values."""
    if set(map(type, values)) <= {str, type(None)}:
        return dict.fromkeys(values)
    # by identity: 1, 1.0 and True are equal, and a list has no hash
    return dict(zip(map(id, values), values, strict=True)).values()


def _fitting(name: str) -> Fits:
    if name in _HEADS:
        return _one_of(name)
    row = statistics.STATISTICS.get(name)
    if row is None:
        return is_plain
    return _KINDS.get(row.kind) or (lambda value: is_plain(value) and statistics.fits(name, value))


def check_floats(output: str, fields: Iterable[tuple[str, str | None]]) -> None:
    """Raise SenselessResult for a statistic that comes as floats, and can't be one."""
    for name, key in fields:
        row = statistics.STATISTICS.get(name)
        number = float if key is None else dict[str, float | None]
        if name in _HEADS or (row is not None and row.kind != number):
            raise SenselessResult(f"{output[:40]!r}: {name[:40]!r} is a float")


def _are_statistics(value: object) -> bool:
    """Return whether a value has statistics of an output; those of a gauge's edges."""
    if not isinstance(value, Mapping) or not _is_object(value, is_plain):
        return False
    return all(item is None or _fitting(name)(item) for name, item in value.items())


def _is_failure(value: object) -> bool:
    if not isinstance(value, Mapping) or not _is_object(value, is_plain):
        return False
    return all(
        value.get(field) is None or fits(value[field])
        for field, fits in (
            ("expression", is_text),
            ("message", is_text),
            ("file", is_text),
            ("count", is_count),
            ("line", lambda line: is_count(line) or is_text(line)),
        )
    )


_ROW: Mapping[str, Fits] = {
    "seed": is_count,
    "repeat": is_count,
    "verdict": _one_of("verdict"),
    "explanation": _one_of("explanation"),
    "device": _or_null(_is_name),
    "host_run": _or_null(_is_name),
    "arithmetic": _or_null(is_text),
    "judge": _or_null(_is_name),
    # of a gauge's run
    "able": _or_null(_is_bool),
    "sentence": _or_null(is_text),
    "edges": _or_null(_objects(_are_statistics)),
    # its NUL and lone surrogates are replaced where it is stored
    "message": _or_null(lambda value: isinstance(value, str) and len(value) <= MAX_TEXT),
}
_REPORT: Mapping[str, Fits] = {
    "message": is_text,
    "stage": _is_name,
    "duration_ms": is_number,
    "failures": lambda value: _is_list(value, _is_failure),
    "measurements": _objects(_or_null(is_number)),
}


def check_test(name: str, test: Mapping[str, Any]) -> None:
    """Raise SenselessResult for the report of an existing test in a form that no executor sends."""
    if not is_text(name) or not _is_object(test, is_plain):
        raise SenselessResult(f"the report of {name[:40]!r}")
    for field, fits in _REPORT.items():
        value = test.get(field)
        if value is not None and not fits(value):
            raise SenselessResult(f"{name[:40]!r}: {field} is {str(value)[:40]!r}")
    if not all(_one_of(field)(test.get(field)) for field in ("outcome", "verdict")):
        raise SenselessResult(f"{name[:40]!r}: outcome {str(test.get('outcome'))[:40]!r}")


def check_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise SenselessResult for the fields of rows that no worker sends."""
    for field, fits in _ROW.items():
        for value in distinct([row.get(field) for row in rows]):
            if not fits(value):
                raise SenselessResult(f"{field} is {str(value)[:40]!r}")


def check_judged(output: str, verdicts: Sequence[Any], explanations: Sequence[Any]) -> None:
    """Raise SenselessResult for an output that was judged without an explanation.

    The verdicts and explanations are valid or null; whatever pools seeds needs both.
    """
    for verdict, explanation in dict.fromkeys(zip(verdicts, explanations, strict=True)):
        if verdict is None or (explanation is None and Verdict(verdict).judges_kernel):
            raise SenselessResult(f"{output[:40]!r}: {verdict} without an explanation")


def check_names(names: Iterable[object]) -> None:
    """Raise SenselessResult for names of outputs or statistics that are no text."""
    for name in names:
        if not is_text(name):
            raise SenselessResult(f"the name {str(name)[:40]!r}")
