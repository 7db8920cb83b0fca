"""The form of a heartbeat: a host may send anything, and shared pages show what is stored of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from gonogo_workers.queue import MessageRefused

Text = str
"""It is cut where it is stored: a reason may have the end of a log."""
Name = Annotated[str, Field(max_length=300)]


class _Device(BaseModel, strict=True):
    """The facts of a device that are stored."""

    device: Name
    host: Name
    queue: Name
    name: Text | None = None
    arch: Name | None = None
    board: Name | None = None
    serial: Text | None = None
    pci: Text | None = None
    driver: Text | None = None
    source: Name | None = None
    health: Name | None = None
    reason: Text | None = None
    firmware: dict[Name, Text | int | float | None] | None = Field(None, max_length=64)


class _Beat(BaseModel, strict=True):
    """The fields of a heartbeat that are stored."""

    worker: Name
    device: Name | None = None
    attempt: Name | None = None
    attempt_device: Name | None = None
    seed: int | None = Field(None, ge=0, le=2**53)
    stage: Name | None = None
    queues: list[Name] | None = Field(None, max_length=256)
    devices: list[_Device] | None = None


def check(body: Mapping[str, Any]) -> None:
    """Raise MessageRefused for a heartbeat with a field that no worker sends."""
    try:
        _Beat.model_validate(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))[:100]
        raise MessageRefused("content", f"the field {field}: {first['msg']}") from None
