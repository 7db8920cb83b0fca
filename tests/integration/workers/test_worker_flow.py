"""A real worker on a real Redis sends a row for every seed, whatever the kernel does."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from checkout import PYTHONPATH, ROOT
from gonogo.reports.forms import MAX_LONG_TEXT, is_text
from gonogo.spec.verdicts import JUDGE
from gonogo_workers import queue
from host_service import CLAIM, TOKEN
from patience import WAIT_S, scaled
from running_service import until
from worker_process import TINY, Workplace


@pytest.fixture(scope="module")
def place(shared_place: Workplace, example_site: Path) -> Workplace:
    path = os.pathsep.join((PYTHONPATH, str(ROOT / "tests/plugins"), str(example_site)))
    limits = {"GONOGO_CHILD_MEMORY_BYTES": str(2**30), "GONOGO_KERNELS": "l2norm_fw"}
    shared_place.start("emulator,troublesome,numpy", PYTHONPATH=path, **limits)
    return shared_place


def test_a_wrong_kernel_within_the_tolerance_is_found_out_with_evidence(place: Workplace) -> None:
    test = {**TINY, "shape": [1, 64, 1, 416]}
    answer = place.run("tt-train-2025", 3, executor="emulator", test=test)
    assert answer.verdicts == dict.fromkeys(range(3), "pass_by_tolerance")
    assert answer.end["outcome"] == "done"
    assert sorted(answer.end["sent"]) == answer.work == [[seed, 0] for seed in range(3)]
    assert answer.end["batches"] == answer.batches
    assert {(row["seed"], row["position"]) for row in answer.rows} == {(0, 0), (1, 1), (2, 2)}
    assert len({row["host_run"] for row in answer.rows}) == 1
    assert all("tt-train" in row["arithmetic"] for row in answer.rows)
    assert {row["judge"].partition(":")[0] for row in answer.rows} == {JUDGE}
    assert set(answer.rows[0]["outputs"]) == {"dx", "dgamma", "dbeta"}
    assert "s1" in answer.rows[0]["outputs"]["dx"]["fault"]
    assert answer.rows[0]["outputs"]["dx"]["rounding_ratio"] > 2
    # artifacts of the first seed judged and of the worst other one
    artifacts = [(one["seed"], one["kind"], one["output"]) for one in answer.artifacts]
    seeds = {seed for seed, _, _ in artifacts}
    maps = [(seed, "error_map", name) for seed in seeds for name in ("dbeta", "dgamma", "dx")]
    assert (len(seeds), sorted(artifacts)) == (2, sorted(maps))


def test_a_claim_comes_first_and_heartbeats_say_what_is_served(place: Workplace) -> None:
    attempt = place.publish("slow", 12)
    started = place.beat(lambda body: body["attempt"] == attempt, task=CLAIM)
    assert started["device"].endswith("/troublesome:0")
    # one with the stage `starting`, or without a seed yet, may come before
    busy = place.beat(lambda body: body["stage"] == "running" and body["seed"] is not None)
    assert (busy["attempt"], busy["seed"] in range(12)) == (attempt, True)
    names = ("emulator", "troublesome", "numpy")
    assert busy["queues"] == [f"{name}.wormhole.n150" for name in names]
    row = place.wait(attempt).rows[0]
    assert row["device"] == started["device"]
    assert 200 <= row["duration_ms"] < scaled(5_000)
    idle = place.beat(lambda body: body["attempt"] is None)
    assert (idle["stage"], idle["seed"]) == ("idle", None)


LITTER = "while True: time.sleep(1)"
"""Part of the command lines of the processes that bad kernels start."""


@pytest.mark.parametrize(
    ("build", "verdict", "is_fresh", "message"),
    [
        ("hang", "hang", True, "no answer within"),
        ("stubborn-hang", "hang", True, "no answer within"),
        ("endless-noise", "hang", True, "no answer within"),
        ("crash", "crash", True, "SIGSEGV"),
        ("exit", "crash", True, "status 7"),
        ("garbage", "crash", True, "garbage"),
        ("pipe-holder", "crash", True, "status 3"),
        ("simulator", "crash", True, "SIGKILL"),
        ("raises", "error", False, "RuntimeError: the kernel did not like it"),
        ("raises-odd-text", "error", False, "RuntimeError: half a letter: ?, and none: \ufffd"),
        ("hungry", "error", False, "MemoryError"),
        ("wrong-shape", "error", False, "dx is float32 [1, 1, 32, 1]; expected float32 [1, 1, 32,"),
        ("wrong-dtype", "error", False, "dx is float64"),
        ("missing", "error", False, "dbeta is missing; got dgamma, dx"),
        ("no-array", "error", False, "dx is a list"),
        ("no-mapping", "error", False, "returned list"),
        ("nan", "fail", False, ""),
        ("inf", "fail", False, ""),
        ("noisy", "pass", False, ""),
        ("scribble", "pass", False, ""),
        ("daemon", "pass", False, ""),
    ],
)
def test_a_bad_kernel_costs_only_the_seeds_it_is_bad_on(
    place: Workplace, build: str, verdict: str, is_fresh: bool, message: str
) -> None:
    work, began = [[0, 0], [2, 0], [1, 0]], time.time()  # it is bad on seed 2, between two others
    deadline_s = scaled(0.8 if verdict == "hang" else 20)
    answer = place.run(f"{build}-sometimes", 3, work=work, seed_deadline_s=deadline_s)
    bad = answer.failed(2, {0: "pass", 1: "pass", 2: verdict}, is_fresh=is_fresh)
    assert sorted(answer.end["sent"]) == answer.work == sorted(work)
    if message:
        assert (bad["outputs"], bad["explanation"]) == ({}, "not_judged")
        assert message in bad["message"]
    for content in answer.contents("log"):  # else the service refuses the whole batch
        assert is_text(content["text"], MAX_LONG_TEXT)
    if build in ("crash", "pipe-holder"):
        assert "about to " in answer.contents("log")[0]["text"]
    until(lambda: len(place.children(place.workers[0])) <= 2, what="the end of all but the spare")
    until(lambda: not litter_since(began), what="the end of what the kernel left")


def litter_since(began: float) -> list[psutil.Process]:
    every = psutil.process_iter(["cmdline", "create_time"])
    new = [process for process in every if process.info["create_time"] >= began]
    return [process for process in new if LITTER in " ".join(process.info["cmdline"] or [])]


def test_each_chunk_has_a_fresh_child(place: Workplace) -> None:
    first, second = (place.run("fine", 3) for _ in range(2))
    runs = [{row["host_run"] for row in answer.rows} for answer in (first, second)]
    assert len(runs[0]) == len(runs[1]) == 1
    assert runs[0] != runs[1]
    assert sorted(row["position"] for row in second.rows) == [0, 1, 2]


def test_a_context_runs_its_tests_first_in_every_child(place: Workplace) -> None:
    shapes = (("layernorm_fw", [4, 64]), ("layernorm_bw", [2, 32]))
    before = [{"kernel": kernel, "shape": shape} for kernel, shape in shapes]
    answer = place.run("fine", 3, context={"name": "after-two", "before": before})
    assert sorted(row["position"] for row in answer.rows) == [2, 3, 4]
    # right in a child's first run and wrong after another run
    alone, grouped = (
        place.run("stale-register", 1, executor="emulator", **context).rows[0]["outputs"]["dx"]
        for context in ({}, {"context": {"name": "grouped", "before": [TINY]}})
    )
    assert alone["digest"] != grouped["digest"]


def test_repeats_are_runs_of_their_own_with_equal_digests(place: Workplace) -> None:
    work = [[7, 0], [7, 1], [9, 0]]
    answer = place.run("correct", 2, executor="emulator", work=work)
    assert answer.work == work
    assert len({row["outputs"]["dx"]["digest"] for row in answer.rows if row["seed"] == 7}) == 1


def test_a_chunk_that_a_stranger_put_on_another_queue_is_not_answered(place: Workplace) -> None:
    """An answer would count as an attempt: after three the job ended as an error."""
    elsewhere = {"executor": "ttnn", "arch": "wormhole", "board": "n150"}
    targets: tuple[Any, ...] = (elsewhere, {"executor": ["ttnn"]}, None)
    moved = [place.publish("fine", 1, target=target) for target in targets]
    assert place.run("fine", 1).verdicts == {0: "pass"}
    assert [place.answer(attempt).finished for attempt in moved] == [None] * 3
    assert "and this worker has {'executor': 'troublesome'" in place.log()


L2NORM = {"kernel": "l2norm_fw", "shape": [64, 1024], "tolerance": {"rtol": 0.05}}
FOREIGN = "is not a build of layernorm_bw, only of groupnorm_fw"


@pytest.mark.parametrize(
    ("build", "changes", "error"),
    [
        ("half-groups", {"executor": "emulator"}, FOREIGN),
        ("correct", {"executor": "emulator", "reference": {"build": "half-groups"}}, FOREIGN),
        ("fine", {"reference": {"build": 7}}, "reference.build"),
        ("fine", {"test": {"kernel": "softmx", "shape": [3]}}, "softmx"),
        ("fine", {"test": {**L2NORM, "kernel": "l2norm_fx"}}, "did you mean 'l2norm_fw'"),
    ],
)
def test_a_chunk_that_makes_no_sense_is_answered_with_its_field(
    place: Workplace, build: str, changes: dict[str, Any], error: str
) -> None:
    answer = place.run(build, 1, **changes)
    assert (answer.end["outcome"], answer.rows) == ("error", [])
    assert error in answer.end["error"]


def test_executors_and_kernels_of_packages_serve_where_they_are_named(place: Workplace) -> None:
    answer = place.run("float32", 1, executor="numpy", arithmetic="fused")
    assert answer.verdicts == {0: "pass"}, answer.rows
    answer = place.run("without-tile-0/total", 2, executor="emulator", test=L2NORM)
    assert answer.verdicts == {0: "pass_by_tolerance", 1: "pass_by_tolerance"}, answer.rows


def test_a_build_need_not_produce_every_output(place: Workplace) -> None:
    answer = place.run("missing", 2, outputs=["dx", "dgamma"], arithmetic="fused")
    assert [set(row["outputs"]) for row in answer.rows] == [{"dx", "dgamma"}] * 2
    assert "tt-train" not in answer.rows[0]["arithmetic"]


def test_a_broker_can_only_wake(place: Workplace) -> None:
    name = queue.chunk_queue("troublesome", "wormhole", "n150")
    unknown = "01234567-89ab-cdef-0123-456789abcdef"
    for item in (b"", b"x" * 100_000, b'{"task": "celery.backend_cleanup"}', b"\xff\x00", unknown):
        place.redis.lpush(name, item)
    place.redis.lpush(name, place.publish("fine", 1))  # twice: it runs once
    other = place.publish("fine", 1, board="n300")
    place.redis.lpush(name, other)
    assert place.run("fine", 1).verdicts == {0: "pass"}
    log = place.log()
    assert f"the queue {name}: an item isn't the id of an attempt (1 dropped)" in log
    assert f"attempt {unknown} is not run here: the service refuses it (404)" in log
    assert f"attempt {other} is for" in log
    assert place.answer(other).finished is None
    place.redis.delete(queue.chunk_queue("troublesome", "wormhole", "n300"))


def test_what_the_service_refuses_becomes_an_error_of_its_seeds(place: Workplace) -> None:
    place.service.refusals.append(("results", 422))
    answer = place.run("fine", 3)
    assert answer.work == [[0, 0], [1, 0], [2, 0]]
    refused = [row["message"] for row in answer.rows if row["verdict"] == "error"]
    assert refused
    assert all("this can't be taken" in message for message in refused)
    assert list((place.folder / "spool").rglob("refused/*"))


@pytest.mark.parametrize("build", ["slow", "hang"])
def test_a_canceled_attempt_stops_within_five_seconds(place: Workplace, build: str) -> None:
    attempt = place.publish(build, 200, seed_deadline_s=10 * WAIT_S)
    place.beat(lambda body: body["attempt"] == attempt and body["stage"] == "running")
    begun = time.monotonic()
    place.cancel(attempt)
    answer = place.wait(attempt)
    assert time.monotonic() - begun < scaled(5)
    assert answer.end["outcome"] == "cancelled"
    assert sorted(answer.end["sent"]) == answer.work
    assert len(answer.rows) < 200
    assert place.run("fine", 1).verdicts == {0: "pass"}


def test_an_attempt_canceled_before_it_began_runs_nothing(place: Workplace) -> None:
    blocker = place.publish("slow", 5)
    attempt = place.publish("slow", 100)
    place.cancel(attempt)
    place.wait(blocker)
    assert place.run("fine", 1).verdicts == {0: "pass"}
    assert place.answer(attempt).rows == []
    assert f"attempt {attempt} is not run here: the service refuses it (410)" in place.log()


def test_a_gigabyte_of_prints_does_not_hold_the_kernel(place: Workplace) -> None:
    answer = place.run("gigabyte", 1)
    assert answer.verdicts == {0: "pass"}
    assert answer.rows[0]["duration_ms"] < scaled(15_000)
    assert len(answer.end["log_tail"]) <= 64 * 1024
    assert (
        answer.end["log_tail"].endswith("x\nthe last line\n")
        or "the last line" in answer.end["log_tail"]
    )


def test_the_token_never_reaches_the_log(place: Workplace) -> None:
    assert TOKEN not in (place.folder / "worker.log").read_text()
