"""Selections: which tests of an existing program (a gtest binary, a pytest suite) a job runs.

A selection is validated once and has lasting keys. A `TestSpec` defines a kernel's inputs; a
selection only names tests that exist already. The builds file of the worker's host defines its
suite. One run of it is an *iteration*: a sample without a controlled seed, unless the selection is
shuffled by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, model_serializer

from gonogo.errors import FieldError
from gonogo.spec.canonical import key_of
from gonogo.spec.executors import EXECUTORS, REPORTERS
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.validation import WHOLE, Model, distinct

FIELD = "selection"
KERNEL = "selection"
"""A selection's entry in the kernel column of lists and tables."""
MAX_NAME = 200
MAX_FILTER = 20_000
"""Characters: a filter may list tests one by one."""
MAX_STAGES = 64
MAX_SEED = 2**53
"""Equal to MAX_SEED of gonogo.judging.inputs, which loads the numerics; submitting a job must
not."""


def _is_text(value: str) -> str:
    if not value.strip() or "\0" in value:
        raise ValueError("must be text that isn't blank, without NUL")
    return value


def _kind_of_shuffle(value: object) -> str:
    return "<switch>" if isinstance(value, bool) else "<seed>"


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_is_text)]


class Selection(Model):
    """Tests of a build: a suite, narrowed by a filter, in a random order, or in stages.

    The builds file defines the suite. If everything is null, all tests of the build are selected.
    """

    suite: Name | None = Field(None, description="Suite of the builds file")
    filter: (
        Annotated[str, Field(min_length=1, max_length=MAX_FILTER), AfterValidator(_is_text)] | None
    ) = Field(
        None,
        description=(
            "In the language of the executor: a gtest filter; for pytest an expression of -k, or "
            "node ids"
        ),
    )
    shuffle: (
        Annotated[
            Annotated[bool, Tag("<switch>")]
            | Annotated[int, Field(ge=0, lt=MAX_SEED), WHOLE, Tag("<seed>")],
            Discriminator(_kind_of_shuffle),
        ]
        | None
    ) = Field(
        None,
        description=(
            "true: in the order of the job's seed; a number: in the order of that seed, the same "
            "in every iteration; null: in the defined order"
        ),
    )
    stages: (
        Annotated[
            tuple[Name, ...],
            Field(
                strict=False,
                min_length=1,
                max_length=MAX_STAGES,
                fail_fast=True,
                json_schema_extra={"x-unit": "stages, or null for all"},
            ),
            distinct("distinct stages", "must be a name, and not a duplicate"),
        ]
        | None
    ) = Field(None, description="Stages of the suite")

    def _normalize(self) -> None:
        if self.shuffle is False:
            self.__dict__["shuffle"] = None
        if self.stages is not None and self.suite is None:
            reason = "only a suite has stages"
            raise FieldError("stages", list(self.stages), reason, limit="name its suite")

    @classmethod
    def parse(cls, data: object, path: str = "test") -> Selection:
        """Parse {"selection": {...}}; `path` is its place in a request. Raises FieldError."""
        return SelectionTest.parse(data, path).selection

    @property
    def kernel(self) -> str:
        """The word that lists show instead of a kernel."""
        return KERNEL

    @property
    def elements(self) -> int:
        """Always 0: no tensor is drawn, so there is nothing to estimate a cost from."""
        return 0

    def seed_of(self, iteration: int) -> int | None:
        """Return the seed that controls an iteration; None = none does."""
        if self.shuffle is True:
            return iteration
        return None if self.shuffle is None else int(self.shuffle)

    @model_serializer
    def inner(self) -> dict[str, Any]:
        """Return the given fields in plain JSON types, as an executor receives them."""
        named = {"suite": self.suite, "filter": self.filter, "shuffle": self.shuffle}
        stages = {} if self.stages is None else {"stages": list(self.stages)}
        return {name: value for name, value in named.items() if value is not None} | stages

    def canonical(self) -> dict[str, Any]:
        """Return the selection in plain JSON types, without default fields; `parse` reads it."""
        return {FIELD: self.inner()}

    @cached_property
    def key(self) -> str:
        """The key of the selection. It never changes, and doesn't depend on how it was written."""
        return key_of(self.canonical())

    @property
    def workload_key(self) -> str:
        """Its key: a selection has no tolerance that its history could outlive."""
        return self.key

    @property
    def words(self) -> str:
        """The selection in a few words: "suite nightly, filter LayerNorm*"."""
        values = {"suite": self.suite, "filter": self.filter}
        named = [f"{name} {value}" for name, value in values.items() if value is not None]
        if self.stages is not None:
            named.append(f"stage{'s' * (len(self.stages) > 1)} {', '.join(self.stages)}")
        if self.shuffle is not None:
            named.append("shuffled" if self.shuffle is True else f"shuffled by {self.shuffle}")
        return ", ".join(named) or "all tests"


class SelectionTest(Model):
    """A job's test that selects tests of an existing program."""

    selection: Selection


AnyTest = TestSpec | Selection
"""The types of a job's test."""


def _kind_of_test(value: object) -> str:
    is_one = is_selection(value) or isinstance(value, SelectionTest)
    return "<SelectionTest>" if is_one else "<TestSpec>"


TestBody = Annotated[
    Annotated[TestSpec, Tag("<TestSpec>")] | Annotated[SelectionTest, Tag("<SelectionTest>")],
    Discriminator(_kind_of_test),
]
"""A job's `test` in a body."""


def is_selection(data: object) -> bool:
    """Return whether the JSON of a job's `test` is a selection, not the test of a kernel."""
    return isinstance(data, Mapping) and FIELD in data


def sample(canonical: Mapping[str, Any], number: int) -> dict[str, int | None]:
    """Return the sample of that number as it is shown: {"seed", "iteration"}.

    canonical: the job's test. The seed of a kernel's test is not an iteration.
    """
    if not is_selection(canonical):
        return {"seed": number, "iteration": None}
    return {"seed": Selection.parse(canonical).seed_of(number), "iteration": number}


def check_executor(workload: AnyTest, executor: str) -> None:
    """Raise FieldError if a built-in executor can't run the workload.

    Kernels and selections are run by different executors. Only its host knows what a plug-in runs.
    """
    if isinstance(workload, TestSpec):
        if executor in REPORTERS:
            reason = f"executor {executor} runs selections, not kernels"
            limit = '{"selection": {"suite", "filter", "shuffle", "stages"}}'
            raise FieldError("test.kernel", workload.kernel, reason, limit=limit)
    elif executor in EXECUTORS and executor not in REPORTERS:
        reason = f"executor {executor} runs kernels, not selections"
        limit = f"one of {', '.join(REPORTERS)}, or a plug-in that reports"
        raise FieldError(f"test.{FIELD}", workload.inner(), reason, limit=limit)
    elif workload.stages is not None and executor in REPORTERS and not EXECUTORS[executor].stages:
        stages, reason = list(workload.stages), f"executor {executor} has no stages"
        limit = ", ".join(row.name for row in EXECUTORS.values() if row.stages)
        raise FieldError(f"test.{FIELD}.stages", stages, reason, limit=limit)
