"""Seals a worker's messages: with its host's key, a rising number, and the service's time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gonogo_workers import queue
from gonogo_workers.messages.identity import CurrentIdentity
from gonogo_workers.queue import Message, Numbers, ServiceClock

NUMBERS = "message-number"


class Sealer:
    """One for each worker; safe in any thread."""

    def __init__(self, folder: Path) -> None:
        """Raise InfrastructureError for a host that isn't enrolled."""
        self.clock = ServiceClock()
        self._identity = CurrentIdentity(folder)
        self._numbers = Numbers(self.clock.now, folder / NUMBERS)

    @property
    def host(self) -> str:
        """The host's name."""
        return self._identity.current.name

    def seal(self, task: str, body: Mapping[str, Any]) -> str:
        """Return a sealed message to the service."""
        return queue.seal(self._identity.current.key, task, body, self._numbers.next())

    def unseal(self, task: str, text: str) -> Message:
        """Return a message of the service. Raises MessageRefused for any other."""
        service = self._identity.current.service
        return queue.unseal(text, task, service.named, now=self.clock.now())
