"""The flow of jobs in the database alone: what a caller, the dispatcher and workers do, in one
transaction. The rows that it returns stay up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

import stored_attempts
import unchecked
from gonogo_service.jobs import attempts, chunks, dispatching, events
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.dispatching import Sendable
from gonogo_service.jobs.events import Event
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.results import seeds as results
from handed_out import hand_out
from job_flow import QUEUE, new_job, row

NOW = utcnow()
LATER = NOW + timedelta(seconds=60)
FAST: dict[str, Any] = {"chunk_seconds": 1e-6}
"""Changes of a job whose chunks have one seed each."""


class Flow:
    """The flow of jobs within a transaction."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def submit(
        self, seeds: int | Sequence[int] = 4, *, now: datetime = NOW, **changes: Any
    ) -> JobRow:
        return jobs.create(self.session, new_job(seeds, **changes), now=now)

    def sequential(self, most: int = 500, *, start: int = 0, **changes: Any) -> JobRow:
        """Submit a job of sequential seeds."""
        policy = {"stop_on_finding": True, "request": {"seeds": {"policy": "sequential"}}}
        return self.submit(range(start, start + most), **{**policy, **changes})

    def choose(self, count: int = 1000, queue: str = QUEUE) -> list[chunks.Place]:
        return chunks.choose(self.session, queue, count)

    def send(
        self, count: int = 1000, *, start: bool = True, queue: str = QUEUE, now: datetime = NOW
    ) -> list[Sendable]:
        """Send waiting chunks; with `start`, workers start their attempts."""
        dispatching.dispatch(self.session, self.choose(count, queue), now=now)
        sendable = hand_out(self.session, now=now)
        for item in sendable if start else ():
            self.start(item, now=now)
        return sendable

    def start(self, item: Sendable, *, now: datetime = NOW, **about: Any) -> str | None:
        """Let a worker claim an attempt; None where it can't."""
        return unchecked.started(self.session, item.attempt, {"worker": "w", **about}, now=now)

    def store(
        self,
        item: Sendable,
        *rows: dict[str, Any],
        batch: Any = 0,
        artifacts: Iterable[dict[str, Any]] = (),
        now: datetime = NOW,
    ) -> None:
        """Store one batch of an attempt."""
        body = {"batch": batch, "rows": list(rows), "artifacts": list(artifacts)}
        unchecked.store(self.session, item.attempt, body, now=now)

    def finish(
        self,
        item: Sendable,
        outcome: str = "done",
        *,
        sent: Any = None,
        now: datetime = NOW,
        **more: Any,
    ) -> None:
        """Store the last message of an attempt, with all of its work sent by default."""
        body = {"outcome": outcome, "sent": item.work if sent is None else sent, **more}
        unchecked.finished(self.session, item.attempt, body, now=now)

    def lose(self, *items: Sendable) -> None:
        """Give up attempts that were silent."""
        for item in items:
            lost = attempts.mark_lost(
                self.session, item.attempt, "no heartbeat", before=LATER, now=LATER
            )
            assert lost is not None

    def cancel(self, job: JobRow) -> JobRow:
        jobs.cancel(self.session, job.id, now=NOW)
        return job

    def run(self, job: JobRow, make: Callable[[int, int], dict[str, Any]] = row) -> JobRow:
        """Run chunk after chunk on one worker until the job is over."""
        while not job.state.final:
            (item,) = self.send(1)
            self.store(item, *(make(seed, repeat) for seed, repeat in item.work))
            self.finish(item)
        return job

    def canceled(self, *items: Sendable) -> list[Sendable]:
        """Return those of the attempts whose workers should stop."""
        return [item for item in items if attempts.is_canceled(self.session, item.attempt)]

    def attempts(self, job: JobRow) -> list[dict[str, Any]]:
        return stored_attempts.attempts_of(self.session, job.id)

    def seeds(self, job: JobRow) -> dict[int, str]:
        """Return the verdict of each stored seed."""
        return {item["seed"]: item["verdict"] for item in results.stream(self.session, job.id)}

    def events(self, job: JobRow) -> list[Event]:
        return list(events.after(self.session, job.id, 0))
