"""The bodies of jobs, with the types and limits of their fields.

People, suites, rules and bisections use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
)

from gonogo.errors import FieldError
from gonogo.spec.selections import FIELD, Selection, SelectionTest, TestBody, is_selection
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.validation import Bounded, Refused, distinct
from gonogo_service.jobs.new_job import USUAL_PRIORITY
from gonogo_service.kit.database.states import IMPORT_EXECUTOR
from gonogo_service.kit.strict import Label, Labels, Name, Strict, Word

MAX_SEED = 2**53 - 1
MAX_REPEATS = 1000
MAX_BEFORE = 16
MAX_DEADLINE_S = 30 * 86400
REPOSITORY = r"^[A-Za-z0-9._/-]+$"
SHA = r"^[0-9a-fA-F]{7,64}$"
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]


def _has_kernel(value: object) -> object:
    if isinstance(value, Mapping) and is_selection(value):
        reason, limit = "is not the test of a kernel", "a test with a kernel"
        raise Refused(FieldError(FIELD, value[FIELD], reason, limit=limit))
    return value


KernelTest = Annotated[TestSpec, BeforeValidator(_has_kernel)]
"""The test of a kernel, in a field that takes no selection of gtest or pytest tests."""


def _check_last_seed(start: int, field: str, count: int) -> None:
    """Raise FieldError if the last of consecutive seeds is too large; `field` has their number."""
    if start + count - 1 > MAX_SEED:
        given = {"start": start, field: count}
        raise FieldError("", given, "the last seed is too large", limit=f"<= {MAX_SEED}")


class SeedRange(Strict):
    """Consecutive seeds."""

    start: Seed = 0
    count: int = Field(ge=1)

    def _normalize(self) -> None:
        _check_last_seed(self.start, "count", self.count)


class SequentialSeeds(Strict):
    """Consecutive seeds until a decision.

    Wald's test compares a stable failure rate with a flaky one. A wrong kernel is decided at once.
    """

    policy: Literal["sequential"]
    max: int = Field(
        ge=1,
        description="Maximum number of seeds; without a decision by then the job ends undecided",
    )
    start: Seed = 0
    stop_on_finding: bool = Field(
        True,
        description=(
            "One seed whose error rounding doesn't explain ends the job; "
            "false: only the failure rate does"
        ),
    )

    def _normalize(self) -> None:
        _check_last_seed(self.start, "max", self.max)


def _runs_tests(executor: str) -> str:
    if executor == IMPORT_EXECUTOR:
        reason, limit = "runs nothing: it marks imported results", "another executor"
        raise Refused(FieldError("", executor, reason, limit=limit))
    return executor


class Target(Strict):
    """The target that the job runs on."""

    executor: Annotated[Word, AfterValidator(_runs_tests)] = "emulator"
    arch: Word = "wormhole"
    board: Word = "n150"


class Prepared(Strict):
    """A context: tests that run first in the same child process."""

    name: Label
    before: list[KernelTest] = Field(min_length=1, max_length=MAX_BEFORE)

    def canonical(self) -> dict[str, Any]:
        """Return the context with its tests in their canonical form."""
        return {"name": self.name, "before": [test.canonical() for test in self.before]}


class Commit(Strict):
    """The commit that the job runs for."""

    repository: str = Field(pattern=REPOSITORY, max_length=200)
    sha: str = Field(pattern=SHA)
    pull_request: int | None = Field(None, ge=1, le=2**31 - 1)


class Reference(Strict):
    """Another build of the same executor to compare with."""

    build: Name


def _kind_of_seeds(value: object) -> str:
    if isinstance(value, list):
        return "<list>"
    named = isinstance(value, SequentialSeeds) or (isinstance(value, dict) and "policy" in value)
    return "<SequentialSeeds>" if named else "<SeedRange>"


def _kind_of_context(value: object) -> str | None:
    if isinstance(value, dict | Prepared):
        return "<Prepared>"
    return "<isolated>" if value == "isolated" else None


Seeds = Annotated[
    Annotated[SeedRange, Tag("<SeedRange>")]
    | Annotated[SequentialSeeds, Tag("<SequentialSeeds>")]
    | Annotated[
        list[Seed],
        Field(min_length=1, fail_fast=True),
        distinct("distinct seeds", "occurs twice; to run a seed again use repeats"),
        Tag("<list>"),
    ],
    Discriminator(_kind_of_seeds),
]
ContextOf = Annotated[
    Annotated[Literal["isolated"], Tag("<isolated>")] | Annotated[Prepared, Tag("<Prepared>")],
    Discriminator(
        _kind_of_context,
        custom_error_type="context",
        custom_error_message="unknown context",
        custom_error_context={
            "limit": "'isolated', or an object with name and before (the tests that run first)"
        },
    ),
]


EXAMPLES: list[JsonValue] = [
    {
        "test": {
            "kernel": "layernorm_bw",
            "shape": [3, 273, 1, 8462],
            "numerics": {"input": "bf16", "output": "bf16"},
            "inputs": {"regime": "uniform", "low": -1, "high": 1},
            "tolerance": {"rtol": 1e-3, "atol": 0.5},
        },
        "build": "tt-train-2025",
        "seeds": {"start": 0, "count": 64},
        "labels": {"suite": "nightly"},
    }
]


Priority = Annotated[
    int,
    Field(ge=0, le=9, description="9 runs first; 0 to 2 only while nobody's other jobs wait"),
]
QueueDeadline = Annotated[
    float,
    Field(
        ge=1,
        le=MAX_DEADLINE_S,
        description="Seconds after which it fails if no worker has started it",
    ),
]


class JobOptions(Strict):
    """How a job runs; the jobs of suites and bisections have the same fields."""

    target: Target = Target()
    context: ContextOf = "isolated"
    priority: Priority = USUAL_PRIORITY
    queue_deadline_s: QueueDeadline = 86400


class SeedOptions(JobOptions):
    """How often a job runs its test, and what it compares; the jobs of suites have them, too."""

    reference: Reference | None = Field(
        None,
        description=(
            "Build to compare with, besides the float64 reference of the test's kernel; "
            "null: only the reference"
        ),
    )
    repeats: int = Field(1, ge=1, le=MAX_REPEATS)


class JobIn(SeedOptions):
    """A job: a test, a build, a target and seeds."""

    model_config = ConfigDict(json_schema_extra={"examples": EXAMPLES})

    test: TestBody = Field(description="A kernel's test; for gtest and pytest a selection")
    build: Name
    seeds: Seeds
    labels: Annotated[Labels, Bounded] = Field({})
    commit: Commit | None = None

    def _normalize(self) -> None:
        if isinstance(self.test, SelectionTest):
            self._check_selection(self.test.selection)
        if isinstance(self.seeds, SequentialSeeds) and self.reference is not None:
            reason = "sequential seeds decide about one build, and can't compare two"
            limit = "null, or a range of seeds"
            raise FieldError("reference.build", self.reference.build, reason, limit=limit)

    @property
    def seed_count(self) -> tuple[str, int]:
        """Return the field that says how many seeds there are, and their number."""
        if isinstance(self.seeds, list):
            return "seeds", len(self.seeds)
        if isinstance(self.seeds, SequentialSeeds):
            return "seeds.max", self.seeds.max
        return "seeds.count", self.seeds.count

    @property
    def each_seed(self) -> Sequence[int]:
        """Return the seeds; a million that follow each other cost nothing."""
        if isinstance(self.seeds, list):
            return tuple(self.seeds)
        return range(self.seeds.start, self.seeds.start + self.seed_count[1])

    def _check_selection(self, selection: Selection) -> None:
        """Check the fields that a job of a selection can't have. Raises FieldError."""
        if isinstance(self.context, Prepared):
            reason = (
                "a selection has no prepared context: its suite's order decides what runs before "
                "a test"
            )
            limit = '"isolated"; a suite with `order` in the builds file'
            raise FieldError("context", self.context.name, reason, limit=limit)
        if self.reference is not None:
            reason = "gtest and pytest tests can't be compared with another build"
            raise FieldError("reference.build", self.reference.build, reason, limit="null")
        if self.repeats > 1 and selection.seed_of(0) is None:
            reason = "an iteration without a controlled seed can't be repeated"
            limit = "1; for more iterations use more seeds, for a controlled seed use shuffle"
            raise FieldError("repeats", self.repeats, reason, limit=limit)
