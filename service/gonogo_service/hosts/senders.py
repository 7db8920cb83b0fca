"""The sender of a message about an attempt: the first host that reports it owns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.ci.patterns import fits
from gonogo_service.hosts import store as hosts
from gonogo_service.jobs.model import AttemptRow


class ForeignSender(Exception):
    """A message about an attempt of another host, worker or device."""


class ConflictingContent(Exception):
    """A message that contradicts one that is stored."""


@dataclass(frozen=True)
class Sender:
    """The host whose key sealed a message."""

    id: str
    name: str
    queues: tuple[str, ...] = hosts.ANY
    """Patterns of the queues whose attempts it may run."""

    def check(self, value: object, what: str) -> None:
        """Raise ForeignSender unless a device or a worker is this host's."""
        if not isinstance(value, str) or not value.startswith(f"{self.name}/"):
            raise ForeignSender(f"{self.name} sent a message for the {what} {str(value)[:200]!r}")

    def check_queue(self, queue: str, what: str) -> None:
        """Raise ForeignSender unless the host may serve a queue; `what` needs it."""
        if not fits(self.queues, queue):
            raise ForeignSender(
                f"{self.name} may not {what} of {queue[:200]}; allowed: {', '.join(self.queues)}"
            )


def bind(attempt: AttemptRow, body: Mapping[str, Any], sender: Sender | None) -> None:
    """Bind an attempt to the worker and device of its first message; check every later one.

    Without a sender (in processes that read no messages) nothing is checked. Raises ForeignSender.
    """
    if sender is None:
        return
    if attempt.host_id is None:
        sender.check_queue(attempt.queue, f"run the attempt {attempt.id}")
        for name in ("worker", "device"):
            sender.check(body.get(name), name)
        attempt.host_id, attempt.host = sender.id, sender.name
        attempt.worker, attempt.device = body["worker"], body["device"]
        return
    if attempt.host_id != sender.id:
        raise ForeignSender(
            f"{sender.name} sent a message for an attempt of {attempt.device}: {attempt.id}"
        )
    for name in ("worker", "device"):
        if body.get(name) != getattr(attempt, name):
            raise ForeignSender(
                f"{sender.name} sent a message of the {name} {str(body.get(name))[:200]!r} for an"
                f" attempt of {getattr(attempt, name)}: {attempt.id}"
            )
