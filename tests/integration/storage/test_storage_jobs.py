"""Jobs, results, flags and history in the database: the same on SQLite and PostgreSQL."""

from __future__ import annotations

import math
import threading
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Engine, func, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

import unchecked
from gonogo_service.builds import store as builds
from gonogo_service.devices import workers
from gonogo_service.flags.api import FLAGS
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.jobs import (
    chunks,
    dispatching,
    events,
    queue_estimate,
    work,
)
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.closing import lock
from gonogo_service.jobs.model import AttemptRow, ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.jobs.values import JobTarget
from gonogo_service.jobs.work import Work
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import ReadTimeout, is_postgres, reading, session
from gonogo_service.kit.database.states import JobState
from gonogo_service.kit.outbox import leases, outbox
from gonogo_service.results import seeds as results
from gonogo_service.tests import test_specs
from handed_out import hand_out
from job_flow import QUEUE, new_job, output, row


def dispatch_all(current: Session) -> list[dispatching.Sendable]:
    """Give every waiting chunk an attempt that the broker took and a worker started."""
    dispatching.dispatch(current, chunks.choose(current, QUEUE, 1000), now=utcnow())
    sendable = hand_out(current, now=utcnow())
    for item in sendable:
        assert unchecked.started(
            current, item.attempt, {"worker": "w", "device": "emulator:0"}, now=utcnow()
        )
    return sendable


def run(
    engine: Engine,
    rows: list[dict[str, Any]],
    **changes: Any,
) -> JobRow:
    """Run a job whose seeds give these rows, from its creation to its end."""
    with session(engine) as current:
        job = jobs.create(current, new_job([result["seed"] for result in rows], **changes))
    with session(engine) as current:
        for item in dispatch_all(current):
            unchecked.store(
                current,
                item.attempt,
                {"batch": 0, "rows": rows, "artifacts": []},
                now=utcnow(),
            )
            unchecked.finished(
                current, item.attempt, {"outcome": "done", "sent": item.work}, now=utcnow()
            )
    with reading(engine) as current:
        ended = jobs.get(current, job.id)
        assert ended is not None
        return ended


def test_a_new_job_is_stored_with_chunks_event_and_letter_in_one_transaction(
    engine: Engine,
) -> None:
    with pytest.raises(ZeroDivisionError), session(engine) as current:
        assert jobs.create(current, new_job(10)).total / 0
    with reading(engine) as current:
        assert jobs.list_(current).items == ()
        assert outbox.due(current) == []
    with session(engine) as current:
        job = jobs.create(current, new_job(10, chunk_seconds=0.02, labels={"suite": "nightly"}))
    with reading(engine) as current:
        job = jobs.get(current, job.id) or job
        assert (job.state, job.total, job.done, job.counts) == (JobState.queued, 10, 0, {})
        assert job.chunks.total == job.chunks.open > 1
        assert outbox.due(current) == []
        assert [event.type for event in events.after(current, job.id, 0)] == ["state"]
        assert chunks.waiting(current) == {QUEUE: job.chunks.total}
        assert job.target == JobTarget("emulator", "wormhole", "n150")


@pytest.mark.parametrize(("seeds", "repeats"), [((), 1), ((1, 1), 1), ((1,), 0)])
def test_a_job_without_work_or_with_a_seed_twice_is_refused(
    engine: Engine, seeds: tuple[int, ...], repeats: int
) -> None:
    with session(engine) as current, pytest.raises(ValueError, match="seed"):
        jobs.create(current, new_job(seeds, repeats=repeats))


def test_a_job_of_a_million_seeds_is_one_row_until_its_chunks_are_sent(engine: Engine) -> None:
    with session(engine) as current:
        job = jobs.create(current, new_job(range(10**6)))

        def rows() -> list[int | None]:
            return [
                current.scalar(select(func.count()).where(table.job_id == job.id))
                for table in (ChunkRangeRow, ChunkRow)
            ]

        queue = queue_estimate.read_work(current, QUEUE, timeout_s=30)
        assert rows() == [1, 0]
        assert chunks.waiting(current) == {QUEUE: job.chunks.total}
        assert queue.chunks == job.chunks.total >= 500
        assert queue.work_s == pytest.approx(
            10**6 * current.scalars(select(ChunkRangeRow.pair_s)).one()
        )
        (status,) = queue_estimate.statuses(current, timeout_s=30, now=utcnow())
        assert (status.waiting, status.running) == (job.chunks.total, 0)
        assert status.oldest_at == job.created_at
        dispatching.dispatch(current, chunks.choose(current, QUEUE, 3), now=utcnow())
        assert rows() == [1, 3]
        sent = current.scalars(select(AttemptRow.work).order_by(AttemptRow.id)).all()
        size = len(sent[0])
        assert [pair for work in sent for pair in work] == [[k, 0] for k in range(3 * size)]
        left = queue_estimate.read_work(current, QUEUE, timeout_s=30)
        assert (left.chunks, left.work_s) == (queue.chunks, pytest.approx(queue.work_s))
        assert chunks.waiting(current) == {QUEUE: job.chunks.total - 3}
        jobs.cancel(current, job.id)
        assert chunks.waiting(current) == {}
        over = jobs.get(current, job.id)
        assert over is not None
        assert (over.state, over.chunks.open) == (JobState.cancelled, 0)
        again = jobs.resubmit(current, job.id, owner="bob")
        assert again is not None
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


def test_the_estimate_is_refined_by_the_subjects_last_job(engine: Engine) -> None:
    with reading(engine) as current:
        guess = chunks.estimate_seed_s(current, "v1-workload", "emulator", 1000)
        assert chunks.estimate_seed_s(current, "v1-workload", "emulator", 10**7) > 100 * guess
    run(engine, [row(0, duration_ms=1500.0), row(1, duration_ms=500.0)])
    with reading(engine) as current:
        assert chunks.estimate_seed_s(current, "v1-workload", "emulator", 1000) == pytest.approx(
            1.0
        )


def test_statistics_come_back_as_they_were_sent_and_non_finite_ones_as_null_with_their_kind(
    engine: Engine,
) -> None:
    broken = output(
        "fail",
        "unexplained",
        tolerance_ratio=math.inf,
        rms=math.nan,
        needed_atol={"0": 0.5},
        nonfinite=3,
        tiny=5e-324,
    )
    job = run(engine, [row(2**53 - 1, verdict="fail", outputs={"dx": broken})])
    with reading(engine) as current:
        stored = results.get(current, job.id, 2**53 - 1)
    assert stored is not None
    dx = stored.outputs["dx"]
    assert (dx["tolerance_ratio"], dx["rms"], dx["nonfinite_kinds"]) == (
        None,
        None,
        {"tolerance_ratio": "inf", "rms": "nan"},
    )
    assert (dx["rounding_ratio"], dx["needed_atol"], dx["nonfinite"], dx["tiny"], dx["digest"]) == (
        0.99,
        {"0": 0.5},
        3,
        5e-324,
        "ab" * 8,
    )
    assert (stored.duration_ms, stored.arithmetic, stored.position) == (
        2.5,
        "tt-train",
        (2**53 - 1) % 100,
    )


def test_a_hollow_pass_opens_a_flag_with_evidence_and_the_command_that_shows_it(
    engine: Engine,
) -> None:
    hollow = {"verdict": "pass_by_tolerance", "explanation": "unexplained"}
    rows = [row(0, **hollow), row(1, **hollow), row(2)]
    rows[1]["outputs"]["dx"]["rounding_ratio"] = 157.0
    rows[1]["outputs"]["dx"]["fault"] = "s2 is missing: explains 99.9 % of the misfit"
    job = run(engine, rows)
    assert (job.state, job.verdict, job.counts) == (
        JobState.finished,
        "pass_by_tolerance",
        {"pass_by_tolerance": 2, "pass": 1},
    )
    assert job.diagnosis is not None
    words = "dx: s2 is missing: explains 99.9 % of the misfit"
    assert (job.diagnosis.seed, job.diagnosis.words) == (1, words)
    with reading(engine) as current:
        (flag,) = FLAGS.page(current, state="open").items
        assert [message.topic for message in outbox.due(current)] == [
            "flag.opened",
            "assess",
            "job.finished",
        ]
    assert (flag.kind, flag.test_key, flag.branch, flag.jobs) == (
        "passes_by_tolerance",
        "v1-test",
        "emulator",
        1,
    )
    proof = flag.evidence
    assert (proof["seed"], proof["output"], proof["seeds"], proof["of"]) == (1, "dx", 2, 3)
    assert proof["statistics"]["rounding_ratio"] == 157.0
    assert proof["diagnosis"] == words
    assert proof["check"] == (
        "gonogo check --kernel layernorm_bw --shape 8,64 --build tt-train-2025 --seeds 1"
        " --seed-start 1 --rtol 0.001 --atol 0.5"
    )
    again = run(engine, [row(7, **hollow)])
    with reading(engine) as current:
        (flag,) = FLAGS.page(current, kind="passes_by_tolerance").items
        assert (flag.jobs, flag.first_job, flag.last_job, flag.state) == (
            2,
            job.id,
            again.id,
            "open",
        )
        assert (
            len([message for message in outbox.due(current) if message.topic == "flag.opened"]) == 1
        )


def test_a_resolved_flag_comes_back_as_reopened_and_is_announced_again(engine: Engine) -> None:
    red = row(0, verdict="fail_by_tolerance")
    run(engine, [red])
    with session(engine) as current:
        (flag,) = FLAGS.page(current).items
        assert flag.kind == "tolerance_too_tight"
        current.get_one(FlagRow, flag.id).state = FlagState.resolved
    run(engine, [red])
    with reading(engine) as current:
        (flag,) = FLAGS.page(current, state="open").items
        assert flag.state == "reopened"
        assert (
            len([message for message in outbox.due(current) if message.topic == "flag.opened"]) == 2
        )


def test_history_of_test_and_workload(engine: Engine) -> None:
    run(engine, [row(0), row(1)], build="correct", build_sequence=2)
    wrong = run(
        engine,
        [
            row(
                0,
                verdict="fail",
                explanation="unexplained",
                outputs={"dx": output(rounding_ratio=157.0)},
            )
        ],
    )
    other = run(engine, [row(0)], test_key="v1-other", build="correct", build_sequence=2)
    with reading(engine) as current:
        newest, oldest = test_specs.builds_of(current, "v1-test")
        assert (newest.build, newest.seeds, newest.counts) == ("correct", 2, {"pass": 2})
        assert newest.outputs["dx"]["rounding_ratio"] == 0.99
        assert (oldest.build, oldest.outputs["dx"]["rounding_ratio"], oldest.last_job) == (
            "tt-train-2025",
            157.0,
            wrong.id,
        )
        page = test_specs.history(current, "v1-workload", limit=2)
        assert [item.job for item in page.items] == [other.id, wrong.id]
        assert page.items[1].outputs["dx"]["rounding_ratio"] == 157.0
        assert len(test_specs.history(current, "v1-workload", limit=2, cursor=page.next).items) == 1
        assert test_specs.has_workload(current, "v1-workload")
        assert not test_specs.has_workload(current, "v1-nobody")
        assert test_specs.siblings(current, "v1-other") == ["v1-test"]
        assert test_specs.siblings(current, "v1-nobody") == []


def test_a_build_is_registered_once_and_never_changes(engine: Engine) -> None:
    with session(engine) as current:
        builds.add(current, name="a1b2", executor="ttnn", branch="main", sequence=5, outputs=["dx"])
        builds.add(current, name="a1b2", executor="ttnn", branch="main", sequence=5, outputs=["dx"])
        with pytest.raises(builds.BuildExists, match="a1b2"):
            builds.add(
                current, name="a1b2", executor="ttnn", branch="main", sequence=6, outputs=["dx"]
            )
        assert [build.name for build in builds.of_branch(current, "main", "ttnn")] == ["a1b2"]


def test_an_attempt_carries_what_is_registered_of_its_build(engine: Engine) -> None:
    with session(engine) as current:
        builds.add(
            current,
            name="nightly",
            executor="emulator",
            branch="main",
            sequence=1,
            arithmetic="wormhole",
            outputs=["dx"],
        )
        builds.add(
            current,
            name="other",
            executor="ttnn",
            branch="main",
            sequence=1,
            arithmetic="fused",
            outputs=["dgamma"],
        )
        for build in ("nightly", "other", "correct"):
            jobs.create(current, new_job([0], build=build))
        for reference in ("nightly", "other"):
            jobs.create(current, new_job([0], build="old", reference=reference))
    with session(engine) as current:
        sent = dispatch_all(current)
    assert {
        item.message["build"]: (item.message["arithmetic"], item.message["outputs"])
        for item in sent
    } == {
        "nightly": ("wormhole", ["dx"]),
        "other": (None, None),
        "correct": (None, None),
        "old": (None, None),
    }  # a build of another executor is another build
    assert [item.message["reference"] for item in sent] == [
        *(None, None, None),
        {"build": "nightly", "arithmetic": "wormhole", "outputs": ["dx"]},
        {"build": "other", "arithmetic": None, "outputs": None},
    ]
    assert all(
        item.message["artifacts"]["first"]
        and item.message["gauge"] is None
        and item.seed_s is not None
        for item in sent
    )


def test_workers_are_live_while_they_are_heard(engine: Engine) -> None:
    now = utcnow()
    with session(engine) as current:
        assert workers.heard(
            current, "w1", queues=[QUEUE], device="d", attempt=None, now=now - timedelta(seconds=40)
        )
        assert workers.heard(
            current, "w2", queues=[QUEUE, "ttnn.wormhole.n300"], device="d", attempt=None, now=now
        )
        assert not workers.heard(current, "w2", queues=None, device=None, attempt=None, now=now)
        assert workers.live(current, now=now) == {QUEUE: 1, "ttnn.wormhole.n300": 1}
        assert [worker.state for worker in workers.list_(current, now=now).items] == [
            "offline",
            "idle",
        ]
        assert workers.heard(
            current, "w1", queues=[QUEUE], device="d", attempt=None, now=now
        )  # back: the dispatcher must know
        assert [worker.state for worker in workers.list_(current, now=now).items] == [
            "idle",
            "idle",
        ]


def test_a_lease_has_one_holder_until_it_ends(engine: Engine) -> None:
    with session(engine) as current:
        assert leases.acquire(current, "dispatcher", "a", 30.0)
        assert leases.acquire(current, "dispatcher", "a", 0.0)
    time.sleep(0.01)  # the lease of no seconds is over by the database's clock
    with session(engine) as current:
        assert leases.acquire(current, "dispatcher", "b", 30.0)
        assert not leases.acquire(current, "dispatcher", "a", 30.0)
        assert leases.holders(current) == {"dispatcher": "b"}
        leases.release(current, "b")
        assert leases.acquire(current, "dispatcher", "a", 30.0)


def test_an_undelivered_letter_comes_back_when_it_is_due(engine: Engine) -> None:
    now = utcnow()
    with session(engine) as current:
        for _ in range(2):
            outbox.add(current, "job.finished", "job.finished:1", {"job": "1"}, now=now)
        (message,) = outbox.due(current, now=now)
        message.postpone("refused", now=now)
        assert outbox.due(current, now=now) == []
        (message,) = outbox.due(current, now=now + timedelta(seconds=6))
        assert message.tries == 1
        outbox.delivered(current, [message.id], now=now)
        assert outbox.due(current, now=now + timedelta(days=1)) == []
        assert outbox.purge(current, now=now + timedelta(days=8)) == 1


def test_concurrent_read_then_write_transactions_neither_fail_nor_lose_an_update(
    engine: Engine,
) -> None:
    with session(engine) as current:
        job = jobs.create(current, new_job(1))
    problems: list[BaseException] = []

    def count() -> None:
        try:
            for _ in range(10):
                with session(engine) as current:
                    locked = lock(current, job.id)
                    assert locked is not None
                    locked.version += 1
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with reading(engine) as current:
        stored_job = jobs.get(current, job.id)
        assert stored_job is not None
        assert stored_job.version == 41


def test_a_read_transaction_writes_nothing(engine: Engine) -> None:
    if is_postgres(engine):
        with pytest.raises(SQLAlchemyError, match="read-only"), reading(engine) as current:
            current.execute(text("DELETE FROM jobs"))
    with reading(engine) as current:
        leases_before = leases.holders(current)
    assert leases_before == {}


def test_a_read_ends_at_its_time_limit_and_the_connection_stays_usable(engine: Engine) -> None:
    forever = (
        "SELECT pg_sleep(60)"
        if is_postgres(engine)
        else "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n) SELECT max(k) FROM n"
    )
    for _ in range(2):
        with pytest.raises(ReadTimeout), reading(engine, timeout_s=0.02) as current:
            current.execute(text(forever))
        with reading(engine, timeout_s=30) as current:
            assert current.scalar(text("SELECT 1")) == 1
