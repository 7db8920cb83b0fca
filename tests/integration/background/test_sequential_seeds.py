"""Sequential seeds in the database alone: when a job is decided, whatever comes when. On both
databases where their SQL may differ."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import Engine

from at_once import at_once
from database_params import BOTH_ENGINES
from gonogo_service.flags.api import FLAGS
from gonogo_service.jobs import artifacts, chunks, closing, queues, work
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.dispatching import Sendable
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.values import SeedDecision, SeedProgress
from gonogo_service.jobs.work import Work
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.results import seeds as results
from job_flow import empty_row, row
from stored_flow import LATER, NOW, Flow

Make = Callable[[int, int], dict[str, Any]]


def red(seed: int) -> dict[str, Any]:
    """A row that fails for a reason that rounding explains."""
    return row(seed, verdict="fail_by_tolerance")


def wrong(seed: int, verdict: str = "fail") -> dict[str, Any]:
    """A row that rounding doesn't explain: it decides alone."""
    return row(seed, 0, verdict, "unexplained")


def stop_of(job: JobRow) -> SeedDecision:
    """Return the decision that stopped the job."""
    assert job.stop is not None
    return job.stop


def test_chunks_are_small_first_and_one_ends_at_the_earliest_decision() -> None:
    def sizes_of(count: int, repeats: int, pair_s: float) -> list[int]:
        cut = work.growing(Work(range(count), range(repeats)), pair_s, 20.0)
        return [high - low for low, high in pairwise((0, *cut.ends()))]

    sizes = sizes_of(500, 1, 0.01)
    assert (sizes[:8], sum(sizes)) == ([2, 2, 4, 8, 8, 8, 8, 9], 500)
    assert all(size <= max(8, sum(sizes[:k]) // 4 + 1) for k, size in enumerate(sizes) if k > 7)
    assert sizes_of(10, 3, 3.0) == [6, 6, 6, 6, 6]
    assert sizes_of(3, 1, 100.0) == [1, 1, 1]
    assert sum(sizes_of(50, 2, 0.1)) == 100


def test_a_stable_test_stops_after_49_seeds_and_says_what_it_saved(flow: Flow) -> None:
    job = flow.sequential()
    assert job.total == 500
    flow.run(job)
    assert (job.state, job.verdict, job.total, job.done) == ("finished", "pass", 49, 49)
    expected = {
        "decision": "stable",
        "words": "stopped after 49 of at most 500 seeds, 0 failed: "
        "the failure rate is 0.01 rather than 0.1; 1.13 s of device time saved",
        "seeds_seen": 49,
        "seeds_run": 49,
        "seeds_saved": 451,
        "device_ms_saved": 451 * 2.5,
    }
    assert {name: getattr(stop_of(job), name) for name in expected} == expected
    decided, ended = [event.data for event in flow.events(job) if event.data.get("stop")]
    assert (decided["state"], ended["state"]) == ("running", "finished")
    assert decided["reason"].startswith("stopped after 49")
    assert ended["stop"] == asdict(stop_of(job))


@BOTH_ENGINES
def test_workers_get_no_seed_that_a_stable_test_does_not_need_and_a_failure_frees_more(
    flow: Flow,
) -> None:
    job = flow.sequential()
    items = flow.send()
    assert [pair[0] for item in items for pair in item.work] == list(range(49))
    flow.store(items[0], row(0))
    assert chunks.waiting(flow.session) == {}
    flow.store(items[0], red(1), batch=1)
    seen = {"seen": 2, "counted": 2, "failures": 1, "unexplained": 0, "needed": 72}
    assert job.sequential == SeedProgress(start=0, max=500, stop_on_finding=True, **seen)
    assert flow.send()[0].work[0] == [49, 0]
    assert chunks.waiting(flow.session) == {}


def right(seed: int, repeat: int = 0) -> dict[str, Any]:
    """A row; one seed in five fails for a reason that rounding explains."""
    return red(seed) if seed % 5 == 3 else row(seed)


def lucky(seed: int, repeat: int = 0) -> dict[str, Any]:
    """A row. Seeds 2 and 30 fail, which doesn't decide; seeds 7 to 9 say nothing of the kernel;
    seeds from 40 on are unexplained, so seed 40 decides."""
    if seed in (7, 8, 9):
        return empty_row(seed, "error", "the device went away")
    if seed >= 40:
        return wrong(seed, "pass_by_tolerance")
    return red(seed) if seed in (2, 30) else row(seed)


@pytest.mark.parametrize(
    ("make", "decision", "seen", "luck"),
    [(row, "stable", 49, 1), (right, "flaky", 14, 2), (lucky, "hollow", 41, 4)],
)
def test_the_decision_is_the_same_whatever_comes_when(
    flow: Flow, make: Make, decision: str, seen: int, luck: int
) -> None:
    """Many workers, batches out of order and twice, workers that die: the same seeds decide."""
    chance = random.Random(luck)
    job = flow.sequential(200)
    going: list[tuple[Sendable, list[list[int]]]] = []
    while not job.state.final:
        going += [(item, list(item.work)) for item in flow.send(3)]
        item, left = going.pop(chance.randrange(len(going)))
        chance.shuffle(left)
        part = left[: chance.randrange(1, len(left) + 1)]
        rest = [pair for pair in left if pair not in part]
        for _ in range(chance.choice((1, 1, 2))):
            flow.store(item, *(make(*pair) for pair in part))
        if not rest:
            flow.finish(item)
        elif chance.random() < 0.2:
            flow.lose(item)
        else:
            going.append((item, rest))
    assert (stop_of(job).decision, stop_of(job).seeds_seen) == (decision, seen)
    assert job.done == job.total == len(list(results.stream(flow.session, job.id)))
    assert stop_of(job).seeds_saved == 200 - job.done


def test_a_logic_bug_stops_at_its_first_seed_and_its_attempt_runs_on_for_its_artifacts(
    flow: Flow,
) -> None:
    job = flow.sequential()
    items = flow.send()
    flow.store(items[0], wrong(0))
    stop = stop_of(job)
    assert (stop.decision, stop.seed, stop.verdict, stop.seeds_run) == ("wrong", 0, "fail", None)
    assert stop.words.endswith("(seed 0: fail)")
    assert not hasattr(stop, "finder")
    assert flow.canceled(*items) == items[1:]
    assert (chunks.waiting(flow.session), job.state) == ({}, "running")
    flow.store(items[1], row(2))  # it was on its way, so it is kept
    for item in items[2:]:
        flow.finish(item, "cancelled", sent=[])
    flow.finish(items[1], "cancelled", sent=[[2, 0]])
    flow.store(items[1], row(3), batch=1)  # its chunk is closed: too late
    bug = wrong(1)
    bug["outputs"]["dx"] |= {"fault": "s1 is subtracted twice", "rounding_ratio": 9.0}
    log = {"kind": "log", "seed": 1, "repeat": 0, "output": "", "content": {"text": "x"}}
    flow.store(items[0], bug, batch=1, artifacts=[log])
    flow.finish(items[0])
    assert (job.state, job.verdict, job.counts) == ("finished", "fail", {"fail": 2, "pass": 1})
    assert job.diagnosis is not None
    assert job.diagnosis.words == "dx: s1 is subtracted twice"
    assert [head.kind for head in artifacts.list_(flow.session, job.id)] == ["log"]
    assert (job.total, stop_of(job).seeds_saved) == (3, 497)
    flow.store(items[0], row(9), batch=2)
    assert job.done == 3


def test_asked_for_more_a_wrong_kernel_is_run_until_its_rate_is_known(flow: Flow) -> None:
    job = flow.sequential(stop_on_finding=False)
    flow.run(job, lambda seed, repeat: wrong(seed, "pass_by_tolerance"))
    stop = stop_of(job)
    assert (stop.decision, stop.seeds_seen, job.verdict) == ("stable", 49, "pass_by_tolerance")
    assert FLAGS.page(flow.session, job=job.id).items


def test_what_lies_behind_an_unexplained_seed_is_withdrawn_and_what_lies_before_it_is_waited_for(
    flow: Flow,
) -> None:
    job = flow.sequential()
    items = flow.send(start=False)
    for item in items[1:-1]:
        flow.start(item)
    flow.store(items[2], wrong(4))
    assert job.stop is None
    assert flow.canceled(*items) == items[3:]
    assert flow.start(items[0]) == job.id
    flow.lose(items[0], items[3])
    (again,) = flow.send()  # only the one that is needed
    assert again.work == [[0, 0], [1, 0]]
    flow.store(items[1], row(2), row(3))
    flow.store(items[2], row(5), batch=1)
    flow.store(again, red(0), red(1))
    # what came first in the order of the seeds decides
    assert (stop_of(job).decision, stop_of(job).seeds_seen) == ("flaky", 2)


def test_nothing_about_the_kernel_ends_undecided_with_the_largest_number(flow: Flow) -> None:
    job = flow.sequential(5)
    flow.run(job, lambda seed, repeat: empty_row(seed, "hang", "no answer"))
    stop = stop_of(job)
    assert (job.verdict, stop.decision, stop.words) == (
        "hang",
        "undecided",
        "stopped after 0 of at most 5 seeds (5 more say nothing of the kernel), 0 failed: "
        "all 5 seeds ran without a decision",
    )
    assert (stop.seeds_saved, stop.device_ms_saved) == (0, 0)
    again = jobs.create(flow.session, jobs.again(flow.session, job, owner="me"))
    assert (again.total, again.sequential) == (
        5,
        SeedProgress(start=0, max=5, stop_on_finding=True),
    )


def test_repeats_of_a_seed_count_once_and_one_red_repeat_makes_it_red(flow: Flow) -> None:
    job = flow.sequential(20, repeats=2, start=100)
    verdicts = ("pass", "fail_by_tolerance")
    flow.run(job, lambda seed, repeat: row(seed, repeat, verdicts[repeat]))
    stop = stop_of(job)
    assert (stop.decision, stop.seeds_seen, stop.seed, job.done) == ("flaky", 2, 101, 4)


def test_a_worker_that_dies_or_does_not_obey_cannot_keep_a_decided_job_open(flow: Flow) -> None:
    job = flow.sequential()
    items = flow.send()
    flow.store(items[0], red(0), red(1))
    flow.finish(items[0])
    flow.lose(items[1])
    assert queues.overdue_cancels(flow.session, before=NOW) == []
    assert queues.overdue_cancels(flow.session, before=LATER) == [job.id]
    assert queues.close_unresponsive(flow.session, job.id, now=LATER)
    assert (job.state, job.verdict, job.chunks.open) == ("finished", "fail_by_tolerance", 0)
    flow.store(items[4], *(row(seed) for seed, _ in items[4].work))
    assert job.done == 2


@BOTH_ENGINES
def test_a_decided_job_does_not_wait_for_what_its_dead_workers_had_not_sent(flow: Flow) -> None:
    job = flow.sequential()
    items = flow.send()
    flow.store(items[0], wrong(0))
    for item in items[2:]:
        flow.finish(item, "cancelled", sent=[])
    assert queues.close_unresponsive(flow.session, job.id, now=LATER)
    assert job.chunks.open == 1  # the finder's is still needed
    flow.lose(items[0])
    assert (job.state, job.verdict, job.done) == ("finished", "fail", 1)
    assert flow.send() == []


@BOTH_ENGINES
def test_late_results_of_a_lost_attempt_that_decide_end_the_job(flow: Flow) -> None:
    job = flow.sequential(2)
    (item,) = flow.send()
    flow.lose(item)
    flow.store(item, red(0), red(1))
    assert (job.state, job.verdict, job.chunks.open) == ("finished", "fail_by_tolerance", 0)


def test_seeds_that_never_gave_a_result_end_undecided(flow: Flow) -> None:
    job = flow.sequential(1)
    for _ in range(closing.MAX_ATTEMPTS):
        (item,) = flow.send()
        flow.finish(item, "error", sent=[], error="no device")
    assert (job.state, job.verdict, job.chunks.open) == ("finished", "error", 0)
    assert stop_of(job).decision == "undecided"


def test_a_canceled_job_stays_canceled_whatever_its_seeds_had_decided(flow: Flow) -> None:
    job = flow.sequential()
    items = flow.send()
    flow.store(items[0], red(0), red(1))
    flow.cancel(job)
    for item in items:
        flow.finish(item, "cancelled", sent=[])
    assert (job.state, job.verdict, job.total) == ("cancelled", "fail_by_tolerance", 500)


@BOTH_ENGINES
def test_two_copies_that_store_in_the_same_moment_decide_once(module_engine: Engine) -> None:
    def store_alone(item: Sendable) -> None:
        with session(module_engine) as current:
            Flow(current).store(item, *(row(seed) for seed, _ in item.work))
        with session(module_engine) as current:
            Flow(current).finish(item)

    with session(module_engine) as current:
        job = Flow(current).sequential()
        items = Flow(current).send()
    at_once(*(partial(store_alone, item) for item in items * 2))
    with reading(module_engine) as current:
        ended = current.get_one(JobRow, job.id)
        decided = [event for event in Flow(current).events(ended) if "reason" in event.data]
    assert (ended.state, ended.done, len(decided)) == ("finished", 49, 1)
