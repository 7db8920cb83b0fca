"""A chunk with a reference build on a real worker: both builds run, and a fault of the reference
never counts against the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patience import WAIT_S, scaled
from servers import RedisServer
from torch_interpreter import builds_file
from worker_process import TINY, Answer, Workplace


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer
) -> Iterator[Workplace]:
    place = Workplace(
        redis_server.url.removesuffix("/0") + "/6", tmp_path_factory.mktemp("references")
    )
    place.start()
    yield place
    place.close()


def against(place: Workplace, build: str, reference: str, seeds: int = 4, **options: Any) -> Answer:
    return place.run(build, seeds, reference={"build": reference}, **options)


def test_two_builds_of_the_emulator_are_compared_seed_by_seed(place: Workplace) -> None:
    answer = against(
        place,
        "tt-train-2025",
        "correct",
        2,
        executor="emulator",
        test={**TINY, "shape": [1, 64, 1, 416]},
    )
    assert set(answer.verdicts.values()) == {"pass_by_tolerance"}
    for row in answer.rows:
        dx = row["outputs"]["dx"]["reference"]
        assert (dx["build"], dx["explanation"], dx["within"]) == ("correct", "explained", True)
        assert row["outputs"]["dx"]["explanation"] == "unexplained"
        assert row["outputs"]["dgamma"]["reference"]["max_abs"] == 0
        assert "dx: rounding explains correct, not this build" in row["message"]
    # The reference runs in other child processes, so the kernel's positions start at 0
    assert sorted(row["position"] for row in answer.rows) == [0, 1]
    assert len({row["host_run"] for row in answer.rows}) == 1


def test_a_build_is_like_itself(place: Workplace) -> None:
    answer = against(place, "fine", "fine", repeats=1)
    assert set(answer.verdicts.values()) == {"pass"}
    assert all(
        output["reference"]["mismatch_fraction"] == 0
        for row in answer.rows
        for output in row["outputs"].values()
    )
    assert not any(row.get("message") for row in answer.rows)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hang-sometimes", "no answer within LIMIT s"),
        ("crash-sometimes", "SIGSEGV"),
        ("raises-sometimes", "raise"),
        ("missing-sometimes", "missing"),
    ],
)
def test_what_the_reference_does_wrong_is_an_error_that_names_it(
    place: Workplace, reference: str, message: str
) -> None:
    # seed 2 is the bad one; another follows in a fresh child
    work = [[0, 0], [2, 0], [1, 0]]
    answer = against(place, "fine", reference, 3, work=work, seed_deadline_s=scaled(1))
    assert answer.finished is not None
    assert answer.finished["outcome"] == "done"
    assert answer.work == sorted(work)
    assert answer.verdicts == {0: "pass", 1: "pass", 2: "error"}
    for row in answer.rows:
        if row["verdict"] == "error":
            assert row["outputs"] == {}
            assert row["message"].startswith(f"reference build {reference}: ")
            expected = message.replace("LIMIT", f"{scaled(1):g}").lower()
            assert expected in row["message"].lower()
        else:
            assert row["outputs"]["dx"]["reference"]["explanation"] == "explained"


def test_a_reference_that_does_not_exist_fails_every_seed_with_its_name(place: Workplace) -> None:
    answer = against(place, "fine", "nothing")
    assert set(answer.verdicts.values()) == {"error"}
    assert all("reference build nothing: can't be run" in row["message"] for row in answer.rows)


def test_what_the_kernel_does_wrong_stays_the_kernels(place: Workplace) -> None:
    work = [[1, 0], [2, 0]]
    for build, verdict in (("crash-sometimes", "crash"), ("nan-sometimes", "fail")):
        answer = against(place, build, "fine", work=work)
        assert answer.verdicts == {1: "pass", 2: verdict}


def test_repeats_are_compared_with_one_run_of_the_reference(place: Workplace) -> None:
    work = [[seed, repeat] for seed in range(2) for repeat in range(3)]
    answer = against(place, "fine", "fine", work=work)
    assert answer.work == work
    assert set(answer.verdicts.values()) == {"pass"}


def test_a_cancel_ends_a_reference_that_hangs(place: Workplace) -> None:
    attempt = place.publish("fine", 2, reference={"build": "hang"}, seed_deadline_s=10 * WAIT_S)
    place.beat(lambda body: body["attempt"] == attempt and body["stage"] == "reference")
    place.cancel(attempt)
    answer = place.wait(attempt)
    assert answer.finished is not None
    assert answer.finished["outcome"] == "cancelled"
    assert answer.rows == []
    assert set(place.run("fine", 2).verdicts.values()) == {"pass"}


def test_a_message_with_a_wrong_reference_is_answered_with_its_field(place: Workplace) -> None:
    answer = place.run("fine", 1, reference={"build": 7})
    assert answer.finished is not None
    assert answer.finished["outcome"] == "error"
    assert "reference.build" in answer.finished["error"]


@pytest.mark.slow
def test_torch_builds_are_compared_on_a_worker(tmp_path: Path, redis_server: RedisServer) -> None:
    file = builds_file(tmp_path)
    place = Workplace(redis_server.url.removesuffix("/0") + "/7", tmp_path)
    try:
        place.start("torch", GONOGO_BUILDS=file)
        test = {
            "kernel": "layernorm_fw",
            "shape": [4, 256, 128],
            "tolerance": {"rtol": 1.6e-2, "atol": 1e-5},
        }
        answer = against(
            place, "torch-eager-linear", "torch-decomposed-linear", 3, executor="torch", test=test
        )
        assert set(answer.verdicts.values()) == {"pass"}
        for row in answer.rows:
            assert row["arithmetic"] == "blocked sums"  # found: the build declares none
            assert set(row["outputs"]) == {"y", "mean", "rstd", "linear"}
            assert row["outputs"]["linear"]["reference"]["explanation"] == "not_judged"
        changed = max(row["outputs"]["linear"]["reference"]["max_abs"] for row in answer.rows)
        assert changed > 10 * 2.0**-8
    finally:
        place.close()
