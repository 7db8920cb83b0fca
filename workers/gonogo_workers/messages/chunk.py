"""One chunk as its message describes it, read from untrusted JSON.

It holds the test, the seeds, the build's name and the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.errors import FieldError
from gonogo.judging.inputs import MAX_SEED
from gonogo.judging.pairs import Reference
from gonogo.spec import fields
from gonogo.spec.selections import AnyTest, parse_test
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.messages import gauge_parts

ISOLATED = "isolated"
MAX_BEFORE = 64
MAX_WORK = 1_000_000
MAX_EVIDENCE = 16
"""The worst seeds of one attempt that may get artifacts: each costs about a second of host work."""

Work = tuple[int, int]
"""(seed, repeat)"""


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
    gauge: gauge_parts.Parts | None = None
    """The parts of a gauge; the work is then a list of (seed, number of the part)."""

    @classmethod
    def parse(cls, body: Mapping[str, Any], *, max_elements: int, seed_deadline_s: float) -> Chunk:
        """Return the chunk of a `run_chunk` message's body. Raises FieldError.

        Optional: "seed_deadline_s", "first_seed_deadline_s", "context", "artifacts", "gauge" (a
        gauge's chunk), "arithmetic" and "outputs". The last two are what the service knows of a
        build that this host's builds file doesn't describe.
        """
        artifacts = fields.mapping(body.get("artifacts") or {}, "artifacts")
        target = fields.mapping(body.get("target"), "target")
        context, before = parse_context(body.get("context", ISOLATED), max_elements)
        outputs = body.get("outputs")
        executor = _text(target, "executor")
        test = parse_test(body.get("test"), max_elements=max_elements)
        gauge = gauge_parts.parse(body.get("gauge"), test, executor)
        if (
            gauge is not None
            and isinstance(test, TestSpec)
            and any(part is not None and part.part.unsure for part in gauge.values())
        ):
            before = (test,)  # this fault depends on what ran before, so something must run before
        deadline_s = fields.number(
            body.get("seed_deadline_s") or seed_deadline_s, "seed_deadline_s", above=0
        )
        return cls(
            attempt=_text(body, "attempt"),
            chunk=_text(body, "chunk"),
            job=_text(body, "job"),
            test=test,
            work=_work(body.get("work")),
            executor=executor,
            build=_text(body, "build"),
            context=context,
            before=before,
            seed_deadline_s=deadline_s,
            first_seed_deadline_s=fields.number(
                body.get("first_seed_deadline_s") or deadline_s, "first_seed_deadline_s", above=0
            ),
            evidence_first=bool(artifacts.get("first", True)),
            evidence_worst=fields.integer(
                artifacts.get("worst", 1), "artifacts.worst", least=0, most=MAX_EVIDENCE
            ),
            arithmetic=None if body.get("arithmetic") is None else _text(body, "arithmetic"),
            produced=None if outputs is None else tuple(str(name) for name in outputs),
            reference=Reference.parse(body.get("reference")),
            gauge=gauge,
        )

    def limit_s(self, *, first: bool) -> float:
        """Return the seconds after which a seed is a hang; `first`: its child has run no other."""
        return self.first_seed_deadline_s if first else self.seed_deadline_s


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise FieldError(name, value, "must be text")
    return value


def _work(value: object) -> tuple[Work, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_WORK:
        raise FieldError(
            "work", value, "must be a list of [seed, repeat]", limit=f"1 to {MAX_WORK}"
        )
    work = []
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise FieldError("work", pair, "must be [seed, repeat]")
        seed = fields.integer(pair[0], "work.seed", least=0, most=MAX_SEED - 1)
        work.append((seed, fields.integer(pair[1], "work.repeat", least=0)))
    return tuple(work)


def parse_context(value: object, max_elements: int) -> tuple[str, tuple[TestSpec, ...]]:
    """Return a context's name and the tests that run first. Raises FieldError.

    `value` is "isolated" or {"name", "before": [tests]}.
    """
    if value == ISOLATED:
        return ISOLATED, ()
    given = fields.mapping(value, "context")
    fields.known(given, ("name", "before"), "context")
    before = given.get("before", [])
    if not isinstance(before, list) or len(before) > MAX_BEFORE:
        raise FieldError(
            "context.before", before, "must be a list of tests", limit=f"at most {MAX_BEFORE}"
        )
    tests = [
        TestSpec.parse(test, max_elements=max_elements, path=f"context.before.{index}")
        for index, test in enumerate(before)
    ]
    return _text(given, "name"), tuple(tests)
