"""The job flow in the database alone: who may write what, when a chunk is asked for again, when a
job ends. On both databases where locks or the dispatcher's SQL decide."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, select, update

from at_once import at_once
from database_params import BOTH_ENGINES
from gonogo.settings import Settings
from gonogo.spec import hang_limits
from gonogo.spec.test_spec import TestSpec
from gonogo_service.gauges import submission as gauges
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.jobs import artifacts, attempts, batches, chunks, closing, dispatching, queues
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.dispatching import Sendable
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.jobs.new_job import BACKGROUND_PRIORITY
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.database.states import AttemptState
from gonogo_service.kit.outbox import outbox
from gonogo_service.results import seeds as results
from gonogo_service.results.batch import Batch
from job_flow import QUEUE, empty_row, new_job, output, row
from stored_flow import FAST, LATER, NOW, Flow

UNKNOWN = "01900000-0000-7000-8000-000000000000"
OTHER_QUEUE = QUEUE.replace("n150", "p150")
LOG = {"kind": "log", "seed": 0, "repeat": 0, "output": "", "content": {"text": "x"}}


@BOTH_ENGINES
def test_the_owner_with_less_in_flight_comes_first_then_priority_then_age(flow: Flow) -> None:
    old = flow.submit(4, owner="ann", **FAST)
    urgent = flow.submit(2, owner="ann", priority=9, **FAST)
    bob = flow.submit(2, owner="bob", **FAST)
    order = [item.job for item in flow.send(4)]
    assert sorted(order) == sorted([urgent.id, urgent.id, bob.id, bob.id])
    assert [item.job for item in flow.send(10)] == [old.id] * 4


@BOTH_ENGINES
def test_background_work_comes_last_and_only_so_much_of_it(flow: Flow) -> None:
    gauge = flow.submit(4, owner="cy", priority=BACKGROUND_PRIORITY, **FAST)
    job = flow.submit(2, owner="ann", **FAST)
    flow.submit(2, owner="ann", board="p150", **FAST)
    chosen = partial(chunks.choose, flow.session, QUEUE)
    places = [(job.id, 0), (job.id, 1), *((gauge.id, number) for number in range(4))]
    assert chosen(10, None) == places
    assert chosen(10, 1) == places[:3]
    assert chosen(4, 3) == places[:4]
    assert chosen(1, 3) == places[:1]
    assert chunks.waiting(flow.session) == {QUEUE: 6, OTHER_QUEUE: 2}


@BOTH_ENGINES
def test_shares_count_what_is_in_flight_in_the_same_queue(flow: Flow) -> None:
    ann, bob = (flow.submit(seeds, owner=name, **FAST) for seeds, name in ((5, "ann"), (3, "bob")))
    flow.submit(3, owner="bob", board="p150", **FAST)
    dispatching.dispatch(flow.session, [(ann.id, 0), (ann.id, 1)], now=NOW)
    started, _, *_ = flow.send(3, queue=OTHER_QUEUE, start=False)
    flow.start(started)
    order = [(bob.id, 0), (bob.id, 1), (ann.id, 2), (bob.id, 2), (ann.id, 3), (ann.id, 4)]
    assert flow.choose(9) == order
    flow.finish(started, "handed_back", sent=[])
    # what waits again comes before what was never sent
    assert flow.choose(6) == [(bob.id, 0), (ann.id, 0), *order[1:5]]
    assert chunks.waiting(flow.session)[QUEUE] == 7
    assert chunks.unstarted(flow.session)[QUEUE] == 1
    flow.cancel(ann)
    assert flow.choose(9) == [(bob.id, 0), (bob.id, 1), (bob.id, 2)]
    places = [(ann.id, 0), (UNKNOWN, 0), (bob.id, 9), (bob.id, 0)]
    # of these only the last one waits, and the second time none
    sent = [len(dispatching.dispatch(flow.session, places, now=NOW)) for _ in range(2)]
    assert (sent, chunks.unstarted(flow.session)[QUEUE]) == ([1, 0], 1)


def test_a_chunk_whose_results_came_meanwhile_is_closed_instead_of_sent(flow: Flow) -> None:
    job = flow.submit(3, **FAST)
    first, second, third = flow.send()
    for item in (first, second, third):
        flow.finish(item, "handed_back" if item is first else "error", sent=[])
    rows = [row(item.work[0][0]) for item in (first, second)]
    closing.record(flow.session, job, first.attempt, Batch.of(rows), now=NOW)
    assert flow.choose(1) == [(job.id, 0)]
    (again,) = flow.send()
    assert again.work == third.work
    assert [attempt["number"] for attempt in flow.attempts(job)] == [1, 1, 1, 2]
    assert job.chunks.open == 1


@pytest.mark.parametrize(
    ("elements", "reference", "most"),
    [(10**9, None, chunks.MAX_WORK), (2**16, "other", 1024), (2**27, "other", 1)],
)
def test_a_reference_s_outputs_limit_the_seeds_of_a_chunk(
    elements: int, reference: str | None, most: int
) -> None:
    work, cut = chunks.cut(new_job(2048, elements=elements, reference=reference), 1e-9)
    assert (len(work), cut.chunks) == (2048, -(-2048 // most))


def test_the_first_writer_of_a_seed_wins_with_all_its_outputs(flow: Flow) -> None:
    job = flow.submit(2)
    (item,) = flow.send()
    flow.store(item, row(0), row(0, verdict="fail"))
    for _ in range(2):
        flow.store(item, row(0, verdict="fail"), row(1), batch=1)
    assert flow.seeds(job) == {0: "pass", 1: "pass"}
    assert (job.counts, job.done) == ({"pass": 2}, 2)


@pytest.mark.parametrize("in_order", [True, False])
def test_seeds_that_nobody_asked_for_are_dropped(flow: Flow, in_order: bool) -> None:
    job = flow.submit(3)
    (item,) = flow.send()
    attempt = flow.session.get_one(AttemptRow, item.attempt)
    attempt.work = sorted(attempt.work, reverse=not in_order)
    flow.session.flush()
    flow.store(item, row(2), row(99), row(0))
    assert flow.seeds(job) == {0: "pass", 2: "pass"}


def test_a_shortfall_gets_an_attempt_for_exactly_the_missing_ones_and_at_last_an_error(
    flow: Flow,
) -> None:
    job = flow.submit(4)
    (first,) = flow.send()
    flow.store(first, row(0), row(2))
    flow.finish(first, sent=[[0, 0], [2, 0]], error="ran out of luck")
    (second,) = flow.send()
    assert second.work == [[1, 0], [3, 0]]
    flow.store(second, row(1))
    flow.finish(second, sent=[[1, 0]])
    (third,) = flow.send()
    assert third.work == [[3, 0]]
    flow.finish(third, "error", sent=[], error="no device")
    assert (job.state, job.verdict, job.counts) == ("finished", "error", {"pass": 3, "error": 1})
    missing = results.get(flow.session, job.id, 3)
    assert missing is not None
    assert missing.message == "no result after 3 attempts; the last one: no device"
    assert missing.attempt == third.attempt
    assert flow.send() == []


def test_handing_back_does_not_count_as_an_attempt(flow: Flow) -> None:
    job = flow.submit(1)
    for _ in range(closing.MAX_ATTEMPTS + 2):
        (item,) = flow.send()
        flow.finish(item, "handed_back", sent=[])
    flow.run(job)
    assert job.verdict == "pass"
    numbers = [attempt["number"] for attempt in flow.attempts(job)]
    assert sorted(numbers) == list(range(1, closing.MAX_ATTEMPTS + 4))


@pytest.mark.parametrize(("before", "state"), [(2, "running"), (1, "finished")])
def test_endless_hand_backs_end_a_job(flow: Flow, before: int, state: str) -> None:
    job = flow.submit(1)
    (item,) = flow.send()
    chunk = flow.session.get_one(ChunkRow, item.message["chunk"])
    chunk.returns = closing.MAX_RETURNS - before
    flow.finish(item, "handed_back", sent=[])
    assert (chunk.attempts, chunk.returns) == (0, closing.MAX_RETURNS - before + 1)
    assert (job.state, flow.attempts(job)[0]["state"]) == (state, "handed_back")


@pytest.mark.parametrize(("worker", "heard"), [("w", True), (None, True), ("other", False)])
def test_a_heartbeat_keeps_its_worker_s_attempt_alive_until_it_ends(
    flow: Flow, worker: str | None, heard: bool
) -> None:
    job = flow.submit(1)
    (item,) = flow.send()
    beat = partial(attempts.heartbeat, flow.session, stage="run", now=LATER, worker=worker)
    beat(item.attempt, seed=7)
    (attempt,) = flow.attempts(job)
    expected = (LATER, 7, "run") if heard else (NOW, None, None)
    assert (attempt["heard_at"], attempt["seed"], attempt["stage"]) == expected
    flow.store(item, row(0))
    flow.finish(item)
    for over in (item.attempt, "nonsense"):
        beat(over, seed=8)
    assert flow.attempts(job)[0]["seed"] == (7 if heard else None)


def test_results_are_a_sign_of_life_of_a_running_attempt_only(flow: Flow) -> None:
    job = flow.submit(3, **FAST)
    running, lost, unsent = flow.send(start=False)
    for item in (running, lost):
        flow.start(item)
    flow.lose(lost)
    for item in (running, lost):
        flow.store(item, row(item.work[0][0]), now=LATER)
    heard = {attempt["id"]: attempt["heard_at"] for attempt in flow.attempts(job)}
    assert heard == {running.attempt: LATER, lost.attempt: NOW, unsent.attempt: NOW}
    silent = partial(attempts.silent_attempts, flow.session, AttemptState.running)
    assert silent(before=LATER) == []
    later = silent(before=LATER.replace(year=LATER.year + 1))
    assert [(item.id, item.worker) for item in later] == [(running.attempt, "w")]
    assert flow.canceled(running, lost) == [lost]


@pytest.mark.parametrize("number", [True, -1, batches.MAX_BATCHES, "0", None])
def test_a_batch_without_a_sane_number_is_stored_and_not_counted(flow: Flow, number: Any) -> None:
    job = flow.submit(2)
    (item,) = flow.send()
    flow.store(item, row(0), batch=number)
    flow.store(item, row(1), batch=batches.MAX_BATCHES - 1)
    assert flow.seeds(job) == {0: "pass", 1: "pass"}
    assert list(flow.attempts(job)[0]["batches"]) == [str(batches.MAX_BATCHES - 1)]


def test_the_last_message_of_an_attempt_is_kept_with_it_and_heard_once(flow: Flow) -> None:
    job = flow.submit(2)
    (item,) = flow.send()
    flow.store(item, row(0))
    about = {"error": "hot", "telemetry": {"temperature_c": 61.0}}
    flow.finish(item, log_tail="a\x00b", batches=2, **about)
    flow.finish(item, "error", error="again", batches=0)
    (attempt,) = flow.attempts(job)
    expected = {"outcome": "done", "sent": item.work, "batches": 2}
    columns = {"state": "reported", "finished_at": NOW, "expected": expected, **about}
    assert {name: attempt[name] for name in columns} == columns
    assert attempt["log_tail"].startswith("a")
    assert attempts.device_of(flow.session, item.attempt) is None


def test_an_attempt_ends_when_all_that_it_sent_is_stored(flow: Flow) -> None:
    job = flow.submit(2)
    before = job.version
    (item,) = flow.send()
    assert job.version > before
    flow.finish(item)
    assert flow.attempts(job)[0]["state"] == "reported"
    before = job.version
    flow.store(item, row(0), row(1))
    assert (flow.attempts(job)[0]["state"], job.state) == ("done", "finished")
    assert job.version > before


@pytest.mark.parametrize("table", [AttemptRow, ChunkRow])
def test_a_message_is_read_against_the_state_that_another_process_wrote(
    flow: Flow, table: type[AttemptRow | ChunkRow]
) -> None:
    job = flow.submit(1)
    (item,) = flow.send(start=False)
    (known,) = flow.session.scalars(select(table))  # the session knows it
    unseen = update(table).values(state="lost").execution_options(synchronize_session=False)
    flow.session.execute(unseen)
    flow.start(item)
    assert (job.state, known.state) == ("queued", "lost")


@pytest.mark.parametrize("last", [{"rows": [row(1)]}, {"artifacts": [LOG]}], ids=list)
def test_an_attempt_waits_for_its_last_batch(flow: Flow, last: dict[str, Any]) -> None:
    job = flow.submit(1 + ("rows" in last))
    (item,) = flow.send()
    flow.store(item, row(0))
    flow.finish(item, batches=2)
    assert (job.state, flow.send()) == ("running", [])
    flow.store(item, *last.get("rows", []), artifacts=last.get("artifacts", []), batch=1)
    assert (job.state, job.diagnosis) == ("finished", None)  # rounding explains the seeds
    kinds = [head.kind for head in artifacts.list_(flow.session, job.id)]
    assert kinds == ["log"] * len(last.get("artifacts", []))


def test_a_batch_that_never_comes_is_asked_for_again_and_is_at_last_an_error(flow: Flow) -> None:
    job = flow.submit(2)
    for number in range(closing.MAX_ATTEMPTS):
        (item,) = flow.send()
        assert item.work == [[0, 0], [1, 0]][number > 0 :]
        flow.store(item, row(0))
        flow.finish(item, batches=2)
        silent = attempts.silent_attempts(flow.session, AttemptState.reported, before=LATER)
        assert [attempt.id for attempt in silent] == [item.attempt]
        flow.lose(item)
    missing = results.get(flow.session, job.id, 1)
    assert missing is not None
    assert missing.message == "no result after 3 attempts; the last one: some results never arrived"


def test_a_silent_attempt_is_lost_and_its_late_results_still_count(flow: Flow) -> None:
    job = flow.submit(3)
    (lost,) = flow.send()
    flow.store(lost, row(0))
    give_up = partial(attempts.mark_lost, flow.session, lost.attempt, "no heartbeat", now=LATER)
    assert give_up(before=NOW) is None  # it was heard just now
    assert give_up(before=LATER) == job.id
    (again,) = flow.send(now=LATER)
    assert again.work == [[1, 0], [2, 0]]
    flow.store(lost, row(1), empty_row(2, "hang", "late, and without numbers"), batch=1)
    flow.store(again, row(1, verdict="fail"), row(2))
    flow.finish(again)
    assert flow.seeds(job) == {0: "pass", 1: "pass", 2: "pass"}
    assert job.state == "finished"


def test_late_results_complete_a_chunk_that_waits(flow: Flow) -> None:
    job = flow.submit(2)
    (lost,) = flow.send()
    flow.lose(lost)
    flow.store(lost, row(0))
    assert (job.state, flow.choose()) == ("running", [(job.id, 0)])
    flow.store(lost, row(1), batch=1)
    assert (job.state, flow.send()) == ("finished", [])


def test_hang_and_crash_rows_count_from_the_current_attempt(flow: Flow) -> None:
    job = flow.submit(3)
    (item,) = flow.send()
    hung, crashed = empty_row(1, "hang", "no answer in 600 s"), empty_row(2, "crash", "signal 11")
    flow.store(item, row(0), hung, crashed)
    flow.finish(item)
    counts = {"pass": 1, "hang": 1, "crash": 1}
    assert (job.state, job.verdict, job.counts) == ("finished", "crash", counts)


def test_finished_may_overtake_started(flow: Flow) -> None:
    job = flow.submit(1)
    (item,) = flow.send(start=False)
    flow.store(item, row(0))
    flow.finish(item)
    assert flow.start(item) is None
    assert (job.state, job.verdict, job.started_at) == ("finished", "pass", NOW)


def test_finished_may_overtake_everything(flow: Flow) -> None:
    job = flow.submit(1)
    (item,) = flow.send(start=False)
    flow.finish(item, batches=1)
    assert (job.state, job.started_at) == ("running", NOW)
    flow.cancel(job)  # its kernel has run: the numbers are waited for
    flow.store(item, row(0, verdict="fail"))
    assert (job.state, job.verdict) == ("cancelled", "fail")


def test_results_may_overtake_started(flow: Flow) -> None:
    job = flow.submit(2)
    (item,) = flow.send(start=False)
    flow.store(item, row(0))
    assert job.state == "running"
    assert flow.start(item) == job.id
    assert flow.attempts(job)[0]["worker"] == "w"


def test_cancel_ends_at_once_what_no_worker_has_started(flow: Flow) -> None:
    job = flow.submit(3, **FAST)
    (sent,) = flow.send(1, start=False)
    assert jobs.cancel(flow.session, job.id, now=NOW) is job
    assert (job.state, job.verdict, job.chunks.open, job.done) == ("cancelled", None, 0, 0)
    assert flow.canceled(sent) == [sent]
    assert flow.start(sent) is None
    flow.store(sent, row(0))
    assert flow.seeds(job) == {}
    version = job.version
    assert flow.cancel(job).version == version
    assert jobs.cancel(flow.session, "nonsense") is None


def test_cancel_waits_for_running_attempts_and_keeps_their_numbers(flow: Flow) -> None:
    job = flow.submit(4, **FAST)
    (item,) = flow.send(1)
    flow.store(item)
    flow.cancel(job)
    assert (job.state, job.chunks.open) == ("cancelling", 1)
    assert flow.canceled(item) == [item]
    assert flow.send() == []
    flow.store(item, row(0, verdict="fail"), batch=1)
    flow.finish(item, "cancelled")
    assert (job.state, job.verdict, job.counts) == ("cancelled", "fail", {"fail": 1})
    states = [event.data["state"] for event in flow.events(job) if event.type == "state"]
    assert states == ["queued", "running", "cancelling", "cancelled"]


def test_a_canceled_job_is_never_green(flow: Flow) -> None:
    job = flow.submit(4, **FAST)
    (item,) = flow.send(1)
    flow.store(item, row(0))
    flow.cancel(job)
    flow.finish(item, "cancelled", sent=[[0, 0]])
    assert (job.state, job.verdict, job.counts) == ("cancelled", None, {"pass": 1})


@pytest.mark.parametrize("is_reported", [False, True])
def test_a_cancel_that_no_worker_answers_ends_anyway(flow: Flow, is_reported: bool) -> None:
    job = flow.submit(1)
    (item,) = flow.send()
    if is_reported:
        flow.finish(item, batches=2)  # and they never come
    flow.cancel(job)
    assert queues.overdue_cancels(flow.session, before=NOW) == []
    assert queues.overdue_cancels(flow.session, before=LATER) == [job.id]
    assert queues.close_unresponsive(flow.session, job.id, now=LATER)
    (attempt,) = flow.attempts(job)
    assert (job.state, attempt["state"], attempt["finished_at"]) == ("cancelled", "lost", LATER)
    assert attempt["error"] == "did not stop in time after it was asked to"


def test_results_that_come_after_retention_change_no_sum(flow: Flow) -> None:
    job = flow.submit(2)
    (item,) = flow.send()
    flow.store(item, row(0))
    job.seeds_removed_at = NOW
    flow.store(item, row(1), batch=1)
    assert (job.done, job.counts) == (1, {"pass": 1})


@pytest.mark.parametrize(
    ("kernel", "red", "hollow", "outcomes"),
    [
        # the tests of a selection count by themselves, an iteration without any by its verdict
        ("selection", 3, 2, {"passed": 3, "failed": 2, "crash": 1}),
        ("layernorm_bw", 2, 1, None),
    ],
)
def test_red_and_hollow_are_counted_side_by_side(
    flow: Flow, kernel: str, red: int, hollow: int, outcomes: dict[str, int] | None
) -> None:
    job = flow.submit(4, kernel=kernel)
    (item,) = flow.send()
    failed = output("fail", "unexplained", outcome="failed")
    tests = {"a": output(outcome="passed"), "b": output("pass_by_tolerance", outcome="passed")}
    flow.store(item, row(0, verdict="fail", outputs={"c": failed, **tests}))
    more = {"b": tests["b"], "c": failed}
    flow.store(item, row(1, verdict="pass_by_tolerance", outputs=more), batch=1)
    flow.store(item, empty_row(2, "crash", "signal 11"), batch=2)
    assert (job.red, job.hollow, job.outcomes) == (red, hollow, outcomes)


@pytest.mark.parametrize(
    ("changes", "rows", "assessments"),
    [({}, 1, 1), ({"reference": "correct"}, 1, 0), ({}, 0, 0)],
    ids=["rows", "reference", "none"],
)
def test_an_ended_job_is_announced_once_and_assessed_where_it_has_rows(
    flow: Flow, changes: dict[str, Any], rows: int, assessments: int
) -> None:
    job = flow.submit(2, **FAST, **changes)
    (item,) = flow.send(1)
    flow.store(item, *[row(0)][:rows])
    flow.cancel(job)
    flow.finish(item, "cancelled", sent=[[0, 0]][:rows])
    assert (job.state, job.waiting_reason, job.finished_at) == ("cancelled", None, NOW)
    (message,) = outbox.due(flow.session, topics=["job.finished"], now=LATER)
    assert message.payload == {"job": job.id, "version": job.version}
    assert len(outbox.due(flow.session, topics=["assess"], now=LATER)) == assessments


def test_a_gauge_s_end_grades_its_test_anew_on_its_board_only(flow: Flow) -> None:
    new = new_job()
    graded, key = [], TestSpec.parse(new.canonical).key
    for board in ("n150", "n300"):
        job = flow.submit(1, test_key=key)
        job.board = board
        graded.append(flow.run(job).id)
    about = {"test": new.canonical, "seeds": {"count": 1}, "branch": new.branch}
    body = GaugeIn.parse({**about, "target": {"arch": new.arch, "board": new.board}})
    gauge = gauges.submit(flow.session, body, Settings(), "local", now=NOW)
    flow.cancel(gauge)
    requests = [message.payload["job"] for message in outbox.due(flow.session, topics=["assess"])]
    assert sorted(requests) == [graded[0], *graded]  # each at its own end, and one by the gauge


def test_the_lock_reads_the_job_anew(flow: Flow) -> None:
    job = flow.submit()
    unseen = update(JobRow).values(priority=7).execution_options(synchronize_session=False)
    flow.session.execute(unseen)
    locked = closing.lock(flow.session, job.id)
    assert locked is not None
    assert locked.priority == 7


def test_a_waiting_job_says_what_is_before_it(flow: Flow) -> None:
    first, second = flow.submit(4, chunk_seconds=1e-9), flow.submit(1)
    flow.send(1)
    assert queues.behind(flow.session, first) is None
    assert queues.behind(flow.session, second) == (
        f"in its queue, {QUEUE}, are 4 chunks of job {first.id} (layernorm_bw on tt-train-2025),"
        f" 1 of them running since {NOW:%H:%M:%S} UTC"
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


def test_an_estimate_is_a_guess_only_where_guesses_are_good(flow: Flow) -> None:
    def sent(executor: str, start: bool = False) -> Sendable:
        flow.submit(2, executor=executor)
        (item,) = flow.send(queue=QUEUE.replace("emulator", executor), start=start)
        return item

    assert sent("emulator").seed_s == pytest.approx(0.003, rel=0.9)
    assert sent("ttnn").seed_s is None
    item = sent("mine", start=True)
    assert item.seed_s is None
    flow.store(item, row(0), row(1))
    flow.finish(item)
    assert sent("mine").seed_s is not None  # measured by the job before


def test_a_job_fails_at_its_queue_deadline_and_says_nothing_about_the_kernel(flow: Flow) -> None:
    job = flow.submit(3, queue_deadline_s=30.0, **FAST)
    (sent,) = flow.send(1, start=False)
    assert queues.expired(flow.session, [], now=NOW) == []
    assert queues.expired(flow.session, [QUEUE], now=LATER) == [job.id]
    assert queues.expire(flow.session, job.id, now=LATER)
    assert (job.state, job.verdict, job.chunks.open, job.counts) == ("failed", "error", 0, {})
    assert job.error == f"no worker started it within its queue deadline of 30 s (queue {QUEUE})"
    assert flow.canceled(sent) == [sent]  # what no worker has started is taken back
    assert flow.attempts(job)[0]["state"] == "cancelled"
    assert flow.start(sent) is None
    assert flow.send() == []


def test_a_running_job_outlives_its_queue_deadline_while_workers_live(flow: Flow) -> None:
    job = flow.submit(2, queue_deadline_s=30.0, **FAST)
    expired = partial(queues.expired, flow.session, now=LATER)
    (item,) = flow.send(1)
    assert expired([]) == []  # an attempt runs
    flow.store(item, row(0))
    flow.finish(item)
    assert expired([QUEUE]) == []
    assert expired([]) == [job.id]
    queues.expire(flow.session, job.id, now=LATER)
    assert job.state == "failed"


def test_events_are_numbered_without_gaps(flow: Flow) -> None:
    job = flow.submit(5)
    (item,) = flow.send()
    hollow = [row(seed, 0, "pass_by_tolerance", "unexplained") for seed in range(5)]
    flow.store(item, row(0))
    flow.store(item, hollow[3], hollow[1], row(2), batch=1)
    flow.store(item, hollow[4], batch=2)  # no worse
    flow.finish(item)
    every = flow.events(job)
    assert [event.number for event in every] == list(range(1, job.last_event + 1))
    types = "state state verdict progress verdict progress progress state"
    assert [event.type for event in every] == types.split()
    seed = {"seed": 1, "iteration": None, "repeat": 0}
    assert every[4].data == {**seed, "verdict": "pass_by_tolerance", "explanation": "unexplained"}
    verdicts = {"pass": 2, "pass_by_tolerance": 2}
    assert every[5].data == {"done": 4, "total": 5, "verdicts": verdicts}
    assert every[7].data == {"state": "finished", "verdict": "pass_by_tolerance"}


@BOTH_ENGINES
def test_two_last_chunks_at_once_close_the_job_once(module_engine: Engine) -> None:
    def finish(item: Sendable) -> None:
        with session(module_engine) as current:
            Flow(current).finish(item)

    for _ in range(5):
        with session(module_engine) as current:
            job = Flow(current).submit(2, **FAST)
            items = Flow(current).send()
            for item in items:
                Flow(current).store(item, *(row(seed) for seed, _ in item.work))
        at_once(*(partial(finish, item) for item in items))
        with reading(module_engine) as current:
            ended = current.get_one(JobRow, job.id)
            assert (ended.state, ended.chunks.open) == ("finished", 0)
            states = [event.data.get("state") for event in Flow(current).events(ended)]
        assert states.count("finished") == 1
