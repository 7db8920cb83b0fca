"""Keeps a worker's idea of the service's time right: clocks drift by seconds a day."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from gonogo.errors import InfrastructureError
from gonogo_workers.messages.exchange import Answer, check_clock
from gonogo_workers.queue import ServiceClock

log = logging.getLogger(__name__)

EVERY_S = 600.0


class Timekeeper:
    """A thread that asks for the time every ten minutes; an answer that doesn't come is no matter.

    A host whose clock is set wrong meanwhile is only told so: its messages use the service's time.
    """

    def __init__(
        self, ask: Callable[[], Answer], clock: ServiceClock, every_s: float = EVERY_S
    ) -> None:
        self._ask, self._clock, self._every_s = ask, clock, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timekeeper", daemon=True)

    def start(self) -> None:
        """Ask for the first time after the interval."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; don't wait for an answer."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                answer = self._ask()
                self._clock.synchronize(answer.skew_s)
                check_clock(answer)
            except InfrastructureError as problem:
                log.warning("%s", problem)
