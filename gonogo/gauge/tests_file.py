"""A file of many tests to gauge, as plain data.

The caller reads the YAML, JSON or TOML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gonogo.errors import FieldError
from gonogo.gauge import gates
from gonogo.spec import fields
from gonogo.spec.builds import EMULATOR
from gonogo.spec.test_spec import MAX_ELEMENTS, TestSpec

MAX_TESTS = 1000
NAMES = ("name", "test", "seeds", "seed_start", "executor", "builds", "wrong_builds", "gates")


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
    defaults: dict[str, Any] = {}
    for name, value in fields.mapping(whole.get("defaults") or {}, "defaults").items():
        with problems.collecting():
            fields.known({name: value}, NAMES[1:], "defaults")
            if name in _READ:
                _READ[name](value, f"defaults.{name}")
            defaults[name] = value
    shared: Mapping[str, Any] = {}
    with problems.collecting():
        shared = fields.mapping(defaults.pop("test", None) or {}, "defaults.test")
    tests: list[Any] = []
    with problems.collecting():
        tests = _tests(whole.get("tests"))
    entries = []
    for place, item in enumerate(tests):
        with problems.collecting():
            entries.append(
                _entry(
                    {**defaults, **fields.mapping(item, f"tests[{place}]")},
                    shared,
                    place,
                    seeds,
                    max_elements,
                )
            )
    names = [entry.name for entry in entries]
    for name in dict.fromkeys(names):
        with problems.collecting():
            if names.count(name) > 1:
                raise FieldError("tests", name, "is the name of two tests")
    problems.check()
    return entries


def _tests(value: object) -> list[Any]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_TESTS:
        shown = len(value) if isinstance(value, list) else value
        raise FieldError("tests", shown, "must be a list of tests", limit=f"1 to {MAX_TESTS} tests")
    return value


def _entry(
    given: Mapping[str, Any], shared: Mapping[str, Any], place: int, seeds: int, max_elements: int
) -> Entry:
    """Parse one entry of the file. Raises FieldErrors with all that is wrong with it."""
    path = f"tests[{place}]"
    problems, parsed = fields.Problems(), dict[str, Any]()
    for name in given:
        with problems.collecting():
            fields.known({name: given[name]}, NAMES, path)
    with problems.collecting():
        test = {**shared, **fields.mapping(given.get("test") or {}, f"{path}.test")}
        parsed["test"] = TestSpec.parse(test, max_elements=max_elements, path=f"{path}.test")
    for name, read in _READ.items():
        if name in given or name == "seeds":
            with problems.collecting():
                parsed[name] = read(given.get(name, seeds), f"{path}.{name}")
    problems.check()
    spec = parsed["test"]
    return Entry(**{"name": f"{spec.kernel} {'x'.join(map(str, spec.shape))}", **parsed})


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 200:
        raise FieldError(path, value, "must be text", limit="1 to 200 characters")
    return value


def _gates(value: object, path: str) -> tuple[str, ...]:
    names = _names(value, path, of="gates")
    gates.named(names, path)
    return names


def _names(value: object, path: str, of: str = "builds") -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise FieldError(path, value, f"must be a list of names of {of}")
    return tuple(_text(name, path) for name in value)


_READ: Mapping[str, Callable[[object, str], Any]] = {
    "name": _text,
    "seeds": partial(fields.integer, least=1, most=1000),
    "seed_start": partial(fields.integer, least=0, most=2**53 - 1001),
    "executor": _text,
    "builds": _names,
    "wrong_builds": _names,
    "gates": _gates,
}
"""Field of an entry, but for its test -> what reads it; a value and its path are given."""
