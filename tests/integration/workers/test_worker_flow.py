"""A real worker on a real Redis sends a row for every seed, whatever the kernel does."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkout import PYTHONPATH, ROOT
from gonogo.spec.verdicts import JUDGE
from gonogo_workers import queue
from host_service import CLAIM, TOKEN
from patience import WAIT_S, scaled
from servers import RedisServer
from worker_process import HOST, TINY, Workplace


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer, example_site: Path
) -> Iterator[Workplace]:
    """One worker for the whole module, because a bad kernel must not spoil the next chunk."""
    place = Workplace(redis_server.url.removesuffix("/0") + "/5", tmp_path_factory.mktemp("worker"))
    path = os.pathsep.join((PYTHONPATH, str(ROOT / "tests/plugins"), str(example_site)))
    place.start("emulator,troublesome,numpy", PYTHONPATH=path, GONOGO_KERNELS="l2norm_fw")
    yield place
    place.close()


def test_a_wrong_kernel_within_the_tolerance_is_found_out_with_evidence(place: Workplace) -> None:
    answer = place.run(
        "tt-train-2025", 3, executor="emulator", test={**TINY, "shape": [1, 64, 1, 416]}
    )
    assert set(answer.verdicts.values()) == {"pass_by_tolerance"}
    assert answer.work == [[seed, 0] for seed in range(3)]
    assert answer.finished is not None
    assert answer.finished["outcome"] == "done"
    assert sorted(answer.finished["sent"]) == answer.work
    assert answer.finished["batches"] == answer.batches
    by_position = sorted(answer.rows, key=lambda row: row["position"])
    assert (
        [row["position"] for row in by_position]
        == [row["seed"] for row in by_position]
        == list(range(3))
    )
    assert len({row["host_run"] for row in answer.rows}) == 1
    assert all("tt-train" in row["arithmetic"] for row in answer.rows)
    assert set(answer.rows[0]["outputs"]) == {"dx", "dgamma", "dbeta"}
    assert {row["judge"].partition(":")[0] for row in answer.rows} == {JUDGE}
    assert "s1" in answer.rows[0]["outputs"]["dx"]["fault"]
    assert answer.rows[0]["outputs"]["dx"]["rounding_ratio"] > 2
    # Artifacts of the first seed judged and of the worst other one
    seeds = {artifact["seed"] for artifact in answer.artifacts}
    assert len(seeds) == 2
    for seed in seeds:
        seed_artifacts = [artifact for artifact in answer.artifacts if artifact["seed"] == seed]
        assert sorted((artifact["kind"], artifact["output"]) for artifact in seed_artifacts) == [
            ("error_map", "dbeta"),
            ("error_map", "dgamma"),
            ("error_map", "dx"),
        ]


def test_a_claim_comes_first_and_heartbeats_say_what_is_served(place: Workplace) -> None:
    attempt = place.publish("slow", 12)
    started = place.beat(lambda body: body["attempt"] == attempt, task=CLAIM)
    assert started["device"].endswith("/troublesome:0")
    # one with the stage `starting`, or without a seed yet, may come before
    busy = place.beat(
        lambda body: (
            body["attempt"] == attempt and body["stage"] == "running" and body["seed"] is not None
        )
    )
    assert busy["seed"] in range(12)
    assert busy["queues"] == [
        f"{name}.wormhole.n150" for name in ("emulator", "troublesome", "numpy")
    ]
    answer = place.wait(attempt)
    assert answer.rows[0]["device"] == started["device"]
    idle = place.beat(lambda body: body["attempt"] is None)
    assert (idle["stage"], idle["seed"]) == ("idle", None)


@pytest.mark.parametrize(
    ("build", "verdict", "fresh"),
    [
        ("hang", "hang", True),
        ("stubborn-hang", "hang", True),
        ("crash", "crash", True),
        ("exit", "crash", True),
        ("garbage", "crash", True),
        ("endless-noise", "hang", True),
        ("raises", "error", False),
        ("wrong-shape", "error", False),
        ("wrong-dtype", "error", False),
        ("missing", "error", False),
        ("no-array", "error", False),
        ("nan", "fail", False),
        ("inf", "fail", False),
        ("noisy", "pass", False),
        ("scribble", "pass", False),
        ("daemon", "pass", False),
    ],
)
def test_a_bad_kernel_costs_only_the_seeds_it_is_bad_on(
    place: Workplace, build: str, verdict: str, fresh: bool
) -> None:
    # The plug-in misbehaves where the first x of the seed is positive: seed 2, between two others
    work = [[0, 0], [2, 0], [1, 0]]
    answer = place.run(f"{build}-sometimes", 3, work=work, seed_deadline_s=scaled(0.8))
    bad = {2}
    assert answer.verdicts == {0: "pass", 1: "pass", 2: verdict}, place.log()
    assert answer.finished is not None
    assert answer.finished["outcome"] == "done"
    assert sorted(answer.finished["sent"]) == answer.work == sorted(work)
    assert len({row["host_run"] for row in answer.rows}) == (2 if fresh else 1)
    for row in answer.rows:
        if verdict in ("hang", "crash", "error") and row["seed"] in bad:
            assert row["outputs"] == {}
            assert row["explanation"] == "not_judged"
            assert row["message"]
    if build == "crash":
        logs = [
            artifact["content"]["text"]
            for artifact in answer.artifacts
            if artifact["kind"] == "log"
        ]
        assert "about to crash" in logs[0]
    # Nothing but the spare child lives on
    worker = place.workers[0]
    deadline = time.monotonic() + WAIT_S
    while len(place.children(worker)) > 2:
        assert time.monotonic() < deadline, place.children(worker)
        time.sleep(0.05)


def test_each_chunk_has_a_fresh_child(place: Workplace) -> None:
    first, second = (place.run("fine", 3) for _ in range(2))
    runs = [{row["host_run"] for row in answer.rows} for answer in (first, second)]
    assert len(runs[0]) == len(runs[1]) == 1
    assert runs[0] != runs[1]
    assert sorted(row["position"] for row in second.rows) == [0, 1, 2]


def test_a_context_runs_its_tests_first_in_every_child(place: Workplace) -> None:
    context = {
        "name": "after-two",
        "before": [
            {"kernel": "layernorm_fw", "shape": [4, 64]},
            {"kernel": "layernorm_bw", "shape": [2, 32]},
        ],
    }
    answer = place.run("fine", 3, context=context)
    assert sorted(row["position"] for row in answer.rows) == [2, 3, 4]
    # The build stale-register is right in a child's first run and wrong after another run
    alone = place.run("stale-register", 1, executor="emulator")
    grouped = place.run(
        "stale-register", 1, executor="emulator", context={"name": "grouped", "before": [TINY]}
    )
    assert alone.rows[0]["outputs"]["dx"]["digest"] != grouped.rows[0]["outputs"]["dx"]["digest"]


def test_repeats_are_runs_of_their_own_with_equal_digests(place: Workplace) -> None:
    answer = place.run("correct", 2, executor="emulator", work=[[7, 0], [7, 1], [9, 0]])
    assert answer.work == [[7, 0], [7, 1], [9, 0]]
    assert [row["outputs"]["dx"]["digest"] for row in answer.rows if row["seed"] == 7][0:1] * 2 == [
        row["outputs"]["dx"]["digest"] for row in answer.rows if row["seed"] == 7
    ]


def test_an_unknown_build_is_an_error_of_every_seed(place: Workplace) -> None:
    answer = place.run("nonsense", 3)
    assert set(answer.verdicts.values()) == {"error"}
    assert "unknown build" in answer.rows[0]["message"]
    assert len(answer.rows) == 3


def test_a_chunk_that_a_stranger_put_on_another_queue_is_not_answered(place: Workplace) -> None:
    """An answer would count as an attempt: after three the job ended as an error."""
    targets: tuple[Any, ...] = (
        {"executor": "ttnn", "arch": "wormhole", "board": "n150"},
        {"executor": ["ttnn"]},
        None,
    )
    moved = [place.publish("fine", 1, target=target) for target in targets]
    assert place.run("fine", 1).verdicts == {0: "pass"}
    assert [place.answer(attempt).finished for attempt in moved] == [None] * 3
    assert "and this worker has {'executor': 'troublesome'" in place.log()


def test_a_build_of_another_kernel_ends_the_chunk_with_the_builds_that_belong(
    place: Workplace,
) -> None:
    for named in (
        {"build": "half-groups"},
        {"build": "correct", "reference": {"build": "half-groups"}},
    ):
        answer = place.run(named.pop("build"), 1, executor="emulator", **named)
        assert answer.finished is not None
        assert answer.finished["outcome"] == "error"
        assert "is not a build of layernorm_bw, only of groupnorm_fw" in answer.finished["error"]
        assert answer.rows == []


def test_an_executor_of_a_package_serves_where_the_command_names_it(place: Workplace) -> None:
    answer = place.run("float32", 1, executor="numpy", arithmetic="fused")
    assert answer.verdicts == {0: "pass"}, answer.rows


def test_a_kernel_of_a_package_runs_where_the_setting_allows_it(place: Workplace) -> None:
    test = {"kernel": "l2norm_fw", "shape": [64, 1024], "tolerance": {"rtol": 0.05}}
    answer = place.run("without-tile-0/total", 2, executor="emulator", test=test)
    assert answer.verdicts == {0: "pass_by_tolerance", 1: "pass_by_tolerance"}, answer.rows
    unknown = {**test, "kernel": "l2norm_fx"}
    refused = place.run("correct", 1, executor="emulator", test=unknown)
    assert refused.finished is not None
    assert "test.kernel: unknown value; did you mean 'l2norm_fw'" in refused.finished["error"]


def test_a_build_need_not_produce_every_output(place: Workplace) -> None:
    answer = place.run("missing", 2, outputs=["dx", "dgamma"], arithmetic="fused")
    assert [set(row["outputs"]) for row in answer.rows] == [{"dx", "dgamma"}] * 2
    assert "tt-train" not in answer.rows[0]["arithmetic"]


def test_a_chunk_that_makes_no_sense_is_answered(place: Workplace) -> None:
    answer = place.run("fine", 2, test={"kernel": "softmx", "shape": [3]})
    assert answer.finished is not None
    assert answer.finished["outcome"] == "error"
    assert "softmx" in answer.finished["error"]


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


def test_a_drained_device_hands_its_work_back_and_takes_more_after_it(place: Workplace) -> None:
    device = f"{HOST}/troublesome:0"
    attempt = place.publish("slow", 200)
    place.beat(lambda body: body["attempt"] == attempt and body["stage"] == "running")
    place.order(device, "drain")
    answer = place.wait(attempt)
    assert answer.finished is not None
    assert answer.finished["outcome"] == "handed_back"
    waits = place.publish("fine", 1)
    place.order(device, "work")
    assert place.wait(waits).verdicts == {0: "pass"}


def test_what_the_service_refuses_becomes_an_error_of_its_seeds(place: Workplace) -> None:
    place.service.refusals.append(("results", 422))
    answer = place.run("fine", 3)
    assert answer.work == [[0, 0], [1, 0], [2, 0]]
    refused = [row for row in answer.rows if row["verdict"] == "error"]
    assert refused
    assert all("this can't be taken" in row["message"] for row in refused)
    assert list((place.folder / "spool").rglob("refused/*"))


@pytest.mark.parametrize("build", ["slow", "hang", "stubborn-hang"])
def test_a_cancelled_attempt_stops_within_five_seconds(place: Workplace, build: str) -> None:
    attempt = place.publish(build, 200, seed_deadline_s=10 * WAIT_S)
    place.beat(lambda body: body["attempt"] == attempt and body["stage"] == "running")
    begun = time.monotonic()
    place.cancel(attempt)
    answer = place.wait(attempt)
    assert time.monotonic() - begun < scaled(5)
    assert answer.finished is not None
    assert answer.finished["outcome"] == "cancelled"
    assert sorted(answer.finished["sent"]) == answer.work
    assert len(answer.rows) < 200
    assert place.run("fine", 1).verdicts == {0: "pass"}


def test_an_attempt_cancelled_before_it_began_runs_nothing(place: Workplace) -> None:
    blocker = place.publish("slow", 5)
    attempt = place.publish("slow", 100)
    place.cancel(attempt)
    place.wait(blocker)
    assert place.run("fine", 1).verdicts == {0: "pass"}
    assert place.answer(attempt).rows == []
    assert f"attempt {attempt} is not run here: the service refuses it (410)" in place.log()


def test_the_token_never_reaches_the_log(place: Workplace) -> None:
    assert TOKEN not in (place.folder / "worker.log").read_text()


def test_a_card_that_its_program_does_not_replay_accuses_nobody(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """Its last canary said so; NaN is wrong on any card."""
    reason = "the card isn't known well enough"
    ledger = {
        "subject": {"build": "correct", "firmware": {}},
        "replay": "9 %",
        "unreplayed": reason,
    }
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/emulator-0.canary").write_text(json.dumps(ledger))
    place = Workplace(redis_server.url.removesuffix("/0") + "/6", tmp_path)
    try:
        place.start("emulator")
        wrong = place.run("tt-train-2025", 1, executor="emulator").rows[0]
        nan = place.run("nan-tile", 1, executor="emulator").rows[0]
    finally:
        place.close()
    assert wrong["verdict"] == "inconclusive"
    assert wrong["outputs"]["dx"]["reason"] == reason
    assert wrong["outputs"]["dgamma"]["explanation"] == "explained"
    assert nan["verdict"] == "fail"
