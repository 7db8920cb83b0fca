"""The worker's heartbeat: its identity, queues and current work, every few seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)


@dataclass
class Vitals:
    """The worker's current work.

    Written by the attempt's thread, read by the heartbeat: single attributes, so no lock is needed.
    """

    attempt: str | None = None
    device: str | None = None
    seed: int | None = None
    stage: str = "idle"

    def begin(self, attempt: str, device: str) -> None:
        """Record that an attempt begins on a device."""
        self.seed, self.device, self.attempt = None, device, attempt

    def end(self) -> None:
        """Record that the attempt has ended."""
        self.attempt, self.seed, self.stage = None, None, "idle"


class Pulse:
    """A thread that publishes the vitals every `every_s` seconds, the first time at once.

    A heartbeat that can't be published is lost and not repeated: the next one carries the same
    facts.
    """

    def __init__(
        self,
        identity: Callable[[], Mapping[str, Any]],
        vitals: Vitals,
        publish: Callable[[Mapping[str, Any]], None],
        every_s: float,
    ) -> None:
        self._identity = identity
        self._vitals = vitals
        self._publish = publish
        self._every_s = every_s
        self._stop = threading.Event()
        self._next = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        """Send the first heartbeat."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more heartbeats; don't wait for one that hangs in the broker's connection."""
        self._stop.set()
        self._next.set()
        if self._thread.is_alive():
            self._thread.join(0.5)

    def soon(self) -> None:
        """Send the next heartbeat now: something changed that the service should know."""
        self._next.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            vitals = self._vitals
            self._next.clear()
            body = {
                **self._identity(),
                "attempt": vitals.attempt,
                "attempt_device": vitals.device,
                "seed": vitals.seed,
                "stage": vitals.stage,
            }
            try:
                self._publish(body)
                self._failing = False
            except Exception as problem:  # any error of the broker's client
                if not self._failing:
                    log.warning("no heartbeat: %s", problem)
                self._failing = True
            self._next.wait(self._every_s)
