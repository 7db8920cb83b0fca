"""The longest stall: time without a stored seed, while work waited and no fault was held."""

from __future__ import annotations

import threading
import time

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from benchmarks.chaos.load import FINAL
from benchmarks.chaos.site import Site
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import reading

EVERY_S = 0.25


class StallWatch(threading.Thread):
    """Looks four times a second at the number of stored seeds."""

    def __init__(self, site: Site) -> None:
        super().__init__(name="stalls", daemon=True)
        self._site = site
        self._stop_event = threading.Event()
        self.longest_s = 0.0
        self.longest_at = 0.0
        """When it ended, in seconds since the start of the run."""

    def close(self) -> None:
        """End the thread."""
        self._stop_event.set()
        self.join()

    def run(self) -> None:
        """Watch until `close`."""
        began = since = time.monotonic()
        stored = -1
        while not self._stop_event.wait(EVERY_S):
            now = time.monotonic()
            seen = self._look()
            if seen is None:
                if self._site.is_held:
                    since = now
                continue
            done, waiting = seen
            if done != stored or not waiting or self._site.is_held:
                stored, since = done, now
            since = max(since, self._site.released_at)
            if now - since > self.longest_s:
                self.longest_s, self.longest_at = now - since, now - began

    def _look(self) -> tuple[int, bool] | None:
        """Return the number of stored seeds, and whether work waits."""
        try:
            with reading(self._site.engine) as current:
                done = int(current.scalar(select(func.coalesce(func.sum(JobRow.done), 0))) or 0)
                waiting = select(JobRow.id).where(JobRow.state.not_in(FINAL)).limit(1)
                return done, current.scalar(waiting) is not None
        except DBAPIError:
            return None
