"""A file of many tests to gauge: a suite (gonogo.spec.suites) whose entries have a gauge's options.

The caller reads the YAML, JSON or TOML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from gonogo import fields
from gonogo.errors import FieldErrors
from gonogo.gauge import gates
from gonogo.spec import suites
from gonogo.spec.builds import EMULATOR
from gonogo.spec.test_spec import MAX_ELEMENTS, TestSpec
from gonogo.spec.validation import NOT_BLANK, WHOLE, Model, checked, in_words


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


class Entry(Model):
    """One test to gauge, its seeds, and the builds to use besides the emulator's."""

    misspelled_first: ClassVar[bool] = True

    name: _Name
    test: TestSpec
    seeds: Annotated[int, Field(ge=1, le=1000), WHOLE]
    seed_start: Annotated[int, Field(ge=0, le=2**53 - 1001), WHOLE] = 0
    executor: _Name = EMULATOR
    builds: _Builds = ()
    """Right builds, besides the emulator's."""
    wrong_builds: _Builds = ()
    """Mutants, besides the emulator's."""
    gates: Annotated[tuple[_Name, ...], _names("gates"), checked(_gates), _NONE] = ()
    """The public gates to apply; empty: all."""


def parse(data: object, *, seeds: int, max_elements: int = MAX_ELEMENTS) -> list[Entry]:
    """Parse {"defaults": {...}, "entries": [{"name", "test": {...}, ...}]}, or the entries alone.

    Raises FieldError, or FieldErrors with all problems of all tests.
    """
    problems = fields.Problems()
    is_list = isinstance(data, list)
    content: Mapping[str, Any] = {"entries": data} if is_list else fields.mapping(data, "file")
    for name in content:
        with problems.collecting():
            fields.known({name: content[name]}, ("defaults", "entries"), "file")
    templates, wrong = suites.attempt(content)
    entries = []
    for template in templates:
        with problems.collecting():
            given = {"seeds": seeds, **template.body, "name": template.name}
            entries.append(Entry.parse(given, template.place))
            entries[-1].test.check_elements(max_elements, f"{template.place}.test")
    with problems.collecting():
        if wrong:
            raise FieldErrors(wrong)
    problems.check()
    return entries
