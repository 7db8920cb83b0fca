"""A file of many tests to gauge, as plain data.

The caller reads the YAML, JSON or TOML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

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


_NONE = BeforeValidator(lambda value: () if value is None else value)
_Builds = Annotated[tuple[_Name, ...], _names("builds"), _NONE]


class _Options(Model):
    """The fields that an entry may leave to the defaults."""

    misspelled_first: ClassVar[bool] = True

    seeds: Annotated[int, Field(ge=1, le=1000), WHOLE] = 1
    seed_start: Annotated[int, Field(ge=0, le=2**53 - 1001), WHOLE] = 0
    executor: _Name = EMULATOR
    builds: _Builds = ()
    """Right builds, besides the emulator's."""
    wrong_builds: _Builds = ()
    """Mutants, besides the emulator's."""
    gates: Annotated[tuple[_Name, ...], _names("gates"), checked(_gates), _NONE] = ()
    """The public gates to apply; empty: all."""


class _Defaults(_Options):
    test: dict[str, Any] | None = None


class Entry(_Options):
    """One test to gauge, its seeds, and the builds to use besides the emulator's."""

    name: _Name = ""
    test: TestSpec


class _Tests(Model):
    tests: Annotated[
        list[Any], Field(min_length=1, max_length=MAX_TESTS, json_schema_extra={"x-unit": "tests"})
    ]


def parse(data: object, *, seeds: int, max_elements: int = MAX_ELEMENTS) -> list[Entry]:
    """Parse {"defaults": {...}, "tests": [{"name", "test": {...}, ...}]}, or the list alone.

    `defaults` holds any key of an entry except its name; each entry's `test` is merged over its
    `test`. Raises FieldError, or FieldErrors with all problems of all tests.
    """
    problems = fields.Problems()
    is_list = isinstance(data, list)
    whole: Mapping[str, Any] = {"tests": data} if is_list else fields.mapping(data, "file")
    for name in whole:
        with problems.collecting():
            fields.known({name: whole[name]}, ("defaults", "tests"), "file")
    given = fields.mapping(whole.get("defaults") or {}, "defaults")
    shared: dict[str, Any] = {"seeds": seeds}
    with problems.collecting():
        _Defaults.parse(given, "defaults")
        shared |= _present(given)
    tests: list[Any] = []
    with problems.collecting():
        tests = _Tests.parse({"tests": whole.get("tests")}).tests
    entries = []
    for place, item in enumerate(tests):
        with problems.collecting():
            path = f"tests[{place}]"
            entries.append(_entry(fields.mapping(item, path), shared, path, max_elements))
    names = [entry.name for entry in entries]
    for name in dict.fromkeys(names):
        with problems.collecting():
            if names.count(name) > 1:
                raise FieldError("tests", name, "is the name of two tests")
    problems.check()
    return entries


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields but for lists that are null, which stand for the default."""
    lists = ("builds", "wrong_builds", "gates")
    return {key: value for key, value in given.items() if value is not None or key not in lists}


def _entry(
    given: Mapping[str, Any], shared: Mapping[str, Any], path: str, max_elements: int
) -> Entry:
    """Parse one entry of the file. Raises FieldErrors with all that is wrong with it."""
    test, default = given.get("test") or {}, shared.get("test")
    if isinstance(test, Mapping) and isinstance(default, Mapping):
        test = {**default, **test}
    entry = Entry.parse({**shared, **_present(given), "test": test}, path)
    entry.test.check_elements(max_elements, f"{path}.test")
    name = f"{entry.test.kernel} {'x'.join(map(str, entry.test.shape))}"
    return entry if entry.name else entry.replace(name=name)
