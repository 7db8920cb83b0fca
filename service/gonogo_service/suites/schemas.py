"""The schemas of suites and runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import (
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    ValidationError,
    model_validator,
)

from gonogo import urls
from gonogo.spec.partial import PartialNumerics, PartialTestBody, no_fields
from gonogo.spec.suites import MAX_NAME, MAX_TESTS, count_tests
from gonogo.spec.validation import MAX_ERRORS, Refused, line_error
from gonogo.urls import API
from gonogo_service.jobs.api.schemas import JobLinks
from gonogo_service.jobs.bodies import NAME, Commit, Labels, SeedOptions, Seeds
from gonogo_service.kit.database.records import Documented, from_object
from gonogo_service.kit.database.states import RunState
from gonogo_service.kit.strict import Strict
from gonogo_service.suites.all_problems import beside
from gonogo_service.suites.runs import Run, RunJob
from gonogo_service.suites.store import Suite
from gonogo_service.suites.submission import TestOfSuite

MAX_BUILDS = 100
SuiteName = Annotated[str, Field(pattern=NAME, max_length=MAX_NAME)]
Builds = Annotated[
    list[Annotated[str, Field(pattern=NAME, max_length=200)]], Field(max_length=MAX_BUILDS)
]


class Defaults(SeedOptions):
    """The common fields of all entries.

    They are a job's fields without build, labels and commit, which the run supplies.
    """

    test: PartialTestBody = Field(
        default_factory=no_fields,
        description="Merged with each entry's test, whose fields take precedence",
    )
    seeds: Seeds | None = None


class Matrix(Strict):
    """Combinations of shapes and numerics; each combination is a test.

    Its shape replaces the entry's shape. Its numerics are merged into the entry's.
    """

    shape: list[list[int]] | None = Field(None, min_length=1, max_length=MAX_TESTS)
    numerics: list[PartialNumerics] | None = Field(None, min_length=1, max_length=MAX_TESTS)


class Entry(Defaults):
    """A test of a suite."""

    name: str | None = Field(
        None, min_length=1, max_length=MAX_NAME, description="Default: kernel and shape"
    )
    matrix: Matrix | None = None


class SuiteIn(Strict):
    """A suite: a named list of tests.

    The `suite` of a selection is different: tests in a gtest program or a pytest tree.
    """

    name: SuiteName
    description: str = Field("", max_length=2000)
    builds: Builds = Field([], description="Builds of a run that names none")
    defaults: Defaults = Defaults()
    entries: list[Entry] = Field(min_length=1, max_length=MAX_TESTS)

    @model_validator(mode="wrap")
    @classmethod
    def _all_problems(cls, data: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        """Add the problems of its tests to those of its form: people want to see all at once."""
        try:
            return read(data)
        except ValidationError as problem:
            errors = problem.errors(include_url=False)
            if not isinstance(data, dict):
                raise
            more = beside(data, [item["loc"] for item in errors])
            more = more[: max(0, MAX_ERRORS - len(errors))]
            details: list[Any] = [
                *(line_error(error, error["loc"]) for error in errors),
                *(
                    {"type": "value_error", "input": data, "ctx": {"error": Refused(error)}}
                    for error in more
                ),
            ]
            raise ValidationError.from_exception_data(cls.__name__, details) from None

    def content(self) -> dict[str, Any]:
        """Return the stored content: the given fields, without defaults."""
        return self.model_dump(mode="json", exclude_unset=True)


@dataclass(frozen=True)
class SuiteSummary:
    """A suite in a list. `GET /suites/{name}` has its content and its tests."""

    name: str
    version: int
    key: str
    description: str
    tests: int
    """The number of tests, with expanded matrices"""
    builds: int
    """The number of builds that it names"""
    owner: str
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


def summary(suite: Suite) -> SuiteSummary:
    """Return what a list shows of a suite."""
    content = suite.content
    return from_object(
        SuiteSummary,
        suite,
        description=content.get("description", ""),
        tests=count_tests(content),
        builds=len(content.get("builds") or ()),
    )


@dataclass(frozen=True)
class SuiteOut(Suite):
    """A suite in its newest version."""

    content: Annotated[dict[str, Any], Documented(SuiteIn)]


@dataclass(frozen=True)
class SuiteDetails(SuiteOut):
    """A suite with its tests."""

    tests: list[TestOfSuite]


def _kind_of_suite(value: object) -> str:
    return "<stored>" if isinstance(value, str) else "<SuiteIn>"


class RunIn(Strict):
    """A run of a stored suite (by name) or of a given suite, with its builds and commit."""

    suite: Annotated[
        Annotated[SuiteName, Tag("<stored>")] | Annotated[SuiteIn, Tag("<SuiteIn>")],
        Discriminator(_kind_of_suite),
    ]
    builds: Builds = Field(
        [], description="Every test runs on each of them; empty: the suite's builds"
    )
    labels: Labels = Field({})
    commit: Commit | None = None


@dataclass(frozen=True)
class RunLinks:
    """Addresses of a run."""

    self: str
    page: str


def links(run_id: str) -> RunLinks:
    """Return the addresses of a run."""
    return RunLinks(self=f"{API}/runs/{run_id}", page=urls.run(run_id))


@dataclass(frozen=True)
class RunAccepted:
    """The answer to a submission."""

    id: str
    state: RunState
    jobs: int
    links: RunLinks


@dataclass(frozen=True)
class RunOut(Run):
    """A run; `verdict` is the worst verdict of its jobs.

    It is null until the run ends, and when a job was canceled and all others passed.
    """

    links: RunLinks


@dataclass(frozen=True)
class JobOfRun(RunJob):
    """The summary of a run's job."""

    links: JobLinks


@dataclass(frozen=True)
class RunDetails(RunOut):
    """A run with its jobs, in the order of the suite."""

    tests: list[JobOfRun]
