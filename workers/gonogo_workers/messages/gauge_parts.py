"""The parts of a gauge that a chunk runs, read from its message.

The message has names only; this host knows what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from gonogo.errors import FieldError
from gonogo.gauge import kernels
from gonogo.gauge.kernels import Kind, Part
from gonogo.spec.builds import EMULATOR
from gonogo.spec.selections import AnyTest
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.validation import WHOLE
from gonogo_workers.messages.parts import MessagePart, Text

MAX_PARTS = 1000


class _Part(MessagePart):
    number: Annotated[int, Field(ge=0), WHOLE]
    name: Text
    kind: Kind = Field(strict=False)
    build: Text


class _Gauge(MessagePart):
    parts: list[_Part] = Field(min_length=1, max_length=MAX_PARTS)


Parts = Mapping[int, Part | None]
"""The parts by number; the work has [seed, number]. None: the test has no such part."""


def parse(value: object, test: AnyTest, executor: str) -> Parts | None:
    """Return the parts in a message: {"parts": [{"number", "name", "kind", "build"}]}.

    None for a chunk of a job. Raises FieldError.
    """
    if value is None:
        return None
    listed = _Gauge.parse(value, "gauge").parts
    if not isinstance(test, TestSpec):
        reason = "a selection has no parts"
        raise FieldError("gauge.parts", len(listed), reason, limit="a test of a kernel")
    if executor == EMULATOR:
        known = {part.name: part for part in (*kernels.right(test), *kernels.wrong(test))}
        return {part.number: known.get(part.name) for part in listed}
    return {part.number: kernels.foreign(test, executor, part.build, part.kind) for part in listed}
