"""The job flow in the database alone: who may write what, when a chunk is asked for again, when a
job ends. On both databases."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session

import unchecked
from gonogo.settings import Settings
from gonogo.spec import hang_limits
from gonogo.spec.test_spec import TestSpec
from gonogo_service.gauges import submission as gauges
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.jobs import (
    artifacts,
    attempts,
    batches,
    chunks,
    closing,
    dispatching,
    events,
    queues,
)
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.dispatching import Sendable
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.jobs.new_job import BACKGROUND_PRIORITY
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.database.states import AttemptState
from gonogo_service.kit.outbox import outbox
from gonogo_service.results import seeds as results
from gonogo_service.results.batch import Batch
from handed_out import hand_out
from job_flow import QUEUE, empty_row, new_job, output, row
from stored_attempts import attempts_of

NOW = utcnow()
LATER = NOW + timedelta(seconds=60)
UNKNOWN = "01900000-0000-7000-8000-000000000000"


@pytest.fixture
def current(engine: Engine) -> Iterator[Session]:
    """One write transaction."""
    with session(engine) as transaction:
        yield transaction


def submit(current: Session, seeds: int = 4, **changes: Any) -> JobRow:
    """A stored job."""
    return jobs.create(current, new_job(seeds, **changes), now=NOW)


def send(
    current: Session, count: int = 1000, *, start: bool = True, now: datetime = NOW
) -> list[Sendable]:
    """Dispatch waiting chunks and publish their attempts; with `start` the worker starts them."""
    dispatching.dispatch(current, chunks.choose(current, QUEUE, count), now=now)
    sendable = hand_out(current, now=now)
    if start:
        for item in sendable:
            unchecked.started(current, item.attempt, {"worker": "w"}, now=now)
    return sendable


def store(current: Session, item: Sendable, rows: list[dict[str, Any]], batch: int = 0) -> None:
    """Store one batch of an attempt."""
    unchecked.store(current, item.attempt, {"batch": batch, "rows": rows}, now=NOW)


def finish(
    current: Session,
    item: Sendable,
    sent: list[list[int]] | None = None,
    outcome: str = "done",
    **more: Any,
) -> None:
    """Store the last message of an attempt."""
    body = {"outcome": outcome, "sent": item.work if sent is None else sent, **more}
    unchecked.finished(current, item.attempt, body, now=NOW)


def now_of(current: Session, job: JobRow) -> JobRow:
    """The job as it is now."""
    stored_job = jobs.get(current, job.id)
    assert stored_job is not None
    return stored_job


def seeds_of(current: Session, job: JobRow) -> dict[int, str]:
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


def test_background_work_comes_last_and_only_so_much_of_it(current: Session) -> None:
    fast = {"chunk_seconds": 1e-6}
    gauge = submit(current, 4, owner="cy", priority=BACKGROUND_PRIORITY, **fast)
    job = submit(current, 2, owner="ann", **fast)
    submit(current, 2, owner="ann", board="p150", **fast)  # another queue

    def chosen(count: int, background: int | None) -> list[chunks.Place]:
        return chunks.choose(current, QUEUE, count, background)

    places = [(job.id, 0), (job.id, 1), *((gauge.id, number) for number in range(4))]
    assert chosen(10, None) == places
    assert chosen(10, 1) == places[:3]
    assert chosen(4, 3) == places[:4]
    assert chosen(1, 3) == places[:1]
    assert chunks.waiting(current) == {QUEUE: 6, QUEUE.replace("n150", "p150"): 2}


def test_shares_count_what_is_in_flight_in_the_same_queue(current: Session) -> None:
    fast = {"chunk_seconds": 1e-6}
    ann = submit(current, 5, owner="ann", **fast)
    bob = submit(current, 3, owner="bob", **fast)
    submit(current, 3, owner="bob", board="p150", **fast)
    sent = dispatching.dispatch(current, [(ann.id, 0), (ann.id, 1)], now=NOW)
    dispatching.dispatch(current, chunks.choose(current, QUEUE.replace("n150", "p150"), 3), now=NOW)
    unchecked.started(current, sent[0], {"worker": "w"}, now=NOW)
    order = [(bob.id, 0), (bob.id, 1), (ann.id, 2), (bob.id, 2), (ann.id, 3), (ann.id, 4)]
    assert chunks.choose(current, QUEUE, 9) == order
    unchecked.finished(current, sent[0], {"outcome": "handed_back", "sent": []}, now=NOW)
    # what waits again comes before what was never sent
    order = [(bob.id, 0), (ann.id, 0), (bob.id, 1), (ann.id, 2), (bob.id, 2), (ann.id, 3)]
    assert chunks.choose(current, QUEUE, 6) == order
    assert chunks.waiting(current)[QUEUE] == 7
    assert chunks.unstarted(current)[QUEUE] == 1
    jobs.cancel(current, ann.id, now=NOW)
    assert chunks.choose(current, QUEUE, 9) == [(bob.id, 0), (bob.id, 1), (bob.id, 2)]
    assert dispatching.dispatch(current, [(ann.id, 0), (UNKNOWN, 0), (bob.id, 9)], now=NOW) == []


def test_a_chunk_whose_results_came_meanwhile_is_closed_instead_of_sent(current: Session) -> None:
    job = submit(current, 3, chunk_seconds=1e-6)
    first, second, third = send(current)
    for item in (first, second, third):
        finish(current, item, sent=[], outcome="handed_back" if item is first else "error")
    locked = current.get_one(JobRow, job.id)
    rows = [row(first.work[0][0]), row(second.work[0][0])]
    closing.record(current, locked, first.attempt, Batch.of(rows), now=NOW)
    assert chunks.choose(current, QUEUE, 1) == [(job.id, 0)]
    (again,) = send(current)
    assert again.work == third.work
    numbers = [attempt["number"] for attempt in attempts_of(current, job.id)]
    assert numbers == [1, 1, 1, 2]
    assert now_of(current, job).chunks.open == 1


@pytest.mark.parametrize(
    ("elements", "reference", "most"),
    [
        (10**9, None, chunks.MAX_WORK),
        (2**16, "other", 1024),
        (2**26, "other", 1),
        (2**27, "other", 1),
    ],
)
def test_a_reference_s_outputs_limit_the_seeds_of_a_chunk(
    elements: int, reference: str | None, most: int
) -> None:
    assert chunks.max_seeds(elements, reference) == most
    work, cut = chunks.cut(new_job(2048, elements=elements, reference=reference), 1e-9)
    assert (len(work), cut.chunks) == (2048, -(-2048 // most))


def test_a_guess_grows_with_the_size_and_sequential_chunks_with_their_number(
    current: Session,
) -> None:
    fixed, per_element = chunks.UNKNOWN_SEED_S
    guess = chunks.estimate_seed_s(current, "v1-workload", "mine", 10**6)
    assert guess == pytest.approx(fixed + 10**6 * per_element)
    sequential = new_job(100, stop_on_finding=True)
    assert chunks.cut(sequential, 0.01)[1].growth != chunks.cut(new_job(100), 0.01)[1].growth


def test_a_chosen_chunk_is_dispatched_once(current: Session) -> None:
    submit(current)
    chosen = chunks.choose(current, QUEUE, 5)
    assert len(dispatching.dispatch(current, chosen, now=NOW)) == 1
    assert dispatching.dispatch(current, chosen, now=NOW) == []
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
    assert missing.message == "no result after 3 attempts; the last one: no device"
    assert missing.attempt == third.attempt
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
    numbers = [attempt["number"] for attempt in attempts_of(current, job.id)]
    assert sorted(numbers) == list(range(1, closing.MAX_ATTEMPTS + 4))


@pytest.mark.parametrize(("before", "state"), [(2, "running"), (1, "finished")])
def test_endless_hand_backs_end_a_job(current: Session, before: int, state: str) -> None:
    job = submit(current, 1)
    (item,) = send(current)
    chunk = current.get_one(ChunkRow, item.message["chunk"])
    chunk.returns = closing.MAX_RETURNS - before
    finish(current, item, sent=[], outcome="handed_back")
    assert (chunk.attempts, chunk.returns) == (0, closing.MAX_RETURNS - before + 1)
    assert now_of(current, job).state == state
    (attempt,) = attempts_of(current, job.id)
    assert attempt["state"] == "handed_back"


@pytest.mark.parametrize(
    ("worker", "heard"), [("w", True), (None, True), ("another", False)], ids=str
)
def test_a_heartbeat_keeps_its_worker_s_attempt_alive_until_it_ends(
    current: Session, worker: str | None, heard: bool
) -> None:
    job = submit(current, 1)
    (item,) = send(current)
    attempts.heartbeat(current, item.attempt, seed=7, stage="run", now=LATER, worker=worker)
    (attempt,) = attempts_of(current, job.id)
    assert (attempt["heard_at"], attempt["seed"], attempt["stage"]) == (
        (LATER, 7, "run") if heard else (NOW, None, None)
    )
    store(current, item, [row(0)])
    finish(current, item)
    attempts.heartbeat(current, item.attempt, seed=8, stage="run", now=LATER, worker=worker)
    attempts.heartbeat(current, "nonsense", seed=8, stage="run", now=LATER)
    assert attempts_of(current, job.id)[0]["seed"] == (7 if heard else None)


def test_results_are_a_sign_of_life_of_a_running_attempt_only(current: Session) -> None:
    job = submit(current, 3, chunk_seconds=1e-6)
    running, lost, unsent = send(current, start=False)
    later = LATER + timedelta(seconds=1)
    for item in (running, lost):
        unchecked.started(current, item.attempt, {"worker": "w"}, now=NOW)
    attempts.mark_lost(current, lost.attempt, "no heartbeat", before=LATER, now=LATER)
    for item in (running, lost):
        unchecked.store(current, item.attempt, {"rows": [row(item.work[0][0])]}, now=later)
    heard = {attempt["id"]: attempt["heard_at"] for attempt in attempts_of(current, job.id)}
    assert heard == {running.attempt: later, lost.attempt: NOW, unsent.attempt: NOW}
    silent = attempts.silent_attempts(current, AttemptState.running, before=later)
    assert silent == []
    silent = attempts.silent_attempts(
        current, AttemptState.running, before=later + timedelta(seconds=1)
    )
    assert [(item.id, item.worker) for item in silent] == [(running.attempt, "w")]
    assert not attempts.is_canceled(current, running.attempt)


@pytest.mark.parametrize("number", [True, -1, batches.MAX_BATCHES, "0", None])
def test_a_batch_without_a_sane_number_is_stored_and_not_counted(
    current: Session, number: Any
) -> None:
    job = submit(current, 2)
    (item,) = send(current)
    unchecked.store(current, item.attempt, {"batch": number, "rows": [row(0)]}, now=NOW)
    unchecked.store(
        current, item.attempt, {"batch": batches.MAX_BATCHES - 1, "rows": [row(1)]}, now=NOW
    )
    assert seeds_of(current, job) == {0: "pass", 1: "pass"}
    assert list(attempts_of(current, job.id)[0]["batches"]) == [str(batches.MAX_BATCHES - 1)]


def test_the_last_message_of_an_attempt_is_kept_with_it_and_heard_once(current: Session) -> None:
    job = submit(current, 2)
    (item,) = send(current)
    store(current, item, [row(0)])
    telemetry = {"temperature_c": 61.0}
    finish(current, item, log_tail="a\x00b", error="hot", telemetry=telemetry, batches=2)
    finish(current, item, outcome="error", error="again", batches=0)
    (attempt,) = attempts_of(current, job.id)
    assert (attempt["state"], attempt["error"], attempt["telemetry"], attempt["finished_at"]) == (
        "reported",
        "hot",
        telemetry,
        NOW,
    )
    assert attempt["log_tail"].startswith("a")
    assert attempt["expected"] == {"outcome": "done", "sent": item.work, "batches": 2}
    assert attempts.device_of(current, item.attempt) is None


def test_an_attempt_ends_when_all_that_it_sent_is_stored(current: Session) -> None:
    job = submit(current, 2)
    before = job.version
    (item,) = send(current)
    assert now_of(current, job).version > before
    finish(current, item)
    assert [one["state"] for one in attempts_of(current, job.id)] == ["reported"]
    store(current, item, [row(0), row(1)])
    assert [one["state"] for one in attempts_of(current, job.id)] == ["done"]
    assert now_of(current, job).state == "finished"


@pytest.mark.parametrize(("table", "place"), [(AttemptRow, "attempt"), (ChunkRow, "chunk")])
def test_a_message_is_read_against_the_state_that_another_process_wrote(
    current: Session, table: type[AttemptRow | ChunkRow], place: str
) -> None:
    job = submit(current, 1)
    (item,) = send(current, start=False)
    earlier = current.get_one(table, item.message[place])  # the session knows it
    current.execute(update(table).values(state="lost").execution_options(synchronize_session=False))
    unchecked.started(current, item.attempt, {"worker": "w"}, now=NOW)
    assert (now_of(current, job).state, earlier.state) == ("queued", "lost")


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
    log = {"kind": "log", "seed": 0, "repeat": 0, "output": "", "content": {"text": "x"}}
    unchecked.store(current, item.attempt, {"batch": 1, "rows": [], "artifacts": [log]}, now=NOW)
    ended = now_of(current, job)
    assert (ended.state, ended.diagnosis) == ("finished", None)  # rounding explains the seed
    assert [head.kind for head in artifacts.list_(current, ended.id)] == ["log"]


def test_a_batch_that_never_comes_is_asked_for_again(current: Session) -> None:
    submit(current, 2)
    (item,) = send(current)
    store(current, item, [row(0)])
    finish(current, item, batches=2)
    assert [
        silent.id
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


def test_finished_may_overtake_started(current: Session) -> None:
    job = submit(current, 1)
    (item,) = send(current, start=False)
    store(current, item, [row(0)])
    finish(current, item)
    assert unchecked.started(current, item.attempt, {"worker": "w"}, now=NOW) is None
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.started_at) == ("finished", "pass", NOW)


def test_finished_may_overtake_everything(current: Session) -> None:
    job = submit(current, 1)
    (item,) = send(current, start=False)
    finish(current, item, batches=1)
    waits = now_of(current, job)
    assert (waits.state, waits.started_at) == ("running", NOW)
    jobs.cancel(current, job.id, now=NOW)  # its kernel has run: the numbers are waited for
    store(current, item, [row(0, verdict="fail")])
    ended = now_of(current, job)
    assert (ended.state, ended.verdict) == ("cancelled", "fail")


def test_results_may_overtake_started(current: Session) -> None:
    job = submit(current, 2)
    (item,) = send(current, start=False)
    store(current, item, [row(0)])
    assert now_of(current, job).state == "running"
    assert unchecked.started(current, item.attempt, {"worker": "w"}, now=NOW) == job.id
    assert attempts_of(current, job.id)[0]["worker"] == "w"


def test_unstarted_attempts_are_sent_again_in_a_new_life_of_the_broker(current: Session) -> None:
    submit(current, 2, chunk_seconds=1e-6)
    started, waiting = send(current, start=False)
    unchecked.started(current, started.attempt, {}, now=NOW)
    assert [item.attempt for item in dispatching.unclaimed(current)] == [waiting.attempt]


def test_cancel_ends_at_once_what_no_worker_has_started(current: Session) -> None:
    job = submit(current, 3, chunk_seconds=1e-6)
    (sent,) = send(current, 1, start=False)
    ended = jobs.cancel(current, job.id, now=NOW)
    assert ended is not None
    assert (ended.state, ended.verdict, ended.chunks.open, ended.done) == ("cancelled", None, 0, 0)
    assert attempts.is_canceled(current, sent.attempt)
    assert unchecked.started(current, sent.attempt, {}, now=NOW) is None
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
    assert attempts.is_canceled(current, item.attempt)
    assert send(current) == []
    store(current, item, [row(0, verdict="fail")], batch=1)
    finish(current, item, outcome="cancelled")
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.counts) == ("cancelled", "fail", {"fail": 1})
    states = [
        event.data["state"] for event in events.after(current, job.id, 0) if event.type == "state"
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
    (attempt,) = attempts_of(current, job.id)
    assert (attempt["state"], attempt["finished_at"], attempt["error"]) == (
        "lost",
        LATER,
        "did not stop in time after it was asked to",
    )


def test_results_that_come_after_retention_change_no_sum(current: Session) -> None:
    job = submit(current, 2)
    (item,) = send(current)
    store(current, item, [row(0)])
    current.get_one(JobRow, job.id).seeds_removed_at = NOW
    store(current, item, [row(1)], batch=1)
    assert (now_of(current, job).done, now_of(current, job).counts) == (1, {"pass": 1})


@pytest.mark.parametrize(
    ("kernel", "red", "hollow", "outcomes"),
    [
        # the tests of a selection count by themselves, an iteration without any by its verdict
        ("selection", 3, 2, {"passed": 3, "failed": 2, "crash": 1}),
        ("layernorm_bw", 2, 1, None),
    ],
)
def test_red_and_hollow_are_counted_side_by_side(
    current: Session, kernel: str, red: int, hollow: int, outcomes: dict[str, int] | None
) -> None:
    job = submit(current, 4, kernel=kernel)
    (item,) = send(current)
    failed = output("fail", "unexplained", outcome="failed")
    tests = {"a": output(outcome="passed"), "b": output("pass_by_tolerance", outcome="passed")}
    store(current, item, [row(0, verdict="fail", outputs={"c": failed, **tests})])
    more = {"b": tests["b"], "c": failed}
    store(current, item, [row(1, verdict="pass_by_tolerance", outputs=more)], batch=1)
    store(current, item, [empty_row(2, "crash", "signal 11")], batch=2)
    ended = now_of(current, job)
    assert (ended.red, ended.hollow, ended.outcomes) == (red, hollow, outcomes)


@pytest.mark.parametrize(
    ("changes", "rows", "assessments"),
    [({}, 1, 1), ({"reference": "correct"}, 1, 0), ({}, 0, 0)],
    ids=["rows", "reference", "none"],
)
def test_an_ended_job_is_announced_once_and_assessed_where_it_has_rows(
    current: Session, changes: dict[str, Any], rows: int, assessments: int
) -> None:
    job = submit(current, 2, chunk_seconds=1e-6, **changes)
    (item,) = send(current, 1)
    store(current, item, [row(0)][:rows])
    jobs.cancel(current, job.id, now=NOW)
    finish(current, item, [[0, 0]][:rows], outcome="cancelled")
    ended = now_of(current, job)
    assert (ended.state, ended.waiting_reason, ended.finished_at) == ("cancelled", None, NOW)
    version = current.get_one(JobRow, job.id).version
    assert [m.payload for m in outbox.due(current, topics=["job.finished"], now=LATER)] == [
        {"job": job.id, "version": version}
    ]
    assert len(outbox.due(current, topics=["assess"], now=LATER)) == assessments


def test_a_gauge_s_end_grades_its_test_anew_on_its_board_only(current: Session) -> None:
    graded, key = [], TestSpec.parse(new_job().canonical).key
    for board in ("n150", "n300"):
        graded.append(submit(current, 1, test_key=key).id)
        current.get_one(JobRow, graded[-1]).board = board
        (item,) = send(current)
        store(current, item, [row(0)])
        finish(current, item)
    job = new_job()
    about = {"test": job.canonical, "seeds": {"count": 1}, "branch": job.branch}
    body = GaugeIn.parse({**about, "target": {"arch": job.arch, "board": job.board}})
    gauge = gauges.submit(current, body, Settings(), "local", now=NOW)
    jobs.cancel(current, gauge.id, now=NOW)
    requests = [message.payload["job"] for message in outbox.due(current, topics=["assess"])]
    assert sorted(requests) == [graded[0], *graded]  # each at its own end, and one by the gauge


def test_the_lock_reads_the_job_anew(current: Session) -> None:
    job = submit(current)
    current.execute(update(JobRow).values(priority=7).execution_options(synchronize_session=False))
    locked = closing.lock(current, job.id)
    assert locked is not None
    assert locked.priority == 7


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
    assert queues.behind(current, now_of(current, first)) is None
    reason = queues.behind(current, now_of(current, second))
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
    dispatching.dispatch(current, chosen, now=NOW)
    by_queue = {item.queue: item for item in hand_out(current, now=NOW)}
    assert by_queue[queues_of[0]].seed_s == pytest.approx(0.003, rel=0.9)
    assert [by_queue[queue].seed_s for queue in queues_of[1:]] == [None, None]
    item = by_queue[queues_of[1]]
    store(current, item, [row(seed, 0, "pass") for seed, _ in item.work])
    finish(current, item)
    submit(current, 2, executor="mine")
    dispatching.dispatch(current, chunks.choose(current, queues_of[1], 1), now=NOW)
    (again,) = hand_out(current, now=NOW)
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


def test_a_job_that_fails_takes_back_what_no_worker_has_started(current: Session) -> None:
    job = submit(current, 3, queue_deadline_s=30.0, chunk_seconds=1e-6)
    (sent,) = send(current, 1, start=False)
    assert queues.expire(current, job.id, now=LATER)
    assert attempts.is_canceled(current, sent.attempt)
    assert current.get_one(AttemptRow, sent.attempt).state == AttemptState.cancelled
    assert unchecked.started(current, sent.attempt, {"worker": "w"}, now=LATER) is None
    assert send(current) == []


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
    job = submit(current, 5)
    (item,) = send(current)
    hollow = [
        row(seed, verdict="pass_by_tolerance", explanation="unexplained") for seed in range(5)
    ]
    store(current, item, [row(0)])
    store(current, item, [hollow[3], hollow[1], row(2)], batch=1)
    store(current, item, [hollow[4]], batch=2)  # no worse
    finish(current, item)
    every = events.after(current, job.id, 0)
    assert [event.number for event in every] == list(range(1, len(every) + 1))
    assert [event.type for event in every] == [
        "state",
        "state",
        "verdict",
        "progress",
        "verdict",
        "progress",
        "progress",
        "state",
    ]
    assert every[4].data == {
        "seed": 1,
        "iteration": None,
        "repeat": 0,
        "verdict": "pass_by_tolerance",
        "explanation": "unexplained",
    }
    assert every[5].data == {
        "done": 4,
        "total": 5,
        "verdicts": {"pass": 2, "pass_by_tolerance": 2},
    }
    assert every[7].data == {"state": "finished", "verdict": "pass_by_tolerance"}
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
                        if event.data.get("state") == "finished"
                    ]
                )
                == 1
            )
