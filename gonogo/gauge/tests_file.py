"""A file of many tests to gauge, as plain data.

The caller reads the YAML, JSON or TOML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    `test`. Raises FieldError.
    """
    whole: Mapping[str, Any] = (
        {"tests": data} if isinstance(data, list) else fields.mapping(data, "file")
    )
    fields.known(whole, ("defaults", "tests"), "file")
    defaults = dict(fields.mapping(whole.get("defaults") or {}, "defaults"))
    fields.known(defaults, NAMES[1:], "defaults")
    shared = fields.mapping(defaults.pop("test", None) or {}, "defaults.test")
    tests = whole.get("tests")
    if not isinstance(tests, list) or not 1 <= len(tests) <= MAX_TESTS:
        shown = len(tests) if isinstance(tests, list) else tests
        raise FieldError("tests", shown, "must be a list of tests", limit=f"1 to {MAX_TESTS} tests")
    entries = []
    for place, item in enumerate(tests):
        path = f"tests[{place}]"
        given = {**defaults, **fields.mapping(item, path)}
        fields.known(given, NAMES, path)
        test = {**shared, **fields.mapping(given.get("test") or {}, f"{path}.test")}
        spec = TestSpec.parse(test, max_elements=max_elements, path=f"{path}.test")
        entries.append(
            Entry(
                name=_text(
                    given.get("name", f"{spec.kernel} {'x'.join(map(str, spec.shape))}"),
                    f"{path}.name",
                ),
                test=spec,
                seeds=fields.integer(
                    given.get("seeds", seeds), f"{path}.seeds", least=1, most=1000
                ),
                seed_start=fields.integer(
                    given.get("seed_start", 0), f"{path}.seed_start", least=0, most=2**53 - 1001
                ),
                executor=_text(given.get("executor", EMULATOR), f"{path}.executor"),
                builds=_names(given.get("builds"), f"{path}.builds"),
                wrong_builds=_names(given.get("wrong_builds"), f"{path}.wrong_builds"),
                gates=_gates(given.get("gates"), f"{path}.gates"),
            )
        )
    names = [entry.name for entry in entries]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FieldError("tests", twice[0], "is the name of two tests")
    return entries


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
