"""Devices and their workers: state, health and drains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from sqlalchemy.orm import InstrumentedAttribute, Session

from gonogo_service.devices import changes, store, workers
from gonogo_service.devices.model import DeviceEvidence, DeviceHealthRow, DeviceRow, WorkerRow
from gonogo_service.devices.noun import DeviceIn, HostChange
from gonogo_service.kit.answers import Cursor, Limit, make_router, missing, require
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import Documented
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.rows import answer_of, extended_answer, values
from gonogo_service.people.context import Admin, Ctx, Reader

router = make_router("devices")
workers_router = make_router("workers")

Device: Any = answer_of(DeviceRow)
DeviceChange: Any = extended_answer(
    DeviceHealthRow,
    "DeviceChange",
    without=("id", "device_id"),
    evidence=Annotated[dict[str, Any], Documented(DeviceEvidence)] | None,
)
DeviceWithHistory = extended_answer(
    DeviceRow,
    "DeviceWithHistory",
    history=(list[DeviceChange], "Newest first"),
)
Worker: Any = answer_of(WorkerRow)


@dataclass(frozen=True)
class HostOut:
    """A host, and the IDs of its changed devices."""

    host: str
    changed: list[str]


@dataclass(frozen=True)
class WorkerChanged:
    """A worker, and the IDs of its changed devices."""

    worker: str
    changed: list[str]


@router.get("/devices", summary="List devices", response_model=Page[Device])
def list_devices(context: Ctx, _who: Reader) -> Page[DeviceRow]:
    """List all devices with state, health, and the telemetry of their last attempt, on one page.

    States are idle, busy, offline. Health is good, suspect, bad or maintenance.
    """
    with context.reading() as session:
        rows = store.list_(session, timeout_s=context.settings.heartbeat_timeout_s)
    return Page(tuple(rows), None)


def shown(session: Session, device_id: str, **options: Any) -> Any:
    """Return a device with its history. Raises Problem 404 where there is none."""
    row = require(store.look(session, device_id, **options), "device", device_id)
    attributes = values(DeviceWithHistory, row, history=store.history(session, device_id))
    return DeviceWithHistory.model_validate(attributes)


@router.get("/devices/{device_id}", summary="Show a device", response_model=DeviceWithHistory)
def look(context: Ctx, _who: Reader, device_id: str) -> Any:
    """Show a device with its history, and the evidence for each change of health."""
    with context.reading() as session:
        return shown(session, device_id, timeout_s=context.settings.heartbeat_timeout_s)


@router.patch("/devices/{device_id}", summary="Change a device", response_model=DeviceWithHistory)
def change(context: Ctx, who: Admin, device_id: str, body: DeviceIn) -> Any:
    """Change a device. The dispatcher applies it at once, its worker within two seconds."""
    fields = body.model_dump(exclude_unset=True)
    if (body.health, body.drained, body.test) == (None, None, None):
        raise BadField("body", fields, "nothing to change", limit="any of health, drained, test")
    if (body.health, body.drained) != (None, None) and not body.reason.strip():
        raise BadField("reason", body.reason, "say why", limit="some text; a test alone needs none")
    with context.session() as session:
        require(changes.patch(session, device_id, fields, actor=who.actor), "device", device_id)
        return shown(session, device_id, timeout_s=context.settings.heartbeat_timeout_s)


@workers_router.get(
    "/workers",
    summary="List device workers",
    response_model=Page[Worker],
)
def list_workers(
    context: Ctx, _who: Reader, limit: Limit = 50, cursor: Cursor = None
) -> Page[WorkerRow]:
    """List the workers of the last week by name."""
    timeout_s = context.settings.heartbeat_timeout_s
    with context.reading() as session:
        return workers.list_(session, limit=limit, cursor=cursor, timeout_s=timeout_s)


def _drains(
    noun: str, column: InstrumentedAttribute[Any], answer: Callable[[str, list[str]], Any]
) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield verb, summary and endpoint of the changes of all devices of a host or a worker."""

    def endpoint(drained: bool) -> Callable[..., Any]:
        def drain(context: Ctx, who: Admin, name: str, body: HostChange) -> Any:
            with context.session() as session:
                changed = changes.drain_all(
                    session, column == name, drained, actor=who.actor, reason=body.reason
                )
            if changed is None:
                raise missing(noun, name)
            return answer(name, changed)

        drain.__doc__ = (
            f"""Drain a {noun}: its devices finish their current seeds and return the rest of
            their chunks. They accept nothing more, also from a later worker."""
            if drained
            else f"End the drain of a {noun}: its devices accept work again."
        )
        return drain

    yield "drain", f"Drain a {noun}", endpoint(True)
    yield "undrain", f"End the drain of a {noun}", endpoint(False)


for verb, summary, act in _drains("host", DeviceRow.host, HostOut):
    router.post(f"/hosts/{{name}}:{verb}", summary=summary, response_model=HostOut)(act)
for verb, summary, act in _drains("worker", DeviceRow.worker, WorkerChanged):
    # a worker's name contains slashes (host/device/process), so it is the rest of the path
    path = f"/workers/{{name:path}}:{verb}"
    workers_router.post(path, summary=summary, response_model=WorkerChanged)(act)
