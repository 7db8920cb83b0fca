"""A file of many tests to gauge, as plain data.

The caller reads the YAML, JSON or TOML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.gauge import gates
from gonogo.spec.builds import EMULATOR
from gonogo.spec.test_spec import MAX_ELEMENTS, TestSpec
from gonogo.spec.validation import NOT_BLANK, WHOLE, Model, checked, in_words

MAX_TESTS = 1000


def _gates(names: tuple[str, ...]) -> tuple[str, ...]:
    gates.named(names, "")
    return names


_Name = Annotated[
    str,
    Field(min_length=1, max_length=200, json_schema_extra=in_words("1 to 200 characters")),
    NOT_BLANK,
]


def _names(of: str) -> Any:
    return Field(strict=False, json_schema_extra=in_words(f"names of {of}"))


_Builds = Annotated[tuple[_Name, ...], _names("builds")]


class _Options(Model):
    """The fields that an entry may leave to the defaults."""

    misspelled_first: ClassVar[bool] = True

    seeds: Annotated[int, Field(ge=1, le=1000), WHOLE] = 1
    seed_start: Annotated[int, Field(ge=0, le=2**53 - 1001), WHOLE] = 0
    executor: _Name = EMULATOR
    builds: _Builds | None = None
    wrong_builds: _Builds | None = None
    gates: Annotated[tuple[_Name, ...], _names("gates"), checked(_gates)] | None = None

    def given(self) -> dict[str, Any]:
        """Return the fields that are there, by name."""
        values = {name: getattr(self, name) for name in _Options.model_fields}
        return {
            name: value
            for name, value in values.items()
            if name in self.model_fields_set and value is not None
        }


class _Defaults(_Options):
    test: dict[str, Any] | None = None


class _Entry(_Options):
    name: _Name = ""
    test: TestSpec


class _Tests(Model):
    tests: Annotated[
        list[Any], Field(min_length=1, max_length=MAX_TESTS, json_schema_extra={"x-unit": "tests"})
    ]


@dataclass(frozen=True)
class Entry:
    """One test to gauge, its seeds, and the builds to use besides the emulator's.

    `builds` are right and `wrong_builds` are mutants. `gates` names the public gates to apply;
    empty: all.
    """

    name: str
    test: TestSpec
    seeds: int
    seed_start: int = 0
    executor: str = EMULATOR
    builds: tuple[str, ...] = ()
    wrong_builds: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()


def parse(data: object, *, seeds: int, max_elements: int = MAX_ELEMENTS) -> list[Entry]:
    """Parse {"defaults": {...}, "tests": [{"name", "test": {...}, ...}]}, or the list alone.

    `defaults` holds any key of an entry except its name; each entry's `test` is merged over its
    `test`. Raises FieldError, or FieldErrors with all problems of all tests.
    """
    problems = fields.Problems()
    whole: Mapping[str, Any] = (
        {"tests": data} if isinstance(data, list) else fields.mapping(data, "file")
    )
    for name in whole:
        with problems.collecting():
            fields.known({name: whole[name]}, ("defaults", "tests"), "file")
    given = fields.mapping(whole.get("defaults") or {}, "defaults")
    defaults: dict[str, Any] = {}
    with problems.collecting():
        defaults = _Defaults.parse(given, "defaults").given()
    shared = given.get("test")
    shared = shared if isinstance(shared, Mapping) else {}
    tests: list[Any] = []
    with problems.collecting():
        tests = _Tests.parse({"tests": whole.get("tests")}).tests
    entries = []
    for place, item in enumerate(tests):
        with problems.collecting():
            path = f"tests[{place}]"
            entry = _entry(fields.mapping(item, path), shared, path, max_elements)
            name = entry.name or f"{entry.test.kernel} {'x'.join(map(str, entry.test.shape))}"
            values = {"seeds": seeds, **defaults, **entry.given()}
            entries.append(Entry(name=name, test=entry.test, **values))
    names = [entry.name for entry in entries]
    for name in dict.fromkeys(names):
        with problems.collecting():
            if names.count(name) > 1:
                raise FieldError("tests", name, "is the name of two tests")
    problems.check()
    return entries


def _entry(
    given: Mapping[str, Any], shared: Mapping[str, Any], path: str, max_elements: int
) -> _Entry:
    """Parse one entry of the file. Raises FieldErrors with all that is wrong with it."""
    test = given.get("test") or {}
    test = {**shared, **test} if isinstance(test, Mapping) else test
    entry = _Entry.parse({**given, "test": test}, path)
    entry.test.check_elements(max_elements, f"{path}.test")
    return entry
