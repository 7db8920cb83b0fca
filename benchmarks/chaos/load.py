"""The load of a chaos run: jobs that are submitted, cancelled and read while the faults act.

A submission whose answer is lost is sent again with the same Idempotency-Key, as a client should.
Every accepted job is remembered with what must become of it.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any

import httpx
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from benchmarks.chaos.site import Site
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import reading
from gonogo_service.kit.database.states import JobState

TEST: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [1, 1, 32, 64],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
OPEN_JOBS = 5
SEEDS = [5, 20, 40]
"""How many seeds a job may have."""
LIGHT_SEEDS = [3, 7, 14]
"""The same in the tests, where a slow seed takes three times as long."""
POLL_S, LIGHT_POLL_S = 0.1, 0.25
"""Seconds between two counts of the open jobs."""
SEEDS_APART = 1000
"""No two jobs share a seed, so that what a kernel wrote down names its job."""
FINAL = [state.value for state in JobState if state.final]
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
    """Keeps some jobs open until it is closed."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self._chance = site, random.Random(f"load {seed}")
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._submit_all, name="load", daemon=True),
            threading.Thread(target=self._read_all, name="readers", daemon=True),
        ]
        self._client = site.client()
        self.accepted: dict[str, Accepted] = {}
        self.cancelled: set[str] = set()
        self.requests = self.retries = 0

    def start(self) -> None:
        """Start to submit."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Submit no more; the last submission is answered first."""
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def open_jobs(self) -> int | None:
        """Return how many accepted jobs have not ended; None while the database doesn't answer."""
        try:
            with reading(self.site.engine) as current:
                query = select(func.count()).select_from(JobRow)
                return int(current.scalar(query.where(JobRow.state.not_in(FINAL))) or 0)
        except DBAPIError:
            return None

    def _submit_all(self) -> None:
        number = 0
        poll_s = LIGHT_POLL_S if self.site.is_light else POLL_S
        while not self._closing.wait(poll_s) or number < OPEN_JOBS:
            waiting = self.open_jobs()
            if waiting is None or waiting >= OPEN_JOBS:
                continue
            number += 1
            self._submit(number)
            if self._chance.random() < 0.1 and self.accepted:
                self._cancel(self._chance.choice(list(self.accepted)[-OPEN_JOBS:]))

    def _submit(self, number: int) -> None:
        chance, start = self._chance, number * SEEDS_APART
        executor = "emulator" if chance.random() < 0.2 else "witness"
        build = (
            "correct"
            if executor == "emulator"
            else chance.choices(["fine", "slow", WRONG], [3, 4, 1])[0]
        )
        counts = LIGHT_SEEDS if self.site.is_light else SEEDS
        count, sequential = chance.choice(counts), chance.random() < 0.1
        body = {
            "test": TEST,
            "build": build,
            "target": {"executor": executor, "arch": "wormhole", "board": "n150"},
            "seeds": (
                {"policy": "sequential", "max": count, "start": start}
                if sequential
                else {"start": start, "count": count}
            ),
            "priority": chance.choice([3, 5, 7]),
            "labels": {"chaos": str(number)},
        }
        answer = self._insist("POST", "/jobs", body)
        if answer is not None:
            job = str(answer["id"])
            self.accepted[job] = Accepted(job, executor, build, start, count, sequential)

    def _cancel(self, job: str) -> None:
        self.cancelled.add(job)
        self._insist("POST", f"/jobs/{job}:cancel", None)

    def _insist(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        """Send a request until it is answered; a refusal is a problem of the run."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            self.requests += 1
            try:
                answer = self._client.request(method, path, json=body, headers=headers)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.is_success:
                result: dict[str, Any] = answer.json()
                return result
            # 409: the job has ended before it was cancelled, or the first request still runs
            if answer is not None and answer.status_code == 409:
                if path.endswith(":cancel"):
                    return None
            elif answer is not None and answer.status_code not in (429, 503):
                self.site.problems.append(
                    f"{method} {path}: {answer.status_code} {answer.text[:300]}"
                )
                return None
            self.retries += 1
            time.sleep(0.2)

    def _read_all(self) -> None:
        """Read what people read, over connections of their own."""
        chance = random.Random(0)
        with self.site.client() as client:
            while not self._closing.wait(0.5):
                jobs = list(self.accepted)[-20:]
                job = chance.choice(jobs) if jobs else None
                paths = ["/jobs", "/flags", "/devices", "/hosts"]
                if job is not None:
                    paths += [f"/jobs/{job}", f"/jobs/{job}/results"]
                path = chance.choice(paths)
                try:
                    answer = client.get(path)
                except httpx.TransportError:
                    continue
                if answer.status_code not in (200, 503):
                    self.site.problems.append(f"GET {path}: {answer.status_code}")
