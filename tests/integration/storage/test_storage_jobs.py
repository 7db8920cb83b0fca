"""Jobs, results and history in the database: the same on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from database_params import BOTH_ENGINES
from gonogo_service.builds import store as builds
from gonogo_service.devices import workers
from gonogo_service.jobs import chunks, queue_estimate, work
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.api.jobs import JOBS
from gonogo_service.jobs.model import AttemptRow, ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.jobs.values import JobTarget
from gonogo_service.jobs.work import Work
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.outbox import outbox
from job_flow import QUEUE, new_job, row
from stored_flow import NOW, Flow


def run(flow: Flow, *rows: dict[str, Any], **changes: Any) -> JobRow:
    """Run a job whose seeds give these rows, from its creation to its end."""
    job = flow.submit([one["seed"] for one in rows], **changes)
    by_seed = {one["seed"]: one for one in rows}
    return flow.run(job, lambda seed, repeat: by_seed[seed])


def test_a_new_job_is_stored_with_chunks_event_and_message_in_one_transaction(
    module_engine: Engine,
) -> None:
    with pytest.raises(ZeroDivisionError), session(module_engine) as current:
        assert jobs.create(current, new_job(10)).total / 0
    with reading(module_engine) as current:
        assert JOBS.page(current).items == ()
        assert outbox.due(current) == []


@BOTH_ENGINES
def test_a_new_job_waits_with_all_its_chunks(flow: Flow) -> None:
    job = flow.submit(10, chunk_seconds=0.02)
    assert (job.state, job.total, job.done, job.counts) == ("queued", 10, 0, {})
    assert job.chunks.total == job.chunks.open > 1
    assert [event.type for event in flow.events(job)] == ["state"]
    assert chunks.waiting(flow.session) == {QUEUE: job.chunks.total}
    assert job.target == JobTarget("emulator", "wormhole", "n150")


@pytest.mark.parametrize(("seeds", "repeats"), [((), 1), ((1, 1), 1), ((1,), 0)])
def test_a_job_without_work_or_with_a_seed_twice_is_refused(
    flow: Flow, seeds: tuple[int, ...], repeats: int
) -> None:
    with pytest.raises(ValueError, match="seed"):
        flow.submit(seeds, repeats=repeats)


@BOTH_ENGINES
def test_a_job_of_a_million_seeds_is_one_row_until_its_chunks_are_sent(flow: Flow) -> None:
    current = flow.session
    job = flow.submit(range(10**6))

    def rows() -> list[int | None]:
        tables = (ChunkRangeRow, ChunkRow)
        count = select(func.count())
        return [current.scalar(count.where(table.job_id == job.id)) for table in tables]

    queue = queue_estimate.read_work(current, QUEUE, timeout_s=30)
    assert rows() == [1, 0]
    assert chunks.waiting(current) == {QUEUE: job.chunks.total}
    assert queue.chunks == job.chunks.total >= 500
    pair_s = current.scalars(select(ChunkRangeRow.pair_s)).one()
    assert queue.work_s == pytest.approx(10**6 * pair_s)
    (status,) = queue_estimate.statuses(current, timeout_s=30, now=utcnow())
    assert (status.waiting, status.running) == (job.chunks.total, 0)
    assert status.oldest_at == job.created_at
    flow.send(3, start=False)
    assert rows() == [1, 3]
    sent = current.scalars(select(AttemptRow.work).order_by(AttemptRow.id)).all()
    assert [pair for work in sent for pair in work] == [[k, 0] for k in range(3 * len(sent[0]))]
    left = queue_estimate.read_work(current, QUEUE, timeout_s=30)
    assert (left.chunks, left.work_s) == (queue.chunks, pytest.approx(queue.work_s))
    assert chunks.waiting(current) == {QUEUE: job.chunks.total - 3}
    flow.cancel(job)
    assert chunks.waiting(current) == {}
    assert (job.state, job.chunks.open) == ("cancelled", 0)
    again = jobs.create(current, jobs.again(current, job, owner="bob"))
    assert (again.total, again.seeds) == (10**6, {"start": 0, "count": 10**6})


def test_chunks_hold_about_twenty_seconds_and_every_pair_once() -> None:
    def sizes(count: int, repeats: int, pair_s: float) -> list[int]:
        cut = work.equal(Work(range(count), range(repeats)), pair_s, 20.0)
        return [high - low for low, high in pairwise((0, *cut.ends()))]

    assert sizes(100, 3, 1.0) == [20] * 15
    assert sizes(3, 1, 100.0) == [1, 1, 1]
    assert sum(sizes(50_000, 1, 1e-6)) == 50_000
    assert max(sizes(50_000, 1, 1e-6)) <= chunks.MAX_WORK
    # a gauge's parts are the members: those of a seed come together
    assert Work([7, 8], [2, 5]).part(0, 4) == [[7, 2], [7, 5], [8, 2], [8, 5]]


@BOTH_ENGINES
def test_the_estimate_is_refined_by_the_subjects_last_job(flow: Flow) -> None:
    def estimate_s(elements: int) -> float:
        return chunks.estimate_seed_s(flow.session, "v1-workload", "emulator", elements)

    assert estimate_s(10**7) > 100 * estimate_s(1000)
    run(flow, row(0, duration_ms=1500.0), row(1, duration_ms=500.0))
    assert estimate_s(1000) == pytest.approx(1.0)


def test_an_attempt_carries_what_is_registered_of_its_build(flow: Flow) -> None:
    place = {"branch": "main", "sequence": 1}
    for name, executor, arithmetic, outputs in (
        ("nightly", "emulator", "wormhole", ["dx"]),
        ("other", "ttnn", "fused", ["dgamma"]),
    ):
        about = {"executor": executor, "arithmetic": arithmetic, "outputs": outputs}
        builds.add(flow.session, name=name, **about, **place)
    for build in ("nightly", "other", "correct"):
        flow.submit([0], build=build)
    for reference in ("nightly", "other"):
        flow.submit([0], build="old", reference=reference)
    sent = [item.message for item in flow.send()]
    known = {message["build"]: (message["arithmetic"], message["outputs"]) for message in sent}
    nothing = (None, None)  # a build of another executor is another build
    named = {"other": nothing, "correct": nothing, "old": nothing}
    assert known == {"nightly": ("wormhole", ["dx"]), **named}
    assert [message["reference"] for message in sent] == [
        *(None, None, None),
        {"build": "nightly", "arithmetic": "wormhole", "outputs": ["dx"]},
        {"build": "other", "arithmetic": None, "outputs": None},
    ]
    assert all(message["artifacts"]["first"] and message["gauge"] is None for message in sent)


@BOTH_ENGINES
def test_workers_are_live_while_they_are_heard(flow: Flow) -> None:
    def heard(worker: str, *queues: str, ago_s: int = 0) -> bool:
        about: Any = {"queues": queues or None, "device": "d" if queues else None}
        now = NOW - timedelta(seconds=ago_s)
        return workers.heard(flow.session, worker, **about, attempt=None, now=now)

    def states() -> list[str]:
        return [str(one.state) for one in workers.list_(flow.session, now=NOW).items]

    assert heard("w1", QUEUE, ago_s=40)
    assert heard("w2", QUEUE, "ttnn.wormhole.n300")
    assert not heard("w2")
    assert workers.live(flow.session, now=NOW) == {QUEUE: 1, "ttnn.wormhole.n300": 1}
    assert states() == ["offline", "idle"]
    assert heard("w1", QUEUE)  # back: the dispatcher must know
    assert states() == ["idle", "idle"]
