"""All that is wrong with a suite at once: its form, and the tests of a suite of a wrong form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec.validation import MAX_ERRORS
from gonogo_service.suites.submission import checked_tests

Location = Sequence[int | str]
_MISSING = "is required"
_ROOT = ("entries", "defaults")


def beside(content: Mapping[str, Any], locations: Sequence[Location]) -> list[FieldError]:
    """Return what is wrong with a suite's tests, beside what is wrong at these places of its form.

    The fields there are left out before the tests are checked, because each test repeats the
    defaults' fields. What a test then lacks is no problem of its own.
    """
    locations = locations[:MAX_ERRORS]
    rest: Any = content
    for location in locations:
        rest = _without(rest, location)
    places = [tuple(map(str, location)) for location in locations]
    owners = {place[:2] if place[:1] == ("entries",) else place[:1] for place in places}
    more = []
    for problem in checked_tests(rest, None)[1]:
        path = tuple(problem.field.split("."))
        has_lost = path[:2] in owners or ("defaults",) in owners
        is_told = any(path[: len(place)] == place or place[: len(path)] == path for place in places)
        # "?" stands in the name of a test for a field that was left out
        unnamed = isinstance(problem.value, str) and "?" in problem.value
        follows = unnamed or problem.reason.startswith(_MISSING)
        if not is_told and not (has_lost and follows):
            more.append(problem)
    return more


def _without(value: Any, location: Location) -> Any:
    """Return a copy of a document without the field at a place, or without the field around it.

    A place has names in it that the document lacks: those of a union's members. Entries keep their
    numbers.
    """
    if not location:
        return value
    first, rest = location[0], location[1:]
    if isinstance(value, Mapping):
        if first not in value:
            return _without(value, rest)
        changed = dict(value)
        if rest and isinstance(value[first], Mapping | list):
            changed[first] = _without(value[first], rest)
            if first not in _ROOT and changed[first] == value[first]:
                del changed[first]
        elif first not in _ROOT:
            del changed[first]
        return changed
    if isinstance(value, list) and isinstance(first, int) and first < len(value):
        return [*value[:first], _without(value[first], rest), *value[first + 1 :]]
    return value
