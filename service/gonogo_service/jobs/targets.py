"""Checks of the kind of device that a job's target names."""

from __future__ import annotations

from sqlalchemy.orm import Session

from gonogo.devices.boards import ARCHES, BOARDS, arch_of
from gonogo.errors import FieldError
from gonogo.fields import choice
from gonogo.settings import Settings
from gonogo_service.jobs import queue_estimate
from gonogo_service.jobs.bodies import Target

_REMEDY = "; another name is known once a worker with it has run"


def check_kind(session: Session, target: Target, settings: Settings) -> None:
    """Raise FieldError for an architecture or a board that no device can have.

    Those that are sold are known, so that jobs may wait for a host that comes later, and those of
    every device, worker and setting so far.
    """
    seen = queue_estimate.kinds(session) | {(settings.arch, settings.board)}
    if (target.arch, target.board) in seen:
        return
    arches = sorted({*ARCHES, *(arch for arch, _ in seen)})
    boards = sorted({*BOARDS, *(board for _, board in seen)})
    choice(target.arch, arches, "target.arch", "unknown architecture", more=_REMEDY)
    made_for = arch_of(target.board)
    if made_for is None:
        choice(target.board, boards, "target.board", "unknown board", more=_REMEDY)
    if made_for is not None and made_for != target.arch:
        raise FieldError(
            "target.board",
            target.board,
            f"is a board with chips of {made_for}, not of {target.arch}",
            limit=f"target.arch {made_for}, or another board",
        )


def why_it_waits(session: Session, queue: str, settings: Settings) -> str | None:
    """Return in words that no live worker serves a queue, and which are served; else None."""
    served = queue_estimate.served(session, timeout_s=settings.heartbeat_timeout_s)
    if queue in served:
        return None
    others = f"those with workers: {', '.join(sorted(served))}" if served else "no worker is live"
    start = queue_estimate.start_command(queue)
    return f"no live worker serves the queue {queue} now ({others}); start one: {start}"
