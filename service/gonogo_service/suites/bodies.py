"""The bodies of suites and runs."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    ValidationError,
    model_validator,
)

from gonogo.spec.partial import PartialNumerics, PartialTestBody, no_fields
from gonogo.spec.suites import MAX_NAME, MAX_TESTS
from gonogo.spec.validation import MAX_ERRORS, Refused, line_error
from gonogo_service.jobs.bodies import Commit, SeedOptions, Seeds
from gonogo_service.kit.strict import Builds, Labels, Strict
from gonogo_service.suites.all_problems import beside
from gonogo_service.suites.noun import FORMS, MAX_TEXT, SuiteName


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
        """Return the stored content: the given fields, without defaults and the file."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"file"})


def _below(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or parts.suffix not in FORMS:
        raise ValueError(f"must be below a folder, without .., and end in {', '.join(FORMS)}")
    return path


class SuiteFile(Strict):
    """The file that a suite was pushed from, of which `POST /tolerances:patch` makes diffs."""

    path: Annotated[str, AfterValidator(_below)] = Field(max_length=500, pattern=r"^[^\x00-\x1f]+$")
    text: str = Field(max_length=MAX_TEXT)

    @property
    def is_json(self) -> bool:
        """Return whether it is JSON, and not YAML."""
        return self.path.endswith(".json")


class PushedSuite(SuiteIn):
    """A suite to store, with the file that it comes from."""

    file: SuiteFile | None = None


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
