"""The parts of a gauge that a chunk runs, read from its message: names only, what they do is known here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gonogo import fields
from gonogo.builds import EMULATOR
from gonogo.gauge import kernels
from gonogo.gauge.kernels import Kind, Part
from gonogo.problems import FieldError
from gonogo.selections import Subject
from gonogo.tests import TestSpec

MOST_PARTS = 1000


@dataclass(frozen=True)
class GaugePart:
    """One part, and whether its runs also say what a right kernel may need."""

    part: Part
    edges: bool


Parts = Mapping[int, GaugePart]
"""By the number that stands in the work where a job has its repeat: [seed, number]."""


def parse(value: object, test: Subject, executor: str) -> Parts | None:
    """{"parts": [{"number", "name", "kind", "build", "edges"}]} of a message; None for a chunk of a job. Raises FieldError for a part
    that this version doesn't know."""
    if value is None:
        return None
    given = fields.mapping(value, "gauge")
    listed = given.get("parts")
    if not isinstance(test, TestSpec) or not isinstance(listed, list) or not 0 < len(listed) <= MOST_PARTS:
        raise FieldError("gauge.parts", listed, "must be a list of parts, of a test of a kernel", limit=f"1 to {MOST_PARTS}")
    found: dict[int, GaugePart] = {}
    for place, each in enumerate(listed):
        path = f"gauge.parts.{place}"
        entry = fields.mapping(each, path)
        number = fields.integer(entry.get("number"), f"{path}.number", least=0)
        found[number] = GaugePart(_part(entry, test, executor, path), bool(entry.get("edges")))
    return found


def _part(entry: Mapping[str, object], test: TestSpec, executor: str, path: str) -> Part:
    name = entry.get("name")
    if executor != EMULATOR:
        kind = fields.choice(entry.get("kind"), tuple(each.value for each in Kind), f"{path}.kind")
        return kernels.foreign(test, executor, str(entry.get("build")), Kind(kind))
    part = kernels.named(test, str(name))
    if part is None:
        raise FieldError(f"{path}.name", name, f"this worker's emulator has no such part for {test.kernel}")
    return part
