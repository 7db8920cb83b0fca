"""The job flow in the database alone: who may write what, when a chunk is asked for again, when a
job ends. On both databases."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import reading, session
from gonogo_storage.db.states import AttemptState
from gonogo_storage.jobs import attempts, chunks, closing, hang_limits, jobs, queues
from gonogo_storage.jobs.attempts import Sendable
from gonogo_storage.jobs.job import Job
from gonogo_storage.messages import events, outbox
from gonogo_storage.seeds import results
from gonogo_storage.tables import AttemptRow
from job_flow import QUEUE, empty_row, new_job, row
from stored_attempts import attempts_of

NOW = utcnow()
LATER = NOW + timedelta(seconds=60)


@pytest.fixture
def current(engine: Engine) -> Iterator[Session]:
    """One write transaction."""
    with session(engine) as transaction:
        yield transaction


def submit(current: Session, seeds: int = 4, **changes: Any) -> Job:
    """A stored job."""
    return jobs.create(current, new_job(seeds, **changes), now=NOW)


def send(
    current: Session, count: int = 1000, *, start: bool = True, now: datetime = NOW
) -> list[Sendable]:
    """Dispatch waiting chunks and publish their attempts; with `start` the worker starts them."""
    chunks.dispatch(current, chunks.choose(current, QUEUE, count), now=now)
    sendable = attempts.unpublished(current, "epoch")
    attempts.published(current, [item.attempt for item in sendable], "epoch", now=now)
    if start:
        for item in sendable:
            attempts.started(current, item.attempt, {"worker": "w"}, now=now)
    return sendable


def store(current: Session, item: Sendable, rows: list[dict[str, Any]], batch: int = 0) -> None:
    """Store one batch of an attempt."""
    attempts.store(current, item.attempt, {"batch": batch, "rows": rows}, now=NOW)


def finish(
    current: Session,
    item: Sendable,
    sent: list[list[int]] | None = None,
    outcome: str = "done",
    **more: Any,
) -> None:
    """Store the last message of an attempt."""
    body = {"outcome": outcome, "sent": item.work if sent is None else sent, **more}
    attempts.finished(current, item.attempt, body, now=NOW)


def now_of(current: Session, job: Job) -> Job:
    """The job as it is now."""
    stored_job = jobs.get(current, job.id)
    assert stored_job is not None
    return stored_job


def seeds_of(current: Session, job: Job) -> dict[int, str]:
    """Return the verdict of each seed."""
    return {item["seed"]: item["verdict"] for item in results.stream(current, job.id)}


def test_the_owner_with_less_in_flight_comes_first_then_priority_then_age(current: Session) -> None:
    fast = {"chunk_seconds": 1e-6}
    old = submit(current, 4, owner="ann", **fast)
    urgent = submit(current, 2, owner="ann", priority=9, **fast)
    bob = submit(current, 2, owner="bob", **fast)
    order = [item.job for item in send(current, 4)]
    assert sorted(order) == sorted([urgent.id, urgent.id, bob.id, bob.id])
    assert [item.job for item in send(current, 10)] == [old.id] * 4


def test_a_chosen_chunk_is_dispatched_once(current: Session) -> None:
    submit(current)
    chosen = chunks.choose(current, QUEUE, 5)
    assert len(chunks.dispatch(current, chosen, now=NOW)) == 1
    assert chunks.dispatch(current, chosen, now=NOW) == []
    assert chunks.unstarted(current) == {QUEUE: 1}


def test_the_first_writer_of_a_seed_wins_with_all_its_outputs(current: Session) -> None:
    job = submit(current, 2)
    (item,) = send(current)
    store(current, item, [row(0), row(0, verdict="fail")])
    store(current, item, [row(0, verdict="fail"), row(1)], batch=1)
    store(current, item, [row(0, verdict="fail"), row(1)], batch=1)
    assert seeds_of(current, job) == {0: "pass", 1: "pass"}
    assert (now_of(current, job).counts, now_of(current, job).done) == ({"pass": 2}, 2)


@pytest.mark.parametrize("in_order", [True, False])
def test_seeds_that_nobody_asked_for_are_dropped(current: Session, in_order: bool) -> None:
    job = submit(current, 3)
    (item,) = send(current)
    attempt = current.get_one(AttemptRow, item.attempt)
    attempt.work = sorted(attempt.work, reverse=not in_order)
    current.flush()
    store(current, item, [row(2), row(99), row(0)])
    assert seeds_of(current, job) == {0: "pass", 2: "pass"}


def test_a_shortfall_gets_an_attempt_for_exactly_the_missing_ones_and_at_last_an_error(
    current: Session,
) -> None:
    job = submit(current, 4)
    (first,) = send(current)
    store(current, first, [row(0), row(2)])
    finish(current, first, sent=[[0, 0], [2, 0]], error="ran out of luck")
    (second,) = send(current)
    assert second.work == [[1, 0], [3, 0]]
    store(current, second, [row(1)])
    finish(current, second, sent=[[1, 0]])
    (third,) = send(current)
    assert third.work == [[3, 0]]
    finish(current, third, sent=[], outcome="error", error="no device")
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.counts) == (
        "finished",
        "error",
        {"pass": 3, "error": 1},
    )
    missing = results.get(current, job.id, 3)
    assert missing is not None
    assert missing["message"] == "no result after 3 attempts; the last one: no device"
    assert send(current) == []


def test_handing_back_does_not_count_as_an_attempt(current: Session) -> None:
    job = submit(current, 1)
    for _ in range(closing.MAX_ATTEMPTS + 2):
        (item,) = send(current)
        finish(current, item, sent=[], outcome="handed_back")
    (item,) = send(current)
    store(current, item, [row(0)])
    finish(current, item)
    assert now_of(current, job).verdict == "pass"


def test_finished_before_its_last_batch_waits_for_it(current: Session) -> None:
    job = submit(current, 2)
    (item,) = send(current)
    store(current, item, [row(0)])
    finish(current, item, batches=2)
    assert now_of(current, job).state == "running"
    assert send(current) == []
    store(current, item, [row(1)], batch=1)
    assert now_of(current, job).state == "finished"


def test_a_last_batch_of_artifacts_only_is_waited_for_as_well(current: Session) -> None:
    job = submit(current, 1)
    (item,) = send(current)
    store(current, item, [row(0)])
    finish(current, item, batches=2)
    assert now_of(current, job).state == "running"
    artifact = {
        "kind": "diagnosis",
        "seed": 0,
        "repeat": 0,
        "output": "",
        "content": {"words": "every term is right"},
    }
    attempts.store(
        current, item.attempt, {"batch": 1, "rows": [], "artifacts": [artifact]}, now=NOW
    )
    ended = now_of(current, job)
    assert ended.diagnosis is not None
    assert ended.diagnosis["words"] == "every term is right"


def test_a_batch_that_never_comes_is_asked_for_again(current: Session) -> None:
    submit(current, 2)
    (item,) = send(current)
    store(current, item, [row(0)])
    finish(current, item, batches=2)
    assert [
        silent.attempt
        for silent in attempts.silent_attempts(current, AttemptState.reported, before=LATER)
    ] == [item.attempt]
    attempts.mark_lost(current, item.attempt, "never arrived", before=LATER, now=LATER)
    (again,) = send(current)
    assert again.work == [[1, 0]]


def test_a_silent_attempt_is_lost_and_its_late_results_still_count(current: Session) -> None:
    job = submit(current, 3)
    (lost,) = send(current)
    store(current, lost, [row(0)])
    assert (
        attempts.mark_lost(current, lost.attempt, "no heartbeat", before=NOW, now=LATER) is None
    )  # it was heard just now
    assert (
        attempts.mark_lost(current, lost.attempt, "no heartbeat", before=LATER, now=LATER) == job.id
    )
    (again,) = send(current, now=LATER)
    assert again.work == [[1, 0], [2, 0]]
    store(current, lost, [row(1), empty_row(2, "hang", "late, and without numbers")], batch=1)
    store(current, again, [row(1, verdict="fail"), row(2)])
    finish(current, again)
    assert seeds_of(current, job) == {0: "pass", 1: "pass", 2: "pass"}
    assert now_of(current, job).state == "finished"


def test_late_results_complete_a_chunk_that_waits(current: Session) -> None:
    job = submit(current, 2)
    (lost,) = send(current)
    attempts.mark_lost(current, lost.attempt, "no heartbeat", before=LATER, now=LATER)
    store(current, lost, [row(0), row(1)])
    assert now_of(current, job).state == "finished"
    assert send(current) == []


def test_hang_and_crash_rows_count_from_the_current_attempt(current: Session) -> None:
    job = submit(current, 3)
    (item,) = send(current)
    store(
        current,
        item,
        [row(0), empty_row(1, "hang", "no answer in 600 s"), empty_row(2, "crash", "signal 11")],
    )
    finish(current, item)
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.counts) == (
        "finished",
        "crash",
        {"pass": 1, "hang": 1, "crash": 1},
    )


def test_started_is_heard_once_and_only_by_a_live_attempt(current: Session) -> None:
    job = submit(current, 1)
    (item,) = send(current)
    assert attempts.started(current, item.attempt, {}, now=NOW) is None
    assert attempts.started(current, "nonsense", {}, now=NOW) is None
    assert attempts.store(current, job.id, {"rows": [row(0)]}, now=NOW) is None


def test_finished_may_overtake_started(current: Session) -> None:
    job = submit(current, 1)
    (item,) = send(current, start=False)
    store(current, item, [row(0)])
    finish(current, item)
    assert attempts.started(current, item.attempt, {"worker": "w"}, now=NOW) is None
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.started_at) == ("finished", "pass", NOW)


def test_results_may_overtake_started(current: Session) -> None:
    job = submit(current, 2)
    (item,) = send(current, start=False)
    store(current, item, [row(0)])
    assert now_of(current, job).state == "running"
    assert attempts.started(current, item.attempt, {"worker": "w"}, now=NOW) == job.id
    assert attempts_of(current, job.id)[0]["worker"] == "w"


def test_unstarted_attempts_are_sent_again_in_a_new_life_of_the_broker(current: Session) -> None:
    submit(current, 2, chunk_seconds=1e-6)
    started, waiting = send(current, start=False)
    attempts.started(current, started.attempt, {}, now=NOW)
    assert attempts.unpublished(current, "epoch") == []
    assert [item.attempt for item in attempts.unpublished(current, "another")] == [waiting.attempt]


def test_cancel_ends_at_once_what_no_worker_has_started(current: Session) -> None:
    job = submit(current, 3, chunk_seconds=1e-6)
    (sent,) = send(current, 1, start=False)
    ended = jobs.cancel(current, job.id, now=NOW)
    assert ended is not None
    assert (ended.state, ended.verdict, ended.chunks.open, ended.done) == ("cancelled", None, 0, 0)
    assert [
        message.payload for message in outbox.due(current, topics=["attempt.cancel"], now=LATER)
    ] == [{"attempt": sent.attempt}]
    assert attempts.started(current, sent.attempt, {}, now=NOW) is None
    store(current, sent, [row(0)])
    assert seeds_of(current, job) == {}
    assert jobs.cancel(current, job.id) == ended
    assert jobs.cancel(current, "nonsense") is None


def test_cancel_waits_for_running_attempts_and_keeps_their_numbers(current: Session) -> None:
    job = submit(current, 4, chunk_seconds=1e-6)
    (item,) = send(current, 1)
    store(current, item, [])
    cancelling = jobs.cancel(current, job.id, now=NOW)
    assert cancelling is not None
    assert (cancelling.state, cancelling.chunks.open) == ("cancelling", 1)
    assert attempts.to_cancel(current) == [item.attempt]
    assert send(current) == []
    store(current, item, [row(0, verdict="fail")], batch=1)
    finish(current, item, outcome="cancelled")
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.counts) == ("cancelled", "fail", {"fail": 1})
    states = [
        event["data"]["state"]
        for event in events.after(current, job.id, 0)
        if event["type"] == "state"
    ]
    assert states == ["queued", "running", "cancelling", "cancelled"]


def test_a_canceled_job_is_never_green(current: Session) -> None:
    job = submit(current, 4, chunk_seconds=1e-6)
    (item,) = send(current, 1)
    store(current, item, [row(0)])
    jobs.cancel(current, job.id, now=NOW)
    finish(current, item, [[0, 0]], outcome="cancelled")
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.counts) == ("cancelled", None, {"pass": 1})


def test_a_cancel_that_no_worker_answers_ends_anyway(current: Session) -> None:
    job = submit(current, 1)
    send(current)
    jobs.cancel(current, job.id, now=NOW)
    assert queues.overdue_cancels(current, before=NOW) == []
    assert queues.overdue_cancels(current, before=LATER) == [job.id]
    assert queues.close_unresponsive(current, job.id, now=LATER)
    assert now_of(current, job).state == "cancelled"


def test_a_queue_without_a_live_worker_is_named_in_the_job(current: Session) -> None:
    job = submit(current, 1)
    assert queues.unexplained(current, []) == [job.id]
    queues.explain(current, [], now=NOW)
    assert now_of(current, job).waiting_reason == f"no live worker serves the queue {QUEUE}"
    assert queues.unexplained(current, []) == []
    queues.explain(current, [QUEUE], now=NOW)
    assert now_of(current, job).waiting_reason is None


def test_a_waiting_job_says_what_is_before_it(current: Session) -> None:
    first = submit(current, 4, chunk_seconds=1e-9)
    second = submit(current, 1)
    send(current, 1)
    assert now_of(current, first).waiting_reason is None
    reason = now_of(current, second).waiting_reason
    since = f"{NOW:%H:%M:%S} UTC"
    assert reason == (
        f"in its queue, {QUEUE}, are 4 chunks of job {first.id} (layernorm_bw on tt-train-2025),"
        f" 1 of them running since {since}"
    )


@pytest.mark.parametrize(
    ("seed_s", "limits"),
    [(None, (600, 600)), (0.003, (30, 150)), (5.0, (100, 220)), (29.0, (580, 600))],
)
def test_a_hangs_limit_follows_the_estimate(
    seed_s: float | None, limits: tuple[float, float]
) -> None:
    assert hang_limits.of(seed_s, 600.0) == limits
    assert hang_limits.of(seed_s, 2.0) == (2.0, 2.0)


def test_an_estimate_is_a_guess_only_where_guesses_are_good(current: Session) -> None:
    submit(current, 2)
    submit(current, 2, executor="mine")
    submit(current, 2, executor="ttnn")
    queues_of = [QUEUE, *(QUEUE.replace("emulator", name) for name in ("mine", "ttnn"))]
    chosen = [chunk for queue in queues_of for chunk in chunks.choose(current, queue, 1)]
    chunks.dispatch(current, chosen, now=NOW)
    by_queue = {item.queue: item for item in attempts.unpublished(current, "epoch")}
    assert by_queue[queues_of[0]].seed_s == pytest.approx(0.003, rel=0.9)
    assert [by_queue[queue].seed_s for queue in queues_of[1:]] == [None, None]
    item = by_queue[queues_of[1]]
    store(current, item, [row(seed, 0, "pass") for seed, _ in item.work])
    finish(current, item)
    submit(current, 2, executor="mine")
    chunks.dispatch(current, chunks.choose(current, queues_of[1], 1), now=NOW)
    again = attempts.unpublished(current, "epoch")[-1]
    assert again.seed_s is not None  # measured by the job before


def test_a_job_fails_at_its_queue_deadline_and_says_nothing_about_the_kernel(
    current: Session,
) -> None:
    job = submit(current, 2, queue_deadline_s=30.0)
    assert queues.expired(current, [], now=NOW) == []
    assert queues.expired(current, [QUEUE], now=LATER) == [job.id]
    assert queues.expire(current, job.id, now=LATER)
    failed = now_of(current, job)
    assert (failed.state, failed.verdict, failed.chunks.open, failed.counts) == (
        "failed",
        "error",
        0,
        {},
    )
    assert failed.error == f"no worker started it within its queue deadline of 30 s (queue {QUEUE})"


def test_a_running_job_outlives_its_queue_deadline_while_workers_live(current: Session) -> None:
    job = submit(current, 2, queue_deadline_s=30.0, chunk_seconds=1e-6)
    (item,) = send(current, 1)
    assert queues.expired(current, [], now=LATER) == []  # an attempt runs
    store(current, item, [row(0)])
    finish(current, item)
    assert queues.expired(current, [QUEUE], now=LATER) == []
    assert queues.expired(current, [], now=LATER) == [job.id]
    queues.expire(current, job.id, now=LATER)
    assert now_of(current, job).state == "failed"


def test_events_are_numbered_without_gaps_and_resume_anywhere(current: Session) -> None:
    job = submit(current, 3)
    (item,) = send(current)
    store(current, item, [row(0)])
    store(
        current,
        item,
        [row(1, verdict="pass_by_tolerance", explanation="unexplained"), row(2)],
        batch=1,
    )
    finish(current, item)
    every = events.after(current, job.id, 0)
    assert [event["number"] for event in every] == list(range(1, len(every) + 1))
    assert [event["type"] for event in every] == [
        "state",
        "state",
        "verdict",
        "progress",
        "verdict",
        "progress",
        "state",
    ]
    assert every[4]["data"] == {
        "seed": 1,
        "iteration": None,
        "repeat": 0,
        "verdict": "pass_by_tolerance",
        "explanation": "unexplained",
    }
    assert every[5]["data"] == {
        "done": 3,
        "total": 3,
        "verdicts": {"pass": 2, "pass_by_tolerance": 1},
    }
    assert every[6]["data"] == {"state": "finished", "verdict": "pass_by_tolerance"}
    assert events.after(current, job.id, 5) == every[5:]
    assert now_of(current, job).last_event == len(every)


def test_two_last_chunks_at_once_close_the_job_once(engine: Engine) -> None:
    for _ in range(5):
        with session(engine) as current:
            job = submit(current, 2, chunk_seconds=1e-6)
            items = send(current)
            for item in items:
                store(current, item, [row(seed) for seed, _ in item.work])
        barrier = threading.Barrier(2)
        problems: list[BaseException] = []

        def end(
            item: Sendable,
            barrier: threading.Barrier = barrier,
            problems: list[BaseException] = problems,
        ) -> None:
            try:
                barrier.wait()
                with session(engine) as thread_session:
                    finish(thread_session, item)
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=end, args=(item,)) for item in items]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        with reading(engine) as current:
            ended = now_of(current, job)
            assert (ended.state, ended.chunks.open) == ("finished", 0)
            assert (
                len(
                    [
                        event
                        for event in events.after(current, job.id, 0)
                        if event["data"].get("state") == "finished"
                    ]
                )
                == 1
            )
