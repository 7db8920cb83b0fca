"""The load of a chaos run: jobs that are submitted, canceled and read while the faults act.

A submission whose answer is lost is sent again with the same Idempotency-Key, as a client should.
Every accepted job is remembered with what must become of it.
"""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from benchmarks.chaos.site import Repeated, Site
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import reading
from gonogo_service.kit.database.states import JobState
from running_service import TINY

OPEN_JOBS = 5
SEEDS = [3, 7, 14]
"""How many seeds a job may have."""
SEEDS_APART = 1000
"""No two jobs share a seed, so that what a kernel wrote down names its job."""
WRONG = "nan"
"""The wrong build: its seeds never pass."""


@dataclass(frozen=True)
class Accepted:
    """A job that the service has accepted."""

    id: str
    executor: str
    build: str
    start: int
    count: int
    is_sequential: bool


class Load:
    """Keeps some jobs open until it is closed; watches for how long nothing is stored."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self._chance = site, random.Random(f"load {seed}")
        self._threads = [
            Repeated(site, "load", 0.25, self._submit_more),
            Repeated(site, "readers", 0.5, self._read),
            Repeated(site, "stalls", 0.25, self._look),
        ]
        self._client = site.client()
        self._numbers, self._reading = count(1), random.Random(0)
        self.accepted: dict[str, Accepted] = {}
        self.canceled: set[str] = set()
        self.requests = self.retries = 0
        self._stored, self._stored_at = -1, time.monotonic()
        self.longest_s = 0.0
        """The longest time without a stored seed while work waited and no fault was held."""

    def start(self) -> None:
        """Start to submit."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Submit no more once there are enough, and wait until every accepted job has ended."""
        deadline = time.monotonic() + 180
        while len(self.accepted) < OPEN_JOBS and time.monotonic() < deadline:
            time.sleep(0.2)
        for thread in self._threads[:2]:
            thread.close()
        while time.monotonic() < deadline:
            with contextlib.suppress(DBAPIError):
                if not self.open_jobs():
                    break
            self.site.restart_ended()
            time.sleep(0.2)
        self._threads[2].close()
        self._client.close()

    def open_jobs(self) -> int:
        """Return how many accepted jobs have not ended."""
        final = [state.value for state in JobState if state.final]
        with reading(self.site.engine) as current:
            query = select(func.count()).select_from(JobRow)
            return int(current.scalar(query.where(JobRow.state.not_in(final))) or 0)

    def _submit_more(self) -> None:
        if self.open_jobs() < OPEN_JOBS:
            self._submit(next(self._numbers))
            if self._chance.random() < 0.1 and self.accepted:
                job = self._chance.choice(list(self.accepted)[-OPEN_JOBS:])
                self.canceled.add(job)
                self._insist(f"/jobs/{job}:cancel", None)

    def _submit(self, number: int) -> None:
        chance, start = self._chance, number * SEEDS_APART
        executor = "emulator" if chance.random() < 0.2 else "witness"
        build = chance.choices(["fine", "slow", WRONG], [3, 4, 1])[0]
        build = "correct" if executor == "emulator" else build
        seeds, is_sequential = chance.choice(SEEDS), chance.random() < 0.1
        several = {"policy": "sequential", "max": seeds} if is_sequential else {"count": seeds}
        body = {
            "test": TINY,
            "build": build,
            "target": {"executor": executor, "arch": "wormhole", "board": "n150"},
            "seeds": {"start": start, **several},
            "priority": chance.choice([3, 5, 7]),
            "labels": {"chaos": str(number)},
        }
        answer = self._insist("/jobs", body)
        if answer is not None:
            job = str(answer["id"])
            self.accepted[job] = Accepted(job, executor, build, start, seeds, is_sequential)

    def _insist(self, path: str, body: Any) -> Any:
        """Post a request until it is answered; a refusal is a problem of the run."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            self.requests += 1
            with contextlib.suppress(httpx.TransportError):
                answer = self._client.post(path, json=body, headers=headers)
                if answer.is_success:
                    return answer.json()
                # 409: the job has ended before it was canceled, or the first request still runs
                if answer.status_code == 409 and path.endswith(":cancel"):
                    return None
                if answer.status_code not in (409, 429, 503):
                    self.site.problems.append(f"POST {path}: {answer.text[:300]}")
                    return None
            self.retries += 1
            time.sleep(0.2)

    def _read(self) -> None:
        """Read what people read."""
        paths = ["/jobs", "/flags", "/devices", "/hosts"]
        if jobs := list(self.accepted)[-20:]:
            job = self._reading.choice(jobs)
            paths += [f"/jobs/{job}", f"/jobs/{job}/results"]
        path = self._reading.choice(paths)
        status = self._client.get(path).status_code
        if status not in (200, 503):
            self.site.problems.append(f"GET {path}: {status}")

    def _look(self) -> None:
        """Look at the number of stored seeds."""
        with reading(self.site.engine) as current:
            stored = int(current.scalar(select(func.coalesce(func.sum(JobRow.done), 0))) or 0)
        now = time.monotonic()
        if stored != self._stored or self.site.is_held or not self.open_jobs():
            self._stored, self._stored_at = stored, now
        since = max(self._stored_at, self.site.released_at)
        self.longest_s = max(self.longest_s, now - since)
