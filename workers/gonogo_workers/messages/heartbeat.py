"""The worker's pulse: who it is, which queues it serves and what it does now, every few seconds,
idle or busy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

EXPIRES_S = 60.0
"""A pulse is news for this long; a backlog of older ones would only keep the ingest busy."""


@dataclass
class Vitals:
    """What the worker does now. Written by the attempt's thread, read by the pulse: single
    attributes, so no lock is needed.
    """

    attempt: str | None = None
    seed: int | None = None
    stage: str = "idle"

    def begin(self, attempt: str) -> None:
        """An attempt begins."""
        self.seed, self.attempt = None, attempt

    def end(self) -> None:
        """It has ended."""
        self.attempt, self.seed, self.stage = None, None, "idle"


class Pulse:
    """A thread that publishes the vitals every `every_s` seconds, the first time at once.

    A beat that can't be published is lost and not repeated: the next one says the same.
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
        self._thread.start()

    def stop(self) -> None:
        """No more beats; doesn't wait for one that hangs in the broker's connection."""
        self._stop.set()
        self._next.set()
        self._thread.join(0.5)

    def soon(self) -> None:
        """Something changed that the service should know: the next beat comes now."""
        self._next.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            vitals = self._vitals
            self._next.clear()
            body = {
                **self._identity(),
                "attempt": vitals.attempt,
                "seed": vitals.seed,
                "stage": vitals.stage,
                "at": time.time(),
            }
            try:
                self._publish(body)
                self._failing = False
            except Exception as problem:  # whatever the broker's client raises
                if not self._failing:
                    log.warning("no heartbeat: %s", problem)
                self._failing = True
            self._next.wait(self._every_s)
