"""One chunk as its message describes it, read from untrusted JSON.

It holds the test, the seeds, the build's name and the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from gonogo.errors import FieldError
from gonogo.gauge import kernels
from gonogo.gauge.kernels import Kind, Part
from gonogo.judging.inputs import MAX_SEED
from gonogo.judging.pairs import Reference
from gonogo.spec.builds import EMULATOR
from gonogo.spec.selections import AnyTest, SelectionTest, TestBody
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.validation import OBJECT, VALUE, WHOLE, Model, ObjectOrValue, in_words

ISOLATED: Final = "isolated"
MAX_BEFORE = 64
MAX_WORK = 1_000_000
MAX_EVIDENCE = 16
"""The worst seeds of one attempt that may get artifacts: each costs about a second of host work."""

MAX_PARTS = 1000

Work = tuple[int, int]
"""(seed, repeat)"""
Parts = Mapping[int, Part | None]
"""A gauge's parts by number; the work has [seed, number]. None: the test has no such part."""
Text = Annotated[str, Field(min_length=1, json_schema_extra=in_words("text, not empty"))]


class MessagePart(Model):
    """An object of a message; the fields that a newer service adds are ignored."""

    model_config = ConfigDict(extra="ignore")


class _Context(Model):
    name: Text
    before: list[TestSpec] = Field([], max_length=MAX_BEFORE)


_Isolated = Annotated[
    Literal["isolated"],
    Field(json_schema_extra=in_words('isolated, or {"name", "before": [tests]}')),
]


class _NamedContext(Model):
    context: Annotated[Annotated[_Isolated, VALUE] | Annotated[_Context, OBJECT], ObjectOrValue] = (
        ISOLATED
    )


class _Target(MessagePart):
    executor: Text


class _Reference(MessagePart):
    build: Text
    arithmetic: Text | None = None
    outputs: list[str] | None = None

    def read(self) -> Reference:
        """Return the build, as the judge takes it."""
        produced = None if self.outputs is None else tuple(self.outputs)
        return Reference(self.build, self.arithmetic, produced)


class _Artifacts(MessagePart):
    first: bool = True
    worst: Annotated[int, Field(ge=0, le=MAX_EVIDENCE), WHOLE] = 1


class _GaugePart(MessagePart):
    number: Annotated[int, Field(ge=0), WHOLE]
    name: Text
    kind: Kind = Field(strict=False)
    build: Text


class _Gauge(MessagePart):
    parts: list[_GaugePart] = Field(min_length=1, max_length=MAX_PARTS)


_Pair = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=MAX_SEED), WHOLE], Annotated[int, Field(ge=0), WHOLE]],
    Field(strict=False, json_schema_extra=in_words("[seed, repeat]")),
]
_Seconds = Annotated[float, Field(gt=0)]


class _Body(_NamedContext, MessagePart):
    """The body of a `run_chunk` message."""

    attempt: Text
    chunk: Text
    job: Text
    test: TestBody
    work: list[_Pair] = Field(min_length=1, max_length=MAX_WORK)
    build: Text
    target: _Target
    artifacts: _Artifacts = Field(default_factory=_Artifacts)
    seed_deadline_s: _Seconds | None = None
    first_seed_deadline_s: _Seconds | None = None
    arithmetic: Text | None = None
    outputs: list[str] | None = None
    reference: _Reference | None = None
    gauge: Any = None


@dataclass(frozen=True)
class Chunk:
    """The work of one attempt.

    `before` are the tests of the context that run first in every fresh child.
    """

    attempt: str
    chunk: str
    job: str
    test: AnyTest
    """A kernel's test, or a selection of existing tests (attempts.report_pipeline.parts_for)."""
    work: tuple[Work, ...]
    executor: str
    build: str
    context: str
    before: tuple[TestSpec, ...]
    seed_deadline_s: float
    """A seed without an answer for this long is a hang."""
    first_seed_deadline_s: float
    """The same for the first seed of a child, whose call may compile the kernel."""
    evidence_first: bool
    evidence_worst: int
    arithmetic: str | None
    produced: tuple[str, ...] | None
    reference: Reference | None = None
    """The build that this one is compared with."""
    gauge: Parts | None = None
    """The parts of a gauge; the work is then a list of (seed, number of the part)."""

    @classmethod
    def parse(cls, body: Mapping[str, Any], *, max_elements: int, seed_deadline_s: float) -> Chunk:
        """Return the chunk of a `run_chunk` message's body. Raises FieldError.

        Optional: "seed_deadline_s", "first_seed_deadline_s", "context", "artifacts", "gauge" (a
        gauge's chunk), "arithmetic" and "outputs". The last two are what the service knows of a
        build that this host's builds file doesn't describe.
        """
        given = _Body.parse(body)
        test = given.test.selection if isinstance(given.test, SelectionTest) else given.test
        if isinstance(test, TestSpec):
            test.check_elements(max_elements, "test")
        elif given.reference is not None:
            build = given.reference.build
            raise FieldError("reference", build, "existing tests have no reference build")
        context, before = _tests_before(given, max_elements)
        gauge = gauge_parts(given.gauge, test, given.target.executor)
        if (
            gauge is not None
            and isinstance(test, TestSpec)
            and any(part is not None and part.unsure for part in gauge.values())
        ):
            before = (test,)  # this fault depends on what ran before, so something must run before
        deadline_s = given.seed_deadline_s or seed_deadline_s
        return cls(
            attempt=given.attempt,
            chunk=given.chunk,
            job=given.job,
            test=test,
            work=tuple(given.work),
            executor=given.target.executor,
            build=given.build,
            context=context,
            before=before,
            seed_deadline_s=deadline_s,
            first_seed_deadline_s=given.first_seed_deadline_s or deadline_s,
            evidence_first=given.artifacts.first,
            evidence_worst=given.artifacts.worst,
            arithmetic=given.arithmetic,
            produced=None if given.outputs is None else tuple(given.outputs),
            reference=None if given.reference is None else given.reference.read(),
            gauge=gauge,
        )

    def limit_s(self, *, first: bool) -> float:
        """Return the seconds after which a seed is a hang; `first`: its child has run no other."""
        return self.first_seed_deadline_s if first else self.seed_deadline_s


def parse_context(value: object, max_elements: int) -> tuple[str, tuple[TestSpec, ...]]:
    """Return a context's name and the tests that run first. Raises FieldError.

    `value` is "isolated" or {"name", "before": [tests]}.
    """
    if value == ISOLATED:
        return ISOLATED, ()
    return _tests_before(_NamedContext.parse({"context": value}), max_elements)


def _tests_before(given: _NamedContext, max_elements: int) -> tuple[str, tuple[TestSpec, ...]]:
    context = given.context
    if not isinstance(context, _Context):
        return ISOLATED, ()
    for index, test in enumerate(context.before):
        test.check_elements(max_elements, f"context.before.{index}")
    return context.name, tuple(context.before)


def gauge_parts(value: object, test: AnyTest, executor: str) -> Parts | None:
    """Return the parts in a message: {"parts": [{"number", "name", "kind", "build"}]}.

    The message has names only; this host knows what they do. None for a chunk of a job. Raises
    FieldError.
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
