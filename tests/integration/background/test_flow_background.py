"""`gonogo background` with a real broker and both databases: from a stored job to its verdict,
whatever a worker does on the way."""

from __future__ import annotations

import ctypes
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from background_thread import TIMEOUT_S, broker, host, numbers, running, short, submit, until
from database_params import BOTH
from gonogo.settings import Settings
from gonogo_service.jobs import events
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.outbox import leases
from gonogo_service.operate import presence
from gonogo_service.tests import assessments
from gonogo_service.tests.model import AssessmentRow
from gonogo_service.tests.variants import variants_of
from job_flow import QUEUE, SimulatedWorker, row
from patience import scaled
from running_service import Process, clean_environment
from running_service import until as eventually
from stored_attempts import attempts_of


@pytest.fixture
def database_url(lite_database_url: str) -> str:
    """SQLite; both databases where what a test is about differs between them."""
    return lite_database_url


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    """Settings of this test."""
    return short(database_url, redis_url)


@pytest.fixture
def patient(settings: Settings) -> Settings:
    """The same on a machine under load, where the test itself may be silent for seconds."""
    return settings.model_copy(update={"heartbeat_timeout_s": scaled(30)})


@pytest.fixture
def worker(engine: Engine, settings: Settings) -> Iterator[SimulatedWorker]:
    """A simulated device worker that is alive, and the API."""
    with host(engine, settings) as simulated, simulated.alive():
        yield simulated


def tries(engine: Engine, job_id: str) -> int:
    """Return the number of attempts of a job."""
    with reading(engine) as current:
        return len(attempts_of(current, job_id))


def copies(engine: Engine) -> int:
    """Return the number of `gonogo background` processes that are at work."""
    with reading(engine) as current:
        return len(leases.holders(current, presence.BACKGROUND))


@BOTH
def test_a_job_runs_from_the_doorbell_to_its_verdict(
    engine: Engine, settings: Settings, worker: SimulatedWorker
) -> None:
    with running(settings):
        job_id = submit(engine, settings)
        chunk = worker.take()
        about = {"job": job_id, "build": "tt-train-2025", "context": "isolated"}
        assert {name: chunk[name] for name in about} == about
        assert chunk["work"] == [[0, 0], [1, 0], [2, 0], [3, 0]]
        assert (chunk["test"]["kernel"], chunk["artifacts"]["first"]) == ("layernorm_bw", True)
        until(engine, job_id, lambda job: job.state == "running")
        worker.send(chunk, [row(0), row(1)])
        until(engine, job_id, lambda job: job.done == 2)
        worker.send(chunk, [row(2), row(3)], batch=1)
        worker.finish(chunk, batches=2)
        job = until(engine, job_id, lambda job: job.state == "finished")
        assert (job.verdict, job.counts, job.chunks.open) == ("pass", {"pass": 4}, 0)
        assessed = eventually(lambda: assessment_of(engine, job.test_key))
    assert (assessed.job_id, assessed.stability) == (job_id, "unknown")
    assert (assessed.failures, assessed.runs) == (0, 4)
    assert "not enough seeds: 4 of 20" in assessed.content["grade"]["words"]


def assessment_of(engine: Engine, test_key: str) -> AssessmentRow | None:
    """Return the stored assessment of a test's variant."""
    with reading(engine) as current:
        (variant,) = variants_of(current, test_key)
        return assessments.get(current, variant)


def test_two_unclaimed_chunks_per_live_worker_and_no_more(
    engine: Engine, settings: Settings, worker: SimulatedWorker
) -> None:
    with running(settings), broker(settings) as redis:
        job_id = submit(engine, settings, 6, chunk_seconds=1e-6)
        for claimed in range(6):
            eventually(lambda claimed=claimed: redis.llen(QUEUE) == min(2, 6 - claimed))
            attempt = worker.woken()  # in hand, and not claimed: one waits
            eventually(lambda claimed=claimed: redis.llen(QUEUE) == min(1, 5 - claimed))
            worker.run(worker.claim(attempt))
        job = until(engine, job_id, lambda job: job.state == "finished")
    assert (job.chunks.total, job.counts) == (6, {"pass": 6})


def test_a_silent_attempt_is_given_up_and_exactly_the_rest_is_asked_for_again(
    engine: Engine, settings: Settings, worker: SimulatedWorker
) -> None:
    with running(settings):
        job_id = submit(engine, settings)
        lost = worker.take()
        began = time.monotonic()
        worker.send(lost, [row(0), row(1)])
        again = worker.take()
        assert time.monotonic() - began > TIMEOUT_S
        assert again["work"] == [[2, 0], [3, 0]]
        worker.run(again)
        until(engine, job_id, lambda job: job.state == "finished")
    assert numbers(engine, job_id) == [0, 1, 2, 3]


def test_an_id_that_died_in_a_workers_hand_wakes_another_and_is_no_try(
    engine: Engine, settings: Settings, worker: SimulatedWorker
) -> None:
    with running(settings):
        job_id = submit(engine, settings)
        first = worker.woken()  # and nothing more is heard of it
        assert worker.woken() == first
        worker.run(worker.claim(first))
        until(engine, job_id, lambda job: job.state == "finished")
    assert tries(engine, job_id) == 1


def test_each_answer_says_that_a_job_is_canceled(
    engine: Engine, patient: Settings, worker: SimulatedWorker
) -> None:
    with running(patient):
        job_id = submit(engine, patient, 3, chunk_seconds=1e-6)
        chunk = worker.take()
        assert worker.beat(chunk["attempt"])["canceled"] is False
        with session(engine) as current:
            jobs.cancel(current, job_id)
        assert worker.beat(chunk["attempt"])["canceled"] is True
        assert worker.send(chunk, [row(0)])["canceled"] is True
        worker.finish(chunk, sent=[[0, 0]], outcome="cancelled", batches=1)
        job = until(engine, job_id, lambda job: job.state == "cancelled")
    assert job.counts == {"pass": 1}


def test_a_decided_job_tells_running_attempts_to_stop_and_ends_finished_though_a_worker_was_killed(
    engine: Engine, settings: Settings
) -> None:
    """Two copies of the background decide once."""
    settings = settings.model_copy(update={"heartbeat_timeout_s": scaled(4)})
    with host(engine, settings) as worker, running(settings), running(settings), worker.alive():
        request = {"seeds": {"policy": "sequential", "max": 200}}
        job_id = submit(engine, settings, 200, stop_on_finding=True, request=request)
        chunks = sorted((worker.take() for _ in range(2)), key=lambda chunk: chunk["work"])
        assert [chunk["work"] for chunk in chunks] == [[[0, 0], [1, 0]], [[2, 0], [3, 0]]]
        red = [row(seed, verdict="fail_by_tolerance") for seed in (1, 0)]
        for batch in (1, 1, 0):  # out of order, and one twice
            worker.send(chunks[0], [red[1 - batch]], batch=batch)
        worker.finish(chunks[0], batches=2)
        eventually(lambda: worker.beat(chunks[1]["attempt"])["canceled"])
        # the second attempt is never heard of again
        job = until(engine, job_id, lambda job: job.state == "finished")
    with reading(engine) as current:
        decided = [event for event in events.after(current, job_id, 0) if "reason" in event.data]
    assert job.stop is not None
    assert (job.stop.decision, job.stop.seeds_saved, len(decided)) == ("flaky", 198, 1)
    assert (job.verdict, job.total, job.done) == ("fail_by_tolerance", 2, 2)


@contextmanager
def another(settings: Settings, log: Path) -> Iterator[None]:
    """One more `gonogo background`, a process of its own; it must stop in good order.

    It is told so on a thread that isn't its main one, as Linux chooses right after SIGCONT: on its
    oldest, as a thread that ends takes its signals with it.
    """
    assert settings.secret_key is not None
    environment = clean_environment(
        GONOGO_DATABASE_URL=settings.database_url,
        GONOGO_BROKER_URL=str(settings.broker_url),
        GONOGO_SECRET_KEY=settings.secret_key.get_secret_value(),
        GONOGO_POLL_S=str(settings.poll_s),
        GONOGO_HEARTBEAT_S=str(settings.heartbeat_s),
        GONOGO_HEARTBEAT_TIMEOUT_S=str(settings.heartbeat_timeout_s),
    )
    process = Process(["background"], environment, log)
    process.start()
    try:
        yield
        threads = {int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()}
        oldest = min(threads - {process.pid})
        assert ctypes.CDLL(None).tgkill(process.pid, oldest, signal.SIGTERM) == 0
        assert process.process is not None
        assert process.process.wait(scaled(10)) == 0, log.read_text()
    finally:
        process.close()


@BOTH
def test_two_copies_share_the_work_and_store_every_seed_once(
    engine: Engine, patient: Settings, worker: SimulatedWorker, tmp_path: Path
) -> None:
    with running(patient), another(patient, tmp_path / "background.log"):
        eventually(lambda: copies(engine) == 2)  # else it would end before it has begun
        job_id = submit(engine, patient, 16, chunk_seconds=0.016)
        count = until(engine, job_id, lambda job: True).chunks.total
        assert count > 2
        for _ in range(count):
            chunk = worker.take()
            for number, (seed, repeat) in enumerate(chunk["work"]):
                for _ in range(2):  # redelivered, perhaps to the other copy at the same moment
                    worker.send(chunk, [row(seed, repeat)], batch=number)
            worker.finish(chunk, batches=len(chunk["work"]))
        job = until(engine, job_id, lambda job: job.state == "finished")
        with reading(engine) as current:
            assert {"dispatcher", "reaper", "deliver"} <= set(leases.holders(current))
    assert (job.done, job.counts, tries(engine, job_id)) == (16, {"pass": 16}, count)
    assert numbers(engine, job_id) == list(range(16))
    with reading(engine) as current:
        left = {name for name in leases.holders(current) if not name.startswith("api/")}
    assert left == set()  # a successor needn't wait
