"""Format "gonogo": a line of JSON for the run, then one for each test (docs/imports.md).

The pytest plug-in writes it. A comparison that names its kernel's spec was judged where its arrays
were: the file says whether rounding explains each output. Verdicts are computed here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.registry import KERNELS
from gonogo.reports import documents
from gonogo.reports.cases import (
    MAX_CASES,
    MAX_FAILURES,
    MAX_MEASUREMENTS,
    MAX_SEED,
    Case,
    Comparison,
    TestReport,
)
from gonogo.reports.outcomes import Outcome
from gonogo.reports.texts import MAX_MESSAGE_CHARS, MAX_NAME_CHARS, clean
from gonogo.spec import statistics
from gonogo.spec.test_spec import MAX_ELEMENTS, TestSpec
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.validation import WHOLE, Model, checked
from gonogo.spec.verdicts import Explanation

MAX_COMPARISONS = 100
MAX_OUTPUTS = 64
MAX_STATISTICS = 200
MAX_REPEATS = 1_000_000
MAX_TEXT = 500
MAX_LEVELS = 2
"""Levels of lists and maps in a value: the faults of an output are a list of maps."""
MAX_LINE = 2**20
"""Bytes: a line is decoded as a whole, and may become sixty times as large."""


def _plain(value: object, path: str = "", *, levels: int = MAX_LEVELS) -> Any:
    """Return plain JSON with a few levels of lists and maps.

    Numbers must be finite, and whole numbers must fit a database column.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= MAX_SEED:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        return clean(value, MAX_TEXT)
    if levels and isinstance(value, list) and len(value) <= MAX_STATISTICS:
        return [
            _plain(item, fields.join(path, number), levels=levels - 1)
            for number, item in enumerate(value)
        ]
    if levels and isinstance(value, Mapping) and len(value) <= MAX_STATISTICS:
        return {
            clean(name, 100): _plain(item, fields.join(path, name), levels=levels - 1)
            for name, item in value.items()
        }
    raise FieldError(
        path,
        value,
        "must be a number, text, null, or a short list or map of these",
        limit=f"finite, at most {MAX_SEED}",
    )


def _statistics(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the explanation, numbers, null, short texts, and lists and maps of these."""
    if given.get("explanation") is not None:
        fields.choice(given["explanation"], tuple(Explanation), "explanation")
    computed = {"verdict", "outcome", "test"}
    numbers = {name: _plain(value, name) for name, value in given.items() if name not in computed}
    for name, value in numbers.items():
        if not statistics.fits(name, value):
            reason = "is no value of this statistic"
            limit = "what the manual says (verdicts), or another name"
            raise FieldError(name, value, reason, limit=limit)
    return numbers


def _text(most: int = MAX_TEXT) -> BeforeValidator:
    """Return the annotation of a text that is cleaned first: a typed one has no lone surrogates."""
    return BeforeValidator(lambda value: clean(value, most) if isinstance(value, str) else value)


def _names(most: int) -> BeforeValidator:
    """Return the annotation of an object whose names are cleaned first."""

    def cleaned(value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {clean(name, most): item for name, item in value.items()}

    return BeforeValidator(cleaned)


_Text = Annotated[str, _text()]
_Message = Annotated[str, _text(MAX_MESSAGE_CHARS)]
_Plain = Annotated[Any, checked(_plain)]


class _Header(Model):
    """The first line."""

    format: Literal["gonogo"]
    version: Literal[1]
    suite: _Text | None = None
    build: _Text | None = None
    tool: _Text | None = None
    commit: dict[str, Any] | None = None
    labels: dict[str, _Text | None] | None = None
    started_at: _Text | None = None


class _Failure(Model):
    expression: _Text | None = None
    count: Annotated[int, Field(ge=1, le=MAX_SEED), WHOLE] = 1
    message: Annotated[str, _text(MAX_MESSAGE_CHARS // 2)] | None = None
    file: _Plain = None
    line: _Plain = None


_Statistics = Annotated[
    dict[str, Any], Field(max_length=MAX_STATISTICS), _names(100), checked(_statistics)
]


class _Comparison(Model):
    name: _Text | None = None
    test: dict[str, Any] | None = None
    tolerance: Tolerance | None = None
    arithmetic: _Text | None = None
    outputs: (
        Annotated[dict[str, _Statistics], Field(max_length=MAX_OUTPUTS), _names(MAX_NAME_CHARS)]
        | None
    ) = None
    words: _Message | None = None
    problem: _Message | None = None

    def _normalize(self) -> None:
        if self.test is not None and self.tolerance is not None:
            reason, limit = "a spec has its tolerance in it", "null with a test"
            raise FieldError("tolerance", self.tolerance.to_json(), reason, limit=limit)


class _Case(Model):
    """A line about a test."""

    name: Annotated[Any, checked(lambda name: documents.name(name, ""))]
    outcome: Outcome = Field(strict=False)
    seed: Annotated[int, Field(ge=0, le=MAX_SEED), WHOLE] | None = None
    repeat: Annotated[int, Field(ge=0, le=MAX_REPEATS), WHOLE] = 0
    duration_ms: Annotated[float, Field(ge=0)] | None = None
    message: _Message | None = None
    failures: Annotated[list[_Failure], Field(max_length=MAX_FAILURES)] | None = None
    measurements: (
        Annotated[dict[str, float], Field(max_length=MAX_MEASUREMENTS), _names(100)] | None
    ) = None
    file: _Plain = None
    line: _Plain = None
    worker: _Plain = None
    comparisons: Annotated[list[_Comparison], Field(max_length=MAX_COMPARISONS)] | None = None


def parse(data: bytes, *, max_elements: int = MAX_ELEMENTS) -> TestReport:
    """Return the report in the lines of a file.

    Raises FieldError, with the path "lines.<number>" (from 1).
    """
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            fields.check_count(len(line), MAX_LINE, f"lines.{number}", "is too long", "bytes")
    header = _Header.parse(documents.decoded(lines[0], "lines.1"), "lines.1")
    fields.check_count(len(lines) - 1, MAX_CASES, "lines", "too many tests", "in a file")
    specs: dict[str, TestSpec] = {}
    cases = tuple(
        _case(documents.decoded(line, f"lines.{number}"), f"lines.{number}", specs, max_elements)
        for number, line in enumerate(lines[1:], 2)
        if line.strip()
    )
    return TestReport(
        cases,
        suite=header.suite,
        build=header.build,
        tool=header.tool,
        commit=header.commit,
        labels={name: value or "" for name, value in (header.labels or {}).items()},
        started_at=header.started_at,
    )


def _case(data: object, path: str, specs: dict[str, TestSpec], max_elements: int) -> Case:
    given = _Case.parse(data, path)
    more = {"file": given.file, "line": given.line, "worker": given.worker}
    return Case(
        name=given.name,
        outcome=given.outcome,
        seed=given.seed,
        repeat=given.repeat,
        duration_ms=None if given.duration_ms is None else float(given.duration_ms),
        message=given.message or "",
        failures=tuple(map(_failure, given.failures or ())),
        measurements={name: float(value) for name, value in (given.measurements or {}).items()},
        more={name: value for name, value in more.items() if value is not None},
        comparisons=tuple(
            _comparison(item, f"{path}.comparisons.{n}", specs, max_elements)
            for n, item in enumerate(given.comparisons or ())
        ),
    )


def _comparison(
    given: _Comparison, path: str, specs: dict[str, TestSpec], max_elements: int
) -> Comparison:
    spec, test, missing = given.test, None, ""
    if spec is not None and _lacks_kernel(spec):
        missing = f"not judged: this server has no kernel {clean(spec['kernel'], MAX_NAME_CHARS)}"
    elif spec is not None:  # a thousand seeds share one spec: parse it once
        text = json.dumps(spec, sort_keys=True)
        test = specs.get(text) or TestSpec.parse(
            spec, max_elements=max_elements, path=f"{path}.test"
        )
        specs[text] = test
    outputs = given.outputs or {}
    if test is not None:
        fields.known(outputs, (*test.outputs, *test.downstream), f"{path}.outputs")
    return Comparison(
        outputs=outputs,
        name=given.name,
        test=test,
        tolerance={} if given.tolerance is None else given.tolerance.to_json(),
        arithmetic=given.arithmetic,
        words="\n".join(filter(None, (missing, given.words))),
        problem=given.problem or "",
    )


def _lacks_kernel(spec: Mapping[str, Any]) -> bool:
    """Return whether a spec names a kernel that this process doesn't have."""
    kernel = spec.get("kernel")
    return isinstance(kernel, str) and kernel not in KERNELS


def _failure(given: _Failure) -> dict[str, Any]:
    return {"expression": "", "message": "", **given.model_dump(exclude_none=True)}
