"""Devices: their state, health and drains."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from gonogo_service.access.context import Admin, Ctx, Reader
from gonogo_service.kit.answers import answer, make_router, missing
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Strict
from gonogo_storage.db.states import DeviceHealth, DeviceState
from gonogo_storage.devices import devices as stored

router = make_router("devices")
MAX_REASON = 2000

Reason = Annotated[
    str,
    Field(min_length=1, max_length=MAX_REASON, description="Stored in the device's history"),
]


class DeviceOut(BaseModel):
    """A device; `device` is its name among all hosts, as results store it."""

    id: str
    device: str
    host: str
    name: str
    arch: str
    board: str
    serial: str | None
    pci: str | None
    firmware: dict[str, Any]
    driver: str | None
    source: str
    queues: list[str]
    worker: str | None
    attempt: str | None
    job: str | None
    state: DeviceState
    health: DeviceHealth
    reason: str | None
    drained: bool
    version: int
    telemetry: dict[str, Any] | None
    canary: dict[str, Any] | None = Field(
        description=(
            "The last one that passed: build, arch, digests of the outputs, time; `golden` is "
            "`golden`, `first` (unconfirmed) or `differs`"
        )
    )
    first_heard_at: str
    heard_at: str
    changed_at: str
    health_at: str


class DeviceChangeOut(BaseModel):
    """An entry of a device's history: of its health, its state, or a drain."""

    at: str
    what: Literal["health", "state", "drain"]
    before: str | None
    after: str
    actor: str
    reason: str | None
    evidence: dict[str, Any] | None


class DeviceWithHistory(DeviceOut):
    """A device with its history, newest first."""

    history: list[DeviceChangeOut]


class DevicePage(BaseModel):
    """Every known device, by host and name; there is always one page."""

    items: list[DeviceOut]
    next: None


class DeviceChange(Strict):
    """The fields to change, and the reason."""

    health: Literal["good", "maintenance"] | None = Field(
        None,
        description=(
            "`maintenance`: nothing runs on it; `good`: it gets work again once its canary passes"
        ),
    )
    drained: bool | None = Field(
        None, description="true: finish the current seed, return the rest, accept nothing more"
    )
    test: bool | None = Field(
        None, description="true: run the canary now, and store the outcome in the history"
    )
    reason: Reason


class HostChange(Strict):
    """The reason for a change of a host or worker."""

    reason: Reason


class HostOut(BaseModel):
    """A host, and the IDs of its changed devices."""

    host: str
    changed: list[str]


@router.get(
    "/devices",
    responses={200: {"model": DevicePage}},
    response_class=Response,
    summary="List devices",
)
def list_devices(context: Ctx, _who: Reader) -> Response:
    """List devices with state, health, and the telemetry of their last attempt.

    States are idle, busy, offline. Health is good, suspect, bad or maintenance.
    """
    with context.reading() as session:
        return answer(
            {
                "items": stored.list_(session, timeout_s=context.settings.heartbeat_timeout_s),
                "next": None,
            }
        )


@router.get(
    "/devices/{device_id}",
    responses={200: {"model": DeviceWithHistory}},
    response_class=Response,
    summary="Show a device",
)
def look(context: Ctx, _who: Reader, device_id: str) -> Response:
    """Show a device with its history, and the evidence for each change of health."""
    with context.reading() as session:
        device = stored.look(session, device_id, timeout_s=context.settings.heartbeat_timeout_s)
    if device is None:
        raise missing("device", device_id)
    return answer(device)


@router.patch(
    "/devices/{device_id}",
    responses={200: {"model": DeviceWithHistory}},
    response_class=Response,
    summary="Change a device",
)
def change(context: Ctx, who: Admin, device_id: str, body: DeviceChange) -> Response:
    """Change a device. The dispatcher applies it at once, its worker within two seconds."""
    fields = body.model_dump(exclude_unset=True)
    if not {"health", "drained", "test"} & {
        name for name, value in fields.items() if value is not None
    }:
        raise BadField("body", fields, "nothing to change", limit="any of health, drained, test")
    with context.session() as session:
        device = stored.patch(session, device_id, fields, actor=who.actor)
        if device is None:
            raise missing("device", device_id)
    context.notifier.notify()
    return answer(device)


def _drain(context: Ctx, actor: str, host: str, reason: str, drained: bool) -> Response:
    with context.session() as session:
        changed = stored.drain_host(session, host, drained, actor=actor, reason=reason)
    if changed is None:
        raise missing("host", host)
    context.notifier.notify()
    return answer({"host": host, "changed": changed})


@router.post(
    "/hosts/{host}:drain",
    responses={200: {"model": HostOut}},
    response_class=Response,
    summary="Drain a host",
)
def drain(context: Ctx, who: Admin, host: str, body: HostChange) -> Response:
    """Drain a host: its devices finish their current seeds and return the rest of their chunks.

    They accept nothing more.
    """
    return _drain(context, who.actor, host, body.reason, True)


@router.post(
    "/hosts/{host}:undrain",
    responses={200: {"model": HostOut}},
    response_class=Response,
    summary="End the drain of a host",
)
def undrain(context: Ctx, who: Admin, host: str, body: HostChange) -> Response:
    """End the drain of a host: its devices accept work again."""
    return _drain(context, who.actor, host, body.reason, False)
