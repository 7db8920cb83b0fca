"""Workers that are killed, stopped, or cut off from their broker or their service: no process is
left, and no result is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gonogo.errors import FieldError, InfrastructureError
from gonogo.spec.executors import EMULATOR
from gonogo_workers import queue
from gonogo_workers.devices import discovery, locks
from gonogo_workers.devices.health import canary
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.registry import built_in
from gonogo_workers.server.host_file import Host
from host_service import CLAIM
from patience import WAIT_S, scaled
from running_service import until
from servers import RedisServer
from worker_process import HOST, Workplace


@pytest.fixture
def place(tmp_path: Path, redis_url: str) -> Iterator[Workplace]:
    """A broker without workers yet."""
    place = Workplace(redis_url, tmp_path)
    yield place
    place.close()


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
    assert answer.finished is not None
    assert answer.finished["outcome"] == "handed_back"
    assert sorted(answer.finished["sent"]) == answer.work
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
    deadline = time.monotonic() + WAIT_S
    while (
        len(children := place.children(worker)) < 2
    ):  # the hanging kernel has started a process of its own
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker.kill()
    worker.wait()
    gone, alive = psutil.wait_procs(children, timeout=WAIT_S)
    assert not alive
    assert len(gone) >= 2
    place.start("troublesome")
    assert place.run("fine", 3).verdicts == dict.fromkeys(range(3), "pass")


def test_results_survive_a_broker_and_a_service_that_go_away(
    private_redis: RedisServer, tmp_path: Path
) -> None:
    place = Workplace(private_redis.url, tmp_path)
    try:
        place.start("troublesome")
        attempt = place.publish("slow", 12)
        place.wait(attempt, lambda answer: len(answer.rows) > 0)
        before = len(place.answer(attempt).rows)
        private_redis.stop()
        place.service.stop()
        until(lambda: "of chunk" in place.log(), what="the rest of the chunk")
        private_redis.start()
        place.service.start()
        answer = place.wait(attempt)
        assert before < 12
        assert answer.work == [[seed, 0] for seed in range(12)]
        assert answer.finished is not None
        assert answer.finished["outcome"] == "done"
        assert place.run("fine", 2).verdicts == {0: "pass", 1: "pass"}
    finally:
        place.close()


def test_what_a_stopping_worker_cannot_send_is_sent_by_the_next(place: Workplace) -> None:
    worker = place.start("troublesome")
    attempt = place.publish("slow", 100)
    place.wait(attempt, lambda answer: len(answer.rows) > 0)
    place.service.stop()
    until(
        lambda: "keeping what this worker has to send" in place.log(), what="a request that stays"
    )
    worker.send_signal(signal.SIGTERM)
    worker.wait(WAIT_S)
    spooled = sorted((place.folder / "spool").rglob("*.request"))
    assert spooled
    place.service.start()
    place.start("troublesome")
    answer = place.wait(attempt)
    assert answer.finished is not None
    assert answer.finished["outcome"] == "handed_back"
    assert sorted(answer.finished["sent"]) == answer.work
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


def test_one_device_has_one_user_and_two_workers_have_two_devices(tmp_path: Path) -> None:
    first = discovery.claim("emulator", None, tmp_path, host="lab-1", arch="wormhole", board="n150")
    second = discovery.claim(
        "emulator", None, tmp_path, host="lab-1", arch="wormhole", board="n300"
    )
    assert (first.name, second.name) == ("emulator:0", "emulator:1")
    assert second.queue == "emulator.wormhole.n300"
    with pytest.raises(InfrastructureError, match="emulator:1"):
        discovery.claim(
            "emulator", "emulator:1", tmp_path, host="lab-1", arch="wormhole", board="n150"
        )
    with pytest.raises(FieldError):
        discovery.claim("emulator", "ttnn:0", tmp_path, host="lab-1", arch="wormhole", board="n150")
    for device in (first, second):
        os.close(device.claim)


def test_a_held_device_is_waited_for_and_a_goodbye_leaves_no_trace(tmp_path: Path) -> None:
    never = threading.Event()
    lock = locks.acquire(tmp_path, "emulator:0", lambda: True, never)
    assert not lock.left_over
    with pytest.raises(locks.LockedElsewhere, match=str(os.getpid())):
        locks.acquire(tmp_path, "emulator:0", lambda: False, never)
    threading.Timer(0.2, lock.close).start()
    again = locks.acquire(tmp_path, "emulator:0", lambda: True, never)
    assert not again.left_over
    again.close()


def test_what_a_dead_worker_left_on_the_device_is_killed(tmp_path: Path) -> None:
    """A child that outlives its worker keeps the lock (it has the descriptor) until the next worker
    ends it."""
    program = f"""
import os, subprocess, sys, threading
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from pathlib import Path
from gonogo_workers.devices import locks
lock = locks.acquire(Path({str(tmp_path)!r}), "emulator:0", lambda: True, threading.Event())
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleep, stdout=-3, stderr=-3, pass_fds=[lock.fd], start_new_session=True)
lock.record(child.pid, "host-run-of-the-test")
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    child = psutil.Process(int(out))
    assert child.is_running()
    deadline = time.monotonic() + WAIT_S
    lock = locks.acquire(
        tmp_path, "emulator:0", lambda: time.monotonic() < deadline, threading.Event()
    )
    assert lock.left_over
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    lock.close()


def test_the_canary_of_the_emulator_gives_every_output() -> None:
    resolved = ResolvedBuild(built_in(EMULATOR), arithmetic="tt-train")
    run = canary(resolved, "correct", on_wormhole=True)
    assert set(run.digests) == {"dx", "dgamma", "dbeta"}
