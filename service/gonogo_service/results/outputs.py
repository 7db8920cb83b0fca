"""The schema of an output in a result: its statistics by their table, or the outcome of a test."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema

from gonogo.reports.outcomes import Outcome
from gonogo.spec.statistics import STATISTICS
from gonogo.spec.verdicts import Explanation, Verdict


class Judged(BaseModel):
    """The judgment that every output has."""

    model_config = ConfigDict(extra="allow")
    verdict: Verdict
    explanation: Explanation


class TestFailure(BaseModel):
    """A failed check of a test."""

    model_config = ConfigDict(extra="allow")
    expression: str
    count: int
    message: str


class TestOutcome(Judged):
    """A test of a selection or of an import, with all else that its report says of it."""

    outcome: Outcome
    duration_ms: float | None
    message: str
    failures: list[TestFailure]
    measurements: dict[str, float | None]


class OutputNumbers:
    """An output of a kernel: docs/verdicts.md describes the statistics.

    Which of them it has depends on the kernel, its build and the test. Reports and kernels of
    packages may have others.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Make the schema from the table of statistics."""
        fields: dict[str, Any] = {
            name: (row.kind | None, Field(None, description=row.sentence))
            for name, row in STATISTICS.items()
        }
        return handler(create_model(cls.__name__, __base__=Judged, __doc__=cls.__doc__, **fields))
