"""The forms of what device hosts send: a host may send anything, and shared pages show it."""

from __future__ import annotations

import gzip
import io
import json
import zlib
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
from gonogo_service.kit.problems import BadField, Problem

MAX_BYTES = 32 * 2**20
"""The largest body, unpacked."""
MAX_ARTIFACTS = 10_000
MAX_DEVICES = 64
"""The devices that one worker serves."""
MAX_TELEMETRY = 10_000
Text = str
"""It is cut where it is stored: a reason may have the end of a log."""
Label = Annotated[str, Field(max_length=300)]


class Device(BaseModel, strict=True):
    """The facts of a device that are stored."""

    device: Label
    host: Label
    queue: Label
    name: Text | None = None
    arch: Label | None = None
    board: Label | None = None
    serial: Text | None = None
    pci: Text | None = None
    driver: Text | None = None
    source: Label | None = None
    health: Label | None = None
    reason: Text | None = None
    firmware: dict[Label, Text | int | float | None] | None = Field(None, max_length=64)


class Heartbeat(BaseModel, strict=True):
    """The status that a worker reports every few seconds."""

    worker: Label
    device: Label | None = None
    version: Text | None = None
    clock: Annotated[float, Field(ge=0, lt=1e12)] | None = None
    attempt: Label | None = None
    attempt_device: Label | None = None
    seed: int | None = Field(None, ge=0, le=2**53)
    stage: Label | None = None
    queues: list[Label] = Field([], max_length=256)
    devices: list[Device] = Field([], max_length=MAX_DEVICES)


class Claim(BaseModel, strict=True):
    """Who claims an attempt."""

    worker: Name
    device: Name


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


class Results(BaseModel, strict=True):
    """A batch of results, without its rows: gonogo_service.results.batch reads these."""

    artifacts: list[_Artifact] | None = Field(None, max_length=MAX_ARTIFACTS)


class Finish(BaseModel, strict=True):
    """The end of an attempt. Its texts are cut and cleaned where they are stored."""

    outcome: Name | None = None
    sent: list[Annotated[list[Count], Field(min_length=2, max_length=2)]] | None = None
    batches: Count | None = None
    telemetry: dict[Name, Plain] | None = None
    log_tail: str | None = None
    error: str | None = None

    @model_validator(mode="after")
    def _short(self) -> Self:
        if len(str(self.telemetry)) > MAX_TELEMETRY:
            raise ValueError(f"telemetry of more than {MAX_TELEMETRY} characters")
        return self


class _Evidence(Form):
    """The evidence of a report on a device's health."""

    executor: Name | None = None
    canary: Name | None = None
    digests: dict[Name, Name] | None = None


class Health(BaseModel, strict=True):
    """A report on a device's health."""

    device: Name
    worker: Name
    health: Name
    reason: str | None = None
    evidence: _Evidence | None = None


def check(form: type[BaseModel], body: Mapping[str, Any]) -> None:
    """Raise BadField for a field that no worker sends so."""
    try:
        form.model_validate(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))[:100]
        shown = str(first.get("input"))[:100]
        raise BadField(field, shown, first["msg"][:200]) from None


def unpacked(content: bytes, encoding: str) -> dict[str, Any]:
    """Return the object of a body. Raises Problem: 415, 413 (while unpacking), 400."""
    if encoding not in ("identity", "gzip"):
        words = f"Content-Encoding {encoding[:40]!r} isn't known (allowed: gzip)."
        raise Problem(415, words, slug="content-encoding")
    try:
        if encoding == "gzip":
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise Problem(413, f"The body unpacks to more than {MAX_BYTES} bytes.")
        body = json.loads(content, parse_constant=_no_constant)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as problem:
        raise Problem(400, f"The body is no JSON object: {str(problem)[:200]}") from None
    if not isinstance(body, dict):
        raise Problem(400, "The body is no JSON object.")
    return body


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
