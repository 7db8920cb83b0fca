"""The filters that the lists with saved views take, and the values of those that have a choice."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gonogo.errors import FieldError
from gonogo.spec.fields import did_you_mean
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import ranges
from gonogo_storage.catalogue import test_list
from gonogo_storage.comparison.matrices import GRADES
from gonogo_storage.db.states import FlagKind, JobState
from gonogo_storage.flags import triage

Choices = Collection[str] | None
"""The values of a filter; None: any text."""
DEVICE_RANGES = ("1d", "7d", "30d")
"""The time ranges of the list of devices."""
_NUMBER: Sequence[str] = ("1 to 5 digits",)
"""Stands for the values of a filter that is a number."""

TESTS: Mapping[str, Choices] = {
    "kernel": None,
    "search": None,
    "standing": test_list.STANDINGS,
    "sort": test_list.SORTS,
    ranges.PARAMETER: tuple(ranges.RANGES),
}
JOBS: Mapping[str, Choices] = {
    "state": tuple(state.value for state in JobState),
    "verdict": tuple(verdict.value for verdict in Verdict),
    "build": None,
    "test": None,
    "label": None,
    "owner": None,
}
FLAGS: Mapping[str, Choices] = {
    "kind": tuple(kind.value for kind in FlagKind),
    "state": tuple(triage.STATES),
    "test": None,
    "owner": None,
    "build": None,
    "job": None,
}
MATRIX: Mapping[str, Choices] = {
    "branch": None,
    "arch": None,
    "board": None,
    "kernel": None,
    "verdict": tuple(verdict.value for verdict in Verdict),
    "label": None,
    "suite": None,
    "grade": GRADES,
    "until": None,
}
LISTS: Mapping[str, Mapping[str, Choices]] = {
    "devices": {ranges.PARAMETER: DEVICE_RANGES},
    "flags": {**FLAGS, "limit": _NUMBER},
    "jobs": {**JOBS, ranges.PARAMETER: tuple(ranges.RANGES), "limit": _NUMBER},
    "matrix": {**MATRIX, "builds": _NUMBER, "limit": _NUMBER},
    "tests": {**TESTS, "limit": _NUMBER},
}
"""The list that a view is of -> all that its address may name."""


def accepted(page: str, filters: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the filters of an address that the list takes; it ignores the others."""
    return [pair for pair in filters if _problem(page, *pair) is None]


def check(page: str, filters: Sequence[tuple[str, str]]) -> None:
    """Raise FieldError for the first filter that the list would ignore, or that is there twice."""
    seen: set[str] = set()
    for name, value in filters:
        problem = _problem(page, name, value)
        if problem is None and name in seen:
            problem = FieldError("query", f"{name}={value}", f"names {name} twice", limit="once")
        if problem is not None:
            raise problem
        seen.add(name)


def _problem(page: str, name: str, value: str) -> FieldError | None:
    given = f"{name}={value}"
    if name not in LISTS[page]:
        reason = f"the page {page} has no filter {name!r}" + did_you_mean(name, LISTS[page])
        return FieldError("query", given, reason, limit="one of " + ", ".join(LISTS[page]))
    choices = LISTS[page][name]
    if choices is None:
        return None
    if choices is _NUMBER:
        fits = value.isascii() and value.isdigit() and len(value) <= 5
    else:
        fits = value in choices
    if fits:
        return None
    reason = f"unknown value of {name}" + did_you_mean(value, choices)
    return FieldError("query", given, reason, limit="one of " + ", ".join(choices))
