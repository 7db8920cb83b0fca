"""The parts of a gauge that a chunk runs, read from its message.

The message has names only; this host knows what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gonogo.errors import FieldError
from gonogo.gauge import kernels
from gonogo.gauge.kernels import Kind, Part
from gonogo.spec import fields
from gonogo.spec.builds import EMULATOR
from gonogo.spec.selections import AnyTest
from gonogo.spec.test_spec import TestSpec

MAX_PARTS = 1000


@dataclass(frozen=True)
class GaugePart:
    """One part, and whether its runs also measure what a right kernel may need.

    Measuring that (`edges`) once for each budget is enough.
    """

    part: Part
    edges: bool


Parts = Mapping[int, GaugePart | None]
"""The parts by number; the work has [seed, number]. None: the test has no such part."""


def parse(value: object, test: AnyTest, executor: str) -> Parts | None:
    """Return the parts in a message: {"parts": [{"number", "name", "kind", "build"}]}.

    None for a chunk of a job. Raises FieldError.
    """
    if value is None:
        return None
    given = fields.mapping(value, "gauge")
    listed = given.get("parts")
    if (
        not isinstance(test, TestSpec)
        or not isinstance(listed, list)
        or not 0 < len(listed) <= MAX_PARTS
    ):
        raise FieldError(
            "gauge.parts",
            listed,
            "must be a list of parts, of a test of a kernel",
            limit=f"1 to {MAX_PARTS}",
        )
    known = _emulated(test) if executor == EMULATOR else {}
    parts: dict[int, GaugePart | None] = {}
    for place, item in enumerate(listed):
        path = f"gauge.parts.{place}"
        entry = fields.mapping(item, path)
        number = fields.integer(entry.get("number"), f"{path}.number", least=0)
        if executor == EMULATOR:
            parts[number] = known.get(str(entry.get("name")))
        else:
            kind = Kind(
                fields.choice(entry.get("kind"), tuple(kind.value for kind in Kind), f"{path}.kind")
            )
            parts[number] = GaugePart(
                kernels.foreign(test, executor, str(entry.get("build")), kind), kind is Kind.go
            )
    return parts


def _emulated(test: TestSpec) -> dict[str, GaugePart]:
    parts: dict[str, GaugePart] = {}
    budgets: set[str] = set()
    for part in kernels.right(test):
        parts[part.name] = GaugePart(part, part.judged.key not in budgets)
        budgets.add(part.judged.key)
    return parts | {part.name: GaugePart(part, False) for part in kernels.wrong(test)}
