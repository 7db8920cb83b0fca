"""The form of an attempt's evidence: artifacts, its last words, and reports on a device's health.

A host may send anything, and shared pages show what is stored of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from gonogo.errors import FieldError
from gonogo.reports.forms import MAX_LONG_TEXT, MAX_NAME, is_plain, is_text
from gonogo.reports.texts import MAX_NAME_CHARS
from gonogo.spec.stages import StageTable
from gonogo_workers.queue import MessageRefused

MAX_ARTIFACTS = 10_000
MAX_CELLS = 4096
MAX_ITEMS = 100_000


def _text(value: str) -> str:
    if not is_text(value, MAX_LONG_TEXT):
        raise ValueError("is no text that can be stored")
    return value


def _plain(value: Any) -> Any:
    if not is_plain(value):
        raise ValueError("is too large or too deep, or holds what JSON lacks")
    return value


Text = Annotated[str, AfterValidator(_text)]
Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_text)]
Key = Annotated[str, Field(max_length=MAX_NAME_CHARS), AfterValidator(_text)]
"""A name that is part of a key of the database."""
Number = Annotated[int | float, Field(ge=-1e300, le=1e300, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Size = Annotated[int, Field(ge=1, le=2**53)]
Plain = Annotated[Any, AfterValidator(_plain)]
Numbers = Annotated[list[Number | None], Field(max_length=MAX_ITEMS)]
Matrix = Annotated[list[Annotated[list[Number | None], Field(max_length=MAX_CELLS)]], Field()]


class _Form(BaseModel, strict=True, extra="allow"):
    """Fields of others, such as a newer worker's, are plain JSON."""

    @model_validator(mode="after")
    def _others(self) -> Self:
        _plain(self.model_extra)
        return self


class _Term(_Form):
    """A term of a diagnosis."""

    output: Name
    name: Name
    words: Text
    unit: Name | None = None
    tiles: Count = 0
    group: Count = 1
    coefficients: Numbers
    errors: Numbers
    wrong: bool
    can_tell: bool = True
    scatter: Number | None = None
    rows: list[Count] = Field([], max_length=MAX_ITEMS)

    @model_validator(mode="after")
    def _alike(self) -> Self:
        if self.errors and len(self.errors) != len(self.coefficients):
            raise ValueError("has not an error for each coefficient")
        return self


class _Terms(_Form):
    """The content of the kind `coefficients`."""

    terms: list[_Term] = Field(max_length=1000)


class _Diagnosis(_Terms):
    """The content of the kind `diagnosis`. The service adds `seed` and `stages`."""

    words: Text
    can_tell: bool
    residuals: dict[Name, dict[Name, Number | None]] | None = None
    faults: dict[Name, Text] | None = None
    seed: None = None
    stages: None = None


class _ErrorMap(_Form):
    """The content of the kind `error_map`."""

    rows: Size
    features: Size
    tile: Size
    group: list[Size] = Field(min_length=2, max_length=2)
    cells: list[Annotated[int, Field(ge=1, le=MAX_CELLS)]] = Field(min_length=2, max_length=2)
    format: Name | None = None
    max_abs: Matrix
    signed_mean: Matrix
    nonfinite: list[Annotated[list[Count], Field(max_length=MAX_CELLS)]]
    max_ulp: Matrix | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        down, across = self.cells
        for matrix in (self.max_abs, self.signed_mean, self.nonfinite, self.max_ulp):
            if matrix is not None and [len(line) for line in matrix] != [across] * down:
                raise ValueError(f"must have a number for each of {down} x {across} cells")
        return self


class _Log(_Form):
    """The content of the kinds `log` and `triage`."""

    text: Text | None = None


class _Watcher(_Log):
    """The content of the kind `watcher`."""

    log: Text | None = None
    prints: Text | None = None


class _Stages(_Form):
    """The content of the kind `stages`."""

    @model_validator(mode="after")
    def _parsed(self) -> Self:
        try:
            StageTable.parse(self.model_extra)
        except FieldError as problem:
            raise ValueError(str(problem)) from None
        return self


class _Artifact(BaseModel, strict=True):
    """An artifact; the content of a kind that nobody shows is plain JSON."""

    kind: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_text)]
    seed: Count
    repeat: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = 0
    output: Key | None = None
    content: dict[str, Any]

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        form = _CONTENTS.get(self.kind)
        if form is not None:
            form.model_validate(self.content)
        else:
            _plain(self.content)
        return self


_CONTENTS: Mapping[str, type[BaseModel]] = {
    "diagnosis": _Diagnosis,
    "coefficients": _Terms,
    "error_map": _ErrorMap,
    "log": _Log,
    "triage": _Log,
    "watcher": _Watcher,
    "stages": _Stages,
}


class _Results(BaseModel, strict=True):
    """A results message, without its rows."""

    artifacts: list[_Artifact] | None = Field(None, max_length=MAX_ARTIFACTS)


class _Finished(BaseModel, strict=True):
    """The last message of an attempt. Its texts are cut and cleaned where they are stored."""

    outcome: Name | None = None
    sent: list[Annotated[list[Count], Field(min_length=2, max_length=2)]] | None = None
    batches: Count | None = None
    telemetry: dict[Name, Plain] | None = None
    log_tail: str | None = None
    error: str | None = None


class _Started(BaseModel, strict=True):
    """The first message of an attempt."""

    worker: Name
    device: Name
    host: Name | None = None
    host_run: Name | None = None


class _Evidence(_Form):
    """The evidence of a report on a device's health."""

    executor: Name | None = None
    canary: Name | None = None
    digests: dict[Name, Name] | None = None


class _Health(BaseModel, strict=True):
    """A report on a device's health."""

    device: Name
    worker: Name
    health: Name
    reason: str | None = None
    evidence: _Evidence | None = None


_FORMS: Mapping[str, type[BaseModel]] = {
    "results": _Results,
    "finished": _Finished,
    "started": _Started,
    "health": _Health,
}


def check(task: str, body: Mapping[str, Any]) -> None:
    """Raise MessageRefused for a field that no worker sends in a message of this task."""
    try:
        _FORMS[task].model_validate(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))[:100]
        raise MessageRefused("content", f"the field {field}: {first['msg'][:200]}") from None
