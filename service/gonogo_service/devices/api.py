"""Devices: their state, health and drains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from gonogo_service.devices import device_changes
from gonogo_service.devices import store as stored
from gonogo_service.devices.store import Device, DeviceWithHistory
from gonogo_service.kit.answers import make_router, missing
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Admin, Ctx, Reader

router = make_router("devices")
MAX_REASON = 2000

Reason = Annotated[
    str,
    Field(min_length=1, max_length=MAX_REASON, description="Stored in the device's history"),
]


class DeviceIn(Strict):
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
    reason: str = Field(
        "",
        max_length=MAX_REASON,
        description="Stored in the device's history; needed for `health` and `drained`",
    )


class HostChange(Strict):
    """The reason for a change of a host or worker."""

    reason: Reason


@dataclass(frozen=True)
class HostOut:
    """A host, and the IDs of its changed devices."""

    host: str
    changed: list[str]


@router.get("/devices", summary="List devices")
def list_devices(context: Ctx, _who: Reader) -> Page[Device]:
    """List all devices with state, health, and the telemetry of their last attempt, on one page.

    States are idle, busy, offline. Health is good, suspect, bad or maintenance.
    """
    with context.reading() as session:
        return stored.list_(session, timeout_s=context.settings.heartbeat_timeout_s)


@router.get("/devices/{device_id}", summary="Show a device")
def look(context: Ctx, _who: Reader, device_id: str) -> DeviceWithHistory:
    """Show a device with its history, and the evidence for each change of health."""
    with context.reading() as session:
        device = stored.look(session, device_id, timeout_s=context.settings.heartbeat_timeout_s)
    if device is None:
        raise missing("device", device_id)
    return device


@router.patch("/devices/{device_id}", summary="Change a device")
def change(context: Ctx, who: Admin, device_id: str, body: DeviceIn) -> DeviceWithHistory:
    """Change a device. The dispatcher applies it at once, its worker within two seconds."""
    fields = body.model_dump(exclude_unset=True)
    if not {"health", "drained", "test"} & {
        name for name, value in fields.items() if value is not None
    }:
        raise BadField("body", fields, "nothing to change", limit="any of health, drained, test")
    if (body.health, body.drained) != (None, None) and not body.reason.strip():
        raise BadField("reason", body.reason, "say why", limit="some text; a test alone needs none")
    with context.session() as session:
        device = device_changes.patch(session, device_id, fields, actor=who.actor)
        if device is None:
            raise missing("device", device_id)
    context.notifier.notify()
    return device


def _drain(context: Ctx, actor: str, host: str, reason: str, drained: bool) -> HostOut:
    with context.session() as session:
        changed = device_changes.drain_host(session, host, drained, actor=actor, reason=reason)
    if changed is None:
        raise missing("host", host)
    context.notifier.notify()
    return HostOut(host, changed)


@router.post("/hosts/{host}:drain", summary="Drain a host")
def drain(context: Ctx, who: Admin, host: str, body: HostChange) -> HostOut:
    """Drain a host: its devices finish their current seeds and return the rest of their chunks.

    They accept nothing more.
    """
    return _drain(context, who.actor, host, body.reason, True)


@router.post("/hosts/{host}:undrain", summary="End the drain of a host")
def undrain(context: Ctx, who: Admin, host: str, body: HostChange) -> HostOut:
    """End the drain of a host: its devices accept work again."""
    return _drain(context, who.actor, host, body.reason, False)
