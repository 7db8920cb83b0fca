"""Suites: named lists of job templates, as plain data, and their expansion to tests.

The expanded bodies lack build, labels and commit, which each run adds. The `suite` of a selection
is another thing: it names tests inside a gtest program or a pytest tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, TypeGuard

from gonogo import fields
from gonogo.errors import FieldError, FieldErrors
from gonogo.spec.selections import is_selection

MAX_TESTS = 500
"""Tests of a suite, after the expansion of its matrices."""
MAX_NAME = 200
MATRIX = ("shape", "numerics")
_MERGED = ("test", "target")
"""Objects of an entry that are merged with those of the defaults, member by member; all other
fields replace the default."""


@dataclass(frozen=True)
class Template:
    """One test of a suite.

    It has its name, the job's body without build, labels and commit, and its place in the suite.
    """

    name: str
    body: dict[str, Any]
    place: str
    moved: Mapping[str, str] = field(default_factory=dict)
    """Fields of the body that come from a matrix -> their place in the entry."""

    def where(self, path: str) -> str:
        """Return the path in the suite of a field of the body.

        "test.shape" becomes "entries.3.test.shape", or the path of the matrix's member.
        """
        for name, place in self.moved.items():
            if path == name or path.startswith(name + "."):
                return fields.join(self.place, place + path[len(name) :])
        return fields.join(self.place, path)


def expand(content: Mapping[str, Any], path: str = "") -> list[Template]:
    """Return every test of a suite, in order.

    content: {"defaults": {...}, "entries": [{"name", "test", ..., "matrix": {"shape": [...],
    "numerics": [...]}}]}. An entry's `test` and `target` are merged with those of the defaults,
    member by member. Each combination of a matrix is a test: its shape replaces the entry's, its
    numerics are merged into the entry's. The bodies are not checked here. Raises FieldErrors if
    there is no entry, for too many tests, for duplicate names, and for entries that can't be read.
    """
    templates, problems = attempt(content, path)
    if problems:
        raise FieldErrors(problems)
    return templates


def attempt(content: Mapping[str, Any], path: str = "") -> tuple[list[Template], list[FieldError]]:
    """Return the tests of a suite as `expand` does, and what is wrong with it."""
    templates: list[Template] = []
    problems: list[FieldError] = []
    try:
        _expand(content, path, templates, problems)
    except FieldError as problem:  # one that says nothing about the other entries
        problems.append(problem)
    return templates, problems


def _expand(
    content: Mapping[str, Any], path: str, templates: list[Template], problems: list[FieldError]
) -> None:
    defaults = fields.mapping(content.get("defaults") or {}, fields.join(path, "defaults"))
    entries = content.get("entries")
    where = fields.join(path, "entries")
    if not _is_list(entries):
        raise FieldError(where, entries, "must be a list of tests", limit=f"1 to {MAX_TESTS} tests")
    names: set[str] = set()
    for number, entry in enumerate(entries):
        place = f"{where}.{number}"
        try:
            expanded = list(_entry(merged(defaults, fields.mapping(entry, place)), place))
        except FieldError as problem:
            problems.append(problem)
            continue
        for template in expanded:
            name, refusal = template.name, None
            if len(name) > MAX_NAME:
                refusal = "is too long", f"{MAX_NAME} characters"
            elif name in names:
                refusal = "is the name of two tests", "distinct names"
            if refusal is not None:
                problems.append(FieldError(f"{place}.name", name, refusal[0], limit=refusal[1]))
            names.add(name)
            templates.append(template)
            if len(templates) > MAX_TESTS:
                limit = f"{MAX_TESTS} tests, matrices expanded"
                raise FieldError(where, len(entries), "makes too many tests", limit=limit)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a list that isn't empty."""
    return isinstance(value, Sequence) and not isinstance(value, str) and bool(value)


def count_tests(content: Mapping[str, Any]) -> int:
    """Return how many tests a checked suite has: each combination of a matrix is one."""
    return sum(
        prod(len(axis) for axis in (entry.get("matrix") or {}).values() if axis)
        for entry in content["entries"]
    )


def merged(defaults: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry merged over the defaults.

    A selection and the test of a kernel have nothing in common: one replaces the other.
    """
    result = {**defaults, **entry}
    for name in _MERGED:
        default, override = defaults.get(name), entry.get(name)
        alike = is_selection(default) == is_selection(override)
        if alike and isinstance(default, Mapping) and isinstance(override, Mapping):
            result[name] = {**default, **override}
    return result


def _entry(entry: dict[str, Any], place: str) -> Iterator[Template]:
    matrix = fields.mapping(entry.pop("matrix", None) or {}, f"{place}.matrix")
    fields.known(matrix, MATRIX, f"{place}.matrix")
    given = entry.pop("name", None)
    if given is not None and not isinstance(given, str):
        raise FieldError(f"{place}.name", given, "must be text")
    axes = [name for name in MATRIX if name in matrix]
    for name in axes:
        if not _is_list(matrix[name]):
            reason = "must be a list that isn't empty"
            raise FieldError(f"{place}.matrix.{name}", matrix[name], reason)
    test = fields.mapping(entry.get("test") or {}, f"{place}.test")
    if axes and is_selection(test):
        reason = "a selection has neither shape nor numerics"
        raise FieldError(f"{place}.matrix", dict(matrix), reason, limit="no matrix")
    numerics = fields.mapping(test.get("numerics") or {}, f"{place}.test.numerics")
    for chosen in product(*(range(len(matrix[name])) for name in axes)):
        of_test, moved, parts = dict(test), {}, []
        for name, index in zip(axes, chosen, strict=True):
            value: Any = matrix[name][index]
            of_test[name] = value
            moved[f"test.{name}"] = f"matrix.{name}.{index}"
            if name == "numerics":
                members = fields.mapping(value, f"{place}.matrix.numerics.{index}")
                of_test[name] = {**numerics, **members}
                parts.append(" ".join(f"{key}={_short(item)}" for key, item in members.items()))
            elif given:
                parts.append(_short(value))
        name = " ".join(filter(None, (given or _named(of_test), *parts)))
        yield Template(name, {**entry, "test": of_test} if of_test else entry, place, moved)


def _named(test: Mapping[str, Any]) -> str:
    """Return the name of a test without one: its kernel and shape, or the tests it selects."""
    if not is_selection(test):
        return f"{test.get('kernel', '?')} {_short(test.get('shape', '?'))}"
    inner = test["selection"] if isinstance(test["selection"], Mapping) else {}
    named = [str(inner[name]) for name in ("suite", "filter") if inner.get(name)]
    return " ".join(named) or "all tests"


def _short(value: object) -> str:
    """Return a value for use in a name: a shape as 32x64."""
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
