"""The forms of what device hosts send and get: a host may send anything, and shared pages show it.

Requests are checked by these models and stay dicts: a batch has thousands of rows.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_service.gauges.model import GaugePart
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
from gonogo_service.kit.database.records import Documented, schema_of
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


class DeviceFacts(BaseModel, strict=True):
    """The facts of a device that are stored."""

    device: Label
    host: Label
    queue: Label
    name: Text
    arch: Label
    board: Label
    source: Label
    serial: Text | None = None
    pci: Text | None = None
    driver: Text | None = None
    health: Label | None = None
    reason: Text | None = None
    firmware: dict[Label, Text | int | float | None] | None = Field(None, max_length=64)


class HostHeartbeat(BaseModel, strict=True):
    """The status that a worker reports every few seconds."""

    worker: Label
    device: Label | None = None
    version: Text | None = None
    clock: Annotated[float, Field(ge=0, lt=1e12)] | None = None
    attempt: Label | None = None
    seed: int | None = Field(None, ge=0, le=2**53)
    stage: Label | None = None
    queues: list[Label] = Field([], max_length=256)
    devices: list[DeviceFacts] = Field([], max_length=MAX_DEVICES)


class AttemptClaim(BaseModel, strict=True):
    """Who claims an attempt."""

    worker: Name
    device: Name


class SentArtifact(BaseModel, strict=True):
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


class SentSeed(BaseModel):
    """The result of a (seed, repeat)."""

    seed: int
    repeat: int
    verdict: Verdict
    explanation: Explanation | None = None
    message: str | None = None
    arithmetic: str | None = None
    judge: str | None = None
    device: str | None = None
    host_run: str | None = None
    position: int | None = None
    duration_ms: float | None = None
    kernel_s: float | None = Field(None, description="Seconds of the kernel alone")
    outputs: dict[str, dict[str, Any]] = Field({}, description="Output -> its statistics")


class SentOutput(BaseModel):
    """An output of several seeds."""

    name: str
    statistics: list[str]
    fields: list[tuple[str, str | None]] = Field(description="Statistic, and member of it")
    numbers: str = Field(description="Base64 of a little-endian float64 per seed and field")
    same: dict[str, Any] = Field(description="Statistics that are alike in all seeds")
    different: dict[str, list[Any]] = Field(description="Statistics with a value per seed")


class SentColumns(BaseModel):
    """The outputs of kernels, of the rows at these places of the batch."""

    rows: list[int]
    outputs: list[SentOutput]


class ResultsBatch(BaseModel, strict=True):
    """A batch of results. gonogo_service.results.batch checks its rows and columns."""

    rows: Annotated[Any, Documented(list[SentSeed])] = ()
    columns: Annotated[Any, Documented(list[SentColumns])] = ()
    artifacts: list[SentArtifact] | None = Field(None, max_length=MAX_ARTIFACTS)


class AttemptEnd(BaseModel, strict=True):
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


class TriedStep(BaseModel, strict=True):
    """A step of a recovery, as devices.model.RecoveryStep."""

    rung: Text
    outcome: Text
    output: Text


class HealthEvidence(Form):
    """The evidence of a report on a device's health."""

    executor: Name | None = None
    canary: Name | None = None
    digests: dict[Name, Name] | None = None
    replay: Text | None = None
    steps: list[TriedStep] | None = None


class HealthReport(BaseModel, strict=True):
    """A report on a device's health."""

    device: Name
    worker: Name
    health: Literal["good", "bad"]
    reason: str | None = None
    routine: bool | None = None
    evidence: HealthEvidence | None = None


class OtherBuild(BaseModel):
    """The build that a job's build is compared with."""

    build: str
    arithmetic: str | None
    outputs: list[str] | None


class RequestedArtifacts(BaseModel):
    """Whether the first seed gets artifacts, and how many of the worst."""

    first: bool
    worst: int


@dataclass(frozen=True, kw_only=True)
class NumberedPart(GaugePart):
    """A part of a gauge; the pairs of the work name its number."""

    number: int


class PartsOfGauge(BaseModel):
    """The parts of a gauge that this attempt runs."""

    parts: list[NumberedPart]


class AttemptWork(BaseModel):
    """The work of an attempt."""

    attempt: str
    chunk: str
    job: str
    test: dict[str, Any]
    work: list[tuple[int, int]] = Field(description="Pairs of seed and repeat")
    build: str
    target: dict[str, str]
    context: str | dict[str, Any]
    arithmetic: str | None
    outputs: list[str] | None
    reference: OtherBuild | None
    artifacts: RequestedArtifacts
    gauge: PartsOfGauge | None
    seed_deadline_s: float
    first_seed_deadline_s: float


class DeviceOrder(BaseModel):
    """The order for a device, and how many canaries were requested."""

    order: Literal["work", "drain", "maintenance"]
    canaries: int


class Orders(BaseModel):
    """The answer to what a host says: whether to stop, and the orders for its devices."""

    canceled: bool
    orders: dict[str, DeviceOrder]
    lease_s: float


class HostToken(BaseModel):
    """The token of a host, which can't be shown again."""

    host: str
    token: str
    expires_at: datetime
    heartbeat_s: float


def taking(form: type[BaseModel]) -> dict[str, Any]:
    """Return what OpenAPI says of a body, which FastAPI itself doesn't read."""
    content = {"application/json": {"schema": schema_of(form)}}
    return {"requestBody": {"required": True, "content": content}}


def answering(form: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of an answer that is no model."""
    return {200: {"content": {"application/json": {"schema": schema_of(form)}}}}


def check(form: type[BaseModel], body: Mapping[str, Any]) -> None:
    """Raise BadField for a field that no worker sends so."""
    try:
        form.model_validate(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))[:100]
        shown = str(first.get("input"))[:100]
        raise BadField(field, shown, first["msg"][:200]) from None


def unpacked(content: bytes, encoding: str) -> tuple[dict[str, Any], int]:
    """Return the object of a body, and its bytes. Raises Problem: 415, 413 (unpacking), 400."""
    if encoding not in ("identity", "gzip"):
        words = f"Content-Encoding {encoding[:40]!r} isn't known (allowed: gzip)."
        raise Problem(415, words, slug="content-encoding")
    try:
        if encoding == "gzip":
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise Problem(
                    413, f"The body unpacks to more than {MAX_BYTES} bytes.", slug="body-too-large"
                )
        body = json.loads(content, parse_constant=_no_constant)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as problem:
        raise Problem(400, f"The body is no JSON object: {str(problem)[:200]}") from None
    if not isinstance(body, dict):
        raise Problem(400, "The body is no JSON object.")
    return body, len(content)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
