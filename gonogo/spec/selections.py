"""Selections: which tests of an existing program (a gtest binary, a pytest suite) a job runs.

A selection is validated once and has lasting keys. A `TestSpec` defines a kernel's inputs; a
selection only names tests that exist already. The builds file of the worker's host defines its
suite. One run of it is an *iteration*: a sample without a controlled seed, unless the selection is
shuffled by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec import fields
from gonogo.spec.canonical import key_of
from gonogo.spec.executors import EXECUTORS, REPORTERS
from gonogo.spec.test_spec import MAX_ELEMENTS, TestSpec

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


@dataclass(frozen=True)
class Selection:
    """Tests of a build: a suite, narrowed by a filter, in a random order, or in stages.

    The builds file defines the suite. If everything is None, all tests of the build are selected. A
    wrong field raises FieldError here, as in `parse`.
    """

    suite: str | None = None
    filter: str | None = None
    """A filter in the language of the executor: a gtest filter; for pytest an expression of -k,
    or node ids."""
    shuffle: bool | int | None = None
    """True: in the order of the job's seed; a number: in the order of that seed, the same in
    every iteration; None: in the defined order."""
    stages: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        path = f"test.{FIELD}"
        self._put("suite", _text(self.suite, fields.join(path, "suite"), MAX_NAME))
        self._put("filter", _text(self.filter, fields.join(path, "filter"), MAX_FILTER))
        self._put("shuffle", _shuffle(self.shuffle, fields.join(path, "shuffle")))
        self._put("stages", _stages(self.stages, fields.join(path, "stages")))
        if self.stages is not None and self.suite is None:
            raise FieldError(
                fields.join(path, "stages"),
                list(self.stages),
                "only a suite has stages",
                limit="name its suite",
            )

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, data: object, *, path: str = "test") -> Selection:
        """Parse {"selection": {...}}; `path` is its place in a request. Raises FieldError."""
        given = fields.mapping(data, path)
        fields.known(given, (FIELD,), path)
        where = fields.join(path, FIELD)
        inner = fields.mapping(given.get(FIELD), where)
        fields.known(inner, ("suite", "filter", "shuffle", "stages"), where)
        try:
            return cls(**inner)
        except FieldError as problem:
            field = problem.field.replace(f"test.{FIELD}", where, 1)
            raise FieldError(field, problem.value, problem.reason, limit=problem.limit) from None

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
        return (
            iteration
            if self.shuffle is True
            else None
            if self.shuffle is None
            else int(self.shuffle)
        )

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
        named = [
            f"{name} {value}"
            for name, value in (("suite", self.suite), ("filter", self.filter))
            if value is not None
        ]
        if self.stages is not None:
            named.append(
                f"{'stage' if len(self.stages) == 1 else 'stages'} {', '.join(self.stages)}"
            )
        if self.shuffle is not None:
            named.append("shuffled" if self.shuffle is True else f"shuffled by {self.shuffle}")
        return ", ".join(named) or "all tests"


AnyTest = TestSpec | Selection
"""The types of a job's `test`."""


def is_selection(data: object) -> bool:
    """Return whether the JSON of a job's `test` is a selection, not the test of a kernel."""
    return isinstance(data, Mapping) and FIELD in data


def parse_test(data: object, *, max_elements: int = MAX_ELEMENTS, path: str = "test") -> AnyTest:
    """Parse a job's `test`: a selection, or the test of a kernel. Raises FieldError."""
    return (
        Selection.parse(data, path=path)
        if is_selection(data)
        else TestSpec.parse(data, max_elements=max_elements, path=path)
    )


def sample(canonical: Mapping[str, Any], number: int) -> dict[str, int | None]:
    """Return the sample of that number as it is shown: {"seed", "iteration"}.

    canonical: the job's test. The seed of a kernel's test is not an iteration.
    """
    if not is_selection(canonical):
        return {"seed": number, "iteration": None}
    return {"seed": Selection.parse(canonical).seed_of(number), "iteration": number}


def check_executor(workload: AnyTest, executor: str, path: str = "test") -> None:
    """Raise FieldError if a built-in executor can't run the workload.

    Kernels and selections are run by different executors. Only its host knows what a plug-in runs.
    """
    if isinstance(workload, TestSpec):
        if executor in REPORTERS:
            limit = '{"selection": {"suite", "filter", "shuffle", "stages"}}'
            raise FieldError(
                fields.join(path, "kernel"),
                workload.kernel,
                f"executor {executor} runs selections, not kernels",
                limit=limit,
            )
        return
    if executor in EXECUTORS and executor not in REPORTERS:
        limit = f"one of {', '.join(REPORTERS)}, or a plug-in that reports"
        raise FieldError(
            fields.join(path, FIELD),
            workload.inner(),
            f"executor {executor} runs kernels, not selections",
            limit=limit,
        )
    if workload.stages is not None and executor in REPORTERS and not EXECUTORS[executor].stages:
        where = fields.join(fields.join(path, FIELD), "stages")
        raise FieldError(
            where,
            list(workload.stages),
            f"executor {executor} has no stages",
            limit=", ".join(row.name for row in EXECUTORS.values() if row.stages),
        )


def _text(value: object, path: str, most: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > most or "\0" in value:
        raise FieldError(path, value, "must be text", limit=f"1 to {most} characters, without NUL")
    return value


def _shuffle(value: object, path: str) -> bool | int | None:
    if value is None or isinstance(value, bool):
        return value or None
    return fields.integer(value, path, least=0, most=MAX_SEED - 1)


def _stages(value: object, path: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not 1 <= len(value) <= MAX_STAGES
    ):
        raise FieldError(
            path,
            value,
            "must be a list of names",
            limit=f"1 to {MAX_STAGES} stages, or null for all",
        )
    names: list[str] = []
    for number, item in enumerate(value):
        name = _text(item, f"{path}.{number}", MAX_NAME)
        if name is None or name in names:
            raise FieldError(f"{path}.{number}", item, "must be a name, and not a duplicate")
        names.append(name)
    return tuple(names)
