"""Device workers, as their heartbeats describe them."""

from __future__ import annotations

from fastapi import Response
from pydantic import BaseModel

from gonogo_service.access.context import Admin, Ctx, Reader
from gonogo_service.api.fleet.devices import HostChange
from gonogo_service.kit.answers import answer, make_router, missing
from gonogo_storage.db.states import WorkerState
from gonogo_storage.devices import devices
from gonogo_storage.devices import workers as stored

router = make_router("workers")


class WorkerOut(BaseModel):
    """A worker with its state and attempt."""

    name: str
    host: str | None
    device: str | None
    queues: list[str]
    state: WorkerState
    attempt: str | None
    seed: int | None
    stage: str | None
    first_heard_at: str
    heard_at: str


class WorkerPage(BaseModel):
    """The workers of the last week; there is always one page."""

    items: list[WorkerOut]
    next: None


class WorkerChanged(BaseModel):
    """A worker, and the IDs of its changed devices."""

    worker: str
    changed: list[str]


@router.get(
    "/workers",
    responses={200: {"model": WorkerPage}},
    response_class=Response,
    summary="List device workers",
)
def workers(context: Ctx, _who: Reader) -> Response:
    """List workers by name."""
    with context.reading() as session:
        return answer(
            {
                "items": stored.list_(session, timeout_s=context.settings.heartbeat_timeout_s),
                "next": None,
            }
        )


def _drain(context: Ctx, actor: str, name: str, reason: str, drained: bool) -> Response:
    with context.session() as session:
        changed = devices.drain_worker(session, name, drained, actor=actor, reason=reason)
    if changed is None:
        raise missing("worker", name)
    context.notifier.notify()
    return answer({"worker": name, "changed": changed})


# a worker's name contains slashes (host/device/process), so it is the rest of the path
@router.post(
    "/workers/{name:path}:drain",
    responses={200: {"model": WorkerChanged}},
    response_class=Response,
    summary="Drain a worker",
)
def drain(context: Ctx, who: Admin, name: str, body: HostChange) -> Response:
    """Drain a worker: its devices finish their current seeds and return the rest of their chunks.

    They accept nothing more, also from a later worker.
    """
    return _drain(context, who.actor, name, body.reason, True)


@router.post(
    "/workers/{name:path}:undrain",
    responses={200: {"model": WorkerChanged}},
    response_class=Response,
    summary="End the drain of a worker",
)
def undrain(context: Ctx, who: Admin, name: str, body: HostChange) -> Response:
    """End the drain of a worker: its devices accept work again."""
    return _drain(context, who.actor, name, body.reason, False)
