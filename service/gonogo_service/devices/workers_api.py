"""Device workers, as their heartbeats describe them."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo_service.devices import device_changes
from gonogo_service.devices import workers as stored
from gonogo_service.devices.api import HostChange
from gonogo_service.devices.workers import Worker
from gonogo_service.kit.answers import Cursor, Limit, make_router, missing
from gonogo_service.kit.database.paging import Page
from gonogo_service.people.context import Admin, Ctx, Reader

router = make_router("workers")


@dataclass(frozen=True)
class WorkerChanged:
    """A worker, and the IDs of its changed devices."""

    worker: str
    changed: list[str]


@router.get("/workers", summary="List device workers")
def workers(context: Ctx, _who: Reader, limit: Limit = 50, cursor: Cursor = None) -> Page[Worker]:
    """List the workers of the last week by name."""
    timeout_s = context.settings.heartbeat_timeout_s
    with context.reading() as session:
        return stored.list_(session, limit=limit, cursor=cursor, timeout_s=timeout_s)


def _drain(context: Ctx, actor: str, name: str, reason: str, drained: bool) -> WorkerChanged:
    with context.session() as session:
        changed = device_changes.drain_worker(session, name, drained, actor=actor, reason=reason)
    if changed is None:
        raise missing("worker", name)
    context.notifier.notify()
    return WorkerChanged(name, changed)


# a worker's name contains slashes (host/device/process), so it is the rest of the path
@router.post("/workers/{name:path}:drain", summary="Drain a worker")
def drain(context: Ctx, who: Admin, name: str, body: HostChange) -> WorkerChanged:
    """Drain a worker: its devices finish their current seeds and return the rest of their chunks.

    They accept nothing more, also from a later worker.
    """
    return _drain(context, who.actor, name, body.reason, True)


@router.post("/workers/{name:path}:undrain", summary="End the drain of a worker")
def undrain(context: Ctx, who: Admin, name: str, body: HostChange) -> WorkerChanged:
    """End the drain of a worker: its devices accept work again."""
    return _drain(context, who.actor, name, body.reason, False)
