"""The contents of artifacts by their kind, as a worker may send them and the API documents them.

A host may send anything, and shared pages show what is stored of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from gonogo.errors import FieldError
from gonogo.reports.forms import MAX_LONG_TEXT, MAX_NAME, is_plain, is_text
from gonogo.reports.texts import MAX_NAME_CHARS
from gonogo.spec.stages import StageTable

MAX_CELLS = 4096


def stored_text(value: str) -> str:
    """Return a text of a host. Raises ValueError if it can't be stored."""
    if not is_text(value, MAX_LONG_TEXT):
        raise ValueError("is no text that can be stored")
    return value


def plain_json(value: Any) -> Any:
    """Return JSON of a host. Raises ValueError if it is too large or too deep."""
    if not is_plain(value):
        raise ValueError("is too large or too deep, or holds what JSON lacks")
    return value


Text = Annotated[str, AfterValidator(stored_text)]
Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(stored_text)]
Key = Annotated[str, Field(max_length=MAX_NAME_CHARS), AfterValidator(stored_text)]
"""A name that is part of a key of the database."""
Number = Annotated[int | float, Field(ge=-1e300, le=1e300, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Size = Annotated[int, Field(ge=1, le=2**53)]
Plain = Annotated[Any, AfterValidator(plain_json)]
Matrix = list[Annotated[list[Number | None], Field(max_length=MAX_CELLS)]]


class Form(BaseModel, strict=True, extra="allow"):
    """Fields of others, such as a newer worker's, are plain JSON."""

    @model_validator(mode="after")
    def _others(self) -> Self:
        plain_json(self.model_extra)
        return self


class ErrorMapContent(Form):
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


class LogContent(Form):
    """The content of the kinds `log` and `triage`."""

    text: Text | None = None


class _Watcher(LogContent):
    """The content of the kind `watcher`."""

    log: Text | None = None
    prints: Text | None = None


class StagesContent(Form):
    """The content of the kind `stages`."""

    @model_validator(mode="after")
    def _parsed(self) -> Self:
        try:
            StageTable.parse(self.model_extra)
        except FieldError as problem:
            raise ValueError(str(problem)) from None
        return self


CONTENTS: Mapping[str, type[BaseModel]] = {
    "error_map": ErrorMapContent,
    "log": LogContent,
    "triage": LogContent,
    "watcher": _Watcher,
    "stages": StagesContent,
}
Content = ErrorMapContent | StagesContent | LogContent
"""Every content with a form; that of another kind is plain JSON."""
