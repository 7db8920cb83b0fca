"""One chunk as a message describes it: the test, the seeds, the build's name and the context, read
from untrusted JSON.
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
MOST_BEFORE = 64
MOST_WORK = 1_000_000
MOST_EVIDENCE = 16
"""Worst seeds of one attempt that may get artifacts: each costs about a second of host work."""

Work = tuple[int, int]
"""(seed, repeat)"""


@dataclass(frozen=True)
class Chunk:
    """What one attempt has to do. `before` are the tests of the context that run first in every
    fresh child.
    """

    attempt: str
    chunk: str
    job: str
    test: AnyTest
    """What is run: a kernel's test, or tests that exist already; `workers.pipelines` has a way for
    each."""
    work: tuple[Work, ...]
    executor: str
    build: str
    context: str
    before: tuple[TestSpec, ...]
    seed_deadline_s: float
    evidence_first: bool
    evidence_worst: int
    arithmetic: str | None
    produced: tuple[str, ...] | None
    reference: Reference | None = None
    """The build that this one is compared with."""
    gauge: gauge_parts.Parts | None = None
    """Of a gauge: its parts. The work is then of (seed, number of the part)."""

    @classmethod
    def parse(cls, body: Mapping[str, Any], *, max_elements: int, seed_deadline_s: float) -> Chunk:
        """From the body of a `run_chunk` message. Raises FieldError.

        Optional: "seed_deadline_s", "context", "artifacts", "gauge" (of a gauge's chunk), and
        "arithmetic" and "outputs", which the service knows of a build that this host's builds file
        says nothing of.
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
            and any(each is not None and each.part.unsure for each in gauge.values())
        ):
            before = (test,)  # what ran before may be the fault: let something have
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
            seed_deadline_s=fields.number(
                body.get("seed_deadline_s") or seed_deadline_s, "seed_deadline_s", above=0
            ),
            evidence_first=bool(artifacts.get("first", True)),
            evidence_worst=fields.integer(
                artifacts.get("worst", 1), "artifacts.worst", least=0, most=MOST_EVIDENCE
            ),
            arithmetic=None if body.get("arithmetic") is None else _text(body, "arithmetic"),
            produced=None if outputs is None else tuple(str(name) for name in outputs),
            reference=Reference.parse(body.get("reference")),
            gauge=gauge,
        )


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise FieldError(name, value, "must be text")
    return value


def _work(value: object) -> tuple[Work, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_WORK:
        raise FieldError(
            "work", value, "must be a list of [seed, repeat]", limit=f"1 to {MOST_WORK}"
        )
    work = []
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise FieldError("work", pair, "must be [seed, repeat]")
        seed = fields.integer(pair[0], "work.seed", least=0, most=MAX_SEED - 1)
        work.append((seed, fields.integer(pair[1], "work.repeat", least=0)))
    return tuple(work)


def parse_context(value: object, max_elements: int) -> tuple[str, tuple[TestSpec, ...]]:
    """A context's name and the tests that run first, of "isolated" or {"name", "before": [tests]}.
    Raises FieldError.
    """
    if value == ISOLATED:
        return ISOLATED, ()
    given = fields.mapping(value, "context")
    fields.known(given, ("name", "before"), "context")
    before = given.get("before", [])
    if not isinstance(before, list) or len(before) > MOST_BEFORE:
        raise FieldError(
            "context.before", before, "must be a list of tests", limit=f"at most {MOST_BEFORE}"
        )
    tests = [
        TestSpec.parse(test, max_elements=max_elements, path=f"context.before.{index}")
        for index, test in enumerate(before)
    ]
    return _text(given, "name"), tuple(tests)
