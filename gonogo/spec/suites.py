"""Suites: named lists of job templates as plain data; expanded to what the jobs of a run ask for,
build, labels and commit apart.

Not to be confused with the `suite` of a selection, which names tests inside a gtest program or a
pytest tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec import fields
from gonogo.spec.selections import is_selection

MAX_TESTS = 500
"""Tests of a suite, its matrices expanded."""
MAX_NAME = 200
MATRIX = ("shape", "numerics")
_MERGED = ("test", "target")
"""Objects of an entry that are merged with those of the defaults, member by member; everything else
replaces."""


@dataclass(frozen=True)
class Template:
    """One test of a suite: its name, the job's body without build, labels and commit, and where in
    the suite it was written.
    """

    name: str
    body: dict[str, Any]
    place: str
    moved: Mapping[str, str] = field(default_factory=dict)
    """Fields of the body that a matrix gave -> where in the entry they stand."""

    def where(self, path: str) -> str:
        """The path in the suite of a field of the body: "test.shape" is "entries.3.test.shape", or
        that of the matrix's member.
        """
        for name, place in self.moved.items():
            if path == name or path.startswith(name + "."):
                return fields.join(self.place, place + path[len(name) :])
        return fields.join(self.place, path)


def expand(content: Mapping[str, Any], path: str = "") -> list[Template]:
    """Every test of a suite, in order. Raises FieldError for no entry or too many tests, and for a
    name that is there twice.

    content: {"defaults": {...}, "entries": [{"name", "test", ..., "matrix": {"shape": [...],
    "numerics": [...]}}]}. An entry's `test` and `target` are merged below with those of the
    defaults, member by member; of a matrix each combination is a test, its shape in the place of
    the entry's, its numerics merged into the entry's. The bodies are not checked here.
    """
    defaults = fields.mapping(content.get("defaults") or {}, fields.join(path, "defaults"))
    entries = content.get("entries")
    where = fields.join(path, "entries")
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise FieldError(where, entries, "must be a list of tests", limit=f"1 to {MAX_TESTS} tests")
    found: list[Template] = []
    names: set[str] = set()
    for number, entry in enumerate(entries):
        place = f"{where}.{number}"
        for template in _entry(merged(defaults, fields.mapping(entry, place)), place):
            if len(template.name) > MAX_NAME:
                raise FieldError(
                    f"{place}.name", template.name, "is too long", limit=f"{MAX_NAME} characters"
                )
            if template.name in names:
                raise FieldError(
                    f"{place}.name",
                    template.name,
                    "is the name of two tests",
                    limit="distinct names",
                )
            names.add(template.name)
            found.append(template)
            if len(found) > MAX_TESTS:
                raise FieldError(
                    where,
                    len(entries),
                    "makes too many tests",
                    limit=f"{MAX_TESTS} tests, matrices expanded",
                )
    return found


def merged(defaults: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry over the defaults. A selection and the test of a kernel have nothing in common: the
    one replaces the other.
    """
    result = {**defaults, **entry}
    for name in _MERGED:
        below, own = defaults.get(name), entry.get(name)
        if (
            isinstance(below, Mapping)
            and isinstance(own, Mapping)
            and is_selection(below) == is_selection(own)
        ):
            result[name] = {**below, **own}
    return result


def _entry(entry: dict[str, Any], place: str) -> Iterator[Template]:
    matrix = fields.mapping(entry.pop("matrix", None) or {}, f"{place}.matrix")
    fields.known(matrix, MATRIX, f"{place}.matrix")
    given = entry.pop("name", None)
    axes = [name for name in MATRIX if name in matrix]
    for name in axes:
        if (
            not isinstance(matrix[name], Sequence)
            or isinstance(matrix[name], str)
            or not matrix[name]
        ):
            raise FieldError(
                f"{place}.matrix.{name}", matrix[name], "must be a list that isn't empty"
            )
    test = fields.mapping(entry.get("test") or {}, f"{place}.test")
    if axes and is_selection(test):
        raise FieldError(
            f"{place}.matrix",
            dict(matrix),
            "tests that exist already have neither shape nor numerics",
            limit="no matrix",
        )
    for chosen in product(*(range(len(matrix[name])) for name in axes)):
        mine, moved, said = dict(test), {}, []
        for name, index in zip(axes, chosen, strict=True):
            value = matrix[name][index]
            if name == "numerics":
                own = fields.mapping(value, f"{place}.matrix.numerics.{index}")
                said.append(" ".join(f"{key}={_short(each)}" for key, each in own.items()))
                value = {
                    **fields.mapping(mine.get("numerics") or {}, f"{place}.test.numerics"),
                    **own,
                }
            else:
                said.append(_short(value))
            mine[name] = value
            moved[f"test.{name}"] = f"matrix.{name}.{index}"
        name = (
            " ".join(filter(None, (given, *said)))
            if given
            else _named(mine, said[1:] if "shape" in axes else said)
        )
        yield Template(name, {**entry, "test": mine} if mine else entry, place, moved)


def _named(test: Mapping[str, Any], said: Sequence[str]) -> str:
    """The name of a test that has none: "layernorm_bw 3x273x1x8462", or which tests it selects."""
    if is_selection(test):
        inner = test["selection"]
        return (
            " ".join(str(inner[name]) for name in ("suite", "filter") if inner.get(name))
            or "all tests"
            if inner
            else "all tests"
        )
    return " ".join(
        filter(None, (str(test.get("kernel", "?")), _short(test.get("shape", "?")), *said))
    )


def _short(value: object) -> str:
    """A value in a name: a shape as 32x64."""
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
