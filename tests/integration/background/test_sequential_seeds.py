"""Sequential and suspect seeds in the database alone: when a job is decided, whatever comes when.
On both databases where their SQL may differ."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import migrated_database
import unchecked
from database_params import BOTH_ENGINES
from gonogo_service.flags.api import FLAGS
from gonogo_service.jobs import (
    artifacts,
    attempts,
    chunks,
    closing,
    dispatching,
    events,
    queues,
    work,
)
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.dispatching import Sendable
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.values import SeedDecision, SeedProgress
from gonogo_service.jobs.work import Work
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.results import seeds as results
from handed_out import hand_out
from job_flow import QUEUE, empty_row, new_job, row

NOW = utcnow()
LATER = NOW + timedelta(seconds=60)
Make = Callable[[int, int], dict[str, Any]]


@pytest.fixture(scope="module")
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A migrated database."""
    yield from migrated_database.migrated(request, tmp_path_factory)


@pytest.fixture
def current(engine: Engine) -> Iterator[Session]:
    """One write transaction, rolled back."""
    with migrated_database.back(engine) as transaction:
        yield transaction


def submit(
    current: Session,
    most: int = 500,
    *,
    start: int = 0,
    stop_on_finding: bool = True,
    **changes: Any,
) -> JobRow:
    """A stored job of sequential seeds."""
    new = new_job(
        range(start, start + most),
        stop_on_finding=stop_on_finding,
        request={"seeds": {"policy": "sequential"}},
        **changes,
    )
    return jobs.create(current, new, now=NOW)


def send(current: Session, count: int = 1000) -> list[Sendable]:
    """Send every chunk that may be sent, up to `count`; workers start all of them."""
    dispatching.dispatch(current, chunks.choose(current, QUEUE, count), now=NOW)
    sendable = hand_out(current, now=NOW)
    for item in sendable:
        unchecked.started(current, item.attempt, {"worker": "w"}, now=NOW)
    return sendable


def store(current: Session, item: Sendable, rows: Sequence[dict[str, Any]], batch: int = 0) -> None:
    """Store one batch of an attempt."""
    unchecked.store(current, item.attempt, {"batch": batch, "rows": list(rows)}, now=NOW)


def end(
    current: Session, item: Sendable, outcome: str = "done", sent: Any = None, **more: Any
) -> None:
    """Store the last message of an attempt."""
    body = {
        "outcome": outcome,
        "sent": item.work if sent is None else sent,
        "batches": None,
        **more,
    }
    unchecked.finished(current, item.attempt, body, now=NOW)


def canceled(current: Session, items: Sequence[Sendable]) -> list[Sendable]:
    return [item for item in items if attempts.is_canceled(current, item.attempt)]


def now_of(current: Session, job: JobRow) -> JobRow:
    """The job as it is now."""
    now = jobs.get(current, job.id)
    assert now is not None
    return now


def stop_of(current: Session, job: JobRow) -> SeedDecision:
    """Return the decision that stopped the job."""
    stop = now_of(current, job).stop
    assert stop is not None
    return stop


def run(current: Session, job: JobRow, make: Make = row) -> JobRow:
    """Run chunk after chunk on one worker until the job is over."""
    while not (now := now_of(current, job)).state.final:
        for item in send(current, 1):
            store(current, item, [make(seed, repeat) for seed, repeat in item.work])
            end(current, item)
    return now


def test_chunks_are_small_first_and_one_ends_at_the_earliest_decision() -> None:
    def sizes_of(count: int, repeats: int, pair_s: float) -> list[int]:
        cut = work.growing(Work(range(count), range(repeats)), pair_s, 20.0)
        return [high - low for low, high in pairwise((0, *cut.ends()))]

    sizes = sizes_of(500, 1, 0.01)
    assert sizes[:8] == [2, 2, 4, 8, 8, 8, 8, 9]
    assert sum(sizes) == 500
    assert all(
        later <= max(8, sum(sizes[: k + 1]) // 4 + 1)
        for k, (_, later) in enumerate(pairwise(sizes))
        if k > 6
    )
    assert sizes_of(10, 3, 3.0) == [6, 6, 6, 6, 6]
    assert sizes_of(3, 1, 100.0) == [1, 1, 1]
    assert sum(sizes_of(50, 2, 0.1)) == 100


def test_a_stable_test_stops_after_49_seeds_and_says_what_it_saved(current: Session) -> None:
    job = submit(current)
    assert job.total == 500
    ended = run(current, job)
    assert (ended.state, ended.verdict, ended.total, ended.done) == ("finished", "pass", 49, 49)
    assert ended.stop is not None
    assert {
        name: getattr(ended.stop, name)
        for name in (
            "decision",
            "words",
            "seeds_seen",
            "seeds_run",
            "seeds_saved",
            "device_ms_saved",
        )
    } == {
        "decision": "stable",
        "words": (
            "stopped after 49 of at most 500 seeds, 0 failed: "
            "the failure rate is 0.01 rather than 0.1; 1.13 s of device time saved"
        ),
        "seeds_seen": 49,
        "seeds_run": 49,
        "seeds_saved": 451,
        "device_ms_saved": 451 * 2.5,
    }
    state_changes = [
        event.data
        for event in events.after(current, job.id, 0)
        if event.type == "state" and event.data.get("stop")
    ]
    assert [change["state"] for change in state_changes] == ["running", "finished"]
    assert state_changes[0]["reason"].startswith("stopped after 49")
    assert state_changes[1]["stop"] == asdict(ended.stop)


@BOTH_ENGINES
def test_workers_get_no_seed_that_a_stable_test_does_not_need_and_a_failure_frees_more(
    current: Session,
) -> None:
    job = submit(current)
    items = send(current)
    assert [pair[0] for item in items for pair in item.work] == list(range(49))
    store(current, items[0], [row(0)])
    assert chunks.waiting(current) == {}
    store(current, items[0], [row(1, verdict="fail_by_tolerance")], batch=1)
    assert now_of(current, job).sequential == SeedProgress(
        start=0,
        max=500,
        stop_on_finding=True,
        seen=2,
        counted=2,
        failures=1,
        unexplained=0,
        needed=72,
    )
    assert [pair[0] for item in send(current) for pair in item.work][:1] == [49]
    assert chunks.waiting(current) == {}


def right(seed: int, repeat: int = 0) -> dict[str, Any]:
    """A row; one seed in five fails for a reason that rounding explains."""
    return row(seed, repeat, verdict="fail_by_tolerance" if seed % 5 == 3 else "pass")


def lucky(seed: int, repeat: int = 0) -> dict[str, Any]:
    """A row. Seeds 2 and 30 fail, which doesn't decide; seeds 7 to 9 say nothing of the kernel;
    seeds from 40 on are unexplained, so seed 40 decides."""
    if seed in (7, 8, 9):
        return empty_row(seed, "error", "the device went away", repeat)
    if seed >= 40:
        return row(seed, repeat, "pass_by_tolerance", "unexplained")
    return row(seed, repeat, verdict="fail_by_tolerance" if seed in (2, 30) else "pass")


@pytest.mark.parametrize(
    ("make", "decision", "seen", "luck"),
    [(row, "stable", 49, 1), (right, "flaky", 14, 2), (lucky, "hollow", 41, 4)],
)
def test_the_decision_is_the_same_whatever_comes_when(
    current: Session, make: Make, decision: str, seen: int, luck: int
) -> None:
    """Many workers, batches out of order and twice, workers that die: the same seeds decide."""
    chance = random.Random(luck)
    job = submit(current, 200)
    going: list[tuple[Sendable, list[list[int]]]] = []
    while not now_of(current, job).state.final:
        going += [(item, list(item.work)) for item in send(current, 3)]
        item, left = going.pop(chance.randrange(len(going)))
        chance.shuffle(left)
        part = left[: chance.randrange(1, len(left) + 1)]
        rest = [pair for pair in left if pair not in part]
        for _ in range(chance.choice((1, 1, 2))):
            store(current, item, [make(*pair) for pair in part])
        if not rest:
            end(current, item)
        elif chance.random() < 0.2:
            attempts.mark_lost(
                current, item.attempt, "its worker was killed", before=LATER, now=NOW
            )
        else:
            going.append((item, rest))
    stop = stop_of(current, job)
    assert (stop.decision, stop.seeds_seen) == (decision, seen)
    ended = now_of(current, job)
    assert ended.done == ended.total == len(list(results.stream(current, job.id)))
    assert stop.seeds_saved == 200 - ended.done


def test_a_logic_bug_stops_at_its_first_seed_and_its_attempt_runs_on_for_its_artifacts(
    current: Session,
) -> None:
    job = submit(current)
    items = send(current)
    store(current, items[0], [row(0, verdict="fail", explanation="unexplained")])
    stop = stop_of(current, job)
    assert (stop.decision, stop.seed, stop.verdict, stop.seeds_run) == (
        "wrong",
        0,
        "fail",
        None,
    )
    assert stop.words.endswith("(seed 0: fail)")
    assert not hasattr(stop, "finder")
    assert canceled(current, items) == items[1:]
    assert chunks.waiting(current) == {}
    assert now_of(current, job).state == "running"
    store(current, items[1], [row(2)])  # it was on its way, so it is kept
    for item in items[2:]:
        end(current, item, "cancelled", [])
    end(current, items[1], "cancelled", [[2, 0]])
    store(current, items[1], [row(3)], batch=1)  # its chunk is closed: too late
    wrong = row(1, verdict="fail", explanation="unexplained")
    wrong["outputs"]["dx"] |= {"fault": "s1 is subtracted twice", "rounding_ratio": 9.0}
    log = {"kind": "log", "seed": 1, "repeat": 0, "output": "", "content": {"text": "x"}}
    body = {"batch": 1, "rows": [wrong], "artifacts": [log]}
    unchecked.store(current, items[0].attempt, body, now=NOW)
    end(current, items[0])
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.counts) == (
        "finished",
        "fail",
        {"fail": 2, "pass": 1},
    )
    assert ended.diagnosis is not None
    assert ended.diagnosis.words == "dx: s1 is subtracted twice"
    assert [head.kind for head in artifacts.list_(current, ended.id)] == ["log"]
    assert (ended.total, stop_of(current, job).seeds_saved) == (3, 497)
    store(current, items[0], [row(9)], batch=2)
    assert now_of(current, job).done == 3


def test_asked_for_more_a_wrong_kernel_is_run_until_its_rate_is_known(current: Session) -> None:
    job = submit(current, stop_on_finding=False)
    ended = run(
        current, job, lambda seed, repeat: row(seed, repeat, "pass_by_tolerance", "unexplained")
    )
    assert ended.stop is not None
    assert (ended.stop.decision, ended.stop.seeds_seen, ended.verdict) == (
        "stable",
        49,
        "pass_by_tolerance",
    )
    assert FLAGS.page(current, job=job.id).items


def test_what_lies_behind_an_unexplained_seed_is_withdrawn_and_what_lies_before_it_is_waited_for(
    current: Session,
) -> None:
    job = submit(current)
    items = send(current)
    store(current, items[2], [row(5, verdict="fail", explanation="unexplained")])
    assert now_of(current, job).stop is None
    assert canceled(current, items) == items[3:]
    attempts.mark_lost(current, items[0].attempt, "its worker was killed", before=LATER, now=NOW)
    attempts.mark_lost(current, items[3].attempt, "its worker was killed", before=LATER, now=NOW)
    (again,) = send(current)  # only the one that is needed
    assert again.work == [[0, 0], [1, 0]]
    store(current, items[1], [row(2), row(3)])
    store(current, items[2], [row(4)], batch=1)
    store(
        current, again, [row(0, verdict="fail_by_tolerance"), row(1, verdict="fail_by_tolerance")]
    )
    stop = stop_of(current, job)
    assert (stop.decision, stop.seeds_seen) == (
        "flaky",
        2,
    )  # what came first in the order of the seeds decides


def test_nothing_about_the_kernel_ends_undecided_with_the_largest_number(current: Session) -> None:
    job = submit(current, 5)
    ended = run(current, job, lambda seed, repeat: empty_row(seed, "hang", "no answer", repeat))
    assert ended.stop is not None
    words = (
        "stopped after 0 of at most 5 seeds (5 more say nothing of the kernel), 0 failed: "
        "all 5 seeds ran without a decision"
    )
    assert (ended.verdict, ended.stop.decision, ended.stop.words) == (
        "hang",
        "undecided",
        words,
    )
    assert (ended.stop.seeds_saved, ended.stop.device_ms_saved) == (0, 0)
    again = jobs.resubmit(current, job.id, owner="me")
    assert again is not None
    assert (again.total, again.sequential) == (
        5,
        SeedProgress(start=0, max=5, stop_on_finding=True),
    )


def test_repeats_of_a_seed_count_once_and_one_red_repeat_makes_it_red(current: Session) -> None:
    job = submit(current, 20, repeats=2, start=100)
    ended = run(
        current,
        job,
        lambda seed, repeat: row(seed, repeat, verdict="fail_by_tolerance" if repeat else "pass"),
    )
    assert ended.stop is not None
    assert (ended.stop.decision, ended.stop.seeds_seen, ended.stop.seed, ended.done) == (
        "flaky",
        2,
        101,
        4,
    )


def test_a_worker_that_dies_or_does_not_obey_cannot_keep_a_decided_job_open(
    current: Session,
) -> None:
    job = submit(current)
    items = send(current)
    store(
        current,
        items[0],
        [row(0, verdict="fail_by_tolerance"), row(1, verdict="fail_by_tolerance")],
    )
    end(current, items[0])
    attempts.mark_lost(current, items[1].attempt, "its worker was killed", before=LATER, now=NOW)
    assert queues.overdue_cancels(current, before=NOW) == []
    assert queues.overdue_cancels(current, before=LATER) == [job.id]
    assert queues.close_unresponsive(current, job.id, now=LATER)
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.chunks.open) == ("finished", "fail_by_tolerance", 0)
    store(current, items[4], [row(seed) for seed, _ in items[4].work])
    assert now_of(current, job).done == 2


@BOTH_ENGINES
def test_a_decided_job_does_not_wait_for_what_its_dead_workers_had_not_sent(
    current: Session,
) -> None:
    job = submit(current)
    items = send(current)
    store(current, items[0], [row(0, verdict="fail", explanation="unexplained")])
    for item in items[2:]:
        end(current, item, "cancelled", [])
    assert queues.close_unresponsive(current, job.id, now=LATER)
    assert now_of(current, job).chunks.open == 1  # the finder's is still needed
    attempts.mark_lost(current, items[0].attempt, "its worker was killed", before=LATER, now=NOW)
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.done) == ("finished", "fail", 1)
    assert send(current) == []


@BOTH_ENGINES
def test_late_results_of_a_lost_attempt_that_decide_end_the_job(current: Session) -> None:
    job = submit(current, 2)
    (item,) = send(current)
    attempts.mark_lost(current, item.attempt, "its worker was killed", before=LATER, now=NOW)
    store(current, item, [row(seed, verdict="fail_by_tolerance") for seed in (0, 1)])
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.chunks.open) == ("finished", "fail_by_tolerance", 0)


def test_seeds_that_never_gave_a_result_end_undecided(current: Session) -> None:
    job = submit(current, 1)
    for _ in range(closing.MAX_ATTEMPTS):
        (item,) = send(current)
        end(current, item, "error", [], error="no device")
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.chunks.open) == ("finished", "error", 0)
    assert stop_of(current, job).decision == "undecided"


def test_a_cancelled_job_stays_cancelled_whatever_its_seeds_had_decided(current: Session) -> None:
    job = submit(current)
    items = send(current)
    store(
        current,
        items[0],
        [row(0, verdict="fail_by_tolerance"), row(1, verdict="fail_by_tolerance")],
    )
    assert jobs.cancel(current, job.id) is not None
    for item in items:
        end(current, item, "cancelled", [])
    ended = now_of(current, job)
    assert (ended.state, ended.verdict, ended.total) == ("cancelled", "fail_by_tolerance", 500)


@BOTH_ENGINES
def test_two_copies_that_store_in_the_same_moment_decide_once(engine: Engine) -> None:
    with session(engine) as current:
        job = submit(current)
        items = send(current)
    threads = [
        threading.Thread(target=_store_alone, args=(engine, item))
        for item in items
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with reading(engine) as current:
        ended = now_of(current, job)
        decided = [event for event in events.after(current, job.id, 0) if "reason" in event.data]
    assert (ended.state, ended.done, len(decided)) == ("finished", 49, 1)


def _store_alone(engine: Engine, item: Sendable) -> None:
    with session(engine) as current:
        store(current, item, [row(seed) for seed, _ in item.work])
    with session(engine) as current:
        end(current, item)
