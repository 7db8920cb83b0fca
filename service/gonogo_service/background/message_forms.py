"""The forms of hosts' messages: heartbeats, artifacts, last words, reports on a device's health.

A host may send anything, and shared pages show what is stored of it. Texts are cut where they are
stored: a reason may have the end of a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from gonogo_service.jobs.artifact_contents import (
    CONTENTS,
    Count,
    Form,
    Key,
    Name,
    Plain,
    plain_json,
    stored_text,
)
from gonogo_workers.queue import MessageRefused

MAX_ARTIFACTS = 10_000
Short = Annotated[str, Field(max_length=300)]


class _Artifact(BaseModel, strict=True):
    """An artifact; the content of a kind that nobody shows is plain JSON."""

    kind: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(stored_text)]
    seed: Count
    repeat: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = 0
    output: Key | None = None
    content: dict[str, Any]

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        form = CONTENTS.get(self.kind)
        if form is not None:
            form.model_validate(self.content)
        else:
            plain_json(self.content)
        return self


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


class _Evidence(Form):
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


class _Device(BaseModel, strict=True):
    """The facts of a device that are stored."""

    device: Short
    host: Short
    queue: Short
    name: str | None = None
    arch: Short | None = None
    board: Short | None = None
    serial: str | None = None
    pci: str | None = None
    driver: str | None = None
    source: Short | None = None
    health: Short | None = None
    reason: str | None = None
    firmware: dict[Short, str | int | float | None] | None = Field(None, max_length=64)


class _Beat(BaseModel, strict=True):
    """The fields of a heartbeat that are stored."""

    worker: Short
    device: Short | None = None
    attempt: Short | None = None
    attempt_device: Short | None = None
    seed: int | None = Field(None, ge=0, le=2**53)
    stage: Short | None = None
    queues: list[Short] | None = Field(None, max_length=256)
    devices: list[_Device] | None = None


_FORMS: Mapping[str, type[BaseModel]] = {
    "results": _Results,
    "finished": _Finished,
    "started": _Started,
    "health": _Health,
    "heartbeat": _Beat,
}


def check(task: str, body: Mapping[str, Any]) -> None:
    """Raise MessageRefused for a field that no worker sends in a message of this task."""
    try:
        _FORMS[task].model_validate(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))[:100]
        raise MessageRefused("content", f"the field {field}: {first['msg'][:200]}") from None
