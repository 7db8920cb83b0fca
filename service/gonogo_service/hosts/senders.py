"""The host that a request comes from, and the attempts that are its own."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo.ci.patterns import fits
from gonogo_service.hosts import store as hosts
from gonogo_service.jobs.model import AttemptRow


class ForeignSender(Exception):
    """A request about an attempt, a worker or a device of another host."""


class ConflictingContent(Exception):
    """A batch that contradicts one that is stored."""


class OthersAttempt(Exception):
    """Another worker has claimed the attempt."""


class AttemptOver(Exception):
    """The attempt has ended, its job is canceled or over, or it doesn't exist."""


@dataclass(frozen=True)
class Sender:
    """The host whose token a request shows."""

    id: str
    name: str
    queues: tuple[str, ...] = hosts.ANY
    """Patterns of the queues whose attempts it may run."""

    def check(self, value: object, what: str) -> None:
        """Raise ForeignSender unless a device or a worker is this host's."""
        if not isinstance(value, str) or not value.startswith(f"{self.name}/"):
            raise ForeignSender(f"{self.name} sent a request for the {what} {str(value)[:200]!r}")

    def check_queue(self, queue: str, what: str) -> None:
        """Raise ForeignSender unless the host may serve a queue; `what` needs it."""
        if not fits(self.queues, queue):
            raise ForeignSender(
                f"{self.name} may not {what} of {queue[:200]}; allowed: {', '.join(self.queues)}"
            )


def claimed(attempt: AttemptRow, worker: str, device: str, sender: Sender) -> None:
    """Give an attempt to the worker that claims it; the same worker may claim it again.

    Raises ForeignSender for the worker or device of another host, and for a queue that the host may
    not serve, and OthersAttempt where another worker has it.
    """
    sender.check_queue(attempt.queue, f"run the attempt {attempt.id}")
    sender.check(worker, "worker")
    sender.check(device, "device")
    if attempt.host_id is None:
        attempt.host_id, attempt.host = sender.id, sender.name
        attempt.worker, attempt.device = worker, device
    elif (attempt.host_id, attempt.worker, attempt.device) != (sender.id, worker, device):
        raise OthersAttempt(f"the worker {attempt.worker} has the attempt {attempt.id}")


def owned(attempt: AttemptRow, sender: Sender | None) -> None:
    """Raise ForeignSender unless the sender's host has claimed the attempt.

    Without a sender (no host sent it) nothing is checked.
    """
    if sender is not None and attempt.host_id != sender.id:
        raise ForeignSender(f"{sender.name} sent a request for an attempt that it hasn't claimed")
