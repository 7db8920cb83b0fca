"""Workers that are killed, stopped, or cut off from their broker or their service: no process is
left, and no result is lost."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path

import psutil

from gonogo_workers import queue
from gonogo_workers.server.host_file import Host
from host_service import CLAIM
from patience import WAIT_S, scaled
from running_service import until
from servers import RedisServer
from worker_process import HOST, Workplace


def test_a_worker_told_to_stop_hands_its_chunk_back(place: Workplace) -> None:
    worker = place.start("troublesome")
    attempt = place.publish("slow", 100)
    place.wait(attempt, lambda answer: len(answer.rows) > 1)
    children = place.children(worker)
    begun = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(WAIT_S) == 0
    assert time.monotonic() - begun < scaled(5)
    answer = place.wait(attempt)
    assert answer.end["outcome"] == "handed_back"
    assert sorted(answer.end["sent"]) == answer.work
    assert 1 < len(answer.rows) < 100
    assert children
    assert not psutil.wait_procs(children, timeout=WAIT_S)[1]


def test_a_worker_told_to_stop_waits_for_no_service_that_is_silent(place: Workplace) -> None:
    worker = place.start("troublesome")
    place.service.stalled.add(CLAIM)
    place.publish("fine", 1)
    until(lambda: not place.redis.exists(queue.chunk_queue("troublesome", "wormhole", "n150")))
    begun = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(WAIT_S) == 0
    assert time.monotonic() - begun < 25  # a silent service is given up after 30 s


def test_a_killed_workers_child_is_gone_and_its_successor_runs(place: Workplace) -> None:
    worker = place.start("troublesome")
    place.publish("stubborn-hang", 1, seed_deadline_s=10 * WAIT_S)
    place.beat(lambda body: body["stage"] == "running")
    until(lambda: len(place.children(worker)) >= 2, what="the process that the kernel starts")
    children = place.children(worker)
    worker.kill()
    worker.wait()
    assert not psutil.wait_procs(children, timeout=WAIT_S)[1]
    place.start("troublesome")
    assert place.run("fine", 3).verdicts == dict.fromkeys(range(3), "pass")


def test_results_survive_a_broker_and_a_service_that_go_away(
    private_redis: RedisServer, tmp_path: Path
) -> None:
    with closing(Workplace(private_redis.url, tmp_path)) as place:
        place.start("troublesome")
        attempt = place.publish("slow", 12)
        place.wait(attempt, lambda answer: len(answer.rows) > 0)
        assert len(place.answer(attempt).rows) < 12
        private_redis.stop()
        place.service.stop()
        until(lambda: "of chunk" in place.log(), what="the rest of the chunk")
        private_redis.start()
        place.service.start()
        answer = place.wait(attempt)
        assert answer.work == [[seed, 0] for seed in range(12)]
        assert answer.end["outcome"] == "done"
        assert place.run("fine", 2).verdicts == {0: "pass", 1: "pass"}


def test_what_a_stopping_worker_cannot_send_is_sent_by_the_next(place: Workplace) -> None:
    worker = place.start("troublesome")
    attempt = place.publish("slow", 100)
    place.wait(attempt, lambda answer: len(answer.rows) > 0)
    place.service.stop()
    until(lambda: "keeping what this worker has to send" in place.log(), what="a kept request")
    worker.send_signal(signal.SIGTERM)
    worker.wait(WAIT_S)
    spooled = sorted((place.folder / "spool").rglob("*.request"))
    assert spooled
    place.service.start()
    place.start("troublesome")
    answer = place.wait(attempt)
    assert answer.end["outcome"] == "handed_back"
    assert sorted(answer.end["sent"]) == answer.work
    until(lambda: not any(path.exists() for path in spooled), what="the files that were sent")


def test_a_worker_whose_token_is_refused_takes_no_work_until_it_has_another(
    place: Workplace,
) -> None:
    place.start("troublesome")
    assert place.run("fine", 1).verdicts == {0: "pass"}
    place.service.tokens = {"another"}
    until(lambda: "no heartbeat: the service refuses it (401)" in place.log())
    waits = place.publish("fine", 1)
    Host(place.service.url, HOST, "another").save(place.folder)
    assert place.wait(waits).verdicts == {0: "pass"}
